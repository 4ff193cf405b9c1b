package spec

import (
	"reflect"
	"testing"
	"time"

	"reveille/fsm"
)

// Subscriptions whose consumers have a profile.
var (
	pushing = fsm.Subscription{
		ID: "sub", Generation: "g", Mode: fsm.ModePush, Timeout: 20 * time.Second,
		Retry: []time.Duration{10 * time.Second, time.Minute},
	}.WithDefaults()
	retrying = fsm.Subscription{ID: "sub", Generation: "g", Retry: pushing.Retry}.WithDefaults()
)

// attempted returns a consumer of a subscription with attempt n of epoch 7 out.
func attempted(sub fsm.Subscription, n int) fsm.Consumer {
	c, _ := Observe(NewConsumer(sub, "/a", "10", 6), Env{Now: t0, WakeID: "w_7", Timing: timing}, "/a", "12")
	c.Attempt = n
	return c
}

// TestAConsumerGoesByItsProfile holds what a profile changes: how long an attempt may be out, when the next one is
// made, and which is the last.
func TestAConsumerGoesByItsProfile(t *testing.T) {
	fail := func(c fsm.Consumer, f fsm.Failure) fsm.Consumer {
		f.Reason = "status 500"
		c, _ = Fail(c, at(time.Second), ref(c), f)
		return c
	}
	most := at(0)
	most.Jitter = fsm.JitterSpan - 1
	for _, tc := range []struct {
		name     string
		c        fsm.Consumer
		state    fsm.State
		deadline time.Duration // after t0; 0: none
	}{
		{
			"without one an attempt is out as the spec has it", attempted(fsm.Subscription{}, 1),
			fsm.Waking, timing.Waking,
		},
		{
			"a push is out as long as the endpoint may take, and some more", attempted(pushing, 1), fsm.Waking,
			35 * time.Second,
		},
		{
			"the first delay follows the first failure, less a fifth", fail(attempted(pushing, 1),
				fsm.Failure{Profile: pushing.Profile()}), fsm.Waking, 9 * time.Second,
		},
		{
			"the second follows the second", fail(attempted(pushing, 2), fsm.Failure{Profile: pushing.Profile()}),
			fsm.Waking,
			49 * time.Second,
		},
		{
			"the last goes on for a push: whoever reports it puts the events aside",
			fail(attempted(pushing, 30), fsm.Failure{Profile: pushing.Profile()}), fsm.Waking, 49 * time.Second,
		},
		{
			"Retry-After holds if it is longer", fail(attempted(pushing, 1),
				fsm.Failure{Profile: pushing.Profile(), RetryAfter: 20 * time.Second}), fsm.Waking, 21 * time.Second,
		},
		{
			"a wake is given up after its last attempt", fail(attempted(retrying, 3),
				fsm.Failure{Profile: retrying.Profile()}), fsm.GivenUp, 0,
		},
		{
			"a wake is retried until then", fail(attempted(retrying, 2), fsm.Failure{Profile: retrying.Profile()}),
			fsm.Waking,
			49 * time.Second,
		},
		{
			"a changed subscription counts from the failure on", fail(attempted(retrying, 3),
				fsm.Failure{Profile: pushing.Profile()}), fsm.Waking, 49 * time.Second,
		},
		{
			"one that lost its schedule goes by the spec's", fail(attempted(retrying, 1), fsm.Failure{}), fsm.Waking,
			time.Second + RetryDelay(1, 0),
		},
	} {
		var deadline time.Duration
		if !tc.c.Deadline.IsZero() {
			deadline = tc.c.Deadline.Sub(t0)
		}
		if tc.c.State != tc.state || deadline != tc.deadline {
			t.Errorf("%s: it is %s until %s, want %s until %s", tc.name, tc.c.State, deadline, tc.state, tc.deadline)
		}
	}
	c, _ := Fail(attempted(pushing, 1), most, ref(attempted(pushing, 1)), fsm.Failure{Profile: pushing.Profile()})
	if got := c.Deadline.Sub(t0); got != 12*time.Second-time.Millisecond {
		t.Errorf("the most that chance adds to a delay of 10 s leads to %s", got)
	}
}

