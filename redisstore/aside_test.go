package redisstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/redisstore"
)

// unordered is a subscription whose failed deliveries step aside.
func unordered(id string) fsm.Subscription {
	sub := subscription(id)
	sub.Mode, sub.Ordering = fsm.ModePush, fsm.OrderingNone
	return sub.WithDefaults()
}

// failOne has a delivery of one event fail, and returns what follows.
func (w *world) failOne(t *testing.T, sub fsm.Subscription, wake fsm.Delivery) fsm.Outcome {
	t.Helper()
	from, n := wake.At(wake.Primary).Split()
	behind := from.At(n+1, "9")
	return must[fsm.Outcome](t)(w.Fail(t.Context(), wake.Ref(), fsm.Failure{
		Reason: "status 500", Profile: sub.Profile(), Span: 1, To: behind, Within: behind, Tail: "9",
	}))
}

// fillAside has n deliveries of a stream step aside, and returns what goes on.
func (w *world) fillAside(t *testing.T, sub fsm.Subscription, path string, n int) fsm.Delivery {
	t.Helper()
	wakes := must[fsm.Outcome](t)(w.Link(t.Context(), sub, path, fsm.Start, "9")).Deliveries
	for range n {
		wakes = w.failOne(t, sub, wakes[0]).Deliveries
		if len(wakes) != 1 || wakes[0].Attempt != 1 {
			t.Fatalf("the stream goes on with %+v", wakes)
		}
	}
	return wakes[0]
}

// TestOnlySoManyDeliveriesStepAside holds the bound: with so many aside the stream waits.
func TestOnlySoManyDeliveriesStepAside(t *testing.T) {
	t.Parallel()
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	ctx := t.Context()
	sub := unordered("s")
	h := measured(w.rdb)
	wake := w.fillAside(t, sub, "/a", fsm.MaxAsides)
	if n := must[fsm.Consumer](t)(w.Consumer(ctx, wake.Ref().Consumer)).Asides; n != fsm.MaxAsides {
		t.Fatalf("it has %d asides", n)
	}
	if o := w.failOne(t, sub, wake); len(o.Deliveries) != 0 {
		t.Fatalf("the stream goes on with %+v", o)
	}
	clear(h.most)
	if o := must[fsm.Observation](t)(w.Observe(ctx, 0, "/a", "99", false)); !o.Busy || len(o.Deliveries) != 0 {
		t.Errorf("an event woke %+v", o)
	}
	h.bounded(t, 20, "observe") // whatever steps aside costs an append nothing
}

// TestOnlySoManyDeliveriesOfASubscriptionStepAside holds the bound of a partition, which is each subscription's own.
func TestOnlySoManyDeliveriesOfASubscriptionStepAside(t *testing.T) {
	t.Parallel()
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	ctx := t.Context()
	sub := unordered("s")
	var wakes []fsm.Delivery
	for n := 0; n < fsm.MaxSubscriptionAsides; n += fsm.MaxAsides / 2 {
		wakes = append(wakes, w.fillAside(t, sub, fmt.Sprint("/", n), fsm.MaxAsides/2))
	}
	for _, wake := range wakes {
		if o := w.failOne(t, sub, wake); len(o.Deliveries) != 0 {
			t.Fatalf("a stream goes on with %+v", o)
		}
	}
	w.fillAside(t, unordered("other"), "/0", 1)
	must[fsm.Outcome](t)(w.Deleted(ctx, 0, "/0", fsm.Deletion{}))
	w.fillAside(t, sub, "/new", fsm.MaxAsides/2)
}

