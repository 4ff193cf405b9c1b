package fsm

import (
	"testing"
	"time"
)

// nudgeable has failed twice, and its third attempt, which is the last, is due after an hour.
func nudgeable(t *testing.T) Consumer {
	t.Helper()
	profile := Profile{Attempt: 10 * time.Second, Delays: []time.Duration{time.Second, time.Hour}, Lasting: true}
	c := waking("10", "11")
	c.Profile = profile
	c, _ = c.Fail(at(0), ref(c), Failure{Reason: "status 500", Profile: profile, Span: 1})
	c, _ = c.Due(at(time.Second))
	c, _ = c.Fail(at(time.Second), ref(c), Failure{Reason: "status 500", Profile: profile, Span: 1})
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
	fails := func(c Consumer, after time.Duration, f Failure) Consumer {
		f.Profile = c.Profile
		c, _ = c.Fail(at(after), ref(c), f)
		return c
	}
	// tried has the nudged attempt out.
	tried := func(c Consumer) Consumer {
		c, e := c.ReleaseHeld(at(up)).Due(at(up))
		if e.Wake == nil || !e.Wake.Nudged || e.Wake.Attempt != 3 || e.Wake.Span != 1 {
			t.Fatalf("the nudged attempt is %+v", e.Wake)
		}
		return c
	}
	for _, tt := range []struct {
		name string
		// run returns when it ends, too.
		run func(c Consumer, due D) (Consumer, D)
		// What comes then: which attempt is the next, when it is due, whether it counts, and whether there is a nudge.
		attempt int
		due     func(due D) D
		counts  bool
		nudge   bool
	}{
		{
			"makes the next attempt now", func(c Consumer, _ D) (Consumer, D) { return c.ReleaseHeld(at(up)), up },
			3, func(D) D { return up }, false, false,
		},
		{
			"is without effect if the attempt fails", func(c Consumer, _ D) (Consumer, D) {
				return fails(tried(c), up, Failure{}), up
			},
			3, func(due D) D { return due }, true, false,
		},
		{
			"leaves an endpoint the time that it asks for", func(c Consumer, due D) (Consumer, D) {
				return fails(tried(c), due-time.Minute, Failure{RetryAfter: 30 * time.Minute}), due - time.Minute
			},
			3, func(due D) D { return due + 29*time.Minute }, true, false,
		},
		{
			"is followed at once by the attempt that is due meanwhile", func(c Consumer, due D) (Consumer, D) {
				return fails(tried(c), due+time.Second, Failure{}), due + time.Second
			},
			3, func(due D) D { return due + time.Second }, true, false,
		},
		{
			"lasts while the attempt is held back", func(c Consumer, _ D) (Consumer, D) {
				c = tried(c)
				c, _ = c.Park(at(up), ref(c), time.Minute)
				return c, up
			},
			3, func(D) D { return up + time.Minute }, false, true,
		},
		{
			"lasts while nobody reports the attempt", func(c Consumer, _ D) (Consumer, D) {
				c, _ = tried(c).Due(at(up + 10*time.Second))
				c, _ = c.Park(at(up+10*time.Second), ref(c), time.Minute)
				return c, up + 10*time.Second
			},
			3, func(D) D { return up + 70*time.Second }, false, true,
		},
		{
			"may follow once an attempt has counted", func(c Consumer, due D) (Consumer, D) {
				c = fails(tried(c), up, Failure{})
				c, _ = c.Due(at(due))
				return fails(c, due, Failure{}), due
			},
			4, func(due D) D { return due + 48*time.Minute }, true, true,
		},
		{
			"ends with a resumption", func(c Consumer, _ D) (Consumer, D) {
				c, _, _ = fails(tried(c), up, Failure{Retired: true}).Resume(at(2 * up))
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
			if again := c.ReleaseHeld(at(now)); !again.Deadline.Equal(c.Deadline) != tt.nudge {
				t.Errorf("another nudge: %t, want %t", !again.Deadline.Equal(c.Deadline), tt.nudge)
			}
			c, e := c.Due(at(want))
			if e.Wake == nil || e.Wake.Attempt != tt.attempt || e.Wake.Nudged == tt.counts {
				t.Fatalf("the next attempt is %+v", e.Wake)
			}
			c = fails(c, want, Failure{})
			if counted := c.Attempt == tt.attempt; counted != tt.counts {
				t.Errorf("it counts: %t: %+v", counted, c)
			}
		})
	}
	t.Run("goes with the wake", func(t *testing.T) {
		c := tried(nudgeable(t))
		c, e := c.Deliver(at(up), ref(c), Delivered{Path: "/a", To: "11", Within: "11", Tail: "12", Profile: c.Profile})
		if e.Wake == nil || e.Wake.Nudged || !c.Nudged.IsZero() {
			t.Errorf("the next wake: %+v", c)
		}
	})
	t.Run("steps aside with its attempt", func(t *testing.T) {
		c := nudgeable(t)
		due := c.Deadline
		c.Profile.Aside = true
		c = tried(c)
		_, e := c.Fail(at(up), ref(c), Failure{Profile: c.Profile, Span: 1, To: "11", Within: "11", Tail: "11"})
		if a := e.Aside; a == nil || a.Attempt != 2 || !a.Deadline.Equal(due) {
			t.Errorf("the aside: %+v", a)
		}
	})
}

// TestAnOperatorRetries holds what an operator has attempted at once, and that it counts.
func TestAnOperatorRetries(t *testing.T) {
	nudgedBefore := nudgeable(t).ReleaseHeld(at(time.Minute))
	nudgedBefore, _ = nudgedBefore.Due(at(time.Minute))
	nudgedBefore, _ = nudgedBefore.Park(at(time.Minute), ref(nudgedBefore), time.Hour)
	for name, c := range map[string]Consumer{"failed": nudgeable(t), "nudged, and held back": nudgedBefore} {
		c, ok := c.Retry(at(2 * time.Minute))
		c, e := c.Due(at(2 * time.Minute))
		if !ok || e.Wake == nil || e.Wake.Nudged {
			t.Errorf("%s: %+v", name, e.Wake)
		}
		if c, _ = c.Fail(at(2*time.Minute), ref(c), Failure{Profile: c.Profile}); c.Attempt != 3 {
			t.Errorf("%s: it does not count: %+v", name, c)
		}
	}
	out := waking("10", "11")
	parked, _ := out.Park(at(0), ref(out), time.Minute)
	if c, ok := parked.Retry(at(time.Second)); !ok || !c.Deadline.Equal(at(time.Second).Now) {
		t.Errorf("parked: %+v", c)
	}
	retired, _ := out.Fail(at(0), ref(out), Failure{Retired: true})
	hidden, _ := parked.Hide(at(0), Missing)
	for name, c := range map[string]Consumer{
		"out": out, "due": parked, "retired": retired, "hidden": hidden, "idle": idle("10", "10"),
		"live": live("10", "11"), "given up": givenUp(),
	} {
		if got, ok := c.Retry(at(time.Minute)); ok || !got.Deadline.Equal(c.Deadline) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
