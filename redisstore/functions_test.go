package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"reveille/fsm"
	"reveille/redisstore"
	"reveille/test/harness"
)

// commandStat is how often a server has carried out a command without an error.
func commandStat(t *testing.T, server *harness.Redis, command string) (n int) {
	t.Helper()
	info := must[string](t)(server.Client().Info(t.Context(), "commandstats").Result())
	for line := range strings.Lines(info) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_"+command+":"); ok {
			var calls, failed int
			fields := strings.Split(strings.TrimSpace(rest), ",")
			for _, f := range fields {
				name, value, _ := strings.Cut(f, "=")
				switch name {
				case "calls":
					calls = must[int](t)(strconv.Atoi(value))
				case "failed_calls":
					failed = must[int](t)(strconv.Atoi(value))
				}
			}
			n = calls - failed // calls that were rejected are none
		}
	}
	return n
}

// TestAServerThatTakesNoFunctionsGetsEachScript holds that any server works, and which way the scripts go.
func TestAServerThatTakesNoFunctionsGetsEachScript(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args, rules []string
		refuses     bool
	}{
		"a server with functions": {},
		"one without FUNCTION":    {args: []string{"--rename-command", "FUNCTION", ""}, refuses: true},
		"one without FCALL":       {args: []string{"--rename-command", "FCALL", ""}, refuses: true},
		"a user without FUNCTION": {rules: []string{"-function"}, refuses: true},
		"a user without FCALL":    {rules: []string{"-fcall"}, refuses: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := harness.StartRedis(t, tt.args...)
			args := []any{"ACL", "SETUSER", "reveille", "on", ">secret", "~*", "&*", "+@all"}
			for _, rule := range tt.rules {
				args = append(args, rule)
			}
			if err := server.Client().Do(t.Context(), args...).Err(); err != nil {
				t.Fatal(err)
			}
			core, logs := observer.New(zap.InfoLevel)
			w := openWith(t, strings.Replace(server.URL, "://", "://reveille:secret@", 1), nil,
				redisstore.Options{Partitions: 1, Logger: zap.New(core)})
			ctx, sub := t.Context(), subscription("s")
			must[fsm.Outcome](t)(w.Link(ctx, sub, "/a", fsm.Start, ""))
			if seen := must[fsm.Observation](t)(w.Observe(ctx, 0, "/a", "0", false)); len(seen.Deliveries) != 1 {
				t.Errorf("observed %+v", seen)
			}
			must[[]fsm.Tally](t)(w.TallyConsumers(ctx, []fsm.Subscription{sub})) // in a pipeline
			noted, want := logs.FilterMessageSnippet("redis takes no functions").Len(), 0
			if tt.refuses {
				want = 1
			}
			if called := commandStat(t, server, "fcall"); noted != want || (called > 0) == tt.refuses {
				t.Errorf("it was noted %d times, and %d functions were carried out", noted, called)
			}
		})
	}
}

// keeper is a Redis that keeps functions: a server, or a cluster of masters.
type keeper struct {
	name, url string
	nodes     []*harness.Redis
}

func keepers(t *testing.T) []keeper {
	t.Helper()
	server, cluster := redisstore.EmptyRedis(t), redisstore.EmptyCluster(t)
	return []keeper{
		{"one server", server.URL, []*harness.Redis{server}},
		{"a cluster", cluster.URL, cluster.Nodes},
	}
}

