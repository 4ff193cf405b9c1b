package redisstore

import (
	"context"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
	"reveille/test/harness"
)

// libraryClient returns a client of an empty server.
func libraryClient(t *testing.T) redis.UniversalClient {
	t.Helper()
	client, closeClient, err := connectWithin(patient, EmptyRedis(t).URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closeClient() })
	return client
}

// inLibrary runs a text with the library.
func inLibrary(t *testing.T, client redis.UniversalClient, text string, args ...any) *redis.Cmd {
	t.Helper()
	args = append([]any{"1 1 1 1 1 0 ", "", 0, 0}, args...)
	keys := []string{"rv:{0}:", "rv:{0}:~"}
	return redis.NewScript(WithLibrary(Library(), text)).Run(t.Context(), client, keys, args...)
}

// TestOffsetsAreComparedByteByByte holds the script's comparison against that of fsm, about where
// its steps begin and end.
func TestOffsetsAreComparedByteByByte(t *testing.T) {
	t.Parallel()
	client := libraryClient(t)
	offsets := []string{"", "-1", "-", "-0", "\x00", "\xff", "a", "B", "_"}
	for _, n := range []int{1, 15, 16, 17, 31, 32, 33} {
		for _, end := range []string{"", "0", "1", "\x00", "\x7f", "\xff", "_2", "2_"} {
			offsets = append(offsets, strings.Repeat("0", n)+end)
		}
	}
	for _, a := range offsets {
		for _, b := range offsets {
			got, err := inLibrary(t, client, "return after(ARGV[A], ARGV[A + 1]) and 1 or 0", a, b).Bool()
			if err != nil {
				t.Fatal(err)
			}
			if want := fsm.Offset(a).After(fsm.Offset(b)); got != want {
				t.Errorf("%q lies beyond %q: %v, want %v", a, b, got, want)
			}
		}
	}
}

// TestTheLibraryKeepsAThousandProfiles holds that what it keeps from call to call is bounded, and that a profile is
// read right whether it is kept or not.
func TestTheLibraryKeepsAThousandProfiles(t *testing.T) {
	t.Parallel()
	kept, err := inLibrary(t, libraryClient(t), `
		local most = 0
		for i = 1, 2500 do
			for _ = 1, 2 do
				local attempt, lasting, delays = profile_of({ profile = i .. ',1,7,' .. i })
				if attempt ~= i or not lasting or #delays ~= 2 or delays[2] ~= i then return -i end
			end
			local n = 0
			for _ in pairs(profiles) do n = n + 1 end
			most = math.max(most, n)
		end
		return most`).Int()
	if err != nil || kept != 1000 {
		t.Errorf("%d profiles are kept at most, %v; a negative one was read wrong", kept, err)
	}
}

