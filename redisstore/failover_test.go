package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
	"reveille/redisstore"
	"reveille/test/harness"
)

// TestFailoversAreRiddenOut holds that calls made during one either are answered right or say that the store is not
// available, and that all is well afterwards without a restart of ours.
func TestFailoversAreRiddenOut(t *testing.T) {
	t.Parallel()
	const path = "/a"
	type kind struct {
		url string
		// replicated waits until the replica has everything, after which no failover can lose anything.
		replicated func(t *testing.T)
		// faults, in the order they happen; each ends with another master.
		faults []func(t *testing.T)
		names  []string
	}
	wait := func(t *testing.T, master *harness.Redis) {
		t.Helper()
		harness.Eventually(t, harness.Wait, "the replica has everything", harness.True(func() bool {
			return master.Client().Wait(t.Context(), 1, time.Second).Val() == 1
		}, "it has not"))
	}
	for name, start := range map[string]func(*testing.T) kind{
		"cluster": func(t *testing.T) kind {
			c := harness.StartRedisCluster(t, 3, 1)
			slot := c.Slot("rv:{0}:")
			return kind{
				url:        c.URL,
				replicated: func(t *testing.T) { wait(t, c.Master(slot)) },
				names:      []string{"by hand", "the master is killed", "the master hangs"},
				faults: []func(*testing.T){
					func(*testing.T) { c.Failover(slot) },
					func(*testing.T) {
						was := c.Master(slot)
						was.Kill()
						c.AwaitWhole()
						was.Restart()
						c.AwaitWhole()
					},
					func(*testing.T) {
						was := c.Master(slot)
						other := c.Replica(slot)
						was.Pause()
						harness.Eventually(t, harness.Wait, "the replica takes over",
							harness.True(func() bool { return isMaster(t, other) }, "not yet"))
						was.Resume()
						c.AwaitWhole()
					},
				},
			}
		},
		"sentinel": func(t *testing.T) kind {
			s := harness.StartRedisSentinel(t)
			return kind{
				url:        s.URL,
				replicated: func(t *testing.T) { wait(t, s.Master()) },
				names:      []string{"by hand", "the master is killed"},
				faults: []func(*testing.T){
					func(*testing.T) { s.Failover(); s.AwaitWhole() },
					func(*testing.T) {
						was := s.Master()
						was.Kill()
						s.AwaitMasterOtherThan(was)
						was.Restart()
						s.AwaitWhole()
					},
				},
			}
		},
		"one address": func(t *testing.T) kind {
			server, other := harness.StartRedis(t), harness.StartRedis(t)
			follow := func(t *testing.T, host, port string) {
				if err := server.Client().Do(t.Context(), "REPLICAOF", host, port).Err(); err != nil {
					t.Fatal(err)
				}
			}
			return kind{
				url:        server.URL,
				replicated: func(*testing.T) {},
				names:      []string{"it is demoted and promoted again"},
				faults: []func(*testing.T){func(t *testing.T) {
					// The other has a copy, so that the demoted one keeps its data.
					host, port, _ := strings.Cut(server.Addr, ":")
					if err := other.Client().Do(t.Context(), "REPLICAOF", host, port).Err(); err != nil {
						t.Fatal(err)
					}
					wait(t, server)
					if err := other.Client().Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
						t.Fatal(err)
					}
					_, port, _ = strings.Cut(other.Addr, ":")
					follow(t, host, port)
					w := open(t, server.URL, 1)
					if _, err := w.Link(
						t.Context(), subscription("late"), "/late", "0", "0",
					); !errors.Is(err, fsm.ErrUnavailable) {
						t.Errorf("a write to a replica: %v", err)
					}
					follow(t, "NO", "ONE")
				}},
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "one address" { // each needs servers of its own, and seconds until one is taken for dead
				harness.Long(t)
			}
			t.Parallel()
			k := start(t)
			w := openImpatient(t, k.url, redisstore.Options{Partitions: 1})
			sub := subscription("s")
			calls := riding{t, new(atomic.Int64), new(atomic.Int64)}
			calls.out("link", func() error { _, err := w.Link(t.Context(), sub, path, "000000", "000000"); return err })
			n, epoch := 0, int64(0)
			for i, fault := range k.faults {
				t.Run(k.names[i], func(t *testing.T) {
					calls := riding{t, new(atomic.Int64), new(atomic.Int64)}
					if n++; !calls.round(w, sub, path, n, &epoch) {
						return
					}
					k.replicated(t)
					ctx, stop := context.WithCancel(t.Context())
					read := make(chan struct{})
					go func() {
						defer close(read)
						// Not as often as can be: the servers that fail over need the machine as well.
						for tick := time.NewTicker(time.Millisecond); ctx.Err() == nil; <-tick.C {
							c, err := w.Consumer(ctx, fsm.RefOf(sub.ID, path))
							switch {
							case errors.Is(err, fsm.ErrUnavailable):
								calls.turned.Add(1)
							case err != nil || c.Epoch != epoch || c.State != fsm.Idle:
								t.Errorf("while it goes on the consumer is %+v, %v", c, err)
								return
							default:
								calls.done.Add(1)
							}
						}
					}()
					fault(t)
					stop()
					<-read
					for range 3 {
						if n++; !calls.round(w, sub, path, n, &epoch) {
							return
						}
					}
					t.Logf("%d calls turned away, %d answered", calls.turned.Load(), calls.done.Load())
				})
			}
		})
	}
}

