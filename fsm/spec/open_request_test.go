package spec

import (
	"testing"
	"time"

	"reveille/fsm"
)

// TestAnOpenRequestWithinItsTimeHasNotFailedInWhatIsShown holds when a consumer is shown to fail: once an attempt has
// failed of which that is known. The request of one that was not answered in time may be open, and its 2xx counts.
func TestAnOpenRequestWithinItsTimeHasNotFailedInWhatIsShown(t *testing.T) {
	const second = time.Second
	const ends = 35 * second // half of Timing.Waking, and Timing.Request
	lapsed := func(c fsm.Consumer) fsm.Consumer {
		c, _ = Due(c, at(timing.Waking))
		return c
	}
	// again makes the next attempt of a wake that has lapsed.
	again := func(c fsm.Consumer) fsm.Consumer {
		c, _ = Due(lapsed(c), at(12*second))
		return c
	}
	for _, tt := range []struct {
		name string
		run  func(fsm.Consumer) fsm.Consumer
		// fails is since when it is shown to fail, after t0; 0: it is not.
		fails time.Duration
		// uncounted is how much of the time after that does not count for the failure clock.
		uncounted time.Duration
	}{
		{"an attempt without an answer fails when its request must have ended", lapsed, ends, 0},
		{"another one that lapses changes nothing", func(c fsm.Consumer) fsm.Consumer {
			c, _ = Due(again(c), at(22*second))
			return c
		}, ends, 0},
		{"another one whose failure is reported fails at once", func(c fsm.Consumer) fsm.Consumer {
			c = again(c)
			c, _ = Fail(c, at(13*second), ref(c), fsm.Failure{Reason: "status 500"})
			return c
		}, 13 * second, 0},
		{"one that lapses after a reported failure changes nothing", func(c fsm.Consumer) fsm.Consumer {
			c, _ = Fail(c, at(second), ref(c), fsm.Failure{Reason: "status 500"})
			c, _ = Due(c, at(c.Deadline.Sub(t0)))
			c, _ = Due(c, at(c.Deadline.Sub(t0)))
			return c
		}, second, 0},
		{"a late 2xx leaves none", func(c fsm.Consumer) fsm.Consumer {
			first := ref(c)
			c, _ = Accept(again(c), at(25*second), first)
			return c
		}, 0, 0},
		{"a claim leaves none", func(c fsm.Consumer) fsm.Consumer {
			c = again(c)
			c, _ = Callback(c, at(25*second), true, callback(c, func(cb *fsm.Callback) { cb.WakeID = c.WakeID }))
			return c
		}, 0, 0},
		{"a deadline that nobody acted on for long fails then", func(c fsm.Consumer) fsm.Consumer {
			c, _ = Due(c, at(time.Minute))
			return c
		}, time.Minute, 0},
		{"the time until then is not counted twice while the stream is away", func(c fsm.Consumer) fsm.Consumer {
			c, _ = Hide(again(c), at(15*second), fsm.MissingAnew)
			c, _ = Observe(c, at(45*second), "/a", "11")
			return c
		}, ends, 45*second - ends},
		{"nor while nothing is due before", func(c fsm.Consumer) fsm.Consumer {
			c, _ = Due(lapsed(c), at(20*second))
			return c
		}, ends, 0},
		{"nor over the end of a wake", func(c fsm.Consumer) fsm.Consumer {
			done := func(cb *fsm.Callback) { cb.Done, cb.Acks = true, []fsm.Ack{{Path: "/a", Offset: "11"}} }
			c = again(c)
			c, _ = Callback(c, at(20*second), true, callback(c, done))
			c, _ = Observe(c, at(50*second), "/a", "12")
			return c
		}, ends, 50*second - ends},
	} {
		c := tt.run(waking("10", "11"))
		if c.Uncounted != tt.uncounted {
			t.Errorf("%s: %s do not count, want %s", tt.name, c.Uncounted, tt.uncounted)
		}
		if tt.fails == 0 {
			tt.fails = 24 * time.Hour
		}
		before, after := c.AsOf(t0.Add(tt.fails-time.Millisecond)), c.AsOf(t0.Add(tt.fails))
		var tally fsm.Tally
		if Count(&tally, before); before.Condition() != fsm.ConditionOK || before.LastError != "" ||
			tally.Failing != 0 || !tally.FailingSince.IsZero() || tally.LastError != "" {
			t.Errorf("%s: it is shown to fail too early: %+v, %+v", tt.name, before, tally)
		}
		if tt.fails == 24*time.Hour {
			if after.Condition() != fsm.ConditionOK {
				t.Errorf("%s: it is shown to fail: %+v", tt.name, after)
			}
		} else if Count(&tally, after); after.Condition() != fsm.ConditionFailing || tally.Failing != 1 ||
			!tally.FailingSince.Equal(t0.Add(tt.fails)) || tally.LastError == "" {
			t.Errorf("%s: from then on it is shown as %+v, %+v", tt.name, after, tally)
		}
	}
}

// TestTheFailureClockBeginsWhenTheRequestMustHaveEnded holds that it is later by that time, and by no more.
func TestTheFailureClockBeginsWhenTheRequestMustHaveEnded(t *testing.T) {
	last := t0.Add(timing.Open() + timing.GCAfter)
	for _, tt := range []struct {
		made  time.Time
		state fsm.State
	}{{last.Add(-time.Millisecond), fsm.Waking}, {last, fsm.GivenUp}} {
		c, _ := Due(waking("10", "11"), at(timing.Waking))
		c.Sent, c.Attempt, c.Deadline = true, 2, tt.made.Add(timing.Waking)
		if c, _ := Due(c, Env{Now: c.Deadline, Timing: timing}); c.State != tt.state {
			t.Errorf("after an attempt made %s after the first it is %s, want %s", tt.made.Sub(t0), c.State, tt.state)
		}
	}
}

// TestARetryOfTheSubscriptionsOwnWaitsForTheAnswer holds that what such an attempt came to is never guessed: it is made
// again, and only what is reported has failed.
func TestARetryOfTheSubscriptionsOwnWaitsForTheAnswer(t *testing.T) {
	for _, sub := range []fsm.Subscription{pushing, retrying} {
		c := attempted(sub, 1)
		if patience := c.Profile.Attempt; patience < sub.Timeout+fsm.AttemptMargin {
			t.Errorf("%s: an attempt may be out for %s, its request for %s", sub.Mode, patience, sub.Timeout)
		}
		if c, e := Due(c, Env{Now: c.Deadline, Timing: timing}); e.Delivery == nil || !c.FirstFailure.IsZero() {
			t.Errorf("%s: without an answer it is %+v", sub.Mode, c)
		}
	}
}
