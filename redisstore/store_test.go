package redisstore_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/redisstore"
	"reveille/test/harness"
)

func TestMain(m *testing.M) {
	redisstore.LogTo(zap.NewNop())
	goleak.VerifyTestMain(sharing{m})
}

// sharing ends the servers that tests share after the last test, before goroutines are looked for that are left.
type sharing struct{ goleak.TestingM }

func (m sharing) Run() int {
	code := m.TestingM.Run()
	for _, fault := range redisstore.Servers.End() {
		fmt.Fprintln(os.Stderr, fault)
		code = max(code, 1)
	}
	return code
}

var timing = fsm.Timing{
	Waking: 10 * time.Second, Request: 30 * time.Second, Liveness: 45 * time.Second, GoneGrace: 30 * time.Second,
	GCAfter: 72 * time.Hour,
}

// servers start a server or a cluster that is empty. serversAndEmbedded also has the Redis of this process.
var servers = map[string]func(*testing.T) string{
	"redis-server": func(t *testing.T) string { return redisstore.EmptyRedis(t).URL },
	"cluster":      func(t *testing.T) string { return redisstore.EmptyCluster(t).URL },
}

var serversAndEmbedded = map[string]func(*testing.T) string{
	"redis-server": servers["redis-server"], "cluster": servers["cluster"],
	"embedded": func(*testing.T) string { return redisstore.Embedded },
}

// world is a store whose time is the test's.
type world struct {
	*redisstore.Store
	rdb redis.UniversalClient
	mu  sync.Mutex
	now time.Time
	n   int
}

func open(t *testing.T, url string, partitions int) *world {
	t.Helper()
	return openWith(t, url, nil, redisstore.Options{Partitions: partitions, Embedded: url == redisstore.Embedded})
}

func openWith(t *testing.T, url string, ca *x509.CertPool, o redisstore.Options) *world {
	t.Helper()
	rdb, closeRedis, err := redisstore.ConnectPatiently(url, ca)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closeRedis() })
	return worldOn(rdb, o.Patient())
}

// openImpatient is for tests in which a server hangs: it is given up as soon as it is by the program.
func openImpatient(t *testing.T, url string, o redisstore.Options) *world {
	t.Helper()
	rdb, closeRedis, err := redisstore.Connect(url, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closeRedis() })
	return worldOn(rdb, o)
}

func worldOn(rdb redis.UniversalClient, o redisstore.Options) *world {
	w := &world{rdb: rdb, now: time.UnixMilli(1_790_000_000_000)}
	o.Timing = timing
	o.Draw = func() redisstore.Draw {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.n++
		return redisstore.Draw{Now: w.now, Nonce: fmt.Sprint("n", w.n)}
	}
	w.Store = redisstore.New(rdb, o)
	return w
}

