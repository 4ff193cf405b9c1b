package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"reveille/fsm"
	"reveille/fsm/spec/memstore"
	"reveille/redisstore"
	"reveille/test/harness"
)

const replicaPartitions = 32

// replica is a store that runs, as one of several on the same Redis.
type replica struct {
	*redisstore.Store
	die func()
	// beats is how many heartbeats have begun.
	beats atomic.Int64

	mu    sync.Mutex
	hints []fsm.Hint
}

// before calls something before each request, which is not made if that returns an error.
type before func(ctx context.Context, cmds ...goredis.Cmder) error

func (before) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (f before) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if err := f(ctx, cmd); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

func (f before) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		if err := f(ctx, cmds...); err != nil {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
			return err
		}
		return next(ctx, cmds)
	}
}

// beginsBeat says whether a heartbeat begins with a request.
func beginsBeat(cmds []goredis.Cmder) bool {
	return slices.ContainsFunc(cmds, func(cmd goredis.Cmder) bool {
		return cmd.Name() == "evalsha" && slices.Contains(cmd.Args(), any("rv:{subs}:replicas"))
	})
}

func startReplica(t *testing.T, url string, opts redisstore.Options, hooks ...goredis.Hook) *replica {
	t.Helper()
	rdb, closeRedis, err := redisstore.ConnectPatiently(url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{}
	rdb.AddHook(before(func(_ context.Context, cmds ...goredis.Cmder) error {
		if beginsBeat(cmds) {
			r.beats.Add(1)
		}
		return nil
	}))
	for _, h := range hooks {
		rdb.AddHook(h)
	}
	opts.Partitions, opts.Timing = replicaPartitions, timing
	opts.Hinted = func(h fsm.Hint) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.hints = append(r.hints, h)
	}
	r.Store = redisstore.New(rdb, opts.Patient())
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = r.Run(ctx)
	}()
	r.die = sync.OnceFunc(func() {
		cancel()
		<-over
		_ = closeRedis()
	})
	t.Cleanup(r.die)
	return r
}

func (r *replica) heard() []fsm.Hint {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.hints)
}

// shared says whether each partition is owned by just one of the replicas, and each replica owns some.
func shared(replicas ...*replica) func() error {
	return func() error {
		owners := make([]int, replicaPartitions)
		for i, r := range replicas {
			owned := r.Ownership().Partitions()
			if len(owned) == 0 {
				return fmt.Errorf("replica %d owns nothing", i)
			}
			for _, p := range owned {
				owners[p]++
			}
		}
		for p, n := range owners {
			if n != 1 {
				return fmt.Errorf("partition %d has %d owners", p, n)
			}
		}
		return nil
	}
}

func TestEachPartitionHasOneOwnerAmongTheLiveReplicas(t *testing.T) {
	t.Parallel()
	redis := redisstore.EmptyRedis(t)
	lasting := redisstore.Options{Lease: time.Hour}
	one := startReplica(t, redis.URL, lasting)
	harness.Eventually(t, harness.Wait, "the only replica owns all", shared(one))
	two := startReplica(t, redis.URL, lasting)
	harness.Eventually(t, harness.Wait, "the second has its share although the first one's leases last for an hour",
		shared(one, two))
	three := startReplica(t, redis.URL, lasting)
	harness.Eventually(t, harness.Wait, "and the third", shared(one, two, three))

	if err := two.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := two.Ownership().Partitions(); len(left) > 0 {
		t.Errorf("one that has resigned owns %v", left)
	}
	harness.Eventually(t, harness.Wait, "the others have taken over from one that resigned", shared(one, three))
	four := startReplica(t, redis.URL, lasting)
	harness.Eventually(t, harness.Wait, "one that comes later has its share", shared(one, three, four))
	if left := two.Ownership().Partitions(); len(left) > 0 {
		t.Errorf("one that has resigned owns %v again", left)
	}
}

