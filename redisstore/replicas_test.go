package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"reveille/fsm"
	"reveille/fsm/memstore"
	"reveille/redisstore"
	"reveille/test/harness"
)

const replicaPartitions = 32

// replica is a store that runs, as one of several on the same Redis.
type replica struct {
	*redisstore.Store
	die func()

	mu    sync.Mutex
	hints []fsm.Hint
}

func startReplica(t *testing.T, url string, opts redisstore.Options) *replica {
	t.Helper()
	rdb, closeRedis, err := redisstore.Connect(url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{}
	opts.Partitions, opts.Timing = replicaPartitions, timing
	opts.Hinted = func(h fsm.Hint) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.hints = append(r.hints, h)
	}
	r.Store = redisstore.New(rdb, opts)
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
	redis := harness.StartRedis(t)
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

func TestAReplicaResignsWithoutWaitingForAHeartbeatThatHangs(t *testing.T) {
	redis := harness.StartRedis(t)
	one := startReplica(t, redis.URL, redisstore.Options{Lease: 60 * time.Millisecond})
	harness.Eventually(t, harness.Wait, "it owns all", shared(one))
	redis.Pause()
	t.Cleanup(redis.Resume)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if one.Ping(ctx) == nil {
		t.Fatal("redis answers")
	}
	resigned := make(chan struct{})
	go func() {
		defer close(resigned)
		_ = one.Resign(ctx)
	}()
	select {
	case <-resigned:
	case <-time.After(4 * time.Second): // a call that hangs ends after 2 s, and a heartbeat has several
		t.Error("it waits")
		<-resigned
	}
}

func TestTheShareOfADeadReplicaGoesToTheOthers(t *testing.T) {
	redis := harness.StartRedis(t)
	brief := redisstore.Options{Lease: 600 * time.Millisecond}
	one, two := startReplica(t, redis.URL, brief), startReplica(t, redis.URL, brief)
	harness.Eventually(t, harness.Wait, "they share", shared(one, two))
	two.die()
	harness.Eventually(t, harness.Wait, "the one that lives has all", shared(one))
}

func TestAReplicaThatCannotReachRedisGoesOnWithWhatItHas(t *testing.T) {
	redis := harness.StartRedis(t)
	one := startReplica(t, redis.URL, redisstore.Options{Lease: 300 * time.Millisecond})
	harness.Eventually(t, harness.Wait, "it owns all", shared(one))
	redis.Kill()
	harness.Eventually(t, harness.Wait, "the outage is felt", func() error {
		if err := one.Ping(t.Context()); errors.Is(err, fsm.ErrUnavailable) {
			return nil
		}
		return errors.New("redis answers")
	})
	harness.Never(t, time.Second, "partitions given up", func() error {
		if len(one.Ownership().Partitions()) < replicaPartitions {
			return nil
		}
		return errors.New("none")
	})
	redis.Restart()
	two := startReplica(t, redis.URL, redisstore.Options{Lease: 300 * time.Millisecond})
	harness.Eventually(t, harness.Wait, "they share when it is back, empty", shared(one, two))
}

func TestHintsReachTheOtherReplicasAndNotTheirSender(t *testing.T) {
	redis := harness.StartRedis(t)
	opts := redisstore.Options{Lease: time.Hour, Poll: time.Hour}
	c := redis.Client()
	one, two := startReplica(t, redis.URL, opts), startReplica(t, redis.URL, opts)
	harness.Eventually(t, harness.Wait, "they share", shared(one, two))
	harness.Eventually(t, harness.Wait, "both listen", func() error {
		n, err := c.PubSubNumSub(t.Context(), "rv:{subs}:hints").Result()
		if err == nil && n["rv:{subs}:hints"] != 2 {
			err = fmt.Errorf("%v do", n)
		}
		return err
	})
	sent := []fsm.Hint{
		{Kind: fsm.HintWatch, Partition: 7, Path: "/a%20b/c"},
		{Kind: fsm.HintIdle, Path: "/a"},
		{Kind: fsm.HintGone, Path: "/a"},
		{Kind: fsm.HintGone, Path: "/a b"},
	}
	for _, h := range sent {
		one.Hint(h)
	}
	harness.Eventually(t, harness.Wait, "the other has heard them", func() error {
		if got := two.heard(); !slices.Equal(got, sent) {
			return fmt.Errorf("it heard %+v", got)
		}
		return nil
	})
	if got := one.heard(); len(got) > 0 {
		t.Errorf("the sender heard %+v", got)
	}
	t.Run("a subscription is known to the others without their asking", func(t *testing.T) {
		if _, _, err := one.CreateSubscription(t.Context(), subscription("s")); err != nil {
			t.Fatal(err)
		}
		has := func(want bool) func() error {
			return func() error {
				if _, ok := two.Catalog().Get("s"); ok != want {
					return fmt.Errorf("found: %v", ok)
				}
				return nil
			}
		}
		harness.Eventually(t, harness.Wait, "made", has(true))
		if err := one.DeleteSubscription(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, harness.Wait, "deleted", has(false))
	})
	t.Run("what cannot be read is passed over", func(t *testing.T) {
		for _, message := range []string{
			"", "x", "x\n", "x\nwatch 99 /a", "x\nwatch -1 /a", "x\nwatch seven /a",
			"x\nwatch\n\nidle 0 /last",
		} {
			if err := c.Publish(t.Context(), "rv:{subs}:hints", message).Err(); err != nil {
				t.Fatal(err)
			}
		}
		harness.Eventually(t, harness.Wait, "the last is heard", func() error {
			if got := two.heard(); len(got) != len(sent)+1 || got[len(sent)].Path != "/last" {
				return fmt.Errorf("heard %+v", got)
			}
			return nil
		})
	})
}

func TestReplicasThatCannotGiveTheirPartitionsBackDoNotKeepEachOtherBusy(t *testing.T) {
	redis := harness.StartRedis(t)
	c, lasting := redis.Client(), redisstore.Options{Lease: time.Hour}
	one, two := startReplica(t, redis.URL, lasting), startReplica(t, redis.URL, lasting)
	harness.Eventually(t, harness.Wait, "they share", shared(one, two))
	for p := range replicaPartitions {
		tx, key := c.TxPipeline(), fmt.Sprintf("rv:{%d}:lease", p)
		tx.Del(t.Context(), key)
		tx.HSet(t.Context(), key, "not", "a lease")
		if _, err := tx.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	sub := c.Subscribe(t.Context(), "rv:{subs}:hints")
	defer func() { _ = sub.Close() }()
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	startReplica(t, redis.URL, lasting)
	n := 0
	harness.Never(t, time.Second, "that they go on telling each other", func() error {
		for {
			select {
			case <-sub.Channel():
				if n++; n > 20 {
					return nil
				}
			default:
				return fmt.Errorf("%d messages", n)
			}
		}
	})
}

func TestADeadReplicaOfAServerWhoseClockWasAheadIsReplaced(t *testing.T) {
	redis := harness.StartRedis(t)
	c, ahead := redis.Client(), 10*time.Minute
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

func TestWhoeverHadAPartitionDoubtsWhatRedisHasOfItAfterAnOutage(t *testing.T) {
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
	harness.Eventually(t, harness.Wait, "all is in doubt", func() error {
		for r, partitions := range had {
			for _, p := range partitions {
				if r.Ownership().Doubts(p) == 0 {
					return fmt.Errorf("partition %d is not", p)
				}
			}
		}
		return nil
	})
}

func TestAPartitionThatCameBackEmptyIsInDoubtAndItsEpochsJump(t *testing.T) {
	redis := harness.StartRedis(t)
	c, ctx := redis.Client(), t.Context()
	if err := c.HSet(ctx, "rv:{subs}:meta", "born", 1).Err(); err != nil {
		t.Fatal(err)
	}
	one := startReplica(t, redis.URL, redisstore.Options{Lease: 300 * time.Millisecond})
	if err := one.Check(ctx); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, harness.Wait, "it owns all", shared(one))
	p := one.PartitionOf("/a")
	wake := func() fsm.Wake {
		o := must[fsm.Outcome](t)(memstore.Link(ctx, one.Store, subscription("s"), "/a", "0", "1"))
		if len(o.Wakes) != 1 {
			t.Fatalf("%+v", o)
		}
		return o.Wakes[0]
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
	harness.Eventually(t, 5*time.Second, "it is in doubt", func() error {
		if one.Ownership().Doubts(p) == 0 {
			return errors.New("it is not")
		}
		return nil
	})
}
