package redisstore_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/redisstore"
	"reveille/test/harness"
)

// TestNoEpochComesTwiceWhateverRedisHasLost holds S1 over losses that Redis does not tell of (webhook spec, Safety).
func TestNoEpochComesTwiceWhateverRedisHasLost(t *testing.T) {
	const path = "/a"
	sub := subscription("s")
	for _, c := range []struct {
		name string
		// lose has Redis come back as it was at an earlier moment.
		lose func(t *testing.T, r *harness.Redis, backup []byte)
	}{
		{"a crash that loses what was written last", func(t *testing.T, r *harness.Redis, _ []byte) { r.Kill(); r.Restart() }},
		{"an older backup", func(t *testing.T, r *harness.Redis, backup []byte) { r.Kill(); restore(t, r, backup); r.Restart() }},
		{"the same backup, time and again", func(t *testing.T, r *harness.Redis, backup []byte) {
			for range 2 {
				r.Kill()
				restore(t, r, backup)
				r.Restart()
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			r := harness.StartRedis(t, "--dir", dir)
			rdb, closeRedis, err := redisstore.Connect(r.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = closeRedis() }()
			ctx := t.Context()
			s := redisstore.New(rdb, redisstore.Options{Partitions: 1, Timing: timing})
			must[fsm.Outcome](t)(s.Link(ctx, sub, path, "0", "0"))
			highest, lives := int64(0), 0
			// wake goes through a wake cycle, up to a tail that is higher each time.
			tail := byte('a')
			wake := func() {
				t.Helper()
				o := must[fsm.Observation](t)(s.Observe(ctx, 0, path, fsm.Offset(tail)))
				if len(o.Wakes) != 1 {
					t.Fatalf("observed %+v", o)
				}
				w := o.Wakes[0]
				if w.Epoch <= highest {
					t.Fatalf("epoch %d after %d, in life %d", w.Epoch, highest, lives)
				}
				highest = w.Epoch
				must[fsm.Outcome](t)(s.Finish(ctx, w.Ref(), w.Streams))
				tail++
			}
			wake()
			if highest != 1 {
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
				if highest != before+1 {
					t.Errorf("the epochs went from %d to %d within one life", before, highest)
				}
				c.lose(t, r, backup)
				lives++
			}
			wake()
			if highest >= 1<<53 {
				t.Errorf("epoch %d is none that JSON keeps exact", highest)
			}
		})
	}
}

// TestAWakeFromBeforeALossIsDeliveredUnderANewEpoch is about a wake that was over, and followed by others, by the time of the loss.
func TestAWakeFromBeforeALossIsDeliveredUnderANewEpoch(t *testing.T) {
	dir := t.TempDir()
	r := harness.StartRedis(t, "--dir", dir)
	rdb, closeRedis, err := redisstore.Connect(r.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = closeRedis() }()
	ctx := t.Context()
	s := redisstore.New(rdb, redisstore.Options{Partitions: 1, Timing: timing})
	must[fsm.Outcome](t)(s.Link(ctx, subscription("s"), "/a", "0", "0"))
	first := must[fsm.Observation](t)(s.Observe(ctx, 0, "/a", "1")).Wakes[0]
	if err := r.Client().Save(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	must[fsm.Outcome](t)(s.Finish(ctx, first.Ref(), first.Streams))
	second := must[fsm.Observation](t)(s.Observe(ctx, 0, "/a", "2")).Wakes[0]
	r.Kill()
	r.Restart()
	if err := s.Park(ctx, first.Ref(), 0); err != nil { // its deadline has come
		t.Fatal(err)
	}
	o, _, err := s.Due(ctx, 0, 10)
	if err != nil || len(o.Wakes) != 1 {
		t.Fatalf("%+v, %v", o, err)
	}
	if w := o.Wakes[0]; w.Epoch <= second.Epoch || w.WakeID == first.WakeID || w.Attempt != 1 {
		t.Errorf("epoch %d, wake %s, attempt %d came after epoch %d; wake %s was epoch %d", w.Epoch, w.WakeID, w.Attempt,
			second.Epoch, first.WakeID, first.Epoch)
	}
}

func restore(t *testing.T, r *harness.Redis, backup []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(r.Dir(), "dump.rdb"), backup, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestALossIsRemembered is about what a store that has begun a new life says of what it does not know.
func TestALossIsRemembered(t *testing.T) {
	r := harness.StartRedis(t, "--appendonly", "yes")
	rdb, closeRedis, err := redisstore.Connect(r.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = closeRedis() }()
	ctx, now := t.Context(), time.UnixMilli(time.Now().UnixMilli())
	s := redisstore.New(rdb, redisstore.Options{Partitions: 1, Timing: timing, Draw: func() redisstore.Draw {
		return redisstore.Draw{Now: now, Nonce: "n"}
	}})
	expect := func(when string, lost bool, ago time.Duration) {
		t.Helper()
		gotAgo, got, err := s.LostAgo(ctx, "/a")
		if err != nil || got != lost || gotAgo != ago {
			t.Errorf("%s: it may have lost something: %v, %s ago (%v)", when, got, gotAgo, err)
		}
	}
	expect("in its first life", false, 0)
	now = now.Add(time.Hour)
	expect("an hour into its first life", false, 0)
	r.Kill()
	r.Restart()
	expect("when it has come back", true, 0)
	now = now.Add(time.Minute)
	expect("a minute later", true, time.Minute)
	now = now.Add(-2 * time.Minute)
	expect("while its clock is behind", true, 0)
}
