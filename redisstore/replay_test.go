package redisstore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/redisstore"
)

// dead has the delivery of one event of /a end for good, with a letter that can be replayed.
func (w *world) dead(t *testing.T, sub fsm.Subscription, wake fsm.Delivery, to fsm.Offset) fsm.Outcome {
	t.Helper()
	w.later(time.Second)
	return must[fsm.Outcome](t)(w.Deliver(t.Context(), wake.Ref(), fsm.Delivered{
		Path: wake.Primary, To: to, Within: to, Profile: sub.Profile(), Dead: &fsm.DeadLetter{
			Subscription: sub.ID, Generation: sub.Generation, Consumer: wake.Consumer, Stream: wake.Primary,
			Born: wake.Born, From: wake.At(wake.Primary), To: to, Within: to, Reason: "status 400",
		},
	}))
}

// TestAReplayGoesOnBehindLettersThatAreDropped holds that what waits is replayed, however many before it are dropped,
// and that the one under way ends with its letter.
func TestAReplayGoesOnBehindLettersThatAreDropped(t *testing.T) {
	t.Parallel()
	const n = 300
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	ctx, sub := t.Context(), unordered("s")
	all := fsm.LetterSpan{Subscription: "s", Through: fsm.MaxLetterNumber}
	last := fsm.Offset(fmt.Sprintf("%03d", n))
	wakes := must[fsm.Outcome](t)(w.Link(ctx, sub, "/a", fsm.Start, last)).Deliveries
	for i := range n {
		wakes = w.dead(t, sub, wakes[0], fsm.Offset(fmt.Sprintf("%03d", i+1))).Deliveries
	}
	for left := n; left > 0; left -= 100 {
		if _, _, err := w.ReplayDeadLetters(ctx, all, n); err != nil {
			t.Fatal(err)
		}
	}
	list, err := w.DeadLetters(ctx, all, n)
	if err != nil || len(list) != n {
		t.Fatalf("%d dead letters are listed: %v", len(list), err)
	}
	all.Through = list[n-2].ID.Number
	work, o, err := w.DropDeadLetters(ctx, all, n)
	if err != nil || work.Done != n-1 || len(o.Ended) != 1 || len(o.Deliveries) != 1 {
		t.Fatalf("all but one are dropped: %+v, %+v, %v", work, o, err)
	}
	if wake := o.Deliveries[0]; wake.End() != last || !wake.Replay {
		t.Errorf("replayed is %+v", wake)
	}
	queues, err := w.ReplayQueues(ctx, 0, "", "", 10)
	if err != nil || len(queues) != 1 || queues[0].Waiting != 1 {
		t.Errorf("there are to be replayed %+v, %v", queues, err)
	}
}

func replayed(_ fsm.LetterWork, o fsm.Outcome, err error) (fsm.Outcome, error) { return o, err }

// TestNothingIsReplayedToAnEndpointThatAnswered410 holds that a replay waits for the resumption, as all does.
func TestNothingIsReplayedToAnEndpointThatAnswered410(t *testing.T) {
	t.Parallel()
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	ctx, sub := t.Context(), unordered("s")
	if _, _, err := w.CreateSubscription(ctx, sub); err != nil {
		t.Fatal(err)
	}
	sub, _ = w.Catalog().Get("s")
	wake := must[fsm.Outcome](t)(w.Link(ctx, sub, "/a", fsm.Start, "2")).Deliveries[0]
	wake = w.dead(t, sub, wake, "1").Deliveries[0]
	must[fsm.Outcome](t)(w.Fail(ctx, wake.Ref(), fsm.Failure{
		Retired: true, Reason: "status 410", Profile: sub.Profile(),
	}))
	work, o, err := w.ReplayDeadLetters(ctx, fsm.LetterSpan{Through: fsm.MaxLetterNumber}, 1)
	if err != nil || work.Done != 1 || len(o.Deliveries) != 0 {
		t.Errorf("replayed is %+v, %+v, %v", work, o, err)
	}
	if n, _, err := w.ResumeSubscription(ctx, "s"); n != 2 || err != nil {
		t.Errorf("%d were resumed, %v", n, err)
	}
	due, _, err := w.Due(ctx, 0, 10)
	if err != nil || len(due.Deliveries) != 2 {
		t.Errorf("once it is resumed, due are %+v, %v", due.Deliveries, err)
	}
}

