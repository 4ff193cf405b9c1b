package spec

import (
	"testing"
	"time"

	"reveille/fsm"
)

var timing = fsm.Timing{
	Waking: 10 * time.Second, Request: 30 * time.Second, Liveness: 45 * time.Second, GoneGrace: 30 * time.Second,
	GCAfter: 72 * time.Hour,
}

var t0 = time.UnixMilli(1_790_000_000_000)

func at(after time.Duration) Env { return Env{Now: t0.Add(after), WakeID: "w_new", Timing: timing} }

func idling(acked, tail fsm.Offset) fsm.Consumer {
	c := NewConsumer(fsm.Subscription{ID: "sub", Generation: "g"}, "/a", acked, 6)
	c.WakeID = "w_old"
	c.Links["/a"] = fsm.Link{Acked: acked, Tail: tail}
	return c
}

// waking has attempt 1 of epoch 7 out.
func waking(acked, tail fsm.Offset) fsm.Consumer {
	c, _ := Observe(idling(acked, tail), Env{Now: t0, WakeID: "w_7", Timing: timing}, "/a", tail)
	return c
}

func live(acked, tail fsm.Offset) fsm.Consumer {
	c := waking(acked, tail)
	c, _ = Accept(c, at(0), ref(c))
	return c
}

func ref(c fsm.Consumer) fsm.DeliveryRef {
	return fsm.DeliveryRef{
		Consumer: c.Ref(), Epoch: c.Epoch, WakeID: c.WakeID,
		Attempt: max(c.Attempt, 1), Handed: c.Handed,
	}
}

func callback(c fsm.Consumer, f func(*fsm.Callback)) fsm.Callback {
	cb := fsm.Callback{
		Consumer: c.Ref(), Primary: c.Primary, Generation: c.Generation, Epoch: c.Epoch, TokenEpoch: c.Epoch,
		MaxStreams: 10,
	}
	f(&cb)
	return cb
}

// givenUp is a consumer that was given up with the event at 11 pending.
func givenUp() fsm.Consumer {
	c := waking("10", "11")
	c.FirstFailure = t0.Add(-timing.GCAfter)
	c, _ = Fail(c, at(time.Second), ref(c), fsm.Failure{Reason: "status 500"})
	return c
}