func (w *world) later(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func subscription(id string) fsm.Subscription {
	return fsm.Subscription{
		ID: id, Generation: "g-" + id, Pattern: "/**", Webhook: "https://example.com/hook",
		Secret: "whsec_x",
	}
}

// TestAConsumerOnEveryKindOfRedis takes one consumer from its creation to its end on each of them.
func TestAConsumerOnEveryKindOfRedis(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]func(*testing.T) string{
		"redis-server": func(t *testing.T) string { return redisstore.EmptyRedis(t).URL },
		"embedded":     func(*testing.T) string { return redisstore.Embedded },
		"cluster":      func(t *testing.T) string { return redisstore.EmptyCluster(t).URL },
		"sentinel":     func(t *testing.T) string { return redisstore.EmptySentinel(t).URL },
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			w := open(t, url(t), 8)
			if err := w.Check(ctx); err != nil {
				t.Fatal(err)
			}
			sub, created, err := w.CreateSubscription(ctx, subscription("s"))
			if err != nil || !created {
				t.Fatal(created, err)
			}
			home := w.PartitionOf("/a")
			linked := must[fsm.Outcome](t)(w.Link(ctx, sub, "/a", "1", "1"))
			if len(linked.Deliveries) != 0 {
				t.Fatalf("an existing stream woke: %+v", linked)
			}
			seen := must[fsm.Observation](t)(w.Observe(ctx, home, "/a", "2", false))
			if len(seen.Deliveries) != 1 || !seen.Watched || !seen.Busy || seen.Noted.Tail != "2" {
				t.Fatalf("observed %+v", seen)
			}
			wake := seen.Deliveries[0]
			if wake.Epoch != 1 || wake.Attempt != 1 || len(wake.Streams) != 1 ||
				wake.Streams[0] != (fsm.StreamTail{Path: "/a", Acked: "1", Tail: "2"}) {
				t.Fatalf("wake %+v", wake)
			}
			failed := must[fsm.Outcome](t)(w.Fail(ctx, wake.Ref(),
				fsm.Failure{RetryAfter: time.Minute, Reason: strings.Repeat("x", 300)}))
			if len(failed.Deliveries) != 0 {
				t.Fatalf("failed %+v", failed)
			}
			if c := must[fsm.Consumer](t)(
				w.Consumer(ctx, wake.Ref().Consumer),
			); c.LastError != strings.Repeat("x", fsm.MaxReason) {
				t.Fatalf("the reason is kept as %q", c.LastError)
			}
			if next := must[[]time.Duration](t)(w.NextDue(ctx, []int{home, (home + 1) % 8})); next[0] != time.Minute ||
				next[1] >= 0 {
				t.Fatalf("next due %v", next)
			}
			w.later(time.Minute)
			due, n, err := w.Due(ctx, home, 10)
			if err != nil || n != 1 || len(due.Deliveries) != 1 || due.Deliveries[0].WakeID != wake.WakeID ||
				due.Deliveries[0].Attempt != 2 {
				t.Fatalf("due %+v, %d, %v", due, n, err)
			}
			reply := must[fsm.CallbackReply](t)(w.Callback(ctx, fsm.Callback{
				Consumer: wake.Ref().Consumer, Primary: "/a", Generation: sub.Generation, Epoch: 1, TokenEpoch: 1,
				WakeID: wake.WakeID,
				Acks:   []fsm.Ack{{Path: "/a", Offset: "2"}}, Subscribe: []fsm.Subscribe{{Path: "/b", From: "7"}},
				Tails: map[string]fsm.Offset{"/b": "7"}, Done: true, MaxStreams: 10,
			}))
			if reply.Code != "" || len(reply.Deliveries) != 0 || len(reply.Idle) != 2 || len(reply.Streams) != 2 {
				t.Fatalf("callback %+v", reply)
			}
			if other := must[fsm.Observation](t)(w.Observe(ctx, home, "/b", "8", false)); len(other.Deliveries) != 1 ||
				other.Deliveries[0].Epoch != 2 {
				t.Fatalf("the second stream: %+v", other)
			}
			if err := w.DeleteSubscription(ctx, "s"); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Consumer(ctx, wake.Ref().Consumer); !errors.Is(err, fsm.ErrNotFound) {
				t.Fatalf("after the deletion: %v", err)
			}
			if keys := leftovers(t, w); len(keys) > 0 {
				t.Errorf("left behind: %v", keys)
			}
		})
	}
}

func TestALateCallbackWakesAnIdleConsumerForAnEventThatNobodyHasToldOf(t *testing.T) {
	t.Parallel()
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	ctx, sub := t.Context(), subscription("s")
	wake := must[fsm.Outcome](t)(w.Link(ctx, sub, "/a", "1", "2")).Deliveries[0]
	must[fsm.Outcome](t)(w.Finish(ctx, wake.Ref(), wake.Streams))
	late := fsm.Callback{
		Consumer: wake.Ref().Consumer, Primary: "/a", Generation: sub.Generation, Epoch: 1, TokenEpoch: 1,
		MaxStreams: 10,
	}
	for wakes, tail := range []fsm.Offset{"2", "3"} {
		late.Tails = map[string]fsm.Offset{"/a": tail}
		reply := must[fsm.CallbackReply](t)(w.Callback(ctx, late))
		if reply.Code != "" || len(reply.Deliveries) != wakes {
			t.Fatalf("upstream ends at %s: %+v", tail, reply)
		}
	}
	if c := must[fsm.Consumer](t)(w.Consumer(ctx, wake.Ref().Consumer)); c.State != fsm.Waking || c.Epoch != 2 {
		t.Errorf("it is %+v", c)
	}
}

