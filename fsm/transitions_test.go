package fsm

import (
	"testing"
	"time"
)

var timing = Timing{
	Waking: 10 * time.Second, Request: 30 * time.Second, Liveness: 45 * time.Second, GoneGrace: 30 * time.Second,
	GCAfter: 72 * time.Hour,
}

var t0 = time.UnixMilli(1_790_000_000_000)

func at(after time.Duration) Env { return Env{Now: t0.Add(after), WakeID: "w_new", Timing: timing} }

func idle(acked, tail Offset) Consumer {
	c := NewConsumer(Subscription{ID: "sub", Generation: "g"}, "/a", acked, 6)
	c.WakeID = "w_old"
	c.Links["/a"] = Link{Acked: acked, Tail: tail}
	return c
}

// waking has attempt 1 of epoch 7 out.
func waking(acked, tail Offset) Consumer {
	c, _ := idle(acked, tail).Observe(Env{Now: t0, WakeID: "w_7", Timing: timing}, "/a", tail)
	return c
}

func live(acked, tail Offset) Consumer {
	c := waking(acked, tail)
	c, _ = c.Accept(at(0), ref(c))
	return c
}

func ref(c Consumer) WakeRef {
	return WakeRef{Consumer: c.Ref(), Epoch: c.Epoch, WakeID: c.WakeID, Attempt: max(c.Attempt, 1), Handed: c.Handed}
}

func callback(c Consumer, f func(*Callback)) Callback {
	cb := Callback{
		Consumer: c.Ref(), Primary: c.Primary, Generation: c.Generation, Epoch: c.Epoch, TokenEpoch: c.Epoch,
		MaxStreams: 10,
	}
	f(&cb)
	return cb
}

// givenUp is a consumer that was given up with the event at 11 pending.
func givenUp() Consumer {
	c := waking("10", "11")
	c.FirstFailure = t0.Add(-timing.GCAfter)
	c, _ = c.Fail(at(time.Second), ref(c), Failure{Reason: "status 500"})
	return c
}

