package e2e

import (
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

// TestTransitions has a subtest for each row of the table of state transitions (webhook spec, State Transitions).
func TestTransitions(t *testing.T) {
	t.Parallel()
	e := start(t, options{})

	t.Run("IDLE to WAKING: pending work begins, epoch and wake_id are new, the webhook is POSTed", func(t *testing.T) {
		s := e.idle(t)
		before := s.consumer()
		s.hold()
		s.append()
		wake := s.worker.Wake(1)
		c := s.consumer()
		if c.State != fsm.Waking || c.Epoch != before.Epoch+1 || c.WakeID == "" || c.WakeID == before.WakeID {
			t.Errorf("it went from %+v to %+v", before, c)
		}
		if wake.Epoch != c.Epoch || wake.WakeID != c.WakeID {
			t.Errorf("the webhook got %s", wake)
		}
	})
	t.Run("WAKING to LIVE: the webhook responds 2xx, the liveness timeout starts", func(t *testing.T) {
		for _, status := range []int{200, 201, 202, 204} {
			s := e.idle(t)
			s.worker.AnswerStatus(status)
			s.append()
			s.worker.Wake(1)
			if c := s.awaitState(fsm.Live); c.Deadline.IsZero() {
				t.Errorf("%d: no timeout runs: %+v", status, c)
			}
		}
	})
	t.Run("WAKING to LIVE: a callback claims the wake_id, the liveness timeout starts", func(t *testing.T) {
		s, wake := e.waking(t)
		before := s.consumer()
		s.callback(wake, wake.Claim(false))
		if c := s.consumer(); c.State != fsm.Live || !c.Deadline.After(before.Deadline) {
			t.Errorf("it went from %+v to %+v", before, c)
		}
		s.noWakeAfter(1, quiet)
	})
	t.Run("WAKING to IDLE: the webhook responds done without pending work, "+
		"all is acked to the tail", func(t *testing.T) {
		s := e.idle(t)
		s.worker.AnswerDone()
		tail := s.append()
		s.worker.Wake(1)
		s.await("idle and acked to the tail", func(c fsm.Consumer) bool {
			return c.State == fsm.Idle && c.Links[s.path].Acked.Value() == tail
		})
		s.noWakeAfter(1, quiet)
	})
	t.Run("LIVE to IDLE: a callback says done without pending work", func(t *testing.T) {
		s, wake := e.live(t)
		tail := s.consumer().Links[s.path].Tail.Value()
		s.callback(wake, wake.Claim(true, s.ack(tail)))
		if c := s.consumer(); c.State != fsm.Idle || c.Epoch != wake.Epoch || !c.Deadline.IsZero() {
			t.Errorf("after done: %+v", c)
		}
	})
	t.Run("LIVE to WAKING: a callback says done with pending work, epoch and wake_id are new", func(t *testing.T) {
		s, wake := e.live(t)
		s.hold()
		s.callback(wake, wake.Claim(true))
		c := s.consumer()
		if c.State != fsm.Waking || c.Epoch != wake.Epoch+1 || c.WakeID == wake.WakeID {
			t.Errorf("after done: %+v", c)
		}
		if second := s.worker.Wake(2); second.Epoch != c.Epoch || second.WakeID != c.WakeID {
			t.Errorf("the webhook got %s", second)
		}
	})

	states := []struct {
		name string
		set  func(t *testing.T) (*fixture, harness.Wake)
	}{
		{"IDLE", func(t *testing.T) (*fixture, harness.Wake) {
			s, wake := e.live(t)
			s.callback(wake, wake.Claim(true, s.ack(s.consumer().Links[s.path].Tail.Value())))
			return s, wake
		}},
		{"WAKING", e.waking},
		{"LIVE", e.live},
	}
	causes := []struct {
		name  string
		cause func(s *fixture, wake harness.Wake)
	}{
		{"its primary stream is deleted", func(s *fixture, _ harness.Wake) { s.gateway.DeleteStream(s.path) }},
		{
			"its subscription is deleted",
			func(s *fixture, _ harness.Wake) { s.gateway.DeleteSubscription(s.sub.Pattern, s.sub.ID) },
		},
		{"it unsubscribes from all streams", func(s *fixture, wake harness.Wake) {
			a := s.callback(wake, harness.Callback{Epoch: wake.Epoch, Unsubscribe: []string{s.path}})
			s.wantStreams(a)
		}},
	}
	for _, state := range states {
		for _, cause := range causes {
			t.Run(state.name+" to removed: "+cause.name, func(t *testing.T) {
				s, wake := state.set(t)
				cause.cause(s, wake)
				s.refused(wake, wake.Claim(false), fsm.CodeConsumerGone)
				s.awaitRemoved(s.path, soon)
				s.noWakeAfter(1, quiet)
			})
		}
	}
}

// TestTimeouts has the rules in which time passes.
func TestTimeouts(t *testing.T) {
	t.Parallel()

	t.Run("without a 2xx and without a claim the webhook is retried with the same wake_id, "+
		"a fresh token and the offsets of now", func(t *testing.T) {
		e := start(t, options{settings: map[string]string{
			"REVEILLE_WAKING_TIMEOUT":   "2500ms",
			"REVEILLE_LIVENESS_TIMEOUT": "60s",
		}})
		s := e.idle(t)
		s.hold()
		first := s.append()
		wake := s.worker.Wake(1)
		// A callback that claims nothing leaves the consumer WAKING.
		s.callback(wake, harness.Callback{Epoch: wake.Epoch, Acks: []harness.StreamOffset{s.ack(first)}})
		s.append()
		second := s.worker.Wake(2)
		s.wantPayload(second, wake.Epoch, []harness.StreamOffset{s.ack(first)}, s.path)
		if second.WakeID != wake.WakeID {
			t.Errorf("the retry has the wake_id %s, want that of the first attempt, %s", second.WakeID, wake.WakeID)
		}
		if !s.parseToken(second.Token).Expires.After(s.parseToken(wake.Token).Expires) {
			t.Error("the retry has the token of the first attempt")
		}
		if waited := second.At.Sub(wake.At); waited < 2500*time.Millisecond {
			t.Errorf("the retry came after %s already", waited)
		}
		s.callback(second, second.Claim(false))
		if c := s.consumer(); c.State != fsm.Live {
			t.Errorf("after the claim: %+v", c)
		}
	})

	e := start(t,
		options{settings: map[string]string{"REVEILLE_WAKING_TIMEOUT": "30s", "REVEILLE_LIVENESS_TIMEOUT": "3s"}})
	t.Run("LIVE to IDLE: no callback for the liveness timeout, "+
		"and no further wake without pending work", func(t *testing.T) {
		s, wake := e.live(t)
		s.callback(wake, wake.Claim(false, s.ack(s.consumer().Links[s.path].Tail.Value())))
		if c := s.consumer(); c.State != fsm.Live {
			t.Fatalf("after the ack: %+v", c)
		}
		if c := s.awaitState(fsm.Idle); c.Epoch != wake.Epoch {
			t.Errorf("after the timeout: %+v", c)
		}
		s.noWakeAfter(1, quiet)
	})
	t.Run("LIVE to IDLE with work pending: "+
		"the next wake resumes from the last acknowledged offset (Partial Failure)", func(t *testing.T) {
		s, wake := e.live(t)
		first := s.consumer().Links[s.path].Tail.Value()
		s.append()
		s.callback(wake, wake.Claim(false, s.ack(first)))
		second := s.worker.Wake(2)
		s.wantPayload(second, wake.Epoch+1, []harness.StreamOffset{s.ack(first)}, s.path)
		if second.WakeID == wake.WakeID {
			t.Error("the wake_id was used again")
		}
		s.refused(wake, harness.Callback{Epoch: wake.Epoch}, fsm.CodeStaleEpoch)
	})
	t.Run("callbacks keep a consumer alive for as long as they come", func(t *testing.T) {
		s, wake := e.live(t)
		began := time.Now()
		harness.Eventually(t, soon, "half as long again as the liveness timeout has passed", func() error {
			s.callback(wake, harness.Callback{Epoch: wake.Epoch})
			return harness.True(func() bool { return time.Since(began) > 4500*time.Millisecond }, "not yet")()
		})
		if n := len(s.worker.Wakes()); n != 1 {
			t.Errorf("there were %d wakes", n)
		}
		ended := time.Now()
		if second := s.worker.Wake(2); second.At.Sub(ended) < 2*time.Second {
			t.Errorf("it was given up %s after its last callback", second.At.Sub(ended))
		}
	})
}
