package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/redisstore"
)

// onLists returns on which of a partition's lists a consumer is, and since when.
func (w *world) onLists(t *testing.T, partition int, consumer string) map[string]time.Time {
	t.Helper()
	on := map[string]time.Time{}
	for _, list := range []string{"waiting", "retired", "live"} {
		scores, err := w.rdb.ZRangeWithScores(t.Context(), fmt.Sprintf("rv:{%d}:%s", partition, list), 0, -1).Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, z := range scores {
			if z.Member == consumer {
				on[list] = time.UnixMilli(int64(z.Score))
			}
		}
	}
	return on
}

func TestAConsumerIsOnTheListOfItsStateSinceItCameToBeInIt(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]func(*testing.T) string{
		"redis-server": func(t *testing.T) string { return redisstore.EmptyRedis(t).URL },
		"embedded":     func(*testing.T) string { return "embedded" },
	} {
		t.Run(name, func(t *testing.T) {
			w := open(t, url(t), 1)
			ctx := t.Context()
			sub := subscription("s")
			id := fsm.ConsumerID("s", "/a")
			wants := func(step, list string, since time.Time) {
				t.Helper()
				on := w.onLists(t, 0, id)
				if at, ok := on[list]; len(on) > 1 || list == "" && len(on) > 0 || list != "" &&
					(!ok || !at.Equal(since)) {
					t.Fatalf("after %s the consumer is on %v, want %q since %s", step, on, list, since)
				}
			}
			woke := w.now
			wake := must[fsm.Outcome](t)(w.Link(ctx, sub, "/a", fsm.Start, "1")).Wakes[0]
			wants("its wake", "waiting", woke)
			if !wake.WokeAt.Equal(woke) {
				t.Fatalf("the wake began at %s, want %s", wake.WokeAt, woke)
			}
			w.later(time.Second)
			must[fsm.Outcome](t)(w.Fail(ctx, wake.Ref(), fsm.Failure{}))
			w.later(time.Minute)
			due, _, err := w.Due(ctx, 0, 10)
			if err != nil || len(due.Wakes) != 1 || !due.Wakes[0].WokeAt.Equal(woke) {
				t.Fatalf("due %+v, %v; want an attempt of the wake that began at %s", due, err, woke)
			}
			wants("a failure and a second attempt", "waiting", woke)
			must[fsm.Outcome](t)(w.Fail(ctx, due.Wakes[0].Ref(), fsm.Failure{Retired: true}))
			wants("a 410", "retired", w.now)
			w.Catalog().Replace([]fsm.Subscription{sub}, 0)
			w.later(time.Hour)
			if _, err := w.ResumeSubscription(ctx, "s"); err != nil {
				t.Fatal(err)
			}
			resumed := w.now
			wants("being resumed", "waiting", resumed)
			w.later(time.Second)
			if _, err := w.Accept(ctx, wake.Ref()); err != nil {
				t.Fatal(err)
			}
			wants("a 2xx", "live", w.now)
			must[fsm.Observation](t)(w.Observe(ctx, 0, "/a", "2", false))
			w.later(time.Second)
			again := must[fsm.Outcome](t)(w.Finish(ctx, wake.Ref(), wake.Streams)).Wakes[0]
			wants("a done with work pending", "waiting", w.now)
			if !again.WokeAt.Equal(w.now) {
				t.Fatalf("the next wake began at %s, want %s", again.WokeAt, w.now)
			}
			began := w.now
			w.later(time.Second)
			must[fsm.Outcome](t)(w.Finish(ctx, again.Ref(), again.Streams))
			wants("a done with nothing pending", "", time.Time{})
			if c := must[fsm.Consumer](t)(w.Consumer(ctx, id, "/a")); !c.WokeAt.Equal(began) {
				t.Fatalf("the idle consumer's last wake began at %s, want %s", c.WokeAt, began)
			}
			must[fsm.Observation](t)(w.Observe(ctx, 0, "/a", "3", false))
			must[fsm.Outcome](t)(w.Deleted(ctx, 0, "/a", fsm.Deletion{}))
			wants("its removal", "", time.Time{})
		})
	}
}