// TestAScriptWithNoWritesWritesNothing holds that neither such a script nor what it calls of the library has a command
// that writes. The end of every script writes the watermark, but only if something was touched.
func TestAScriptWithNoWritesWritesNothing(t *testing.T) {
	t.Parallel()
	commands, err := libraryClient(t).Command(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	functions := map[string]string{}
	for _, text := range strings.Split(Library(), "\nlocal function ") {
		name, _, _ := strings.Cut(text, "(")
		functions[name] = text
	}
	word := regexp.MustCompile(`'([A-Z]+)'`)
	called := regexp.MustCompile(`([a-z_]+)\(`)
	passed := regexp.MustCompile(`(?:look|apart|current)\(([a-z_]+)`)
	for _, sc := range scripts {
		if sc.flag != noWrites {
			continue
		}
		seen, todo := map[string]bool{"watermark": true}, []string{functions["begin_call"], source(sc.name)}
		for ; len(todo) > 0; todo = todo[1:] {
			for _, found := range word.FindAllStringSubmatch(todo[0], -1) {
				info := commands[strings.ToLower(found[1])]
				if info != nil && slices.Contains(info.Flags, "write") {
					t.Errorf("%s comes to %s in %.40q", sc.name, found[1], todo[0])
				}
			}
			if strings.Contains(todo[0], "touched = true") {
				t.Errorf("%s touches something in %.40q", sc.name, todo[0])
			}
			all := append(called.FindAllStringSubmatch(todo[0], -1), passed.FindAllStringSubmatch(todo[0], -1)...)
			for _, found := range all {
				if text, there := functions[found[1]]; there && !seen[found[1]] {
					seen[found[1]], todo = true, append(todo, text)
				}
			}
		}
	}
}

// TestTheLuaIsClean holds that no script uses what is not there, or has what it does not use.
func TestTheLuaIsClean(t *testing.T) {
	const global, unused = "1", "2"
	_, library, _ := strings.Cut(ownFunctions().text, "\n")
	check := func(name, text string, kinds ...string) {
		t.Helper()
		args := append([]string{
			"--no-color", "--codes", "--std", "lua51", "--globals", "redis", "cjson", "KEYS", "ARGV",
			"--filename", name, "-", "--only",
		}, kinds...)
		cmd := exec.CommandContext(t.Context(), "luacheck", args...)
		cmd.Stdin = strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("luacheck (make deps installs it): %v\n%s", err, out)
		}
	}
	check("the library", library, global, unused, "3", "511")
	for _, s := range scripts {
		if !s.partitioned { // such a script has in front what its kind may use
			check(s.name, s.text(), global)
		}
	}
}

// TestACallBeginsAnew holds that begin_call sets what calls change: a server with functions keeps it.
func TestACallBeginsAnew(t *testing.T) {
	lasts := []string{"last_a, last_b, last", "last_settings, last_now", "profiles, profiles_read", "run_id"}
	text := Library()
	_, begins, _ := strings.Cut(text, "\nlocal function begin_call(")
	begins, _, _ = strings.Cut(begins, "\nend\n")
	set := regexp.MustCompile(`\w+`).FindAllString(begins, -1)
	declared := regexp.MustCompile(`(?m)^local ([\w, ]+)( = .*)?$`)
	for _, m := range declared.FindAllStringSubmatch(text, -1) {
		names, constant := m[1], m[2] != ""
		for _, name := range strings.Split(names, ", ") {
			assigned := regexp.MustCompile(`(?m)^ +(\w+, )*` + name + `(, \w+)* = `).MatchString(text)
			if !slices.Contains(lasts, names) && (assigned || !constant) && !slices.Contains(set, name) {
				t.Errorf("begin_call does not set %s", name)
			}
		}
	}
}

// played returns what a script of a partition replies.
func played(t *testing.T, script string) []any {
	t.Helper()
	client, closeClient, err := Connect(Embedded, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closeClient() })
	v, err := client.Eval(t.Context(), WithLibrary(Library(), script), []string{"rv:{0}:", "rv:{0}:~"},
		"-1 10000 45000 30000 1000 0 "+Embedded, "nonce", 0, 0).Slice()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestACallHasOneTime holds that a call has the time of when it first asked, although the clock goes on.
func TestACallHasOneTime(t *testing.T) {
	got := played(t, `
local at, began = micros(), redis.call('TIME')[2]
repeat until redis.call('TIME')[2] ~= began
return reply(int(micros() - at), int(now() - math.floor(at / 1000)))`)
	if len(got) != 4 || got[2] != "0" || got[3] != "0" {
		t.Errorf("the time has moved: %v", got)
	}
}

// TestAnErrorWithOneConsumerTakesBackItsDeliveries holds that nothing is sent for a consumer that was not saved. What
// else was told stands, and so do the deliveries of others.
func TestAnErrorWithOneConsumerTakesBackItsDeliveries(t *testing.T) {
	got := played(t, `
apart(function() tell('delivery', 'a') end, 'a')
apart(function()
  tell('idle', '/b')
  tell('delivery', 'b')
  tell('ended', 'b')
  error('attempt to fail')
end, 'b')
return reply()`)
	want := []any{[]any{"delivery", "a"}, []any{"idle", "/b"}, []any{"ended", "b"}}
	told, _ := got[1].([]any)
	if len(told) != 4 || !reflect.DeepEqual(told[:3], want) || told[3].([]any)[0] != "quarantined" {
		t.Errorf("it tells %v", told)
	}
}

