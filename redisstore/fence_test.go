package redisstore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec/memstore"
	"reveille/redisstore"
	"reveille/test/harness"
)

// TestNoEpochComesTwiceWhateverRedisHasLost holds S1 over losses that Redis does not tell of (webhook spec, Safety).
func TestNoEpochComesTwiceWhateverRedisHasLost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		// lose has Redis come back as it was at an earlier moment.
		lose func(t *testing.T, r *harness.Redis, backup []byte)
	}{
		{
			"a crash that loses what was written last",
			func(t *testing.T, r *harness.Redis, _ []byte) { r.Kill(); r.Restart() },
		},
		{
			"an older backup",
			func(t *testing.T, r *harness.Redis, backup []byte) { r.Kill(); restore(t, r, backup); r.Restart() },
		},
		{"the same backup, time and again", func(t *testing.T, r *harness.Redis, backup []byte) {
			for range 2 {
				r.Kill()
				restore(t, r, backup)
				r.Restart()
			}
		}},
	} {
		for server, incarnation := range map[string]string{
			"": "", " of a server whose run_id never changes": "same",
			" of a server that shows no run_id": "-",
		} {
			t.Run(c.name+server, func(t *testing.T) { epochsAfter(t, incarnation, c.lose) })
		}
	}
}

// epochsAfter goes through wakes and losses on a server that shows an incarnation, or its own for "".
func epochsAfter(
	t *testing.T, incarnation string, lose func(t *testing.T, r *harness.Redis, backup []byte),
) {
	const path = "/a"
	sub := subscription("s")
	dir := t.TempDir()
	r := harness.StartRedis(t, "--dir", dir)
	rdb, closeRedis, err := redisstore.ConnectPatiently(r.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = closeRedis() }()
	ctx := t.Context()
	s := redisstore.New(rdb, redisstore.Options{Partitions: 1, Timing: timing, Draw: showing(incarnation)}.Patient())
	must[fsm.Outcome](t)(memstore.Link(ctx, s, sub, path, "0", "0"))
	highest, losses := int64(0), 0
	// wake goes through a wake cycle, up to a tail that is higher each time.
	tail := byte('a')
	wake := func() {
		t.Helper()
		o := must[fsm.Observation](t)(s.Observe(ctx, 0, path, fsm.Offset(tail), false))
		if len(o.Deliveries) != 1 {
			t.Fatalf("observed %+v", o)
		}
		w := o.Deliveries[0]
		if w.Epoch <= highest {
			t.Fatalf("epoch %d after %d, after %d losses", w.Epoch, highest, losses)
		}
		highest = w.Epoch
		must[fsm.Outcome](t)(s.Finish(ctx, w.Ref(), w.Streams))
		tail++
	}
	wake()
	if highest != 1 && incarnation != "-" {
		t.Errorf("the first epoch is %d", highest)
	}
	if err := r.Client().Save(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	backup, err := os.ReadFile(filepath.Join(dir, "dump.rdb"))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		wake()
		before := highest
		wake()
		if highest != before+1 && incarnation != "-" {
			t.Errorf("the epochs went from %d to %d within one incarnation", before, highest)
		}
		lose(t, r, backup)
		losses++
	}
	wake()
	if highest >= 1<<53 {
		t.Errorf("epoch %d is none that JSON keeps exact", highest)
	}
}

// showing returns draws as they are made by chance, with an incarnation.
func showing(incarnation string) func() redisstore.Draw {
	return func() redisstore.Draw { return redisstore.Draw{Nonce: rand.Text(), Incarnation: incarnation} }
}

// TestAWakeFromBeforeALossIsDeliveredUnderANewEpoch is about a wake that was over, and followed by others,
// by the time of the loss.
func TestAWakeFromBeforeALossIsDeliveredUnderANewEpoch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := harness.StartRedis(t, "--dir", dir)
	rdb, closeRedis, err := redisstore.ConnectPatiently(r.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = closeRedis() }()
	ctx := t.Context()
	s := redisstore.New(rdb, redisstore.Options{Partitions: 1, Timing: timing}.Patient())
	must[fsm.Outcome](t)(memstore.Link(ctx, s, subscription("s"), "/a", "0", "0"))
	first := must[fsm.Observation](t)(s.Observe(ctx, 0, "/a", "1", false)).Deliveries[0]
	if err := r.Client().Save(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	must[fsm.Outcome](t)(s.Finish(ctx, first.Ref(), first.Streams))
	second := must[fsm.Observation](t)(s.Observe(ctx, 0, "/a", "2", false)).Deliveries[0]
	r.Kill()
	r.Restart()
	if _, err := s.Park(ctx, first.Ref(), fsm.BlockedSlot, 0); err != nil { // its deadline has come
		t.Fatal(err)
	}
	o, _, err := s.Due(ctx, 0, 10)
	if err != nil || len(o.Deliveries) != 1 {
		t.Fatalf("%+v, %v", o, err)
	}
	if w := o.Deliveries[0]; w.Epoch <= second.Epoch || w.WakeID == first.WakeID || w.Attempt != 1 {
		t.Errorf("epoch %d, wake %s, attempt %d came after epoch %d; wake %s was epoch %d", w.Epoch, w.WakeID,
			w.Attempt,
			second.Epoch, first.WakeID, first.Epoch)
	}
}

