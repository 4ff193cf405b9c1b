package spec

import (
	"testing"
	"time"

	"reveille/fsm"
)

func TestFailures(t *testing.T) {
	c := waking("10", "11")
	first := ref(c)
	t.Run("the first failed attempt starts the failure clock, the next leaves it", func(t *testing.T) {
		c, _ := Fail(c, at(time.Second), first, fsm.Failure{})
		c, e := Due(c, at(2*time.Second))
		c, _ = Fail(c, at(3*time.Second), e.Delivery.Ref(), fsm.Failure{})
		if !c.FirstFailure.Equal(t0.Add(time.Second)) {
			t.Errorf("first failure %v", c.FirstFailure)
		}
		if want := t0.Add(3*time.Second + 400*time.Millisecond); !c.Deadline.Equal(want) {
			t.Errorf("second retry at %v, want %v", c.Deadline, want)
		}
		if c, _ := Accept(c, at(4*time.Second), first); !c.FirstFailure.IsZero() {
			t.Error("a 2xx left the failure clock running")
		}
	})
	t.Run("a failure of an attempt that is no longer the one out changes nothing", func(t *testing.T) {
		c, _ := Due(c, at(timing.Waking))
		c, _ = Due(c, at(timing.Waking+time.Second))
		for _, stale := range []fsm.DeliveryRef{
			first,
			{Epoch: 6, WakeID: c.WakeID, Attempt: c.Attempt},
			{Epoch: c.Epoch, WakeID: "w_old", Attempt: c.Attempt},
		} {
			if after, e := Fail(c, at(12*time.Second), stale, fsm.Failure{}); after.Deadline != c.Deadline ||
				e.Delivery != nil || !after.Sent {
				t.Errorf("failure of %+v was booked", stale)
			}
		}
	})
	t.Run("Retry-After is a lower bound, an hour the most", func(t *testing.T) {
		for _, tt := range []struct{ asked, want time.Duration }{
			{0, 200 * time.Millisecond}, {time.Minute, time.Minute}, {24 * time.Hour, time.Hour},
		} {
			if c, _ := Fail(c, at(0), first, fsm.Failure{RetryAfter: tt.asked}); c.Deadline.Sub(t0) != tt.want {
				t.Errorf("asked for %v: next attempt after %v", tt.asked, c.Deadline.Sub(t0))
			}
		}
	})
	t.Run("why the last attempt failed is kept until one succeeds", func(t *testing.T) {
		c, _ := Fail(c, at(0), first, fsm.Failure{Reason: "status 503"})
		if c.LastError != "status 503" {
			t.Errorf("after a 503 it is %q", c.LastError)
		}
		c, e := Due(c, at(time.Second))
		if c, _ := Due(c, at(11*time.Second)); c.LastError != fsm.ReasonTimeout {
			t.Errorf("after the waking timeout it is %q", c.LastError)
		}
		if c, _ := Accept(c, at(time.Second), e.Delivery.Ref()); c.LastError != "" {
			t.Errorf("after a 2xx it is %q", c.LastError)
		}
	})
	t.Run("410 ends deliveries until the subscription is resumed", func(t *testing.T) {
		c, _ := Fail(c, at(0), first, fsm.Failure{Retired: true})
		after, e := Due(c, at(2*timing.GCAfter))
		if e.Delivery != nil || e.Removal != nil || !after.Retired || !after.Deadline.IsZero() {
			t.Errorf("it was delivered to, or waits for something else than its resumption: %+v", after)
		}
		c, _, ok := Resume(c, at(time.Hour))
		if !ok {
			t.Error("its resumption does not count")
		}
		if _, e := Due(c, at(time.Hour)); e.Delivery == nil || e.Delivery.WakeID != "w_7" {
			t.Error("not delivered after it was resumed")
		}
	})
	t.Run("what waits is released, and nothing else", func(t *testing.T) {
		parked, _ := Park(c, at(0), first, fsm.BlockedSlot, time.Minute)
		failed, _ := Fail(c, at(0), first, fsm.Failure{})
		got := ReleaseHeld(parked, at(time.Second), fsm.BlockedDown)
		if !got.Deadline.Equal(at(time.Second).Now) || got.Attempt != 0 {
			t.Errorf("parked: %+v", got)
		}
		if got := ReleaseHeld(parked, at(2*time.Hour), fsm.BlockedDown); !got.Deadline.Equal(parked.Deadline) {
			t.Errorf("parked, and overdue: %+v", got)
		}
		retired, _ := Fail(c, at(0), first, fsm.Failure{Retired: true})
		hidden, _ := Hide(failed, at(0), fsm.Missing)
		for name, other := range map[string]fsm.Consumer{
			"out": c, "retired": retired, "hidden": hidden, "idle": idling("10", "10"),
			"live": live("10", "11"), "given up": givenUp(),
		} {
			if got := ReleaseHeld(other, at(time.Second), fsm.BlockedDown); !got.Deadline.Equal(other.Deadline) {
				t.Errorf("%s: its deadline is %s, not %s", name, got.Deadline, other.Deadline)
			}
		}
	})
	t.Run("what waits for a consent is released by it, and by nothing else", func(t *testing.T) {
		parked, _ := Park(c, at(0), first, fsm.BlockedConsent, time.Minute)
		other, _ := Park(c, at(0), first, fsm.BlockedSlot, time.Minute)
		if got := ReleaseHeld(parked, at(time.Second), fsm.BlockedConsent); !got.Deadline.Equal(at(time.Second).Now) {
			t.Errorf("it is due at %s", got.Deadline)
		}
		if got := ReleaseHeld(parked, at(time.Second), fsm.BlockedDown); !got.Deadline.Equal(parked.Deadline) {
			t.Errorf("an endpoint that is up has it due at %s", got.Deadline)
		}
		if got, _, ok := Resume(parked, at(time.Second)); ok || !got.Deadline.Equal(parked.Deadline) {
			t.Errorf("a resumption has it due at %s", got.Deadline)
		}
		if got := ReleaseHeld(other, at(time.Second), fsm.BlockedConsent); !got.Deadline.Equal(other.Deadline) {
			t.Errorf("another wait has it due at %s", got.Deadline)
		}
		// A delivery that has failed before does not lose its place in the schedule of its retries.
		failed, _ := Fail(c, at(0), first, fsm.Failure{})
		out, e := Due(failed, at(time.Hour))
		parked, _ = Park(out, at(time.Hour), e.Delivery.Ref(), fsm.BlockedConsent, time.Minute)
		released := ReleaseHeld(parked, at(time.Hour+time.Second), fsm.BlockedConsent)
		out, e = Due(released, at(time.Hour+time.Second))
		if w := e.Delivery; w == nil || w.Nudged || w.Attempt != 2 {
			t.Errorf("it is handed out as %+v: %+v", e.Delivery, out)
		}
	})
	t.Run("a probe leaves the schedule alone, however often it fails", func(t *testing.T) {
		failed, _ := Fail(c, at(0), first, fsm.Failure{RetryAfter: time.Hour})
		for n := range 3 {
			now := time.Duration(n+1) * time.Minute
			probing, ok := Probe(failed, at(now))
			if !ok || !probing.Deadline.Equal(at(now).Now) || !probing.Probed {
				t.Fatalf("probe %d: %t, %+v", n, ok, probing)
			}
			out, e := Due(probing, at(now))
			if e.Delivery == nil || !e.Delivery.Nudged {
				t.Fatalf("probe %d is %+v", n, e.Delivery)
			}
			after, _ := Fail(out, at(now), e.Delivery.Ref(), fsm.Failure{})
			if after.Attempt != failed.Attempt || !after.Deadline.Equal(failed.Deadline) || after.Probed ||
				!after.Nudged.IsZero() {
				t.Fatalf("after probe %d: %+v, want what was before: %+v", n, after, failed)
			}
			failed = after
		}
		released := ReleaseHeld(failed, at(10*time.Minute), fsm.BlockedDown)
		if !released.Deadline.Equal(at(10*time.Minute).Now) || released.Probed {
			t.Errorf("released after probes: %+v", released)
		}
		if probed, ok := Probe(released, at(10*time.Minute)); ok {
			t.Errorf("what is due is probed: %+v", probed)
		}
		out, e := Due(failed, at(2*time.Hour))
		parked, _ := Park(out, at(2*time.Hour), e.Delivery.Ref(), fsm.BlockedSlot, time.Minute)
		overdue, ok := Probe(parked, at(2*time.Hour+time.Second))
		if !ok || overdue.Probed || !overdue.Nudged.IsZero() {
			t.Errorf("what is overdue, and counts: %t, %+v", ok, overdue)
		}
		first, _ := Park(c, at(0), first, fsm.BlockedSlot, time.Hour)
		if held, ok := Probe(first, at(time.Minute)); !ok || held.Probed || !held.Deadline.Equal(at(time.Minute).Now) {
			t.Errorf("what was held back, and has not failed: %t, %+v", ok, held)
		}
	})
	t.Run("a parked attempt counts for nothing", func(t *testing.T) {
		parked, _ := Park(c, at(0), first, fsm.BlockedSlot, time.Minute)
		if parked.Attempt != 0 || parked.Sent || !parked.FirstFailure.IsZero() ||
			!parked.Deadline.Equal(at(time.Minute).Now) {
			t.Errorf("parked: %+v", parked)
		}
		again, _ := Park(parked, at(time.Second), first, "", 0)
		if !again.Deadline.Equal(at(time.Second).Now) || again.Attempt != 0 || parked.Held == "" || again.Held != "" {
			t.Errorf("parked again for no time: %+v", again)
		}
		begun, e := Begin(parked, at(time.Minute), first, "a")
		if e.Delivery == nil || e.Delivery.Attempt != 1 || !begun.Sent {
			t.Errorf("begun: %+v", begun)
		}
		if _, e := Begin(begun, at(time.Minute), first, "b"); e.Delivery != nil {
			t.Error("begun twice")
		}
		again, same := Begin(begun, at(61*time.Second), first, "a")
		if same.Delivery == nil || same.Delivery.Handed != e.Delivery.Handed || same.Delivery.Attempt != 1 ||
			!again.Deadline.Equal(at(71*time.Second).Now) {
			t.Errorf("the same call again: %+v, %+v", again, same.Delivery)
		}
		if late, _ := Park(begun, at(time.Minute), first, fsm.BlockedSlot, time.Hour); !late.Sent {
			t.Error("parked by a call that came late")
		}
		failed, _ := Fail(begun, at(time.Minute), deliveryNow(begun).Ref(), fsm.Failure{})
		if again, _ := Park(failed, at(2*time.Minute), first, "", 0); !again.Deadline.Equal(failed.Deadline) {
			t.Errorf("an attempt that was made and failed was parked: %+v", again)
		}
	})
	t.Run("an attempt that was handed out is begun by the caller that has it", func(t *testing.T) {
		begun, e := Begin(c, at(time.Minute), first, "a")
		if e.Delivery == nil || e.Delivery.Attempt != 1 || e.Delivery.Handed != first.Handed+1 || !begun.Sent ||
			!begun.Deadline.Equal(at(70*time.Second).Now) {
			t.Errorf("begun: %+v, %+v", begun, e.Delivery)
		}
		due, _ := Due(c, at(time.Minute))
		due, e = Due(due, at(2*time.Minute))
		if _, other := Begin(due, at(2*time.Minute), first, "a"); e.Delivery == nil || other.Delivery != nil {
			t.Error("begun though its deadline has brought it to another caller")
		}
	})
	t.Run("a resumption releases what was held back, and not what waits for its retry", func(t *testing.T) {
		first, _ := Park(c, at(0), first, fsm.BlockedSlot, time.Hour)
		failed, _ := Fail(c, at(0), ref(c), fsm.Failure{})
		due, e := Due(failed, at(time.Second))
		retry, _ := Park(due, at(time.Second), e.Delivery.Ref(), fsm.BlockedSlot, time.Hour)
		for name, held := range map[string]fsm.Consumer{"a first attempt": first, "a retry that was due": retry} {
			if got, e, ok := Resume(held, at(time.Minute)); !ok || e.Delivery != nil ||
				!got.Deadline.Equal(at(time.Minute).Now) || got.Attempt != held.Attempt ||
				!got.FirstFailure.Equal(held.FirstFailure) {
				t.Errorf("%s: %t, %+v", name, ok, got)
			}
		}
		hidden, _ := Hide(retry, at(2*time.Second), fsm.Missing)
		stalled := idling("10", "11")
		stalled.Stalled = fsm.StallLimit
		stalled, _ = Observe(stalled, at(0), "/a", "12")
		for name, other := range map[string]fsm.Consumer{
			"out": due, "failed": failed, "hidden": hidden, "done without progress": stalled,
		} {
			if got, e, ok := Resume(other, at(0)); ok || !got.Deadline.Equal(other.Deadline) || e.Delivery != nil {
				t.Errorf("%s: %t, its deadline is %s, not %s", name, ok, got.Deadline, other.Deadline)
			}
		}
	})
	t.Run("time in which an attempt is parked does not count, however it ends", func(t *testing.T) {
		failed, _ := Fail(c, at(0), first, fsm.Failure{RetryAfter: time.Second})
		due, e := Due(failed, at(time.Second))
		parked, _ := Park(due, at(time.Second), e.Delivery.Ref(), fsm.BlockedSlot, time.Minute)
		parked, _ = Park(parked, at(2*time.Second), e.Delivery.Ref(), fsm.BlockedSlot, time.Minute)
		for name, tt := range map[string]struct {
			end  func() fsm.Consumer
			want time.Duration
		}{
			"at the deadline": {func() fsm.Consumer {
				c, _ := Due(parked, at(time.Hour))
				return c
			}, time.Hour - time.Second},
			"before it": {func() fsm.Consumer {
				c, _ := Begin(parked, at(31*time.Second), e.Delivery.Ref(), "a")
				return c
			}, 30 * time.Second},
			"by a resumption": {func() fsm.Consumer {
				c, _, _ := Resume(parked, at(11*time.Second))
				c, _ = Due(c, at(11*time.Second))
				return c
			}, 10 * time.Second},
			"while the stream was gone": {func() fsm.Consumer {
				c, _ := Hide(parked, at(21*time.Second), fsm.Missing)
				c, _ = Observe(c, at(41*time.Second), "/a", "11")
				c, _ = Due(c, at(41*time.Second))
				return c
			}, 40 * time.Second},
			"over the end of its wake": {func() fsm.Consumer {
				cb := callback(parked, func(cb *fsm.Callback) { cb.Done = true })
				c, r := Callback(parked, at(21*time.Second), true, cb)
				if r.Code != "" || c.State != fsm.Waking || c.Epoch != parked.Epoch+1 {
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
