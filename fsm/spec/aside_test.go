package spec

import (
	"reflect"
	"testing"
	"time"

	"reveille/fsm"
)

// unordered is a subscription whose failed deliveries step aside.
var unordered = fsm.Subscription{
	ID: "sub", Generation: "g", Mode: fsm.ModePush, Ordering: fsm.OrderingNone, Timeout: 20 * time.Second,
	Retry: []time.Duration{10 * time.Second, time.Minute},
}.WithDefaults()

// failure of an attempt that has brought the first 2 of the 5 events that a read from 10 has shown.
func failure(profile fsm.Profile) fsm.Failure {
	to := fsm.Offset("10").At(2, "12")
	return fsm.Failure{Reason: "status 500", Profile: profile, Span: 2, To: to, Within: to, Tail: "12"}
}

// beside is env for an aside that is made.
func beside(after time.Duration) Env {
	env := at(after)
	env.AsideWakeID = "w_aside"
	return env
}

// TestAFailedDeliveryStepsAside holds what becomes of it and of its consumer.
func TestAFailedDeliveryStepsAside(t *testing.T) {
	c := attempted(unordered, 1)
	c.Stalled = 1
	got, e := Fail(c, beside(time.Second), ref(c), failure(unordered.Profile()))
	if e.Aside == nil || e.Removal != nil || e.Removed || e.Ended == nil || e.Ended.Cause != fsm.EndDone {
		t.Fatalf("it asks for %+v", e)
	}
	if w := e.Delivery; w == nil || w.Attempt != 1 || w.At("/a") != fsm.Offset("10").At(2, "12") || w.End() != "" ||
		w.WakeID != "w_new" {
		t.Errorf("the stream goes on with %+v", e.Delivery)
	}
	if got.Asides != 1 || got.Stalled != 0 || !got.FirstFailure.IsZero() || got.LastError != "" {
		t.Errorf("its consumer is %+v", got)
	}
	a := *e.Aside
	link := fsm.Link{Acked: "10", Tail: fsm.Offset("10").At(2, "12")}
	if a.ID != "sub:%2Fa:7" || a.Owner != c.ID || len(a.Links) != 1 || a.Links["/a"] != link || a.Born != c.Born ||
		a.State != fsm.Waking || a.Sent || a.WakeID != "w_aside" || a.Asides != 0 || a.LastError != "status 500" ||
		!a.Deadline.Equal(t0.Add(9*time.Second)) || !a.FirstFailure.Equal(t0.Add(time.Second)) {
		t.Errorf("the aside is %+v", a)
	}
	a, e = Due(a, at(time.Minute))
	if w := e.Delivery; w == nil || w.Attempt != 2 || w.Span != 2 || w.End() != a.Links["/a"].Tail ||
		w.At("/a") != "10" {
		t.Fatalf("it is retried as %+v", e.Delivery)
	}
	b := fsm.Batch{From: "10", JSON: true, Events: [][]byte{{'1'}, {'2'}}}
	if first, again := b.DeliveryID(*deliveryNow(c)), b.DeliveryID(*e.Delivery); first != again {
		t.Errorf("the delivery was %s, the retry is %s", first, again)
	}
}

// TestWhatDoesNotStepAside holds that it is retried where it stands.
func TestWhatDoesNotStepAside(t *testing.T) {
	const crowded = "with no place left for its subscription"
	profile := unordered.Profile()
	change := func(f func(*fsm.Failure)) fsm.Failure {
		failed := failure(profile)
		f(&failed)
		return failed
	}
	full := attempted(unordered, 1)
	full.Asides = fsm.MaxAsides
	room := full
	room.Asides--
	aside := attempted(unordered, 1)
	aside.ID, aside.Owner = fsm.AsideID(aside.ID, 6), aside.ID
	other := attempted(unordered, 1)
	other.Links = map[string]fsm.Link{"/b": {Acked: "10", Tail: "12"}}
	for _, tc := range []struct {
		name  string
		c     fsm.Consumer
		f     fsm.Failure
		steps bool
	}{
		{"the first attempt", attempted(unordered, 1), failure(profile), true},
		{"a later one", attempted(unordered, 2), failure(profile), true},
		{"with the last place", room, failure(profile), true},
		{"of a subscription that changed to it", attempted(pushing, 1), failure(profile), true},
		{"which read to the end", attempted(unordered, 1), change(func(f *fsm.Failure) { f.To = "12" }), true},
		{"which read beyond what was noted", attempted(unordered, 1), change(func(f *fsm.Failure) {
			f.To, f.Tail = "13", "13"
		}), true},
		{"where the order of the stream holds", attempted(pushing, 1), failure(pushing.Profile()), false},
		{"of a subscription that changed from it", attempted(unordered, 1), failure(pushing.Profile()), false},
		{"with no place left", full, failure(profile), false},
		{crowded, attempted(unordered, 1), failure(profile), false},
		{"of an aside", aside, failure(profile), false},
		{"that was answered 410", attempted(unordered, 1), change(func(f *fsm.Failure) { f.Retired = true }), false},
		{"that brought nothing", attempted(unordered, 1), change(func(f *fsm.Failure) {
			f.To, f.Within, f.Tail = "", "", ""
		}), false},
		{"of what was acked", attempted(unordered, 1), change(func(f *fsm.Failure) { f.To = "10" }), false},
		{"of what is acked by no read", attempted(unordered, 1), change(func(f *fsm.Failure) { f.To = "14" }), false},
		{"of a stream that it left", other, failure(profile), false},
	} {
		env := beside(time.Second)
		env.Asides = fsm.MaxSubscriptionAsides - 1
		if tc.name == crowded {
			env.Asides++
		}
		got, e := Fail(tc.c, env, ref(tc.c), tc.f)
		if (e.Aside != nil) != tc.steps {
			t.Errorf("%s: %+v, %+v", tc.name, got, e)
		}
		if !tc.steps && (got.Epoch != tc.c.Epoch || got.Asides != tc.c.Asides || got.FirstFailure.IsZero()) {
			t.Errorf("%s: it is %+v", tc.name, got)
		}
	}
}