// TestTransitionTable holds each row of the webhook spec's State Transitions, and what goes with it.
func TestTransitionTable(t *testing.T) {
	done := func(acks ...fsm.Ack) func(*fsm.Callback) {
		return func(cb *fsm.Callback) { cb.Done, cb.Acks = true, acks }
	}
	call := func(c fsm.Consumer, e Env, f func(*fsm.Callback)) (fsm.Consumer, Effects) {
		c, r := Callback(c, e, true, callback(c, f))
		if r.Code != "" {
			t.Fatalf("callback refused: %s", r.Code)
		}
		return c, r.Effects
	}
	type result struct {
		state    fsm.State
		epoch    int64
		wakeID   string
		acked    fsm.Offset
		deadline time.Duration // after t0; 0: none
		wake     bool
		removed  bool
	}
	for _, tt := range []struct {
		name string
		run  func() (fsm.Consumer, Effects)
		want result
	}{
		{"IDLE → WAKING when pending work appears: epoch++, new wake_id, a delivery", func() (fsm.Consumer, Effects) {
			return Observe(idling("10", "10"), at(0), "/a", "11")
		}, result{fsm.Waking, 7, "w_new", "10", timing.Waking, true, false}},
		{"IDLE stays IDLE when the tail is one that was acked", func() (fsm.Consumer, Effects) {
			return Observe(idling("10", "10"), at(0), "/a", "10")
		}, result{fsm.Idle, 6, "w_old", "10", 0, false, false}},
		{"IDLE → WAKING for a new, empty stream: its tail sorts after -1", func() (fsm.Consumer, Effects) {
			return Observe(idling(fsm.Start, ""), at(0), "/a", "0000")
		}, result{fsm.Waking, 7, "w_new", fsm.Start, timing.Waking, true, false}},
		{"WAKING → LIVE on a 2xx: the liveness timeout starts", func() (fsm.Consumer, Effects) {
			c := waking("10", "11")
			return Accept(c, at(time.Second), ref(c))
		}, result{fsm.Live, 7, "w_7", "10", time.Second + timing.Liveness, false, false}},
		{"WAKING → LIVE on a claim", func() (fsm.Consumer, Effects) {
			return call(waking("10", "11"), at(time.Second), func(cb *fsm.Callback) { cb.WakeID = "w_7" })
		}, result{fsm.Live, 7, "w_7", "10", time.Second + timing.Liveness, false, false}},
		{"WAKING stays WAKING on a callback that does not claim", func() (fsm.Consumer, Effects) {
			return call(waking("10", "11"), at(time.Second), func(*fsm.Callback) {})
		}, result{fsm.Waking, 7, "w_7", "10", timing.Waking, false, false}},
		{"WAKING → IDLE on a done that claims nothing", func() (fsm.Consumer, Effects) {
			return call(waking("10", "11"), at(time.Second), done(fsm.Ack{Path: "/a", Offset: "11"}))
		}, result{fsm.Idle, 7, "w_7", "11", 0, false, false}},
		{"WAKING → IDLE on a synchronous done: acked to the tail", func() (fsm.Consumer, Effects) {
			c := waking("10", "11")
			return Finish(c, at(time.Second), ref(c), deliveryNow(c).Streams)
		}, result{fsm.Idle, 7, "w_7", "11", 0, false, false}},
		{"WAKING → IDLE on a synchronous done for an empty stream: acked to its tail", func() (fsm.Consumer, Effects) {
			c := waking(fsm.Start, "0000")
			return Finish(c, at(time.Second), ref(c), deliveryNow(c).Streams)
		}, result{fsm.Idle, 7, "w_7", "0000", 0, false, false}},
		{
			"WAKING → WAKING on a synchronous done with an event since the delivery: not acked, woken again",
			func() (fsm.Consumer, Effects) {
				c := waking("10", "11")
				seen := deliveryNow(c).Streams
				c, _ = Observe(c, at(time.Second), "/a", "12")
				return Finish(c, at(2*time.Second), ref(c), seen)
			},
			result{fsm.Waking, 8, "w_new", "11", 2*time.Second + timing.Waking, true, false},
		},
		{"WAKING → WAKING after 10 s without a 2xx or a claim: the retry is scheduled", func() (fsm.Consumer, Effects) {
			return Due(waking("10", "11"), at(timing.Waking))
		}, result{fsm.Waking, 7, "w_7", "10", timing.Waking + 200*time.Millisecond, false, false}},
		{"WAKING: the retry reuses epoch and wake_id", func() (fsm.Consumer, Effects) {
			c, _ := Due(waking("10", "11"), at(timing.Waking))
			return Due(c, at(timing.Waking+time.Second))
		}, result{fsm.Waking, 7, "w_7", "10", 2*timing.Waking + time.Second, true, false}},
		{"WAKING → LIVE on a late 2xx of the first attempt", func() (fsm.Consumer, Effects) {
			c := waking("10", "11")
			r := ref(c)
			c, _ = Due(c, at(timing.Waking))
			c, _ = Due(c, at(timing.Waking+time.Second))
			return Accept(c, at(20*time.Second), r)
		}, result{fsm.Live, 7, "w_7", "10", 20*time.Second + timing.Liveness, false, false}},
		{"LIVE → IDLE on done with nothing pending", func() (fsm.Consumer, Effects) {
			return call(live("10", "11"), at(time.Second), done(fsm.Ack{Path: "/a", Offset: "11"}))
		}, result{fsm.Idle, 7, "w_7", "11", 0, false, false}},
		{"LIVE → WAKING on done with work pending: epoch++, new wake_id", func() (fsm.Consumer, Effects) {
			return call(live("10", "12"), at(time.Second), done(fsm.Ack{Path: "/a", Offset: "11"}))
		}, result{fsm.Waking, 8, "w_new", "11", time.Second + timing.Waking, true, false}},
		{"LIVE → IDLE after 45 s without a callback", func() (fsm.Consumer, Effects) {
			c, _ := call(live("10", "11"), at(0), func(cb *fsm.Callback) {
				cb.Acks = []fsm.Ack{{Path: "/a", Offset: "11"}}
			})
			return Due(c, at(timing.Liveness))
		}, result{fsm.Idle, 7, "w_7", "11", 0, false, false}},
		{"LIVE → IDLE → WAKING after 45 s without a callback and work pending", func() (fsm.Consumer, Effects) {
			return Due(live("10", "11"), at(timing.Liveness))
		}, result{fsm.Waking, 8, "w_new", "10", timing.Liveness + timing.Waking, true, false}},
		{"LIVE: any callback starts the 45 s anew", func() (fsm.Consumer, Effects) {
			return call(live("10", "11"), at(40*time.Second), func(*fsm.Callback) {})
		}, result{fsm.Live, 7, "w_7", "10", 40*time.Second + timing.Liveness, false, false}},
		{"IDLE stays IDLE on a late callback that acks what upstream has by now", func() (fsm.Consumer, Effects) {
			c, _ := call(live("10", "11"), at(0), done(fsm.Ack{Path: "/a", Offset: "11"}))
			return call(c, at(time.Second), func(cb *fsm.Callback) {
				cb.Acks, cb.Tails = []fsm.Ack{{Path: "/a", Offset: "12"}}, map[string]fsm.Offset{"/a": "12"}
			})
		}, result{fsm.Idle, 7, "w_7", "12", 0, false, false}},
		{
			"IDLE → WAKING on a late callback that finds an event that nobody has told of",
			func() (fsm.Consumer, Effects) {
				c, _ := call(live("10", "11"), at(0), done(fsm.Ack{Path: "/a", Offset: "11"}))
				return call(c, at(time.Second), func(cb *fsm.Callback) { cb.Tails = map[string]fsm.Offset{"/a": "12"} })
			},
			result{fsm.Waking, 8, "w_new", "11", time.Second + timing.Waking, true, false},
		},
		{"LIVE stays LIVE when more events arrive: no further wake", func() (fsm.Consumer, Effects) {
			return Observe(live("10", "11"), at(time.Second), "/a", "12")
		}, result{fsm.Live, 7, "w_7", "10", timing.Liveness, false, false}},
		{"LIVE → Removed when unsubscribed from all", func() (fsm.Consumer, Effects) {
			return call(live("10", "11"), at(time.Second), func(cb *fsm.Callback) { cb.Unsubscribe = []string{"/a"} })
		}, result{fsm.Live, 7, "w_7", "", time.Second + timing.Liveness, false, true}},
		{
			"LIVE → Removed when unsubscribed from all, in a callback that also says done",
			func() (fsm.Consumer, Effects) {
				return call(live("10", "11"), at(time.Second), func(cb *fsm.Callback) {
					cb.Unsubscribe, cb.Done = []string{"/a"}, true
				})
			},
			result{fsm.Live, 7, "w_7", "", time.Second + timing.Liveness, false, true},
		},
		{"WAKING → Removed when unsubscribed from all", func() (fsm.Consumer, Effects) {
			return call(waking("10", "11"), at(time.Second), func(cb *fsm.Callback) { cb.Unsubscribe = []string{"/a"} })
		}, result{fsm.Waking, 7, "w_7", "", timing.Waking, false, true}},
		{"IDLE → Removed when unsubscribed from all", func() (fsm.Consumer, Effects) {
			return call(idling("10", "10"), at(time.Second), func(cb *fsm.Callback) { cb.Unsubscribe = []string{"/a"} })
		}, result{fsm.Idle, 6, "w_old", "", 0, false, true}},
		{"hidden → Removed once the primary stream stayed away for the grace", func() (fsm.Consumer, Effects) {
			c, _ := Hide(idling("10", "10"), at(0), fsm.Missing)
			return Hide(c, at(timing.GoneGrace), fsm.MissingStill)
		}, result{fsm.Idle, 6, "w_old", "10", timing.GoneGrace, false, true}},
		{"hidden stays hidden while nobody could ask for the primary stream", func() (fsm.Consumer, Effects) {
			c, _ := Hide(idling("10", "10"), at(0), fsm.Missing)
			return Due(c, at(timing.GoneGrace))
		}, result{fsm.Idle, 6, "w_old", "10", 2 * timing.GoneGrace, false, false}},
		{"hidden for a new grace if upstream could not be asked in between", func() (fsm.Consumer, Effects) {
			c, _ := Hide(idling("10", "10"), at(0), fsm.Missing)
			return Hide(c, at(time.Hour), fsm.MissingAnew)
		}, result{fsm.Idle, 6, "w_old", "10", time.Hour + timing.GoneGrace, false, false}},
		{"hidden carries on when the primary stream is back", func() (fsm.Consumer, Effects) {
			c, _ := Hide(idling("10", "10"), at(0), fsm.Missing)
			return Observe(c, at(time.Second), "/a", "11")
		}, result{fsm.Waking, 7, "w_new", "10", time.Second + timing.Waking, true, false}},
		{
			"WAKING → given up when an attempt fails that was made after 3 days of failures",
			func() (fsm.Consumer, Effects) {
				c := waking("10", "11")
				c.FirstFailure = t0.Add(-timing.GCAfter)
				return Fail(c, at(time.Second), ref(c), fsm.Failure{})
			},
			result{fsm.GivenUp, 7, "w_7", "10", 0, false, true},
		},
		{
			"WAKING → WAKING when an attempt fails after 3 days of failures that was made before",
			func() (fsm.Consumer, Effects) {
				c := waking("10", "11")
				c.FirstFailure = t0.Add(time.Second - timing.GCAfter)
				return Fail(c, at(time.Second), ref(c), fsm.Failure{})
			},
			result{fsm.Waking, 7, "w_7", "10", time.Second + RetryDelay(1, 0), false, false},
		},
		{"WAKING → WAKING when nobody was there to try again for longer than 3 days", func() (fsm.Consumer, Effects) {
			c, _ := Fail(waking("10", "11"), at(time.Second), ref(waking("10", "11")), fsm.Failure{})
			return Due(c, at(2*timing.GCAfter))
		}, result{fsm.Waking, 7, "w_7", "10", 2*timing.GCAfter + timing.Waking, true, false}},
		{
			"WAKING → WAKING when nobody heard for longer than 3 days what became of an attempt",
			func() (fsm.Consumer, Effects) {
				c := waking("10", "11")
				c.FirstFailure = t0.Add(-timing.GCAfter)
				return Due(c, at(2*timing.GCAfter))
			},
			result{fsm.Waking, 7, "w_7", "10", 2*timing.GCAfter + RetryDelay(1, 0), false, false},
		},
		{"WAKING → WAKING when the stream was hidden for most of 3 days", func() (fsm.Consumer, Effects) {
			c, _ := Fail(waking("10", "11"), at(0), ref(waking("10", "11")), fsm.Failure{})
			c, _ = Hide(c, at(time.Minute), fsm.MissingAnew)
			c, _ = Observe(c, at(timing.GCAfter), "/a", "11")
			c, _ = Due(c, at(timing.GCAfter))
			return Fail(c, at(timing.GCAfter), ref(c), fsm.Failure{})
		}, result{fsm.Waking, 7, "w_7", "10", timing.GCAfter + RetryDelay(2, 0), false, false}},
		{"given up → WAKING by the next event, with the next epoch", func() (fsm.Consumer, Effects) {
			return Observe(givenUp(), at(time.Minute), "/a", "12")
		}, result{fsm.Waking, 8, "w_new", "10", time.Minute + timing.Waking, true, false}},
		{"given up → given up by what it was given up with", func() (fsm.Consumer, Effects) {
			return Observe(givenUp(), at(time.Minute), "/a", "11")
		}, result{fsm.GivenUp, 7, "w_7", "10", 0, false, false}},
		{"given up → WAKING by a resumption", func() (fsm.Consumer, Effects) {
			c, e, _ := Resume(givenUp(), at(time.Minute))
			return c, e
		}, result{fsm.Waking, 8, "w_new", "10", time.Minute + timing.Waking, true, false}},
		{"given up → given up by a late answer", func() (fsm.Consumer, Effects) {
			c := givenUp()
			return Accept(c, at(time.Minute), ref(c))
		}, result{fsm.GivenUp, 7, "w_7", "10", 0, false, false}},
		{"given up → Removed, without being told of again", func() (fsm.Consumer, Effects) {
			c := givenUp()
			return c, Remove(c, fsm.RemovedStreamDeleted)
		}, result{fsm.GivenUp, 7, "w_7", "10", 0, false, false}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, e := tt.run()
			got := result{
				state: c.State, epoch: c.Epoch, wakeID: c.WakeID, acked: c.Links["/a"].Acked,
				wake: e.Delivery != nil, removed: e.Removal != nil,
			}
			if !c.Deadline.IsZero() {
				got.deadline = c.Deadline.Sub(t0)
			}
			if got != tt.want {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
			if e.Delivery != nil && (e.Delivery.Epoch != c.Epoch || e.Delivery.WakeID != c.WakeID) {
				t.Errorf("the wake handed out is %+v", e.Delivery)
			}
		})
	}
}

