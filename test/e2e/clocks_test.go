package e2e

import (
	"net/http"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

// What the clocks of deliveries do over hours is held on injected time, by the tests of package dispatcher. Here is one
// real lapse of each kind.

func TestDecisionsOnClocks(t *testing.T) {
	t.Parallel()
	const waking = time.Second
	e := start(t, options{settings: map[string]string{"REVEILLE_WAKING_TIMEOUT": waking.String()}})
	t.Run("D3: without a 2xx or a claim the next attempt has the same wake_id, "+
		"and a late 2xx of the first stops the retries", func(t *testing.T) {
		s, g := e.subscribed(t), make(gate)
		s.answers(func(rw http.ResponseWriter, r *http.Request) {
			g.wait(r)
			rw.WriteHeader(http.StatusNoContent)
		}, withStatus(http.StatusInternalServerError))
		tail := s.begin()
		first, second := s.worker.Wake(1), s.worker.Wake(2)
		s.sameCycle(first, second)
		// The deadline of an attempt runs from when it is handed out, which is before the worker has it.
		if c := s.consumer(); c.FirstFailure.Sub(c.WokeAt) < waking {
			t.Errorf("the first attempt was made up for at %s, and it was handed out at %s", c.FirstFailure, c.WokeAt)
		}
		close(g)
		s.awaitState(fsm.Live)
		s.callback(first, first.Claim(true, s.ack(tail)))
		if c := s.awaitState(fsm.Idle); c.Epoch != first.Epoch {
			t.Errorf("after done: %+v", c)
		}
	})
}

func TestTheWebhookTimeoutEndsARequest(t *testing.T) {
	t.Parallel()
	e := start(t, options{settings: map[string]string{"REVEILLE_WEBHOOK_TIMEOUT": "1s"}})
	s := e.subscribed(t)
	s.answers(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, withStatus(http.StatusOK))
	s.begin()
	// The waking timeout is minutes: it is the end of the request that brings the next attempt.
	s.sameCycle(s.worker.Wake(1), s.worker.Wake(2))
}

func TestAWorkerThatFallsSilentIsWokenAgainWhereItStood(t *testing.T) {
	t.Parallel()
	const liveness = time.Second
	e := start(t, options{settings: map[string]string{"REVEILLE_LIVENESS_TIMEOUT": liveness.String()}})
	s := e.idle(t) // its worker takes every wake, and never calls back
	s.append()
	first, second := s.worker.Wake(1), s.worker.Wake(2)
	if second.Epoch != first.Epoch+1 || second.Offset(s.path) != first.Offset(s.path) {
		t.Errorf("it was woken with %+v after %+v", second, first)
	}
	if after := second.At.Sub(first.At); after < liveness {
		t.Errorf("it was woken again after %s, want %s at least", after, liveness)
	}
}

func TestDecisionsOnTheFailureClock(t *testing.T) {
	t.Parallel()
	e := shared(t)
	t.Run("D9: the failure clock is set by the first failure, "+
		"lives across wake cycles, and any 2xx clears it", func(t *testing.T) {
		s := e.subscribed(t)
		s.worker.AnswerStatus(http.StatusInternalServerError)
		tail := s.begin()
		w := s.worker.Wake(1)
		first := s.awaitFailure().FirstFailure
		s.sameCycle(w, s.worker.Wake(2))
		s.callback(w, harness.Callback{Epoch: w.Epoch, Acks: []harness.StreamOffset{s.ack(tail)}, Done: true})
		s.gateway.Append(s.path, `"next"`)
		c := s.await("a failure in the second cycle",
			func(c fsm.Consumer) bool { return s.cycleOf(c.Epoch) == 2 && c.Attempt > 0 && !c.Sent })
		if !c.FirstFailure.Equal(first) {
			t.Errorf("the clock began at %s in the second cycle, want %s as in the first", c.FirstFailure, first)
		}
		s.worker.AnswerStatus(http.StatusAccepted)
		if c := s.awaitState(fsm.Live); !c.FirstFailure.IsZero() {
			t.Errorf("after a 2xx the clock still stands at %s", c.FirstFailure)
		}
	})
}

// awaitFailure waits until a failed attempt is noted.
func (s *fixture) awaitFailure() fsm.Consumer {
	s.t.Helper()
	return s.await("a failed attempt is noted", func(c fsm.Consumer) bool { return !c.FirstFailure.IsZero() })
}

func TestDecisionsOnTheFailureClockOverARestart(t *testing.T) {
	t.Parallel()
	e := start(t, options{})
	t.Run("D9: the failure clock survives a restart", func(t *testing.T) {
		s := e.subscribed(t)
		s.worker.AnswerStatus(http.StatusInternalServerError)
		s.begin()
		w := s.worker.Wake(1)
		before := s.awaitFailure()
		e.rev.Kill()
		attempts := s.consumer().Attempt
		e.rev.Start()
		c := s.await("another attempt has failed",
			func(c fsm.Consumer) bool { return c.Attempt > attempts && !c.Sent })
		if !c.FirstFailure.Equal(before.FirstFailure) {
			t.Errorf("after the restart the clock began at %s, want %s", c.FirstFailure, before.FirstFailure)
		}
		all := s.worker.Wakes()
		s.sameCycle(w, all[len(all)-1])
	})
}