// TestAnAsideIsGoneWhenItIsDone holds that it brings what it has, and then nobody is told that it is gone.
func TestAnAsideIsGoneWhenItIsDone(t *testing.T) {
	c := attempted(unordered, 1)
	_, e := Fail(c, beside(0), ref(c), failure(unordered.Profile()))
	a, e := Due(*e.Aside, at(time.Minute))
	deliver := func(c fsm.Consumer, to, within, tail fsm.Offset) (fsm.Consumer, Effects) {
		return Deliver(c, at(time.Minute), ref(c), fsm.Delivered{
			Path: "/a", To: to, Within: within, Tail: tail, Profile: unordered.Profile(),
		})
	}
	one, end := fsm.Offset("10").At(1, "12"), a.Links["/a"].Tail
	for name, got := range map[string]func() (fsm.Consumer, Effects){
		"all of it":                             func() (fsm.Consumer, Effects) { return deliver(a, end, end, "12") },
		"all, and its read led to an offset":    func() (fsm.Consumer, Effects) { return deliver(a, "12", end, "12") },
		"what the server keeps, which is later": func() (fsm.Consumer, Effects) { return deliver(a, "15", "15", "20") },
		"one by one": func() (fsm.Consumer, Effects) {
			c, e := deliver(a, one, one, "20")
			if w := e.Delivery; e.Removed || w == nil || w.At("/a") != one || w.End() != end || w.Attempt != 1 {
				t.Errorf("after the first: %+v, %+v", c, e)
			}
			return deliver(c, "12", end, "20")
		},
		"all, by a 2xx that says that it is done": func() (fsm.Consumer, Effects) {
			return Finish(a, at(time.Minute), ref(a), e.Delivery.Streams)
		},
	} {
		if c, e := got(); !e.Removed || e.Removal != nil || e.Delivery != nil || e.Ended == nil || e.Idled {
			t.Errorf("%s: %+v, %+v", name, c, e)
		}
	}
	if e := Remove(a, fsm.RemovedStreamDeleted); !e.Removed || e.Removal != nil || e.Ended == nil {
		t.Errorf("deleted: %+v", e)
	}
	cb := callback(a, func(cb *fsm.Callback) { cb.Done = true })
	if _, res := Callback(a, at(0), true, cb); res.Code != fsm.CodeConsumerGone {
		t.Errorf("a callback is answered %q", res.Code)
	}
	a, e = Fail(a, at(time.Minute), ref(a), failure(unordered.Profile()))
	if e.Aside != nil || !a.Deadline.Equal(t0.Add(time.Minute+48*time.Second)) {
		t.Errorf("a second failure: %+v, %+v", a, e)
	}
}

// TestAnAsideWaitsWhileItsConsumerIsHidden holds that it is not retried then, and that waiting is no attempt.
func TestAnAsideWaitsWhileItsConsumerIsHidden(t *testing.T) {
	c := attempted(unordered, 1)
	_, e := Fail(c, beside(0), ref(c), failure(unordered.Profile()))
	waits := *e.Aside
	sent, e := Due(waits, at(time.Minute))
	if e.Delivery == nil {
		t.Fatalf("no attempt is out: %+v", sent)
	}
	for name, c := range map[string]fsm.Consumer{"one that waits": waits, "one whose attempt is out": sent} {
		for _, grace := range []time.Duration{time.Second, time.Hour} {
			env := at(time.Hour)
			env.Away, env.Timing.GoneGrace = true, grace
			got, e := Due(c, env)
			want := c
			want.Deadline = env.Now.Add(min(grace, fsm.RetryCap))
			if e != (Effects{}) || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: it is %+v, %+v; want %+v", name, got, e, want)
			}
		}
		if _, e := Due(c, at(time.Hour)); e.Delivery == nil || e.Delivery.Attempt != 2 {
			t.Errorf("%s: once the stream is back: %+v", name, e)
		}
	}
}