func TestAScriptBeginsWithTheConstants(t *testing.T) {
	if got := withConstants("return 1"); got != "return 1" {
		t.Errorf("a script without constants is %q", got)
	}
	text := withConstants("return FSM.VERSIONS")
	if !strings.HasPrefix(text, "local FSM = { VERSIONS = 2048, ") || strings.Contains(text, "\n") {
		t.Errorf("it is %q", text)
	}
	var all strings.Builder
	all.WriteString(Library())
	for _, s := range scripts {
		all.WriteString(s.text())
	}
	for _, c := range constants {
		if !strings.Contains(all.String(), "FSM."+c.name) {
			t.Errorf("no script uses %s", c.name)
		}
	}
}

// steps are the commands of a call if a server has neither function nor text, and takes no library.
var steps = []string{"fcall", "function", "evalsha", "eval"}

// timed notes the deadlines of steps, and calls something before each.
type timed struct {
	mu        sync.Mutex
	commands  []string
	deadlines []time.Time
	before    func(command string)
}

func (h *timed) note(ctx context.Context, command string) {
	if !slices.Contains(steps, command) { // a new connection's own
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	at, _ := ctx.Deadline()
	h.commands, h.deadlines = append(h.commands, command), append(h.deadlines, at)
	h.before(command)
}

// DialHook implements redis.Hook.
func (*timed) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (h *timed) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.note(ctx, cmd.Name())
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (h *timed) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.note(ctx, cmds[0].Name())
		return next(ctx, cmds)
	}
}

// TestAllStepsOfACallHaveTheTimeOfOne holds that they end together, counted from the first one.
func TestAllStepsOfACallHaveTheTimeOfOne(t *testing.T) {
	t.Parallel()
	hangs := patient
	hangs.all = 100 * time.Millisecond // how long the library waits for a server that hangs
	single := func(ctx context.Context, s *Store) error { _, _, err := s.ScanStreams(ctx, 0, "0"); return err }
	many := func(ctx context.Context, s *Store) error {
		_, err := s.TallyConsumers(ctx, []fsm.Subscription{{ID: "s"}})
		return err
	}
	full := func(t *testing.T, server *harness.Redis) {
		if err := server.Client().ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		within limits
		call   func(context.Context, *Store) error
		// library happens before the library is sent, and text before the texts are.
		library, text func(*testing.T, *harness.Redis)
	}{
		"the server hangs when it gets the library": {
			hangs, single,
			func(_ *testing.T, server *harness.Redis) { server.Pause() },
			func(_ *testing.T, server *harness.Redis) { server.Resume() },
		},
		"the server is full":                  {within: patient, call: single, library: full},
		"the server is full, with a pipeline": {within: patient, call: many, library: full},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := harness.StartRedis(t)
			client, closeClient, err := connectWithin(patient, server.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = closeClient() }()
			var began time.Time
			h := &timed{before: func(command string) {
				switch {
				case command == "fcall":
					began = time.Now()
				case command == "function":
					tt.library(t, server)
				case command == "evalsha" && tt.text != nil:
					tt.text(t, server)
				}
			}}
			client.AddHook(h)
			if err := tt.call(t.Context(), New(client, Options{Partitions: 1, limits: tt.within})); err != nil {
				t.Error(err)
			}
			if !slices.Equal(h.commands, steps) {
				t.Errorf("it sent %q, want %q", h.commands, steps)
			}
			for i, at := range h.deadlines {
				if i > 0 && (at.IsZero() || at.After(began.Add(patient.call))) {
					t.Errorf("%s ends %s after the call began", h.commands[i], at.Sub(began))
				}
			}
		})
	}
}