// allKeys are the keys that a store has.
func allKeys(t *testing.T, w *world) (all []string) {
	t.Helper()
	keys := func(ctx context.Context, c *redis.Client) error {
		found, err := c.Keys(ctx, "*").Result()
		all = append(all, found...)
		return err
	}
	switch c := w.rdb.(type) {
	case *redis.Client:
		must[any](t)(nil, keys(t.Context(), c))
	case *redis.ClusterClient:
		var mu sync.Mutex
		must[any](t)(nil, c.ForEachMaster(t.Context(), func(ctx context.Context, c *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			return keys(ctx, c)
		}))
	}
	return all
}

// leftovers are the keys that a store without subscriptions and streams need not have.
func leftovers(t *testing.T, w *world) (left []string) {
	for _, key := range allKeys(t, w) {
		if !strings.HasPrefix(key, "rv:{") {
			t.Errorf("key %q has no hash tag", key)
		}
		name := key[strings.Index(key, "}:")+2:]
		if strings.HasPrefix(name, "n:") || strings.HasPrefix(name, "a:") {
			// One that has expired since it was listed is answered with -2.
			if ttl := must[time.Duration](t)(w.rdb.PTTL(t.Context(), key).Result()); ttl == -1 {
				t.Errorf("key %q stays for ever", key)
			}
		} else if strings.Contains(name, ":") ||
			slices.Contains([]string{"due", "watched", "dropping", "failing", "hidden"}, name) {
			left = append(left, key)
		}
	}
	return left
}