// TestTransitionTable holds each row of the webhook spec's State Transitions, and what goes with it.
func TestTransitionTable(t *testing.T) {
	done := func(acks ...Ack) func(*Callback) {
		return func(cb *Callback) { cb.Done, cb.Acks = true, acks }
	}
	call := func(c Consumer, e Env, f func(*Callback)) (Consumer, Effects) {
		c, r := c.Callback(e, true, callback(c, f))
		if r.Code != "" {
			t.Fatalf("callback refused: %s", r.Code)
		}
		return c, r.Effects
	}
	type result struct {
		state    State
		epoch    int64
		wakeID   string
		acked    Offset
		deadline time.Duration // after t0; 0: none
		wake     bool
		removed  bool
	}
	for _, tt := range []struct {
		name string
		run  func() (Consumer, Effects)
		want result
	}{
		{"IDLE → WAKING when pending work appears: epoch++, new wake_id, a delivery", func() (Consumer, Effects) {
			return idle("10", "10").Observe(at(0), "/a", "11")
		}, result{Waking, 7, "w_new", "10", timing.Waking, true, false}},
		{"IDLE stays IDLE when the tail is one that was acked", func() (Consumer, Effects) {
			return idle("10", "10").Observe(at(0), "/a", "10")
		}, result{Idle, 6, "w_old", "10", 0, false, false}},
		{"IDLE → WAKING for a new, empty stream: its tail sorts after -1", func() (Consumer, Effects) {
			return idle(Start, "").Observe(at(0), "/a", "0000")
		}, result{Waking, 7, "w_new", Start, timing.Waking, true, false}},
		{"WAKING → LIVE on a 2xx: the liveness timeout starts", func() (Consumer, Effects) {
			c := waking("10", "11")
			return c.Accept(at(time.Second), ref(c))
		}, result{Live, 7, "w_7", "10", time.Second + timing.Liveness, false, false}},
		{"WAKING → LIVE on a claim", func() (Consumer, Effects) {
			return call(waking("10", "11"), at(time.Second), func(cb *Callback) { cb.WakeID = "w_7" })
		}, result{Live, 7, "w_7", "10", time.Second + timing.Liveness, false, false}},
		{"WAKING stays WAKING on a callback that does not claim", func() (Consumer, Effects) {
			return call(waking("10", "11"), at(time.Second), func(*Callback) {})
		}, result{Waking, 7, "w_7", "10", timing.Waking, false, false}},
		{"WAKING → IDLE on a done that claims nothing", func() (Consumer, Effects) {
			return call(waking("10", "11"), at(time.Second), done(Ack{"/a", "11"}))
		}, result{Idle, 7, "w_7", "11", 0, false, false}},
		{"WAKING → IDLE on a synchronous done: acked to the tail", func() (Consumer, Effects) {
			c := waking("10", "11")
			return c.Finish(at(time.Second), ref(c), c.wakeNow().Streams)
		}, result{Idle, 7, "w_7", "11", 0, false, false}},
		{"WAKING → IDLE on a synchronous done for an empty stream: acked to its tail", func() (Consumer, Effects) {
			c := waking(Start, "0000")
			return c.Finish(at(time.Second), ref(c), c.wakeNow().Streams)
		}, result{Idle, 7, "w_7", "0000", 0, false, false}},
		{
			"WAKING → WAKING on a synchronous done with an event since the delivery: not acked, woken again",
			func() (Consumer, Effects) {
				c := waking("10", "11")
				seen := c.wakeNow().Streams
				c, _ = c.Observe(at(time.Second), "/a", "12")
				return c.Finish(at(2*time.Second), ref(c), seen)
			},
			result{Waking, 8, "w_new", "11", 2*time.Second + timing.Waking, true, false},
		},
		{"WAKING → WAKING after 10 s without a 2xx or a claim: the retry is scheduled", func() (Consumer, Effects) {
			return waking("10", "11").Due(at(timing.Waking))
		}, result{Waking, 7, "w_7", "10", timing.Waking + 200*time.Millisecond, false, false}},
		{"WAKING: the retry reuses epoch and wake_id", func() (Consumer, Effects) {
			c, _ := waking("10", "11").Due(at(timing.Waking))
			return c.Due(at(timing.Waking + time.Second))
		}, result{Waking, 7, "w_7", "10", 2*timing.Waking + time.Second, true, false}},
		{"WAKING → LIVE on a late 2xx of the first attempt", func() (Consumer, Effects) {
			c := waking("10", "11")
			r := ref(c)
			c, _ = c.Due(at(timing.Waking))
			c, _ = c.Due(at(timing.Waking + time.Second))
			return c.Accept(at(20*time.Second), r)
		}, result{Live, 7, "w_7", "10", 20*time.Second + timing.Liveness, false, false}},
		{"LIVE → IDLE on done with nothing pending", func() (Consumer, Effects) {
			return call(live("10", "11"), at(time.Second), done(Ack{"/a", "11"}))
		}, result{Idle, 7, "w_7", "11", 0, false, false}},
		{"LIVE → WAKING on done with work pending: epoch++, new wake_id", func() (Consumer, Effects) {
			return call(live("10", "12"), at(time.Second), done(Ack{"/a", "11"}))
		}, result{Waking, 8, "w_new", "11", time.Second + timing.Waking, true, false}},
		{"LIVE → IDLE after 45 s without a callback", func() (Consumer, Effects) {
			c, _ := call(live("10", "11"), at(0), func(cb *Callback) { cb.Acks = []Ack{{"/a", "11"}} })
			return c.Due(at(timing.Liveness))
		}, result{Idle, 7, "w_7", "11", 0, false, false}},
		{"LIVE → IDLE → WAKING after 45 s without a callback and work pending", func() (Consumer, Effects) {
			return live("10", "11").Due(at(timing.Liveness))
		}, result{Waking, 8, "w_new", "10", timing.Liveness + timing.Waking, true, false}},
		{"LIVE: any callback starts the 45 s anew", func() (Consumer, Effects) {
			return call(live("10", "11"), at(40*time.Second), func(*Callback) {})
		}, result{Live, 7, "w_7", "10", 40*time.Second + timing.Liveness, false, false}},
		{"IDLE stays IDLE on a late callback that acks what upstream has by now", func() (Consumer, Effects) {
			c, _ := call(live("10", "11"), at(0), done(Ack{"/a", "11"}))
			return call(c, at(time.Second), func(cb *Callback) {
				cb.Acks, cb.Tails = []Ack{{"/a", "12"}}, map[string]Offset{"/a": "12"}
			})
		}, result{Idle, 7, "w_7", "12", 0, false, false}},
		{"IDLE → WAKING on a late callback that finds an event that nobody has told of", func() (Consumer, Effects) {
			c, _ := call(live("10", "11"), at(0), done(Ack{"/a", "11"}))
			return call(c, at(time.Second), func(cb *Callback) { cb.Tails = map[string]Offset{"/a": "12"} })
		}, result{Waking, 8, "w_new", "11", time.Second + timing.Waking, true, false}},
		{"LIVE stays LIVE when more events arrive: no further wake", func() (Consumer, Effects) {
			return live("10", "11").Observe(at(time.Second), "/a", "12")
		}, result{Live, 7, "w_7", "10", timing.Liveness, false, false}},
		{"LIVE → Removed when unsubscribed from all", func() (Consumer, Effects) {
			return call(live("10", "11"), at(time.Second), func(cb *Callback) { cb.Unsubscribe = []string{"/a"} })
		}, result{Live, 7, "w_7", "", time.Second + timing.Liveness, false, true}},
		{"LIVE → Removed when unsubscribed from all, in a callback that also says done", func() (Consumer, Effects) {
			return call(live("10", "11"), at(time.Second), func(cb *Callback) {
				cb.Unsubscribe, cb.Done = []string{"/a"}, true
			})
		}, result{Live, 7, "w_7", "", time.Second + timing.Liveness, false, true}},
		{"WAKING → Removed when unsubscribed from all", func() (Consumer, Effects) {
			return call(waking("10", "11"), at(time.Second), func(cb *Callback) { cb.Unsubscribe = []string{"/a"} })
		}, result{Waking, 7, "w_7", "", timing.Waking, false, true}},
		{"IDLE → Removed when unsubscribed from all", func() (Consumer, Effects) {
			return call(idle("10", "10"), at(time.Second), func(cb *Callback) { cb.Unsubscribe = []string{"/a"} })
		}, result{Idle, 6, "w_old", "", 0, false, true}},
		{"hidden → Removed once the primary stream stayed away for the grace", func() (Consumer, Effects) {
			c, _ := idle("10", "10").Hide(at(0), Missing)
			return c.Hide(at(timing.GoneGrace), MissingStill)
		}, result{Idle, 6, "w_old", "10", timing.GoneGrace, false, true}},
		{"hidden stays hidden while nobody could ask for the primary stream", func() (Consumer, Effects) {
			c, _ := idle("10", "10").Hide(at(0), Missing)
			return c.Due(at(timing.GoneGrace))
		}, result{Idle, 6, "w_old", "10", 2 * timing.GoneGrace, false, false}},
		{"hidden for a new grace if upstream could not be asked in between", func() (Consumer, Effects) {
			c, _ := idle("10", "10").Hide(at(0), Missing)
			return c.Hide(at(time.Hour), MissingAnew)
		}, result{Idle, 6, "w_old", "10", time.Hour + timing.GoneGrace, false, false}},
		{"hidden carries on when the primary stream is back", func() (Consumer, Effects) {
			c, _ := idle("10", "10").Hide(at(0), Missing)
			return c.Observe(at(time.Second), "/a", "11")
		}, result{Waking, 7, "w_new", "10", time.Second + timing.Waking, true, false}},
		{"WAKING → given up when an attempt fails that was made after 3 days of failures", func() (Consumer, Effects) {
			c := waking("10", "11")
			c.FirstFailure = t0.Add(-timing.GCAfter)
			return c.Fail(at(time.Second), ref(c), Failure{})
		}, result{GivenUp, 7, "w_7", "10", 0, false, true}},
		{
			"WAKING → WAKING when an attempt fails after 3 days of failures that was made before",
			func() (Consumer, Effects) {
				c := waking("10", "11")
				c.FirstFailure = t0.Add(time.Second - timing.GCAfter)
				return c.Fail(at(time.Second), ref(c), Failure{})
			},
			result{Waking, 7, "w_7", "10", time.Second + RetryDelay(1, 0), false, false},
		},
		{"WAKING → WAKING when nobody was there to try again for longer than 3 days", func() (Consumer, Effects) {
			c, _ := waking("10", "11").Fail(at(time.Second), ref(waking("10", "11")), Failure{})
			return c.Due(at(2 * timing.GCAfter))
		}, result{Waking, 7, "w_7", "10", 2*timing.GCAfter + timing.Waking, true, false}},
		{
			"WAKING → WAKING when nobody heard for longer than 3 days what became of an attempt",
			func() (Consumer, Effects) {
				c := waking("10", "11")
				c.FirstFailure = t0.Add(-timing.GCAfter)
				return c.Due(at(2 * timing.GCAfter))
			},
			result{Waking, 7, "w_7", "10", 2*timing.GCAfter + RetryDelay(1, 0), false, false},
		},
		{"WAKING → WAKING when the stream was hidden for most of 3 days", func() (Consumer, Effects) {
			c, _ := waking("10", "11").Fail(at(0), ref(waking("10", "11")), Failure{})
			c, _ = c.Hide(at(time.Minute), MissingAnew)
			c, _ = c.Observe(at(timing.GCAfter), "/a", "11")
			c, _ = c.Due(at(timing.GCAfter))
			return c.Fail(at(timing.GCAfter), ref(c), Failure{})
		}, result{Waking, 7, "w_7", "10", timing.GCAfter + RetryDelay(2, 0), false, false}},
		{"given up → WAKING by the next event, with the next epoch", func() (Consumer, Effects) {
			return givenUp().Observe(at(time.Minute), "/a", "12")
		}, result{Waking, 8, "w_new", "10", time.Minute + timing.Waking, true, false}},
		{"given up → given up by what it was given up with", func() (Consumer, Effects) {
			return givenUp().Observe(at(time.Minute), "/a", "11")
		}, result{GivenUp, 7, "w_7", "10", 0, false, false}},
		{"given up → WAKING by a resumption", func() (Consumer, Effects) {
			c, e, _ := givenUp().Resume(at(time.Minute))
			return c, e
		}, result{Waking, 8, "w_new", "10", time.Minute + timing.Waking, true, false}},
		{"given up → given up by a late answer", func() (Consumer, Effects) {
			c := givenUp()
			return c.Accept(at(time.Minute), ref(c))
		}, result{GivenUp, 7, "w_7", "10", 0, false, false}},
		{"given up → Removed, without being told of again", func() (Consumer, Effects) {
			c := givenUp()
			return c, c.Remove(RemovedStreamDeleted)
		}, result{GivenUp, 7, "w_7", "10", 0, false, false}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, e := tt.run()
			got := result{
				state: c.State, epoch: c.Epoch, wakeID: c.WakeID, acked: c.Links["/a"].Acked,
				wake: e.Wake != nil, removed: e.Removal != nil,
			}
			if !c.Deadline.IsZero() {
				got.deadline = c.Deadline.Sub(t0)
			}
			if got != tt.want {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
			if e.Wake != nil && (e.Wake.Epoch != c.Epoch || e.Wake.WakeID != c.WakeID) {
				t.Errorf("the wake handed out is %+v", e.Wake)
			}
		})
	}
}

