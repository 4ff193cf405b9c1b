package spec

import (
	"testing"
	"time"

	"reveille/fsm"
)

// nudgeable has failed twice, and its third attempt, which is the last, is due after an hour.
func nudgeable(t *testing.T) fsm.Consumer {
	t.Helper()
	profile := fsm.Profile{Attempt: 10 * time.Second, Delays: []time.Duration{time.Second, time.Hour}, Lasting: true}
	c := waking("10", "11")
	c.Profile = profile
	c, _ = Fail(c, at(0), ref(c), fsm.Failure{Reason: "status 500", Profile: profile, Span: 1})
	c, _ = Due(c, at(time.Second))
	c, _ = Fail(c, at(time.Second), ref(c), fsm.Failure{Reason: "status 500", Profile: profile, Span: 1})
	if c.Attempt != 2 || c.Deadline.Before(at(time.Second).Now.Add(48*time.Minute)) {
		t.Fatalf("it failed twice: %+v", c)
	}
	return c
}

// TestANudge holds that an attempt that was nudged does not count if it fails, and that there is at most one such
// attempt for each that counts.
func TestANudge(t *testing.T) {
	type D = time.Duration // after t0
	const up = time.Minute // when the endpoint is up again
	fails := func(c fsm.Consumer, after time.Duration, f fsm.Failure) fsm.Consumer {
		f.Profile = c.Profile
		c, _ = Fail(c, at(after), ref(c), f)
		return c
	}
	// tried has the nudged attempt out.
	tried := func(c fsm.Consumer) fsm.Consumer {
		c, e := Due(ReleaseHeld(c, at(up), fsm.BlockedDown), at(up))
		if e.Delivery == nil || !e.Delivery.Nudged || e.Delivery.Attempt != 3 || e.Delivery.Span != 1 {
			t.Fatalf("the nudged attempt is %+v", e.Delivery)
		}
		return c
	}
	for _, tt := range []struct {
		name string
		// run returns when it ends, too.
		run func(c fsm.Consumer, due D) (fsm.Consumer, D)
		// What comes then: which attempt is the next, when it is due, whether it counts, and whether there is a nudge.
		attempt int
		due     func(due D) D
		counts  bool
		nudge   bool
	}{
		{
			"makes the next attempt now",
			func(c fsm.Consumer, _ D) (fsm.Consumer, D) { return ReleaseHeld(c, at(up), fsm.BlockedDown), up },
			3, func(D) D { return up }, false, false,
		},
		{
			"is without effect if the attempt fails", func(c fsm.Consumer, _ D) (fsm.Consumer, D) {
				return fails(tried(c), up, fsm.Failure{}), up
			},
			3, func(due D) D { return due }, true, false,
		},
		{
			"leaves an endpoint the time that it asks for", func(c fsm.Consumer, due D) (fsm.Consumer, D) {
				return fails(tried(c), due-time.Minute, fsm.Failure{RetryAfter: 30 * time.Minute}), due - time.Minute
			},
			3, func(due D) D { return due + 29*time.Minute }, true, false,
		},
		{
			"is followed at once by the attempt that is due meanwhile", func(c fsm.Consumer, due D) (fsm.Consumer, D) {
				return fails(tried(c), due+time.Second, fsm.Failure{}), due + time.Second
			},
			3, func(due D) D { return due + time.Second }, true, false,
		},
		{
			"lasts while the attempt is held back", func(c fsm.Consumer, _ D) (fsm.Consumer, D) {
				c = tried(c)
				c, _ = Park(c, at(up), ref(c), fsm.BlockedSlot, time.Minute)
				return c, up
			},
			3, func(D) D { return up + time.Minute }, false, true,
		},
		{
			"lasts while nobody reports the attempt", func(c fsm.Consumer, _ D) (fsm.Consumer, D) {
				c, _ = Due(tried(c), at(up+10*time.Second))
				c, _ = Park(c, at(up+10*time.Second), ref(c), fsm.BlockedSlot, time.Minute)
				return c, up + 10*time.Second
			},
			3, func(D) D { return up + 70*time.Second }, false, true,
		},
		{
			"may follow once an attempt has counted", func(c fsm.Consumer, due D) (fsm.Consumer, D) {
				c = fails(tried(c), up, fsm.Failure{})
				c, _ = Due(c, at(due))
				return fails(c, due, fsm.Failure{}), due
			},
			4, func(due D) D { return due + 48*time.Minute }, true, true,
		},
		{
			"ends with a resumption", func(c fsm.Consumer, _ D) (fsm.Consumer, D) {
				c, _, _ = Resume(fails(tried(c), up, fsm.Failure{Retired: true}), at(2*up))
				return c, 2 * up
			},
			1, func(D) D { return 2 * up }, true, false,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := nudgeable(t)
			due := c.Deadline.Sub(t0)
			c, now := tt.run(c, due)
			want := tt.due(due)
			if got := c.Deadline.Sub(t0); got != want || c.Sent {
				t.Errorf("the next attempt is due after %s, want %s: %+v", got, want, c)
			}
			if again := ReleaseHeld(c, at(now), fsm.BlockedDown); !again.Deadline.Equal(c.Deadline) != tt.nudge {
				t.Errorf("another nudge: %t, want %t", !again.Deadline.Equal(c.Deadline), tt.nudge)
			}
			c, e := Due(c, at(want))
			if e.Delivery == nil || e.Delivery.Attempt != tt.attempt || e.Delivery.Nudged == tt.counts {
				t.Fatalf("the next attempt is %+v", e.Delivery)
			}
			c = fails(c, want, fsm.Failure{})
			if counted := c.Attempt == tt.attempt; counted != tt.counts {
				t.Errorf("it counts: %t: %+v", counted, c)
			}
		})
	}
	t.Run("goes with the wake", func(t *testing.T) {
		c := tried(nudgeable(t))
		c, e := Deliver(c, at(up), ref(c), fsm.Delivered{
			Path: "/a", To: "11", Within: "11", Tail: "12", Profile: c.Profile,
		})
		if e.Delivery == nil || e.Delivery.Nudged || !c.Nudged.IsZero() {
			t.Errorf("the next wake: %+v", c)
		}
	})
	t.Run("steps aside with its attempt", func(t *testing.T) {
		c := nudgeable(t)
		due := c.Deadline
		c.Profile.Aside = true
		c = tried(c)
		_, e := Fail(c, at(up), ref(c), fsm.Failure{Profile: c.Profile, Span: 1, To: "11", Within: "11", Tail: "11"})
		if a := e.Aside; a == nil || a.Attempt != 2 || !a.Deadline.Equal(due) {
			t.Errorf("the aside: %+v", a)
		}
	})
}