// TestDoneWithoutProgress holds that such a consumer does not spin.
func TestDoneWithoutProgress(t *testing.T) {
	c := live("10", "12")
	var delays []time.Duration
	for i := range 5 {
		env := at(time.Duration(i) * time.Minute)
		var r CallbackResult
		c, r = Callback(c, env, true, callback(c, func(cb *fsm.Callback) { cb.Done = true }))
		if r.Delivery == nil {
			delays = append(delays, c.Deadline.Sub(env.Now))
			var e Effects
			if c, e = Due(c, at(time.Duration(i)*time.Minute+30*time.Second)); e.Delivery == nil {
				t.Fatal("never woken again")
			}
		} else {
			delays = append(delays, 0)
		}
		c, _ = Accept(c, env, ref(c))
	}
	want := []time.Duration{0, 0, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond}
	for i := range want {
		if delays[i] != want[i] {
			t.Fatalf("delays %v, want %v", delays, want)
		}
	}
	c, r := Callback(c, at(time.Hour), true,
		callback(c, func(cb *fsm.Callback) { cb.Done, cb.Acks = true, []fsm.Ack{{Path: "/a", Offset: "11"}} }))
	if r.Delivery == nil || c.Stalled != 0 {
		t.Error("an offset that moved did not end the waiting")
	}
}