// TestNothingIsLeftOfWhatStepsAside holds that asides go with their consumer, in the script that it goes in, and that
// the script's work is bounded.
func TestNothingIsLeftOfWhatStepsAside(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		asides int
		// letters are those of what is aside, and one of what is not yet delivered.
		letters int
		goes    func(*testing.T, *world) fsm.Outcome
	}{
		{"the stream is deleted", fsm.MaxAsides, fsm.MaxAsides + 1, func(t *testing.T, w *world) fsm.Outcome {
			return must[fsm.Outcome](t)(w.Deleted(t.Context(), 0, "/a", fsm.Deletion{}))
		}},
		{"the stream is gone", fsm.MaxAsides, fsm.MaxAsides + 1, func(t *testing.T, w *world) fsm.Outcome {
			must[fsm.Outcome](t)(w.Hide(t.Context(), "/a", fsm.MissingAnew))
			w.later(timing.GoneGrace)
			return must[fsm.Outcome](t)(w.Hide(t.Context(), "/a", fsm.MissingStill))
		}},
		// Of more consumers it is removed by the owner of their partition, in the same way.
		{"the subscription is deleted", 150, 0, func(t *testing.T, w *world) (o fsm.Outcome) {
			if err := w.DeleteSubscription(t.Context(), "s"); err != nil {
				t.Error(err)
			}
			return o
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := open(t, redisstore.EmptyRedis(t).URL, 1)
			sub := unordered("s")
			if _, _, err := w.CreateSubscription(t.Context(), sub); err != nil {
				t.Fatal(err)
			}
			h := measured(w.rdb)
			wake := w.fillAside(t, sub, "/a", tc.asides)
			o := tc.goes(t, w)
			if len(o.Removed) > 1 {
				t.Errorf("%d consumers are told of as gone", len(o.Removed))
			}
			left := 0
			for _, l := range o.Left {
				left += l.Letters
			}
			if n := w.dropLetters(t); n != left || n != tc.letters {
				t.Errorf("there are %d dead letters, and %d are told of, want %d", n, left, tc.letters)
			}
			if left := leftovers(t, w); len(left) > 0 {
				t.Errorf("%d keys are left, such as %s", len(left), left[0])
			}
			h.bounded(t, 4*fsm.MaxAsides, "fail")
			if late := w.failOne(t, sub, wake); len(late.Deliveries) != 0 || len(leftovers(t, w)) > 0 {
				t.Errorf("the report of the last attempt asks for %+v", late)
			}
		})
	}
}

// TestAnAsideOfAnOldStreamIsNeverOfTheNewOne holds it for a stream that is made anew, where it has too many consumers
// for one script to see to, and the caller dies after the first.
func TestAnAsideOfAnOldStreamIsNeverOfTheNewOne(t *testing.T) {
	t.Parallel()
	const others = 60
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	ctx := t.Context()
	for i := range others {
		must[fsm.Outcome](t)(w.Link(ctx, subscription(fmt.Sprint("other", i)), "/a", "9", "9"))
	}
	var asides []fsm.ConsumerRef
	subs := []fsm.Subscription{unordered("s"), unordered("t"), unordered("u")}
	for _, sub := range subs {
		wake := w.fillAside(t, sub, "/a", 2)
		for epoch := range wake.Epoch - 1 {
			id := fsm.AsideID(wake.Consumer, epoch+1)
			asides = append(asides, fsm.ConsumerRef{ID: id, Home: "/a"})
			must[fsm.Consumer](t)(w.Consumer(ctx, asides[len(asides)-1]))
		}
	}
	must[fsm.Outcome](t)(w.Restart(ctx, 0, "/none", "", "0")) // the script is loaded by this
	h := sever(w)
	h.left.Store(1)
	_, err := w.Restart(ctx, 0, "/a", "9", "5")
	if !errors.Is(err, fsm.ErrUnavailable) {
		t.Fatalf("the restart is answered %v", err)
	}
	h.left.Store(-1)
	w.later(time.Hour)
	o, _, err := w.Due(ctx, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, wake := range o.Deliveries {
		if wake.End() != "" {
			t.Errorf("an aside is retried: %+v", wake)
		}
	}
	for _, r := range asides {
		if c, err := w.Consumer(ctx, r); !errors.Is(err, fsm.ErrNotFound) {
			t.Errorf("an aside is %+v, %v", c, err)
		}
	}
	for _, key := range allKeys(t, w) {
		if strings.Contains(key, "}:x:") {
			t.Errorf("%s is left", key)
		}
	}
}

// TestAsidesCountForWhatOneScriptSeesTo holds that a stream has too many consumers for one script if it has too many
// asides.
func TestAsidesCountForWhatOneScriptSeesTo(t *testing.T) {
	t.Parallel()
	const subscriptions, asides = 5, 400
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	for i := range subscriptions {
		w.fillAside(t, unordered(fmt.Sprint("s", i)), "/a", asides)
	}
	h := measured(w.rdb)
	if o := must[fsm.Outcome](t)(w.Deleted(t.Context(), 0, "/a", fsm.Deletion{})); len(o.Removed) != subscriptions {
		t.Errorf("%d consumers are gone", len(o.Removed))
	}
	h.bounded(t, 3*(subscriptions-1)*asides, "deleted") // three for each aside, at least
	if n := w.dropLetters(t); n != subscriptions*(asides+1) {
		t.Errorf("there are %d dead letters", n)
	}
	if left := leftovers(t, w); len(left) > 0 {
		t.Errorf("%d keys are left, such as %s", len(left), left[0])
	}
}