// TestTheEndOfAReplayWhoseReplyWasLostHandsOutTheNext holds that the one behind it does not wait for its deadline.
func TestTheEndOfAReplayWhoseReplyWasLostHandsOutTheNext(t *testing.T) {
	t.Parallel()
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	ctx, sub := t.Context(), unordered("s")
	d := &deaf{}
	w.rdb.AddHook(d)
	wake := must[fsm.Outcome](t)(w.Link(ctx, sub, "/a", fsm.Start, "2")).Deliveries[0]
	w.dead(t, sub, w.dead(t, sub, wake, "1").Deliveries[0], "2")
	all := fsm.LetterSpan{Through: fsm.MaxLetterNumber}
	replay := must[fsm.Outcome](t)(replayed(w.ReplayDeadLetters(ctx, all, 2))).Deliveries[0]
	d.on = true
	next := must[fsm.Outcome](t)(w.Deliver(ctx, replay.Ref(), fsm.Delivered{
		Path: "/a", To: "1", Within: "1", Profile: sub.Profile(),
	})).Deliveries
	if len(next) != 1 || !next[0].Replay || next[0].End() != "2" {
		t.Errorf("handed out are %+v", next)
	}
}

// TestNothingIsReplayedOfAStreamThatWasMadeAnew has the caller of Restart die before all consumers were visited. What
// waits to be replayed was of the old stream: it does not begin, and goes as its consumer is visited.
func TestNothingIsReplayedOfAStreamThatWasMadeAnew(t *testing.T) {
	t.Parallel()
	const consumers = 120
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	ctx := t.Context()
	for i := range consumers {
		sub := unordered(fmt.Sprint("s", i))
		wake := must[fsm.Outcome](t)(w.Link(ctx, sub, "/a", fsm.Start, "9")).Deliveries[0]
		w.dead(t, sub, w.dead(t, sub, wake, "1").Deliveries[0], "2")
		must[fsm.Outcome](t)(replayed(w.ReplayDeadLetters(ctx, fsm.LetterSpan{
			Subscription: sub.ID, Through: fsm.MaxLetterNumber,
		}, 10)))
	}
	must[fsm.Outcome](t)(w.Restart(ctx, 0, "/none", "", "0")) // the script is loaded by this
	h := sever(w)
	h.left.Store(1)
	if _, err := w.Restart(ctx, 0, "/a", "9", "3"); !errors.Is(err, fsm.ErrUnavailable) {
		t.Fatalf("the restart was not cut short: %v", err)
	}
	h.left.Store(-1)
	queues := func() int { return len(must[[]fsm.ReplayQueue](t)(w.ReplayQueues(ctx, 0, "", "", 2*consumers))) }
	if n := queues(); n == 0 || n == consumers {
		t.Fatalf("%d of %d consumers have something to replay", n, consumers)
	}
	for i := range consumers {
		span := fsm.LetterSpan{Subscription: fmt.Sprint("s", i), Through: fsm.MaxLetterNumber}
		_, o, err := w.DropDeadLetters(ctx, span, 1) // the replay that is under way, if there is one
		if err != nil || len(o.Deliveries) > 0 {
			t.Fatalf("%s: replayed is %+v, %v", span.Subscription, o.Deliveries, err)
		}
	}
	w.later(time.Hour)
	for range consumers {
		o, _, err := w.Due(ctx, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, wake := range o.Deliveries {
			if wake.Replay {
				t.Errorf("replayed is %+v", wake)
			}
		}
	}
	for i := range consumers {
		must[fsm.Outcome](t)(replayed(w.ReplayDeadLetters(ctx, fsm.LetterSpan{
			Subscription: fmt.Sprint("s", i), Through: fsm.MaxLetterNumber,
		}, 10)))
	}
	if n := queues(); n > 0 {
		t.Errorf("%d consumers have something to replay", n)
	}
}