func TestScriptsSurviveAFlush(t *testing.T) {
	t.Parallel()
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	ctx := t.Context()
	must[fsm.Outcome](t)(w.Link(ctx, subscription("s"), "/a", fsm.Start, ""))
	if err := w.rdb.ScriptFlush(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	if seen := must[fsm.Observation](t)(w.Observe(ctx, 0, "/a", "0", false)); len(seen.Deliveries) != 1 {
		t.Fatalf("observed %+v", seen)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	server := harness.StartRedis(t)
	first := open(t, server.URL, 8)
	if err := first.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := open(t, server.URL, 8).Check(t.Context()); err != nil {
		t.Errorf("the same partition count again: %v", err)
	}
	err := open(t, server.URL, 16).Check(t.Context())
	if !errors.Is(err, redisstore.ErrIncompatible) || !strings.Contains(err.Error(), "REVEILLE_PARTITIONS=8") {
		t.Errorf("another partition count: %v", err)
	}
	if err := first.rdb.ConfigSet(t.Context(), "requirepass", "s3cret").Err(); err != nil {
		t.Fatal(err)
	}
	err = open(t, strings.Replace(server.URL, "redis://", "redis://:wrong@", 1), 8).Check(t.Context())
	if !errors.Is(err, redisstore.ErrIncompatible) || strings.Contains(err.Error(), "wrong") &&
		!strings.Contains(err.Error(), "refuses") {
		t.Errorf("a wrong password: %v", err)
	}
}

// TestCheckRefusesAnUnfitRedis has a server that says it is old, or of 32 bits: the real one cannot be made to.
func TestCheckRefusesAnUnfitRedis(t *testing.T) {
	t.Parallel()
	const old, narrow = "version 6.2 or later is needed", "a build for 64 bits is needed"
	for version, unfit := range map[string]string{
		"5.0.14": old, "6.0.16": old, "6.1.9": old, "6.2.0": "", "7.0.15": "", "10.0.0": "", "": old, "x.y": old,
		"7.0.15\r\narch_bits:32": narrow, "7.0.15\r\narch_bits:64": "",
	} {
		t.Run("version "+version, func(t *testing.T) {
			redis, err := server.NewServer("127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer redis.Close()
			for cmd, answer := range map[string]func(*server.Peer){
				"INFO":   func(c *server.Peer) { c.WriteBulk("# Server\r\nredis_version:" + version + "\r\n") },
				"CLIENT": func(c *server.Peer) { c.WriteOK() },
				"HSETNX": func(c *server.Peer) { c.WriteInt(1) },
			} {
				if err := redis.Register(cmd, func(c *server.Peer, _ string, _ []string) { answer(c) }); err != nil {
					t.Fatal(err)
				}
			}
			if err := redis.Register("HGET", func(c *server.Peer, _ string, args []string) {
				c.WriteBulk(map[string]string{"layout": "3", "partitions": "8", "born": "8"}[args[1]])
			}); err != nil {
				t.Fatal(err)
			}
			err = open(t, "redis://"+redis.Addr().String(), 8).Check(t.Context())
			if (err == nil) != (unfit == "") || err != nil &&
				(!errors.Is(err, redisstore.ErrIncompatible) || !strings.Contains(err.Error(), unfit)) {
				t.Errorf("version %q: %v", version, err)
			}
		})
	}
}

func TestConnectNamesWhatIsWrong(t *testing.T) {
	for _, bad := range []string{
		"", "localhost:6379", "http://localhost", "redis://", "redis://u:pass@h:6379/x", "redis://h?nonsense=1", "::",
		"redis+cluster://", "redis+cluster://h:1/3", "redis+cluster://h:1,,h:2", "redis+cluster://u:pass@%zz@h",
		"redis+sentinel://h:1",
		"redis+sentinel:///name", "redis+other://h:1", "rediss+://",
	} {
		_, _, err := redisstore.Connect(bad, nil)
		if err == nil || strings.Contains(err.Error(), "pass@") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestARedisThatIsGoneIsUnavailable(t *testing.T) {
	t.Parallel()
	server := harness.StartRedis(t)
	w := open(t, server.URL, 1)
	must[fsm.Outcome](t)(w.Link(t.Context(), subscription("s"), "/a", fsm.Start, "0"))
	server.Kill()
	for name, call := range map[string]func(context.Context) error{
		"observe": func(ctx context.Context) error { _, err := w.Observe(ctx, 0, "/a", "1", false); return err },
		"callback": func(ctx context.Context) error {
			_, err := w.Callback(ctx, fsm.Callback{Primary: "/a"})
			return err
		},
		"next due": func(ctx context.Context) error { _, err := w.NextDue(ctx, []int{0}); return err },
		"create": func(ctx context.Context) error {
			_, _, err := w.CreateSubscription(ctx, subscription("x"))
			return err
		},
		"watched": func(ctx context.Context) error { _, err := w.WatchedSince(ctx, 0, 0); return err },
		"consumer": func(ctx context.Context) error {
			_, err := w.Consumer(ctx, fsm.RefOf("s", "/a"))
			return err
		},
		"check": w.Check,
		"ping":  w.Ping,
		"a cancelled": func(ctx context.Context) error {
			c, cancel := context.WithCancel(ctx)
			cancel()
			return w.Ping(c)
		},
	} {
		if err := call(t.Context()); !errors.Is(err, fsm.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestConcurrentObservationsWakeOnce holds that a check and the change that follows from it are one.
// TestARedisThatTakesNoWritesIsUnavailable holds that its refusals are told from broken invariants.
func TestARedisThatTakesNoWritesIsUnavailable(t *testing.T) {
	t.Parallel()
	w := open(t, harness.StartRedis(t, "--dbfilename", "taken").URL, 1)
	ctx := t.Context()
	set := func(name, value string) {
		t.Helper()
		if err := w.rdb.ConfigSet(ctx, name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	must[fsm.Outcome](t)(w.Link(ctx, subscription("s"), "/due", fsm.Start, "0"))
	w.later(time.Hour)
	for _, tt := range []struct {
		name         string
		begin, after func()
		// silent is true if it carries out no script at all.
		silent bool
	}{
		{
			name: "too few replicas", begin: func() { set("min-replicas-to-write", "1") },
			after: func() { set("min-replicas-to-write", "0") },
		},
		{name: "a snapshot that cannot be written", begin: func() {
			dir := w.rdb.ConfigGet(ctx, "dir").Val()["dir"]
			if err := os.Mkdir(filepath.Join(dir, "taken"), 0o700); err != nil {
				t.Fatal(err)
			}
			set("save", "3600 1")
			if err := w.rdb.BgSave(ctx).Err(); err != nil {
				t.Fatal(err)
			}
			harness.Eventually(t, harness.Wait, "the snapshot has failed", func() error {
				if info := w.rdb.Info(ctx, "persistence").Val(); !strings.Contains(info, "rdb_last_bgsave_status:err") {
					return errors.New(info)
				}
				return nil
			})
		}, after: func() { set("stop-writes-on-bgsave-error", "no") }},
		{name: "the memory is full", begin: func() { set("maxmemory", "1") }, after: func() { set("maxmemory", "0") }},
		{name: "somebody's script goes on and on", silent: true, begin: func() {
			set("busy-reply-threshold", "1")
			long := redis.NewClient(&redis.Options{Addr: w.rdb.(*redis.Client).Options().Addr, ReadTimeout: -1})
			t.Cleanup(func() { _ = long.Close() })
			go long.Eval(ctx, "while true do end", nil)
			harness.Eventually(t, harness.Wait, "redis is busy", func() error {
				if err := w.rdb.Ping(ctx).Err(); err == nil {
					return errors.New("not yet")
				}
				return nil
			})
		}, after: func() {
			if err := w.rdb.ScriptKill(ctx).Err(); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.begin()
			if _, err := w.Link(ctx, subscription("s"), "/a", fsm.Start, "0"); !errors.Is(err, fsm.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
			if _, _, err := w.CreateSubscription(ctx, subscription("s")); !errors.Is(err, fsm.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
			if _, _, err := w.Due(ctx, 0, 1); !errors.Is(err, fsm.ErrUnavailable) { // its script catches errors
				t.Errorf("got %v", err)
			}
			if _, err := w.Stream(ctx, "/a"); (err == nil) == tt.silent {
				t.Errorf("a script that may write, but does not: %v", err)
			}
			tt.after()
			harness.Eventually(t, harness.Wait, "redis takes writes again", func() error { return w.Ping(ctx) })
		})
	}
	if o := must[fsm.Outcome](t)(w.Link(ctx, subscription("s"), "/a", fsm.Start, "0")); len(o.Deliveries) != 1 {
		t.Errorf("afterwards: %+v", o)
	}
}

func TestConcurrentObservationsWakeOnce(t *testing.T) {
	t.Parallel()
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	ctx := t.Context()
	must[fsm.Outcome](t)(w.Link(ctx, subscription("s"), "/a", "00", "00"))
	for round := range 20 {
		tail := fsm.Offset(fmt.Sprintf("%02d", round+1))
		wakes := make(chan fsm.Delivery, 64)
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				seen, err := w.Observe(ctx, 0, "/a", tail, false)
				if err != nil {
					t.Error(err)
				}
				for _, wake := range seen.Deliveries {
					wakes <- wake
				}
			})
		}
		wg.Wait()
		if len(wakes) != 1 {
			t.Fatalf("round %d: %d wakes", round, len(wakes))
		}
		wake := <-wakes
		if wake.Epoch != int64(round+1) {
			t.Fatalf("round %d: epoch %d", round, wake.Epoch)
		}
		must[fsm.Outcome](t)(w.Finish(ctx, wake.Ref(), wake.Streams))
	}
}

func TestAStreamWithManyConsumers(t *testing.T) {
	t.Parallel()
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	ctx := t.Context()
	const n = 500
	for i := range n {
		must[fsm.Outcome](t)(w.Link(ctx, subscription(fmt.Sprint("s", i)), "/a", "0", "0"))
	}
	seen := must[fsm.Observation](t)(w.Observe(ctx, 0, "/a", "1", false))
	ids := map[string]bool{}
	for _, wake := range seen.Deliveries {
		ids[wake.WakeID] = true
	}
	if len(ids) != n || !seen.Busy {
		t.Errorf("%d of %d woken, busy %v", len(ids), n, seen.Busy)
	}
	if o := must[fsm.Outcome](t)(w.Hide(ctx, "/a", fsm.MissingAnew)); len(o.Hidden) > 0 {
		t.Error("none to hide")
	}
	w.later(timing.GoneGrace)
	for total := 0; total < n; {
		o, due, err := w.Due(ctx, 0, 100)
		if err != nil || due == 0 || len(o.Removed) > 0 {
			t.Fatalf("after %d: %d due, %d removed without upstream's word, %v", total, due, len(o.Removed), err)
		}
		total += due
	}
	if o := must[fsm.Outcome](t)(w.Hide(ctx, "/a", fsm.MissingStill)); len(o.Removed) == 0 {
		t.Error("none to remove")
	}
	if left := must[[]fsm.Watched](t)(w.WatchedSince(ctx, 0, 0)); len(left) > 0 {
		t.Errorf("still watched: %+v", left)
	}
}

func TestSubscriptions(t *testing.T) {
	t.Parallel()
	server := redisstore.EmptyRedis(t)
	w, other := open(t, server.URL, 4), open(t, server.URL, 4)
	ctx := t.Context()
	sub, created, err := w.CreateSubscription(ctx, subscription("s"))
	if err != nil || !created || !sub.CreatedAt.Equal(w.now) {
		t.Fatalf("%+v %v %v", sub, created, err)
	}
	again := subscription("s")
	again.Generation, again.Secret = "g-2", "whsec_2"
	sub.Told, sub.Revision = true, 1
	if stored, created, err := w.CreateSubscription(ctx, again); err != nil || created || !stored.Equal(sub) {
		t.Errorf("the same again: %+v %v %v", stored, created, err)
	}
	again.Webhook = "https://example.com/other"
	if _, _, err := w.CreateSubscription(ctx, again); !errors.As(err, new(*fsm.ConflictError)) {
		t.Errorf("another configuration: %v", err)
	}
	if err := other.RefreshCatalog(ctx); err != nil {
		t.Fatal(err)
	}
	if got, ok := other.Catalog().Get("s"); !ok || !got.Equal(sub) {
		t.Errorf("another replica sees %+v", got)
	}
	if err := w.SetBackfill(ctx, sub, fsm.Backfill{Done: 3, Total: 9}); err != nil {
		t.Fatal(err)
	}
	if under := must[map[string]fsm.Backfill](t)(other.Backfills(ctx)); under["s"] != (fsm.Backfill{
		Done:  3,
		Total: 9,
	}) {
		t.Errorf("backfills %v", under)
	}
	stale := sub
	stale.Generation = "g-0"
	if err := w.EndBackfill(ctx, stale); err != nil {
		t.Fatal(err)
	}
	if under := must[map[string]fsm.Backfill](t)(w.Backfills(ctx)); len(under) != 1 {
		t.Error("an older subscription of the same id ended the backfill")
	}
	if err := w.EndBackfill(ctx, sub); err != nil {
		t.Fatal(err)
	}
	if under := must[map[string]fsm.Backfill](t)(w.Backfills(ctx)); len(under) != 0 {
		t.Errorf("backfills %v", under)
	}
	if err := w.DeleteSubscription(ctx, "unknown"); err != nil {
		t.Errorf("unknown id: %v", err)
	}
	if _, _, err := w.ResumeSubscription(ctx, "unknown"); !errors.Is(err, fsm.ErrNotFound) {
		t.Errorf("unknown id: %v", err)
	}
}

// severed is a client that loses its Redis, or its Redis's answers.
type severed struct {
	// left is how many more commands are let through; negative for any number.
	left atomic.Int32
	// twice has each command sent again, as the client does by itself when an answer got lost.
	twice atomic.Bool
}

func (h *severed) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *severed) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		switch left := h.left.Load(); {
		case left == 0:
			cmd.SetErr(io.EOF)
			return io.EOF
		case left > 0:
			h.left.Add(-1)
		}
		if h.twice.Load() {
			_ = next(ctx, cmd)
		}
		return next(ctx, cmd)
	}
}

func (h *severed) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func sever(w *world) *severed {
	h := &severed{}
	h.left.Store(-1)
	w.rdb.AddHook(h)
	return h
}

// TestTheSecretOfAStoredSubscriptionIsNotLost holds that its creator is told it whenever there is an answer.
func TestTheSecretOfAStoredSubscriptionIsNotLost(t *testing.T) {
	t.Parallel()
	w := open(t, redisstore.EmptyRedis(t).URL, 4)
	ctx := t.Context()
	if _, _, err := w.CreateSubscription(ctx, subscription("first")); err != nil { // the scripts are loaded by this
		t.Fatal(err)
	}
	h := sever(w)
	h.twice.Store(true)
	if _, created, err := w.CreateSubscription(ctx, subscription("twice")); err != nil || !created {
		t.Errorf("sent again because the answer got lost: created %v, %v", created, err)
	}
	h.twice.Store(false)
	h.left.Store(1)
	if sub, created, err := w.CreateSubscription(ctx, subscription("cut")); err != nil || !created || sub.Secret == "" {
		t.Errorf("stored right before Redis went away: created %v, %v", created, err)
	}
}

// TestADeletionThatRedisCutShortIsFinished holds that it needs no restart and no second request.
func TestADeletionThatRedisCutShortIsFinished(t *testing.T) {
	t.Parallel()
	server := redisstore.EmptyRedis(t)
	w := open(t, server.URL, 4)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	if err := w.DeleteSubscription(ctx, "none"); err != nil { // the scripts are loaded by this
		t.Fatal(err)
	}
	sub, _, err := w.CreateSubscription(ctx, subscription("s"))
	if err != nil {
		t.Fatal(err)
	}
	wake := must[fsm.Outcome](t)(w.Link(ctx, sub, "/a", fsm.Start, "0")).Deliveries[0]
	ended := make(chan error, 1)
	other := open(t, server.URL, 4)
	go func() { ended <- other.Run(ctx) }()
	harness.Eventually(t, harness.Wait, "the other replica has looked once", func() error {
		if !other.Catalog().Loaded() {
			return errors.New("not yet")
		}
		return nil
	})
	h := sever(w)
	h.left.Store(1) // the subscription is off the list, and nothing else is done
	if err := w.DeleteSubscription(ctx, "s"); !errors.Is(err, fsm.ErrUnavailable) {
		t.Fatalf("cut short, but: %v", err)
	}
	h.left.Store(-1)
	harness.Eventually(t, harness.Wait, "the consumers are removed", func() error {
		if keys := leftovers(t, w); len(keys) > 0 {
			return fmt.Errorf("left: %v", keys)
		}
		return nil
	})
	reply := must[fsm.CallbackReply](t)(w.Callback(ctx, fsm.Callback{
		Consumer: wake.Ref().Consumer, Primary: "/a", Generation: sub.Generation, Epoch: 1, TokenEpoch: 1,
		MaxStreams: 1,
	}))
	if reply.Code != fsm.CodeConsumerGone {
		t.Errorf("a callback was answered %q", reply.Code)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestADeletionThatWasCutShortIsFinished holds that a crash between its steps leaves no consumer behind.
func TestADeletionThatWasCutShortIsFinished(t *testing.T) {
	t.Parallel()
	server := redisstore.EmptyRedis(t)
	w := open(t, server.URL, 4)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	sub, _, err := w.CreateSubscription(ctx, subscription("s"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		must[fsm.Outcome](t)(w.Link(ctx, sub, fmt.Sprint("/a", i), "0", "0"))
	}
	// As if the replica had died right after the subscription was taken off the list.
	version := must[int64](t)(w.rdb.Incr(ctx, "rv:{subs}:version").Result())
	noted := redis.Z{Score: float64(version), Member: fmt.Sprint(version, " s")}
	for _, change := range []error{
		w.rdb.HDel(ctx, "rv:{subs}:all", "s").Err(), w.rdb.HSet(ctx, "rv:{subs}:dropping", sub.Generation, "s").Err(),
		w.rdb.ZAdd(ctx, "rv:{subs}:changes", noted).Err(),
	} {
		if change != nil {
			t.Fatal(change)
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- open(t, server.URL, 4).Run(ctx) }()
	harness.Eventually(t, harness.Wait, "the deletion is finished", func() error {
		if keys := leftovers(t, w); len(keys) > 0 {
			return fmt.Errorf("left: %v", keys)
		}
		return nil
	})
	// A replica that had not heard of it yet must not bring a consumer back.
	if o := must[fsm.Outcome](t)(w.Link(t.Context(), sub, "/late", fsm.Start, "0")); len(o.Deliveries) > 0 {
		t.Error("a deleted subscription got a consumer")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestEpochsGoOnAfterRemoval holds S1 for an id that is used again.
func TestEpochsGoOnAfterRemoval(t *testing.T) {
	t.Parallel()
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	ctx := t.Context()
	sub := subscription("s")
	last := int64(0)
	for i := range 3 {
		o := must[fsm.Outcome](t)(w.Link(ctx, sub, "/a", fsm.Start, "0"))
		if len(o.Deliveries) != 1 || o.Deliveries[0].Epoch <= last {
			t.Fatalf("consumer %d: %+v after epoch %d", i, o.Deliveries, last)
		}
		last = o.Deliveries[0].Epoch
		must[fsm.Outcome](t)(w.Deleted(ctx, 0, "/a", fsm.Deletion{}))
	}
}

func TestStreamsOnRecord(t *testing.T) {
	t.Parallel()
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	ctx := t.Context()
	note := func(path string, awaited bool) {
		if err := w.note(ctx, path, awaited); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 1500 {
		note(fmt.Sprint("/many/", i), i%2 == 0)
	}
	seen := map[string]bool{}
	for cursor, first := "0", true; first || cursor != "0"; first = false {
		page, next, err := w.ScanStreams(ctx, 0, cursor)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range page {
			seen[k.Path] = true
		}
		cursor = next
	}
	if len(seen) != 1500 {
		t.Errorf("%d streams scanned", len(seen))
	}
}