// TestANodeThatHangsDoesNotHoldUpTheOthers holds that calls for other nodes are answered while one for it waits.
func TestANodeThatHangsDoesNotHoldUpTheOthers(t *testing.T) {
	t.Parallel()
	c := harness.StartRedisCluster(t, 3, 0, "--cluster-require-full-coverage", "no")
	w := openImpatient(t, c.URL, redisstore.Options{Partitions: 8})
	sub := subscription("s")
	home := func(p int) *harness.Redis { return c.Master(c.Slot("rv:{" + string(rune('0'+p)) + "}:")) }
	paths := map[int]string{}
	for n := 0; len(paths) < 8; n++ {
		path := "/s" + string(rune('a'+n%26)) + string(rune('a'+n/26))
		if p := w.PartitionOf(path); paths[p] == "" {
			paths[p] = path
			must[fsm.Outcome](t)(w.Link(t.Context(), sub, path, fsm.Start, "0"))
		}
	}
	hung := home(0)
	hung.Pause()
	waiting := make(chan error, 1)
	go func() { _, err := w.Observe(t.Context(), 0, paths[0], "1", false); waiting <- err }()
	for p := range 8 {
		if home := home(p); home == hung {
			continue
		}
		if _, err := w.Observe(t.Context(), p, paths[p], "1", false); err != nil {
			t.Errorf("partition %d: %v", p, err)
		}
	}
	select {
	case err := <-waiting:
		t.Errorf("the call for the node that hangs was answered before the others: %v", err)
	default:
	}
	next, err := w.NextDue(t.Context(), []int{0, 1, 2, 3, 4, 5, 6, 7})
	if !errors.Is(err, fsm.ErrUnavailable) {
		t.Errorf("a node hangs, but: %v", err)
	}
	for p, d := range next {
		switch home := home(p); {
		case home == hung && d >= 0:
			t.Errorf("partition %d of the node that hangs has a deadline in %s", p, d)
		case home != hung && d != timing.Waking:
			t.Errorf("partition %d has its deadline in %s, want %s", p, d, timing.Waking)
		}
	}
	if err := <-waiting; !errors.Is(err, fsm.ErrUnavailable) {
		t.Errorf("the call for the node that hangs: %v", err)
	}
	hung.Resume()
	harness.Eventually(t, harness.Wait, "it is back",
		func() error { _, err := w.Observe(t.Context(), 0, paths[0], "1", false); return err })
}

func isMaster(t *testing.T, r *harness.Redis) bool {
	c := redis.NewClient(&redis.Options{Addr: r.Addr})
	defer func() { _ = c.Close() }()
	role, err := c.Do(t.Context(), "ROLE").Slice()
	return err == nil && len(role) > 0 && role[0] == "master"
}

// afterCalls has something happen before the nth command from now on.
type afterCalls struct {
	left atomic.Int32
	do   func()
}

func (*afterCalls) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *afterCalls) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if h.left.Add(-1) == 0 {
			h.do()
		}
		return next(ctx, cmd)
	}
}

func (*afterCalls) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestAWalkInBatchesMissesNothingWhenAnotherServerTakesOver holds that none relies on the order in which the
// first one kept things.
func TestAWalkInBatchesMissesNothingWhenAnotherServerTakesOver(t *testing.T) {
	t.Parallel()
	c := harness.StartRedisCluster(t, 3, 1)
	slot := c.Slot("rv:{0}:")
	w := open(t, c.URL, 1)
	ctx := t.Context()
	h := &afterCalls{do: func() { c.Failover(slot) }}
	w.rdb.AddHook(h)
	const n = 600
	for i := range n {
		must[fsm.Outcome](t)(w.Link(ctx, subscription(fmt.Sprint("s", i)), "/a", "0", "0"))
		if err := w.note(ctx, fmt.Sprint("/known/", i), false); err != nil {
			t.Fatal(err)
		}
	}
	rideOut := func(what string, call func() error) {
		t.Helper()
		riding{t, new(atomic.Int64), new(atomic.Int64)}.out(what, call)
	}
	t.Run("the consumers of a stream", func(t *testing.T) {
		h.left.Store(4)
		woken := map[string]bool{}
		rideOut("observe", func() error {
			seen, err := w.Observe(ctx, 0, "/a", "1", false)
			for _, wake := range seen.Deliveries {
				woken[wake.Consumer] = true
			}
			return err
		})
		if len(woken) != n || h.left.Load() >= 0 {
			t.Errorf("%d of %d consumers were woken; the failover was in %d calls", len(woken), n, h.left.Load())
		}
	})
	t.Run("the streams on record", func(t *testing.T) {
		h.left.Store(2)
		seen := map[string]bool{}
		for cursor, first := "0", true; first || cursor != "0"; first = false {
			rideOut("scan", func() error {
				page, next, err := w.ScanStreams(ctx, 0, cursor)
				if err != nil {
					return err
				}
				for _, k := range page {
					seen[k.Path] = true
				}
				cursor = next
				return nil
			})
		}
		if len(seen) != n+1 || h.left.Load() > 0 { // and /a
			t.Errorf("%d of %d streams were seen; the failover was in %d calls", len(seen), n+1, h.left.Load())
		}
	})
}
