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
			wake := must[fsm.Outcome](t)(w.Link(ctx, sub, "/a", fsm.Start, "1")).Deliveries[0]
			wants("its wake", "waiting", woke)
			if !wake.WokeAt.Equal(woke) {
				t.Fatalf("the wake began at %s, want %s", wake.WokeAt, woke)
			}
			w.later(time.Second)
			must[fsm.Outcome](t)(w.Fail(ctx, wake.Ref(), fsm.Failure{}))
			w.later(time.Minute)
			due, _, err := w.Due(ctx, 0, 10)
			if err != nil || len(due.Deliveries) != 1 || !due.Deliveries[0].WokeAt.Equal(woke) {
				t.Fatalf("due %+v, %v; want an attempt of the wake that began at %s", due, err, woke)
			}
			wants("a failure and a second attempt", "waiting", woke)
			must[fsm.Outcome](t)(w.Fail(ctx, due.Deliveries[0].Ref(), fsm.Failure{Retired: true}))
			wants("a 410", "retired", w.now)
			w.Catalog().Replace([]fsm.Subscription{sub}, 0)
			w.later(time.Hour)
			if _, _, err := w.ResumeSubscription(ctx, "s"); err != nil {
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
			again := must[fsm.Outcome](t)(w.Finish(ctx, wake.Ref(), wake.Streams)).Deliveries[0]
			wants("a done with work pending", "waiting", w.now)
			if !again.WokeAt.Equal(w.now) {
				t.Fatalf("the next wake began at %s, want %s", again.WokeAt, w.now)
			}
			began := w.now
			w.later(time.Second)
			must[fsm.Outcome](t)(w.Finish(ctx, again.Ref(), again.Streams))
			wants("a done with nothing pending", "", time.Time{})
			if c := must[fsm.Consumer](t)(w.Consumer(ctx, wake.Ref().Consumer)); !c.WokeAt.Equal(began) {
				t.Fatalf("the idle consumer's last wake began at %s, want %s", c.WokeAt, began)
			}
			must[fsm.Observation](t)(w.Observe(ctx, 0, "/a", "3", false))
			must[fsm.Outcome](t)(w.Deleted(ctx, 0, "/a", fsm.Deletion{}))
			wants("its removal", "", time.Time{})
		})
	}
}