// TestAConsumerOfAVersionThatNotedLessGoesOn is for an upgrade of one replica after the other.
func TestAConsumerOfAVersionThatNotedLessGoesOn(t *testing.T) {
	t.Parallel()
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	ctx := t.Context()
	id := fsm.ConsumerID("s", "/a")
	wake := must[fsm.Outcome](t)(w.Link(ctx, subscription("s"), "/a", fsm.Start, "1")).Wakes[0]
	// What such a version would have written.
	if err := w.rdb.HDel(ctx, "rv:{0}:c:"+id, "woke", "listed").Err(); err != nil {
		t.Fatal(err)
	}
	if err := w.rdb.Del(ctx, "rv:{0}:waiting").Err(); err != nil {
		t.Fatal(err)
	}
	c := must[fsm.Consumer](t)(w.Consumer(ctx, id, "/a"))
	if c.State != fsm.Waking || !c.WokeAt.IsZero() {
		t.Fatalf("consumer %+v, want one that is waking since nobody knows when", c)
	}
	w.later(time.Second)
	failed := w.now
	must[fsm.Outcome](t)(w.Fail(ctx, wake.Ref(), fsm.Failure{}))
	w.later(time.Minute)
	due, _, err := w.Due(ctx, 0, 10)
	if err != nil || len(due.Wakes) != 1 || !due.Wakes[0].WokeAt.IsZero() {
		t.Fatalf("due %+v, %v", due, err)
	}
	if on := w.onLists(t, 0, id); !on["waiting"].Equal(failed) {
		t.Fatalf("it is on %v, want it waiting since %s, when this version first saw it", on, failed)
	}
	must[fsm.Observation](t)(w.Observe(ctx, 0, "/a", "2", false))
	if next := must[fsm.Outcome](t)(
		w.Finish(ctx, due.Wakes[0].Ref(), due.Wakes[0].Streams),
	); !next.Wakes[0].WokeAt.Equal(w.now) {
		t.Fatalf("the next wake began at %s, want %s", next.Wakes[0].WokeAt, w.now)
	}
}

// TestAWakeOfAnOlderVersionIsNotTakenForTheOneBefore is for an upgrade of one replica after the other, and
// for one after a way back.
func TestAWakeOfAnOlderVersionIsNotTakenForTheOneBefore(t *testing.T) {
	t.Parallel()
	w, r := owning(t, redisstore.EmptyRedis(t).URL, 1)
	ctx := t.Context()
	sub, _, err := w.CreateSubscription(ctx, subscription("s"))
	if err != nil {
		t.Fatal(err)
	}
	id := fsm.ConsumerID("s", "/a")
	wake := must[fsm.Outcome](t)(w.Link(ctx, sub, "/a", fsm.Start, "1")).Wakes[0]
	must[fsm.Outcome](t)(w.Fail(ctx, wake.Ref(), fsm.Failure{Reason: "status 500"}))
	w.later(48 * time.Hour)
	// What such a version would have written as the wake was delivered and another began.
	if err := w.rdb.HSet(ctx, "rv:{0}:c:"+id, "epoch", wake.Epoch+1, "wake", "w_other", "failing", 0, "attempt", 0,
		"sent", 0,
		"due", w.now.UnixMilli()).Err(); err != nil {
		t.Fatal(err)
	}
	if c := must[fsm.Consumer](t)(w.Consumer(ctx, id, "/a")); !c.WokeAt.IsZero() || c.LastError != "" {
		t.Errorf("consumer %+v, want one that is waking since nobody knows when and whose last attempt did not fail", c)
	}
	seen := w.now
	if got := figures(t, r, "reveille_oldest_pending_wake_seconds")[""]; got != 0 {
		t.Errorf("the oldest has waited for %g s, want 0: this version sees it for the first time", got)
	}
	w.later(time.Second)
	due, _, err := w.Due(ctx, 0, 10)
	if err != nil || len(due.Wakes) != 1 || !due.Wakes[0].WokeAt.IsZero() {
		t.Fatalf("due %+v, %v, want an attempt of a wake that began nobody knows when", due, err)
	}
	if on := w.onLists(t, 0, id); !on["waiting"].Equal(seen) && !on["waiting"].Equal(w.now) {
		t.Errorf("it is on %v, want it waiting since %s, when this version first saw it, or since it acted on it", on,
			seen)
	}
	began := w.now
	must[fsm.Observation](t)(w.Observe(ctx, 0, "/a", "2", false))
	if next := must[fsm.Outcome](t)(w.Finish(ctx, due.Wakes[0].Ref(), due.Wakes[0].Streams)); len(next.Wakes) != 1 ||
		!next.Wakes[0].WokeAt.Equal(began) {
		t.Errorf("the next wake is %+v, want one that began at %s", next, began)
	}
}
