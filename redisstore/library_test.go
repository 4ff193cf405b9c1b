package redisstore

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
)

// TestOffsetsAreComparedByteByByte holds the script's comparison against that of fsm, about where
// its steps begin and end.
func TestOffsetsAreComparedByteByByte(t *testing.T) {
	t.Parallel()
	client, closeClient, err := connectWithin(patient, EmptyRedis(t).URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = closeClient() }()
	after := redis.NewScript(WithLibrary(Library(), "return after(ARGV[A], ARGV[A + 1]) and 1 or 0"))
	offsets := []string{"", "-1", "-", "-0", "\x00", "\xff", "a", "B", "_"}
	for _, n := range []int{1, 15, 16, 17, 31, 32, 33} {
		for _, end := range []string{"", "0", "1", "\x00", "\x7f", "\xff", "_2", "2_"} {
			offsets = append(offsets, strings.Repeat("0", n)+end)
		}
	}
	for _, a := range offsets {
		for _, b := range offsets {
			got, err := after.Run(t.Context(), client, []string{"rv:{0}:", "rv:{0}:~"}, 1, 1, 1, 1, 1, "", "", 0, a, b,
				0, 0).Bool()
			if err != nil {
				t.Fatal(err)
			}
			if want := fsm.Offset(a).After(fsm.Offset(b)); got != want {
				t.Errorf("%q lies beyond %q: %v, want %v", a, b, got, want)
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
	lasts := []string{"last_a, last_b, last", "profiles, profiles_read", "run_id"}
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