// TestOnlyWhatIsReportedCountsAsAnAttempt holds that an attempt of which nobody has heard takes nothing of a schedule,
// and that a resumption begins it anew.
func TestOnlyWhatIsReportedCountsAsAnAttempt(t *testing.T) {
	for _, sub := range []fsm.Subscription{pushing, retrying} {
		last := attempted(sub, 3)
		for name, again := range map[string]func(fsm.Consumer) (fsm.Consumer, Effects){
			"its deadline": func(c fsm.Consumer) (fsm.Consumer, Effects) { return Due(c, at(time.Minute)) },
			"its stream was away for a moment": func(c fsm.Consumer) (fsm.Consumer, Effects) {
				c, _ = Hide(c, at(0), fsm.Missing)
				c, _ = Observe(c, at(time.Second), "/a", "12")
				return Due(c, at(2*time.Second))
			},
			"it was parked": func(c fsm.Consumer) (fsm.Consumer, Effects) {
				out := ref(c)
				c, _ = Park(c, at(0), out, fsm.BlockedSlot, 0)
				return Begin(c, at(time.Second), out, "a")
			},
		} {
			c, e := again(last)
			if w := e.Delivery; w == nil || w.Attempt != 3 || !c.Sent || !c.FirstFailure.IsZero() {
				t.Errorf("%s, after %s: %+v, %+v", sub.Mode, name, c, e)
			}
		}
		c, _ := Fail(last, at(0), ref(last), fsm.Failure{Retired: true, Profile: sub.Profile()})
		c, _, _ = Resume(c, at(time.Hour))
		if _, e := Due(c, at(time.Hour)); e.Delivery == nil || e.Delivery.Attempt != 1 {
			t.Errorf("%s: resumed after a 410 it is handed out as %+v", sub.Mode, e.Delivery)
		}
	}
	if c, _ := Due(attempted(fsm.Subscription{}, 1), at(timing.Waking)); c.Sent || c.FirstFailure.IsZero() {
		t.Errorf("a wake of the spec without an answer in time is %+v", c)
	}
}

// TestAReportIsOfTheSendingThatItNames holds that an attempt which was taken back and made again, under the same
// number, is told from the first sending: what comes late of that changes nothing.
func TestAReportIsOfTheSendingThatItNames(t *testing.T) {
	first := attempted(pushing, 2)
	again, e := Due(first, at(time.Minute))
	if e.Delivery == nil || e.Delivery.Attempt != 2 || e.Delivery.Handed != first.Handed+1 {
		t.Fatalf("made again: %+v", e.Delivery)
	}
	for name, late := range map[string]func(fsm.DeliveryRef) (fsm.Consumer, Effects){
		"failed": func(r fsm.DeliveryRef) (fsm.Consumer, Effects) {
			return Fail(again, at(time.Minute), r, fsm.Failure{Profile: pushing.Profile()})
		},
		"was parked": func(r fsm.DeliveryRef) (fsm.Consumer, Effects) {
			return Park(again, at(time.Minute), r, fsm.BlockedSlot, time.Hour)
		},
	} {
		if c, _ := late(ref(first)); !reflect.DeepEqual(c, again) {
			t.Errorf("the first sending %s late: %+v, want %+v", name, c, again)
		}
		if c, _ := late(ref(again)); c.Sent {
			t.Errorf("the second sending %s: %+v", name, c)
		}
	}
}

// TestARetryBringsNoMoreThanTheFirstAttemptThatFailed holds it for all attempts of a wake, and no longer.
func TestARetryBringsNoMoreThanTheFirstAttemptThatFailed(t *testing.T) {
	c := attempted(pushing, 1)
	for n, span := range []int64{4, 9, 2} {
		c, _ = Fail(c, at(0), ref(c), fsm.Failure{Span: span, Profile: pushing.Profile()})
		var e Effects
		if c, e = Due(c, at(time.Hour)); e.Delivery == nil || e.Delivery.Attempt != n+2 || e.Delivery.Span != 4 {
			t.Errorf("after failure %d: %+v", n+1, e.Delivery)
		}
	}
	c, e := Deliver(c, at(0), ref(c), fsm.Delivered{Path: "/a", To: "11", Tail: "12", Profile: pushing.Profile()})
	if e.Delivery == nil || e.Delivery.Span != 0 || c.Span != 0 {
		t.Errorf("the next wake: %+v", e.Delivery)
	}
}

