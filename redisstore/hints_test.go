package redisstore_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/redisstore"
	"reveille/test/harness"
)

func TestHintsReachTheOtherReplicasAndNotTheirSender(t *testing.T) {
	t.Parallel()
	redis := redisstore.EmptyRedis(t)
	opts := redisstore.Options{Lease: time.Hour, Poll: time.Hour}
	c := client(t, redis)
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
	t.Parallel()
	redis := redisstore.EmptyRedis(t)
	c, lasting := client(t, redis), redisstore.Options{Lease: time.Hour}
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
	three := startReplica(t, redis.URL, lasting)
	// One heartbeat after the other has no partition given back.
	const rounds = 20
	replicas := []*replica{one, two, three}
	for range rounds {
		var began []int64
		for _, r := range replicas {
			began = append(began, r.beats.Load())
		}
		harness.Eventually(t, harness.Wait, "all have a heartbeat", func() error {
			if err := c.Publish(t.Context(), "rv:{subs}:hints", "test\nreplicas 0 ").Err(); err != nil {
				return err
			}
			for i, r := range replicas {
				if r.beats.Load() == began[i] {
					return fmt.Errorf("replica %d has none", i)
				}
			}
			return nil
		})
	}
	// What they have told by then comes before this.
	for _, r := range replicas {
		r.Hint(fsm.Hint{Kind: fsm.HintIdle, Path: "/end"})
	}
	told := 0
	for ends := 0; ends < len(replicas); {
		m, err := sub.ReceiveMessage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(m.Payload, "test\n") {
			told += strings.Count(m.Payload, "\nreplicas ")
			ends += strings.Count(m.Payload, "/end")
		}
	}
	if told >= rounds {
		t.Errorf("they told each other %d times in %d heartbeats that gave nothing back", told, rounds)
	}
}