func TestFailures(t *testing.T) {
	c := waking("10", "11")
	first := ref(c)
	t.Run("the first failed attempt starts the failure clock, the next leaves it", func(t *testing.T) {
		c, _ := c.Fail(at(time.Second), first, Failure{})
		c, e := c.Due(at(2 * time.Second))
		c, _ = c.Fail(at(3*time.Second), e.Wake.Ref(), Failure{})
		if !c.FirstFailure.Equal(t0.Add(time.Second)) {
			t.Errorf("first failure %v", c.FirstFailure)
		}
		if want := t0.Add(3*time.Second + 400*time.Millisecond); !c.Deadline.Equal(want) {
			t.Errorf("second retry at %v, want %v", c.Deadline, want)
		}
		if c, _ := c.Accept(at(4*time.Second), first); !c.FirstFailure.IsZero() {
			t.Error("a 2xx left the failure clock running")
		}
	})
	t.Run("a failure of an attempt that is no longer the one out changes nothing", func(t *testing.T) {
		c, _ := c.Due(at(timing.Waking))
		c, _ = c.Due(at(timing.Waking + time.Second))
		for _, stale := range []WakeRef{
			first,
			{Epoch: 6, WakeID: c.WakeID, Attempt: c.Attempt},
			{Epoch: c.Epoch, WakeID: "w_old", Attempt: c.Attempt},
		} {
			if after, e := c.Fail(at(12*time.Second), stale, Failure{}); after.Deadline != c.Deadline ||
				e.Wake != nil || !after.Sent {
				t.Errorf("failure of %+v was booked", stale)
			}
		}
	})
	t.Run("Retry-After is a lower bound, an hour the most", func(t *testing.T) {
		for _, tt := range []struct{ asked, want time.Duration }{
			{0, 200 * time.Millisecond}, {time.Minute, time.Minute}, {24 * time.Hour, time.Hour},
		} {
			if c, _ := c.Fail(at(0), first, Failure{RetryAfter: tt.asked}); c.Deadline.Sub(t0) != tt.want {
				t.Errorf("asked for %v: next attempt after %v", tt.asked, c.Deadline.Sub(t0))
			}
		}
	})
	t.Run("why the last attempt failed is kept until one succeeds", func(t *testing.T) {
		c, _ := c.Fail(at(0), first, Failure{Reason: "status 503"})
		if c.LastError != "status 503" {
			t.Errorf("after a 503 it is %q", c.LastError)
		}
		c, e := c.Due(at(time.Second))
		if c, _ := c.Due(at(11 * time.Second)); c.LastError != ReasonTimeout {
			t.Errorf("after the waking timeout it is %q", c.LastError)
		}
		if c, _ := c.Accept(at(time.Second), e.Wake.Ref()); c.LastError != "" {
			t.Errorf("after a 2xx it is %q", c.LastError)
		}
	})
	t.Run("410 ends deliveries until the subscription is resumed", func(t *testing.T) {
		c, _ := c.Fail(at(0), first, Failure{Retired: true})
		after, e := c.Due(at(2 * timing.GCAfter))
		if e.Wake != nil || e.Removal != nil || !after.Retired || !after.Deadline.IsZero() {
			t.Errorf("it was delivered to, or waits for something else than its resumption: %+v", after)
		}
		c, _, ok := c.Resume(at(time.Hour))
		if !ok {
			t.Error("its resumption does not count")
		}
		if _, e := c.Due(at(time.Hour)); e.Wake == nil || e.Wake.WakeID != "w_7" {
			t.Error("not delivered after it was resumed")
		}
	})
	t.Run("what waits is released, and nothing else", func(t *testing.T) {
		parked, _ := c.Park(at(0), first, time.Minute)
		failed, _ := c.Fail(at(0), first, Failure{})
		if got := parked.ReleaseHeld(at(time.Second)); !got.Deadline.Equal(at(time.Second).Now) || got.Attempt != 0 {
			t.Errorf("parked: %+v", got)
		}
		if got := parked.ReleaseHeld(at(2 * time.Hour)); !got.Deadline.Equal(parked.Deadline) {
			t.Errorf("parked, and overdue: %+v", got)
		}
		retired, _ := c.Fail(at(0), first, Failure{Retired: true})
		hidden, _ := failed.Hide(at(0), Missing)
		for name, other := range map[string]Consumer{
			"out": c, "retired": retired, "hidden": hidden, "idle": idle("10", "10"),
			"live": live("10", "11"), "given up": givenUp(),
		} {
			if got := other.ReleaseHeld(at(time.Second)); !got.Deadline.Equal(other.Deadline) {
				t.Errorf("%s: its deadline is %s, not %s", name, got.Deadline, other.Deadline)
			}
		}
	})
	t.Run("a probe leaves the schedule alone, however often it fails", func(t *testing.T) {
		failed, _ := c.Fail(at(0), first, Failure{RetryAfter: time.Hour})
		for n := range 3 {
			now := time.Duration(n+1) * time.Minute
			probing, ok := failed.Probe(at(now))
			if !ok || !probing.Deadline.Equal(at(now).Now) || !probing.Probed {
				t.Fatalf("probe %d: %t, %+v", n, ok, probing)
			}
			out, e := probing.Due(at(now))
			if e.Wake == nil || !e.Wake.Nudged {
				t.Fatalf("probe %d is %+v", n, e.Wake)
			}
			after, _ := out.Fail(at(now), e.Wake.Ref(), Failure{})
			if after.Attempt != failed.Attempt || !after.Deadline.Equal(failed.Deadline) || after.Probed ||
				!after.Nudged.IsZero() {
				t.Fatalf("after probe %d: %+v, want what was before: %+v", n, after, failed)
			}
			failed = after
		}
		released := failed.ReleaseHeld(at(10 * time.Minute))
		if !released.Deadline.Equal(at(10*time.Minute).Now) || released.Probed {
			t.Errorf("released after probes: %+v", released)
		}
		if probed, ok := released.Probe(at(10 * time.Minute)); ok {
			t.Errorf("what is due is probed: %+v", probed)
		}
		out, e := failed.Due(at(2 * time.Hour))
		parked, _ := out.Park(at(2*time.Hour), e.Wake.Ref(), time.Minute)
		overdue, ok := parked.Probe(at(2*time.Hour + time.Second))
		if !ok || overdue.Probed || !overdue.Nudged.IsZero() {
			t.Errorf("what is overdue, and counts: %t, %+v", ok, overdue)
		}
		first, _ := c.Park(at(0), first, time.Hour)
		if held, ok := first.Probe(at(time.Minute)); !ok || held.Probed || !held.Deadline.Equal(at(time.Minute).Now) {
			t.Errorf("what was held back, and has not failed: %t, %+v", ok, held)
		}
	})
	t.Run("a parked attempt counts for nothing", func(t *testing.T) {
		parked, _ := c.Park(at(0), first, time.Minute)
		if parked.Attempt != 0 || parked.Sent || !parked.FirstFailure.IsZero() ||
			!parked.Deadline.Equal(at(time.Minute).Now) {
			t.Errorf("parked: %+v", parked)
		}
		if again, _ := parked.Park(at(time.Second), first, 0); !again.Deadline.Equal(at(time.Second).Now) ||
			again.Attempt != 0 {
			t.Errorf("parked again for no time: %+v", again)
		}
		begun, e := parked.Begin(at(time.Minute), first, "a")
		if e.Wake == nil || e.Wake.Attempt != 1 || !begun.Sent {
			t.Errorf("begun: %+v", begun)
		}
		if _, e := begun.Begin(at(time.Minute), first, "b"); e.Wake != nil {
			t.Error("begun twice")
		}
		again, same := begun.Begin(at(61*time.Second), first, "a")
		if same.Wake == nil || same.Wake.Handed != e.Wake.Handed || same.Wake.Attempt != 1 ||
			!again.Deadline.Equal(at(71*time.Second).Now) {
			t.Errorf("the same call again: %+v, %+v", again, same.Wake)
		}
		if late, _ := begun.Park(at(time.Minute), first, time.Hour); !late.Sent {
			t.Error("parked by a call that came late")
		}
		failed, _ := begun.Fail(at(time.Minute), begun.wakeNow().Ref(), Failure{})
		if again, _ := failed.Park(at(2*time.Minute), first, 0); !again.Deadline.Equal(failed.Deadline) {
			t.Errorf("an attempt that was made and failed was parked: %+v", again)
		}
	})
	t.Run("an attempt that was handed out is begun by the caller that has it", func(t *testing.T) {
		begun, e := c.Begin(at(time.Minute), first, "a")
		if e.Wake == nil || e.Wake.Attempt != 1 || e.Wake.Handed != first.Handed+1 || !begun.Sent ||
			!begun.Deadline.Equal(at(70*time.Second).Now) {
			t.Errorf("begun: %+v, %+v", begun, e.Wake)
		}
		due, _ := c.Due(at(time.Minute))
		due, e = due.Due(at(2 * time.Minute))
		if _, other := due.Begin(at(2*time.Minute), first, "a"); e.Wake == nil || other.Wake != nil {
			t.Error("begun though its deadline has brought it to another caller")
		}
	})
	t.Run("a resumption releases what was held back, and not what waits for its retry", func(t *testing.T) {
		first, _ := c.Park(at(0), first, time.Hour)
		failed, _ := c.Fail(at(0), ref(c), Failure{})
		due, e := failed.Due(at(time.Second))
		retry, _ := due.Park(at(time.Second), e.Wake.Ref(), time.Hour)
		for name, held := range map[string]Consumer{"a first attempt": first, "a retry that was due": retry} {
			if got, e, ok := held.Resume(at(time.Minute)); !ok || e.Wake != nil ||
				!got.Deadline.Equal(at(time.Minute).Now) || got.Attempt != held.Attempt ||
				!got.FirstFailure.Equal(held.FirstFailure) {
				t.Errorf("%s: %t, %+v", name, ok, got)
			}
		}
		hidden, _ := retry.Hide(at(2*time.Second), Missing)
		stalled := idle("10", "11")
		stalled.Stalled = StallLimit
		stalled, _ = stalled.Observe(at(0), "/a", "12")
		for name, other := range map[string]Consumer{
			"out": due, "failed": failed, "hidden": hidden, "done without progress": stalled,
		} {
			if got, e, ok := other.Resume(at(0)); ok || !got.Deadline.Equal(other.Deadline) || e.Wake != nil {
				t.Errorf("%s: %t, its deadline is %s, not %s", name, ok, got.Deadline, other.Deadline)
			}
		}
	})
	t.Run("time in which an attempt is parked does not count, however it ends", func(t *testing.T) {
		failed, _ := c.Fail(at(0), first, Failure{RetryAfter: time.Second})
		due, e := failed.Due(at(time.Second))
		parked, _ := due.Park(at(time.Second), e.Wake.Ref(), time.Minute)
		parked, _ = parked.Park(at(2*time.Second), e.Wake.Ref(), time.Minute)
		for name, tt := range map[string]struct {
			end  func() Consumer
			want time.Duration
		}{
			"at the deadline": {func() Consumer {
				c, _ := parked.Due(at(time.Hour))
				return c
			}, time.Hour - time.Second},
			"before it": {func() Consumer {
				c, _ := parked.Begin(at(31*time.Second), e.Wake.Ref(), "a")
				return c
			}, 30 * time.Second},
			"by a resumption": {func() Consumer {
				c, _, _ := parked.Resume(at(11 * time.Second))
				c, _ = c.Due(at(11 * time.Second))
				return c
			}, 10 * time.Second},
			"while the stream was gone": {func() Consumer {
				c, _ := parked.Hide(at(21*time.Second), Missing)
				c, _ = c.Observe(at(41*time.Second), "/a", "11")
				c, _ = c.Due(at(41 * time.Second))
				return c
			}, 40 * time.Second},
			"over the end of its wake": {func() Consumer {
				cb := callback(parked, func(cb *Callback) { cb.Done = true })
				c, r := parked.Callback(at(21*time.Second), true, cb)
				if r.Code != "" || c.State != Waking || c.Epoch != parked.Epoch+1 {
					t.Fatalf("%s, %+v", r.Code, c)
				}
				return c
			}, 20 * time.Second},
		} {
			if got := tt.end(); got.Uncounted != tt.want || !got.ParkedAt.IsZero() || !got.FirstFailure.Equal(t0) {
				t.Errorf("%s: %s do not count, want %s: %+v", name, got.Uncounted, tt.want, got)
			}
		}
	})
}

// TestDoneWithoutProgress holds that such a consumer does not spin.
func TestDoneWithoutProgress(t *testing.T) {
	c := live("10", "12")
	var delays []time.Duration
	for i := range 5 {
		env := at(time.Duration(i) * time.Minute)
		var r CallbackResult
		c, r = c.Callback(env, true, callback(c, func(cb *Callback) { cb.Done = true }))
		if r.Wake == nil {
			delays = append(delays, c.Deadline.Sub(env.Now))
			var e Effects
			if c, e = c.Due(at(time.Duration(i)*time.Minute + 30*time.Second)); e.Wake == nil {
				t.Fatal("never woken again")
			}
		} else {
			delays = append(delays, 0)
		}
		c, _ = c.Accept(env, ref(c))
	}
	want := []time.Duration{0, 0, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond}
	for i := range want {
		if delays[i] != want[i] {
			t.Fatalf("delays %v, want %v", delays, want)
		}
	}
	c, r := c.Callback(at(time.Hour), true,
		callback(c, func(cb *Callback) { cb.Done, cb.Acks = true, []Ack{{"/a", "11"}} }))
	if r.Wake == nil || c.Stalled != 0 {
		t.Error("an offset that moved did not end the waiting")
	}
}
