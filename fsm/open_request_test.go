package fsm

import (
	"testing"
	"time"
)

// TestAnOpenRequestWithinItsTimeHasNotFailedInWhatIsShown holds when a consumer is shown to fail: once an attempt has
// failed of which that is known. The request of one that was not answered in time may be open, and its 2xx counts.
func TestAnOpenRequestWithinItsTimeHasNotFailedInWhatIsShown(t *testing.T) {
	const second = time.Second
	const ends = 35 * second // half of Timing.Waking, and Timing.Request
	lapsed := func(c Consumer) Consumer {
		c, _ = c.Due(at(timing.Waking))
		return c
	}
	// again makes the next attempt of a wake that has lapsed.
	again := func(c Consumer) Consumer {
		c, _ = lapsed(c).Due(at(12 * second))
		return c
	}
	for _, tt := range []struct {
		name string
		run  func(Consumer) Consumer
		// fails is since when it is shown to fail, after t0; 0: it is not.
		fails time.Duration
		// uncounted is how much of the time after that does not count for the failure clock.
		uncounted time.Duration
	}{
		{"an attempt without an answer fails when its request must have ended", lapsed, ends, 0},
		{"another one that lapses changes nothing", func(c Consumer) Consumer {
			c, _ = again(c).Due(at(22 * second))
			return c
		}, ends, 0},
		{"another one whose failure is reported fails at once", func(c Consumer) Consumer {
			c = again(c)
			c, _ = c.Fail(at(13*second), ref(c), Failure{Reason: "status 500"})
			return c
		}, 13 * second, 0},
		{"one that lapses after a reported failure changes nothing", func(c Consumer) Consumer {
			c, _ = c.Fail(at(second), ref(c), Failure{Reason: "status 500"})
			c, _ = c.Due(at(c.Deadline.Sub(t0)))
			c, _ = c.Due(at(c.Deadline.Sub(t0)))
			return c
		}, second, 0},
		{"a late 2xx leaves none", func(c Consumer) Consumer {
			first := ref(c)
			c, _ = again(c).Accept(at(25*second), first)
			return c
		}, 0, 0},
		{"a claim leaves none", func(c Consumer) Consumer {
			c = again(c)
			c, _ = c.Callback(at(25*second), true, callback(c, func(cb *Callback) { cb.WakeID = c.WakeID }))
			return c
		}, 0, 0},
		{"a deadline that nobody acted on for long fails then", func(c Consumer) Consumer {
			c, _ = c.Due(at(time.Minute))
			return c
		}, time.Minute, 0},
		{"the time until then is not counted twice while the stream is away", func(c Consumer) Consumer {
			c, _ = again(c).Hide(at(15*second), MissingAnew)
			c, _ = c.Observe(at(45*second), "/a", "11")
			return c
		}, ends, 45*second - ends},
		{"nor while nothing is due before", func(c Consumer) Consumer {
			c, _ = lapsed(c).Due(at(20 * second))
			return c
		}, ends, 0},
		{"nor over the end of a wake", func(c Consumer) Consumer {
			done := func(cb *Callback) { cb.Done, cb.Acks = true, []Ack{{"/a", "11"}} }
			c = again(c)
			c, _ = c.Callback(at(20*second), true, callback(c, done))
			c, _ = c.Observe(at(50*second), "/a", "12")
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
		var tally Tally
		if tally.Count(before); before.Condition() != ConditionOK || before.LastError != "" ||
			tally.Failing != 0 || !tally.FailingSince.IsZero() || tally.LastError != "" {
			t.Errorf("%s: it is shown to fail too early: %+v, %+v", tt.name, before, tally)
		}
		if tt.fails == 24*time.Hour {
			if after.Condition() != ConditionOK {
				t.Errorf("%s: it is shown to fail: %+v", tt.name, after)
			}
		} else if tally.Count(after); after.Condition() != ConditionFailing || tally.Failing != 1 ||
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
		state State
	}{{last.Add(-time.Millisecond), Waking}, {last, GivenUp}} {
		c, _ := waking("10", "11").Due(at(timing.Waking))
		c.Sent, c.Attempt, c.Deadline = true, 2, tt.made.Add(timing.Waking)
		if c, _ := c.Due(Env{Now: c.Deadline, Timing: timing}); c.State != tt.state {
			t.Errorf("after an attempt made %s after the first it is %s, want %s", tt.made.Sub(t0), c.State, tt.state)
		}
	}
}

// TestARetryOfTheSubscriptionsOwnWaitsForTheAnswer holds that what such an attempt came to is never guessed: it is made
// again, and only what is reported has failed.
func TestARetryOfTheSubscriptionsOwnWaitsForTheAnswer(t *testing.T) {
	for _, sub := range []Subscription{pushing, retrying} {
		c := attempted(sub, 1)
		if patience := c.Profile.Attempt; patience < sub.Timeout+AttemptMargin {
			t.Errorf("%s: an attempt may be out for %s, its request for %s", sub.Mode, patience, sub.Timeout)
		}
		if c, e := c.Due(Env{Now: c.Deadline, Timing: timing}); e.Wake == nil || !c.FirstFailure.IsZero() {
			t.Errorf("%s: without an answer it is %+v", sub.Mode, c)
		}
	}
}