// TestWhatAServerForgetsIsGivenToItAgain holds that neither FLUSH stops anything, for single calls and for many.
func TestWhatAServerForgetsIsGivenToItAgain(t *testing.T) {
	t.Parallel()
	for _, tt := range keepers(t) {
		w, ctx, sub := open(t, tt.url, 16), t.Context(), subscription("s")
		flush := func() {
			for _, n := range tt.nodes {
				if err := n.Client().ScriptFlush(ctx).Err(); err != nil {
					t.Fatal(err)
				}
				if err := n.Client().FunctionFlush(ctx).Err(); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i := range 16 {
			path := fmt.Sprint("/", i)
			must[fsm.Outcome](t)(w.Link(ctx, sub, path, fsm.Start, ""))
			flush()
			p := w.PartitionOf(path)
			if seen := must[fsm.Observation](t)(w.Observe(ctx, p, path, "0", false)); len(seen.Deliveries) != 1 {
				t.Errorf("%s: observed %+v", tt.name, seen)
			}
			flush()
		}
		if is := must[[]fsm.Tally](t)(w.TallyConsumers(ctx, []fsm.Subscription{sub}))[0]; is.Waking != 16 {
			t.Errorf("%s: counted %+v", tt.name, is)
		}
	}
}

// TestOnlyTheFunctionsOfOtherVersionsAreDropped holds that what an update leaves goes, and nobody else's.
func TestOnlyTheFunctionsOfOtherVersionsAreDropped(t *testing.T) {
	t.Parallel()
	for _, tt := range keepers(t) {
		w, ctx := open(t, tt.url, 16), t.Context()
		for i := range 16 {
			must[fsm.Outcome](t)(w.Link(ctx, subscription("s"), fmt.Sprint("/", i), fsm.Start, ""))
		}
		for _, n := range tt.nodes {
			for _, name := range []string{otherVersion, "reveille_stats", "theirs"} {
				if err := n.Client().FunctionLoad(ctx, fmt.Sprintf(
					"#!lua name=%[1]s\nredis.register_function('%[1]s_f', function() return 1 end)", name,
				)).Err(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := w.DropOtherFunctions(ctx); err != nil {
			t.Fatal(err)
		}
		for _, n := range tt.nodes {
			names := libraries(t, n.Client())
			if want := []string{redisstore.FunctionsName(), "reveille_stats", "theirs"}; !slices.Equal(names, want) {
				t.Errorf("%s: it has %q, want %q", tt.name, names, want)
			}
		}
	}
}

// libraries are the names of the libraries that a server has.
func libraries(t *testing.T, server *redis.Client) (names []string) {
	t.Helper()
	all := server.FunctionList(t.Context(), redis.FunctionListQuery{})
	for _, l := range must[[]redis.Library](t)(all.Result()) {
		names = append(names, l.Name)
	}
	slices.Sort(names)
	return names
}

// otherVersion is the name of the library of another version.
const otherVersion = "reveille_0123456789abcdef"

// asOtherVersion has a client send the functions of this version as those of another one.
func asOtherVersion(_ context.Context, cmds ...redis.Cmder) error {
	for _, cmd := range cmds {
		for i, arg := range cmd.Args() {
			if text, ok := arg.(string); ok {
				cmd.Args()[i] = strings.ReplaceAll(text, redisstore.FunctionsName(), otherVersion)
			}
		}
	}
	return nil
}

// twoVersions returns stores of two versions on one server.
func twoVersions(t *testing.T, partitions int) (server *harness.Redis, ours, theirs *world) {
	t.Helper()
	server = redisstore.EmptyRedis(t)
	ours, theirs = open(t, server.URL, partitions), open(t, server.URL, partitions)
	theirs.rdb.AddHook(before(asOtherVersion))
	theirs.n = 1_000_000 // no nonce is used twice
	return server, ours, theirs
}

// TestTwoVersionsRunOnOneServer holds that replicas of two versions work on the same consumers by turns. Each has its
// own functions, and gets them back if the other has dropped them.
func TestTwoVersionsRunOnOneServer(t *testing.T) {
	t.Parallel()
	server, ours, theirs := twoVersions(t, 4)
	admin := server.Client()
	ctx, sub := t.Context(), subscription("s")
	const rounds = 24
	for i := range rounds {
		one, two := ours, theirs
		if i%2 > 0 {
			one, two = two, one
		}
		path := fmt.Sprint("/", i)
		p := one.PartitionOf(path)
		must[fsm.Outcome](t)(one.Link(ctx, sub, path, "0", "0"))
		seen := must[fsm.Observation](t)(two.Observe(ctx, p, path, "1", false))
		if len(seen.Deliveries) != 1 {
			t.Fatalf("observed %+v", seen)
		}
		is := must[[]fsm.Tally](t)(one.TallyConsumers(ctx, []fsm.Subscription{sub}))[0] // in a pipeline
		if is.Consumers != i+1 || is.Waking != 1 {
			t.Errorf("counted %+v", is)
		}
		wake := seen.Deliveries[0]
		if o := must[fsm.Outcome](t)(one.Finish(ctx, wake.Ref(), wake.Streams)); len(o.Idle) != 1 {
			t.Errorf("finished: %+v", o)
		}
		want := []string{otherVersion, redisstore.FunctionsName()}
		slices.Sort(want)
		if is := libraries(t, admin); !slices.Equal(is, want) {
			t.Errorf("it has %q, want %q", is, want)
		}
		if i%6 == 5 {
			if err := ours.DropOtherFunctions(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, command := range []string{"evalsha", "eval"} {
		if n := commandStat(t, server, command); n > 0 {
			t.Errorf("%d calls went by %s", n, command)
		}
	}
}

// TestTheOwnerOfPartition0DropsTheFunctionsOfOtherVersions holds that only that replica does so, and that it does.
func TestTheOwnerOfPartition0DropsTheFunctionsOfOtherVersions(t *testing.T) {
	t.Parallel()
	server, w, theirs := twoVersions(t, 2)
	admin := server.Client()
	for _, w := range []*world{w, theirs} {
		must[fsm.Stream](t)(w.Stream(t.Context(), "/a"))
	}
	had := libraries(t, admin)
	w.Ownership().Replace([]int{1})
	w.DropOthersOnce(t.Context())
	if has := libraries(t, admin); len(had) != 2 || !slices.Equal(has, had) {
		t.Errorf("it had %q, and has %q after a replica without partition 0", had, has)
	}
	w.Ownership().Replace([]int{0})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.DropOthers(ctx, time.Millisecond)
	}()
	harness.Eventually(t, harness.Wait, "the others are dropped", func() error {
		if has := libraries(t, admin); !slices.Equal(has, []string{redisstore.FunctionsName()}) {
			return fmt.Errorf("it has %q", has)
		}
		return nil
	})
	cancel()
	<-ended
}

// TestAPromotedReplicaWithoutTheLibraryIsGivenIt holds that the next calls are right on a server that never had it.
func TestAPromotedReplicaWithoutTheLibraryIsGivenIt(t *testing.T) {
	t.Parallel()
	c := harness.StartRedisCluster(t, 3, 1)
	slot := c.Slot("rv:{0}:")
	w, ctx, sub := open(t, c.URL, 1), t.Context(), subscription("s")
	must[fsm.Outcome](t)(w.Link(ctx, sub, "/a", "0", "0"))
	master, replica := c.Master(slot), c.Replica(slot)
	if n := master.Client().Wait(ctx, 1, harness.Wait).Val(); n != 1 {
		t.Fatalf("%d replicas have everything", n)
	}
	admin := replica.Client()
	for _, command := range [][]any{
		{"CONFIG", "SET", "replica-read-only", "no"}, {"FUNCTION", "FLUSH"}, {"SCRIPT", "FLUSH"},
	} {
		if err := admin.Do(ctx, command...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	c.Failover(slot)
	if has := libraries(t, admin); len(has) > 0 || c.Master(slot) != replica {
		t.Fatalf("the master, which is the former replica: %v, has %q", c.Master(slot) == replica, has)
	}
	seen := must[fsm.Observation](t)(w.Observe(ctx, 0, "/a", "1", false))
	if len(seen.Deliveries) != 1 {
		t.Errorf("observed %+v", seen)
	}
	// The client may give the library to the former master until it knows the new one. Meanwhile, scripts go by EVAL.
	harness.Eventually(t, harness.Wait, "the new master has the library", func() error {
		if is := must[[]fsm.Tally](t)(w.TallyConsumers(ctx, []fsm.Subscription{sub}))[0]; is.Waking != 1 {
			t.Errorf("counted %+v", is)
		}
		if has := libraries(t, admin); len(has) != 1 {
			return fmt.Errorf("it has %q", has)
		}
		return nil
	})
}

// TestAFullServerStillTells holds that what only reads or frees memory is carried out while nothing can be written,
// whether or not the server has the functions.
func TestAFullServerStillTells(t *testing.T) {
	t.Parallel()
	for name, forgets := range map[string]bool{"with functions": false, "without functions": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tellsAll(t, forgets)
		})
	}
}

func tellsAll(t *testing.T, forgets bool) {
	server := harness.StartRedis(t)
	core, logs := observer.New(zap.InfoLevel)
	w := openWith(t, server.URL, nil, redisstore.Options{Partitions: 1, Logger: zap.New(core)})
	ctx, sub := t.Context(), subscription("s")
	must[fsm.Outcome](t)(w.Link(ctx, sub, "/a", fsm.Start, "1"))
	if forgets {
		if err := server.Client().FunctionFlush(ctx).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := server.Client().ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	for name, does := range map[string]func() error{
		"consumers":    func() error { _, _, err := w.ScanConsumers(ctx, sub, 0, "0", 10); return err },
		"dead letters": func() error { _, err := w.LettersOf(ctx, []string{"s"}); return err },
		"tally":        func() error { _, err := w.TallyConsumers(ctx, []fsm.Subscription{sub}); return err },
		"outbox":       func() error { _, err := w.OutboxHours(ctx, 0, 1, 2); return err },
		"a stream":     func() error { _, err := w.Stream(ctx, "/a"); return err },
		"freed memory": func() error {
			known := must[fsm.Stream](t)(w.Stream(ctx, "/a"))
			gone, err := w.ForgetStream(ctx, "/a", known.Stamp, true)
			if err == nil && !gone {
				err = errors.New("it is still there")
			}
			return err
		},
	} {
		if err := does(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := logs.FilterMessageSnippet("takes no functions").Len(); n > 0 {
		t.Errorf("what passes is taken for a refusal")
	}
}

// TestAnErrorInAFunctionIsNoRefusal holds that a call is not made again by EVAL once it has begun.
func TestAnErrorInAFunctionIsNoRefusal(t *testing.T) {
	t.Parallel()
	server := harness.StartRedis(t, "--rename-command", "SADD", "")
	core, logs := observer.New(zap.InfoLevel)
	w := openWith(t, server.URL, nil, redisstore.Options{Partitions: 1, Logger: zap.New(core)})
	_, err := w.Link(t.Context(), subscription("s"), "/a", fsm.Start, "1")
	if err == nil || !strings.Contains(err.Error(), "@user_function") || logs.Len() > 0 {
		t.Errorf("got %v; logged %v", err, logs.All())
	}
}

// TestAServerIsAskedOnceWhoItIs holds that a wake does not cost an INFO where the server keeps the library.
func TestAServerIsAskedOnceWhoItIs(t *testing.T) {
	t.Parallel()
	server := harness.StartRedis(t)
	w := openWith(t, server.URL, nil, redisstore.Options{Partitions: 1})
	for i := range 10 {
		must[fsm.Outcome](t)(w.Link(t.Context(), subscription("s"), fmt.Sprint("/", i), "1", "1"))
	}
	before := commandStat(t, server, "info")
	for i := range 10 {
		seen := must[fsm.Observation](t)(w.Observe(t.Context(), 0, fmt.Sprint("/", i), "2", false))
		if len(seen.Deliveries) != 1 {
			t.Errorf("observed %+v", seen)
		}
	}
	if asked := commandStat(t, server, "info") - before - 1; asked > 1 { // one is of this test itself
		t.Errorf("INFO was carried out %d times", asked)
	}
}