func restore(t *testing.T, r *harness.Redis, backup []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(r.Dir(), "dump.rdb"), backup, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestALossIsRemembered is about what a store that has begun a new incarnation says of what it does not know.
func TestALossIsRemembered(t *testing.T) {
	t.Parallel()
	r := harness.StartRedis(t, "--appendonly", "yes")
	rdb, closeRedis, err := redisstore.ConnectPatiently(r.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = closeRedis() }()
	ctx, now := t.Context(), time.UnixMilli(time.Now().UnixMilli())
	s := redisstore.New(rdb, redisstore.Options{Partitions: 1, Timing: timing, Draw: func() redisstore.Draw {
		return redisstore.Draw{Now: now, Nonce: "n"}
	}}.Patient())
	expect := func(when string, lost time.Time) {
		t.Helper()
		want := int64(0)
		if !lost.IsZero() {
			want = lost.Add(30*time.Second).UnixMilli() * 2048
		}
		if got := must[fsm.Stream](t)(s.Stream(ctx, "/a")); got.Found() || got.Lost != want {
			t.Errorf("%s: it may have lost the record to subscriptions up to %d, want %d", when, got.Lost, want)
		}
	}
	expect("in its first incarnation", time.Time{})
	now = now.Add(time.Hour)
	expect("an hour into its first incarnation", time.Time{})
	r.Kill()
	r.Restart()
	at := now
	expect("when it has come back", at)
	now = now.Add(time.Minute)
	expect("a minute later", at)
}

// TestAReplicaThatKnowsNothingOfALossRepeatsNoEpoch is about a server that shows no run_id.
func TestAReplicaThatKnowsNothingOfALossRepeatsNoEpoch(t *testing.T) {
	t.Parallel()
	r := harness.StartRedis(t, "--dir", t.TempDir())
	rdb, closeRedis, err := redisstore.ConnectPatiently(r.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = closeRedis() }()
	ctx := t.Context()
	replica := func() *redisstore.Store {
		return redisstore.New(rdb, redisstore.Options{Partitions: 1, Timing: timing, Draw: showing("-")}.Patient())
	}
	one, other := replica(), replica()
	must[fsm.Outcome](t)(memstore.Link(ctx, one, subscription("s"), "/a", "0", "0"))
	must[fsm.Observation](t)(other.Observe(ctx, 0, "/a", "0", false))
	if err := r.Client().Save(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	lost := must[fsm.Observation](t)(one.Observe(ctx, 0, "/a", "1", false)).Deliveries[0]
	r.Kill()
	r.Restart()
	seen := must[fsm.Observation](t)(other.Observe(ctx, 0, "/a", "1", false))
	if again := seen.Deliveries[0]; again.Epoch <= lost.Epoch {
		t.Errorf("epoch %d came after epoch %d", again.Epoch, lost.Epoch)
	}
}

// TestEveryReplicaHearsOfALoss holds that those that do not own a partition hear of it too, whatever the
// server shows of its incarnation.
func TestEveryReplicaHearsOfALoss(t *testing.T) {
	t.Parallel()
	const partitions = 4
	r := harness.StartRedis(t, "--dir", t.TempDir())
	rdb, closeRedis, err := redisstore.ConnectPatiently(r.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = closeRedis() }()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var running sync.WaitGroup
	var replicas []*redisstore.Store
	for i := range 3 {
		s := redisstore.New(rdb, redisstore.Options{
			Partitions: partitions, Timing: timing, Draw: showing("same"), Lease: time.Second,
			ReplicaID: fmt.Sprint("replica ", i),
		}.Patient())
		replicas = append(replicas, s)
		running.Go(func() { _ = s.Run(ctx) })
	}
	sum := func() (n int) {
		for _, s := range replicas {
			n += len(s.Ownership().Partitions())
		}
		return n
	}
	harness.Eventually(t, harness.Wait, "the partitions are shared out", func() error {
		if sum() != partitions {
			return errors.New("not yet")
		}
		return nil
	})
	if err := r.Client().Save(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	mark := func() (n int64) {
		for p := range partitions {
			v, err := r.Client().HGet(ctx, fmt.Sprintf("rv:{%d}:meta", p), "mark").Int64()
			if err != nil {
				t.Fatal(err)
			}
			n += v
		}
		return n
	}
	saved := mark()
	harness.Eventually(t, harness.Wait, "every partition has changed since", func() error {
		if mark() < saved+3*partitions {
			return errors.New("not yet")
		}
		return nil
	})
	r.Kill()
	r.Restart()
	harness.Eventually(t, harness.Wait, "every replica counts a loss in every partition", func() error {
		for i, s := range replicas {
			for p := range partitions {
				if s.Ownership().Losses(p) == 0 {
					return fmt.Errorf("replica %d counts none in partition %d", i, p)
				}
			}
		}
		return nil
	})
	stop()
	running.Wait()
}