// TestAnOperatorRetries holds what an operator has attempted at once, and that it counts.
func TestAnOperatorRetries(t *testing.T) {
	nudgedBefore := ReleaseHeld(nudgeable(t), at(time.Minute), fsm.BlockedDown)
	nudgedBefore, _ = Due(nudgedBefore, at(time.Minute))
	nudgedBefore, _ = Park(nudgedBefore, at(time.Minute), ref(nudgedBefore), fsm.BlockedSlot, time.Hour)
	for name, c := range map[string]fsm.Consumer{"failed": nudgeable(t), "nudged, and held back": nudgedBefore} {
		c, ok := Retry(c, at(2*time.Minute))
		c, e := Due(c, at(2*time.Minute))
		if !ok || e.Delivery == nil || e.Delivery.Nudged {
			t.Errorf("%s: %+v", name, e.Delivery)
		}
		if c, _ = Fail(c, at(2*time.Minute), ref(c), fsm.Failure{Profile: c.Profile}); c.Attempt != 3 {
			t.Errorf("%s: it does not count: %+v", name, c)
		}
	}
	out := waking("10", "11")
	parked, _ := Park(out, at(0), ref(out), fsm.BlockedSlot, time.Minute)
	if c, ok := Retry(parked, at(time.Second)); !ok || !c.Deadline.Equal(at(time.Second).Now) {
		t.Errorf("parked: %+v", c)
	}
	retired, _ := Fail(out, at(0), ref(out), fsm.Failure{Retired: true})
	hidden, _ := Hide(parked, at(0), fsm.Missing)
	for name, c := range map[string]fsm.Consumer{
		"out": out, "due": parked, "retired": retired, "hidden": hidden, "idle": idling("10", "10"),
		"live": live("10", "11"), "given up": givenUp(),
	} {
		if got, ok := Retry(c, at(time.Minute)); ok || !got.Deadline.Equal(c.Deadline) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