// An attempt that was sent twice tells of its events when the other time has brought more, whose ids count from where
// both began: the consumer must not go on from another offset.
func TestADeliveryThatWasSentAgainKeepsTheIDsOfTheOther(t *testing.T) {
	d := fsm.Delivered{
		Path: "/a", To: "12", Within: fsm.Offset("10").At(2, "12"), Tail: "12",
		Profile: pushing.Profile(),
	}
	again, _ := Due(attempted(pushing, 2), at(time.Minute))
	got, e := Deliver(again, at(time.Minute), ref(again), d)
	if got.Links["/a"].Acked != d.Within || e.Delivery == nil {
		t.Errorf("one of them made %+v, with %+v", got, e)
	}
	if late, e := Deliver(got, at(time.Minute), ref(again), d); e.Idled || late.Links["/a"] != got.Links["/a"] {
		t.Errorf("the report of the other made %+v", late)
	}
	if got, _ = Deliver(got, at(time.Minute), ref(got), d); got.Links["/a"].Acked != "12" {
		t.Errorf("the next wake's delivery made %+v", got)
	}
}

// TestADeliveryMovesTheConsumerByWhatItBrought holds what a push acks, and that its consumer goes on behind that.
func TestADeliveryMovesTheConsumerByWhatItBrought(t *testing.T) {
	for _, tc := range []struct {
		name  string
		d     fsm.Delivered
		acked fsm.Offset
		state fsm.State
	}{
		{
			"some of what one read shows",
			fsm.Delivered{Path: "/a", To: fsm.Offset("10").At(3, "12"), Tail: "12"},
			"10  000000000003", fsm.Waking,
		},
		{"all of it", fsm.Delivered{Path: "/a", To: "12", Tail: "12"}, "12", fsm.Idle},
		{"a part, up to an offset", fsm.Delivered{Path: "/a", To: "11", Tail: "12"}, "11", fsm.Waking},
		{
			"more than was noted, which the read has shown",
			fsm.Delivered{Path: "/a", To: "13", Tail: "13"},
			"13", fsm.Idle,
		},
		{"of a stream that it is not subscribed to", fsm.Delivered{Path: "/b", To: "13", Tail: "13"}, "10", fsm.Waking},
		{"less than was acked", fsm.Delivered{Path: "/a", To: "09", Tail: "12"}, "10", fsm.Waking},
	} {
		c := attempted(pushing, 2)
		c.FirstFailure, c.LastError = t0, "status 500"
		tc.d.Profile = pushing.Profile()
		got, e := Deliver(c, at(time.Second), ref(c), tc.d)
		if got.Links["/a"].Acked != tc.acked || got.State != tc.state ||
			(e.Delivery != nil) != (tc.state == fsm.Waking) || !e.Idled || !got.FirstFailure.IsZero() ||
			got.LastError != "" {
			t.Errorf("%s: it is %+v, with %+v", tc.name, got, e)
		}
		if e.Delivery != nil && (e.Delivery.Epoch != 8 || e.Delivery.Attempt != 1 || e.Delivery.Born != 6) {
			t.Errorf("%s: the next attempt is %+v", tc.name, e.Delivery)
		}
		old := ref(c)
		old.Epoch--
		if again, e := Deliver(got, at(time.Second), old, tc.d); e.Idled || again.Links["/a"] != got.Links["/a"] {
			t.Errorf("%s: a report of an older wake made %+v", tc.name, again)
		}
	}
}

// TestALongDelayIsVariedAsAShortOneIs holds it of the longest that a subscription may have.
func TestALongDelayIsVariedAsAShortOneIs(t *testing.T) {
	for _, d := range []time.Duration{time.Second, 7 * 24 * time.Hour} {
		p := fsm.Profile{Delays: []time.Duration{d}}
		least, most := delay(p, 1, 0), delay(p, 1, fsm.JitterSpan-1)
		if least != d*8/10 || most <= d || most > d*12/10 {
			t.Errorf("%s is varied from %s to %s", d, least, most)
		}
	}
}