// TestAReplicaThatResignsEndsAHeartbeatThatHangs holds that a resignation waits for one call of a heartbeat at most,
// not for each that it would have made.
func TestAReplicaThatResignsEndsAHeartbeatThatHangs(t *testing.T) {
	t.Parallel()
	const id = "resigning" // stands in each request of a heartbeat, and in none of the store's other loops
	var hangs, hung atomic.Bool
	hanging, ended := make(chan struct{}), make(chan error, 1)
	var later atomic.Int64 // requests that a heartbeat made after the one that hangs, and not in vain
	one := startReplica(t, redisstore.EmptyRedis(t).URL,
		redisstore.Options{Lease: 60 * time.Millisecond, Poll: time.Hour, ReplicaID: id},
		before(func(ctx context.Context, cmds ...goredis.Cmder) error {
			switch {
			case !hangs.Load():
				return nil
			case beginsBeat(cmds) && ctx.Err() == nil:
				hung.Store(true)
				close(hanging)
				<-ctx.Done()
				ended <- ctx.Err()
			case hung.Load() && ctx.Err() == nil && slices.ContainsFunc(cmds, func(cmd goredis.Cmder) bool {
				return slices.Contains(cmd.Args(), any(id))
			}):
				later.Add(1)
			}
			return ctx.Err()
		}))
	harness.Eventually(t, harness.Wait, "it owns all", shared(one))
	hangs.Store(true)
	<-hanging
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // so that its own calls end at once
	_ = one.Resign(ctx)
	if err := <-ended; !errors.Is(err, context.Canceled) || later.Load() > 0 {
		t.Errorf("the heartbeat ended with %v, and went on with %d requests", err, later.Load())
	}
}

// TestAReplicaGivesBackNoLeaseThatAnotherHasTaken is about one whose leases have run out without its noticing, as in a
// process that was frozen.
func TestAReplicaGivesBackNoLeaseThatAnotherHasTaken(t *testing.T) {
	t.Parallel()
	redis := redisstore.EmptyRedis(t)
	c := client(t, redis)
	one := startReplica(t, redis.URL, redisstore.Options{Lease: time.Hour, Poll: time.Hour})
	harness.Eventually(t, harness.Wait, "it owns all", shared(one))
	lease := func(p int) string { return fmt.Sprintf("rv:{%d}:lease", p) }
	for p := range replicaPartitions {
		if err := c.Set(t.Context(), lease(p), "another", time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := one.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	for p := range replicaPartitions {
		if has, err := c.Get(t.Context(), lease(p)).Result(); err != nil || has != "another" {
			t.Errorf("partition %d is leased to %q (%v)", p, has, err)
		}
	}
}

func TestTheShareOfADeadReplicaGoesToTheOthers(t *testing.T) {
	t.Parallel()
	redis := redisstore.EmptyRedis(t)
	brief := redisstore.Options{Lease: 600 * time.Millisecond}
	one, two := startReplica(t, redis.URL, brief), startReplica(t, redis.URL, brief)
	harness.Eventually(t, harness.Wait, "they share", shared(one, two))
	two.die()
	harness.Eventually(t, harness.Wait, "the one that lives has all", shared(one))
}

func TestAReplicaThatCannotReachRedisGoesOnWithWhatItHas(t *testing.T) {
	t.Parallel()
	redis := harness.StartRedis(t)
	one := startReplica(t, redis.URL, redisstore.Options{Lease: 300 * time.Millisecond})
	harness.Eventually(t, harness.Wait, "it owns all", shared(one))
	redis.Kill()
	began := one.beats.Load()
	harness.Eventually(t, harness.Wait, "the leases have run out", harness.True(func() bool {
		return one.beats.Load() > began+12 // a lease is six long
	}, "not yet"))
	if err := shared(one)(); err != nil {
		t.Errorf("partitions were given up: %v", err)
	}
	redis.Restart()
	two := startReplica(t, redis.URL, redisstore.Options{Lease: 300 * time.Millisecond})
	harness.Eventually(t, harness.Wait, "they share when it is back, empty", shared(one, two))
}

// TestALeaseIsRenewedOnAServerThatIsFull holds that replicas keep their partitions until there is memory again.
func TestALeaseIsRenewedOnAServerThatIsFull(t *testing.T) {
	t.Parallel()
	server := harness.StartRedis(t)
	r := startReplica(t, server.URL, redisstore.Options{})
	harness.Eventually(t, harness.Wait, "it owns all", shared(r))
	c, ctx := client(t, server), t.Context()
	if err := c.ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	for p := range replicaPartitions {
		if err := c.PExpire(ctx, fmt.Sprintf("rv:{%d}:lease", p), time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
	}
	harness.Eventually(t, harness.Wait, "each lease is renewed", func() error {
		for p := range replicaPartitions {
			left := must[time.Duration](t)(c.PTTL(ctx, fmt.Sprintf("rv:{%d}:lease", p)).Result())
			if left <= 0 || left > redisstore.DefaultLease {
				return fmt.Errorf("the lease of partition %d lasts for %s", p, left)
			}
		}
		return shared(r)()
	})
}

// client returns a client that is closed with the test, of a server that may live on.
func client(t *testing.T, r *harness.Redis) *goredis.Client {
	c := goredis.NewClient(&goredis.Options{Addr: r.Addr, ReadTimeout: harness.Wait})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestADeadReplicaOfAServerWhoseClockWasAheadIsReplaced(t *testing.T) {
	t.Parallel()
	redis := redisstore.EmptyRedis(t)
	c, ahead := client(t, redis), 10*time.Minute
	// What a server has left behind whose clock was ahead, before a failover.
	if err := c.ZAdd(
		t.Context(), "rv:{subs}:replicas", goredis.Z{Score: float64(time.Now().Add(ahead).UnixMilli()), Member: "dead"},
	).Err(); err != nil {
		t.Fatal(err)
	}
	for p := range replicaPartitions {
		if err := c.Set(t.Context(), fmt.Sprintf("rv:{%d}:lease", p), "dead", ahead).Err(); err != nil {
			t.Fatal(err)
		}
	}
	one := startReplica(t, redis.URL, redisstore.Options{Lease: 600 * time.Millisecond})
	harness.Eventually(t, harness.Wait, "the one that lives has all", shared(one))
}

func TestWhoeverHadAPartitionCountsALossAfterAnOutage(t *testing.T) {
	t.Parallel()
	redis := harness.StartRedis(t, "--dir", t.TempDir())
	lasting := redisstore.Options{Lease: time.Hour}
	one, two := startReplica(t, redis.URL, lasting), startReplica(t, redis.URL, lasting)
	harness.Eventually(t, harness.Wait, "they share", shared(one, two))
	// After an outage that outlasts the leases, whoever is back first takes them all.
	for p := range replicaPartitions {
		if err := redis.Client().Set(
			t.Context(), fmt.Sprintf("rv:{%d}:lease", p), "the first", time.Hour,
		).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := redis.Client().Save(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	had := map[*replica][]int{one: one.Ownership().Partitions(), two: two.Ownership().Partitions()}
	redis.Kill()
	redis.Restart()
	harness.Eventually(t, harness.Wait, "a loss is counted in every partition", func() error {
		for r, partitions := range had {
			for _, p := range partitions {
				if r.Ownership().Losses(p) == 0 {
					return fmt.Errorf("partition %d is not", p)
				}
			}
		}
		return nil
	})
}

func TestAPartitionThatCameBackEmptyCountsAsALossAndItsEpochsJump(t *testing.T) {
	t.Parallel()
	redis := redisstore.EmptyRedis(t)
	c, ctx := client(t, redis), t.Context()
	if err := c.HSet(ctx, "rv:{subs}:meta", "born", 1).Err(); err != nil {
		t.Fatal(err)
	}
	one := startReplica(t, redis.URL, redisstore.Options{Lease: 300 * time.Millisecond})
	if err := one.Check(ctx); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, harness.Wait, "it owns all", shared(one))
	p := one.PartitionOf("/a")
	wake := func() fsm.Delivery {
		o := must[fsm.Outcome](t)(memstore.Link(ctx, one.Store, subscription("s"), "/a", "0", "1"))
		if len(o.Deliveries) != 1 {
			t.Fatalf("%+v", o)
		}
		return o.Deliveries[0]
	}
	before := wake()
	// As does a node of a cluster that holds this partition and has no persistence.
	keys := must[[]string](t)(c.Keys(ctx, fmt.Sprintf("rv:{%d}:*", p)).Result())
	if err := c.Del(ctx, keys...).Err(); err != nil {
		t.Fatal(err)
	}
	if after := wake(); after.Epoch <= before.Epoch {
		t.Errorf("epoch %d after %d", after.Epoch, before.Epoch)
	}
	harness.Eventually(t, harness.Wait, "the loss is counted", func() error {
		if one.Ownership().Losses(p) == 0 {
			return errors.New("it is not")
		}
		return nil
	})
}
