package e2e

import (
	"net/http"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

// TestTimeInWhichNobodyCouldTryGivesNobodyUp holds that a consumer is given up only by an attempt (D9).
func TestTimeInWhichNobodyCouldTryGivesNobodyUp(t *testing.T) {
	t.Parallel()
	const gcAfter = 5 * time.Second
	e := start(t, options{settings: map[string]string{"REVEILLE_GC_AFTER": gcAfter.String()}})
	s := e.subscribed(t)
	s.worker.AnswerStatus(http.StatusInternalServerError)
	s.begin()
	wake := s.worker.Wake(1)
	s.await("a failure was noted", func(c fsm.Consumer) bool { return !c.FirstFailure.IsZero() && !c.Sent })
	e.rev.Kill()
	time.Sleep(gcAfter + time.Second) // the outage: it is the rule that its length does not matter
	s.worker.AnswerDone()
	attempts := len(s.worker.Wakes())
	e.rev.Start()
	s.sameCycle(wake, s.worker.Wake(attempts+1))
	s.awaitState(fsm.Idle)
	at := s.consumer().Links[s.path].Acked.Value()
	s.append()
	s.woken(s.worker.Wake(attempts+2), 2, at)
}

// TestAConsumerThatWasGivenUp holds what becomes of one.
func TestAConsumerThatWasGivenUp(t *testing.T) {
	t.Parallel()
	e := start(t, options{settings: map[string]string{"REVEILLE_GC_AFTER": "1s"}})
	givenUp := func(t *testing.T) (*fixture, harness.Wake, int) {
		s := e.idle(t)
		s.worker.AnswerStatus(http.StatusInternalServerError)
		s.append()
		wake := s.worker.Wake(1)
		s.awaitGivenUp(s.path, soon)
		s.worker.AnswerDone()
		return s, wake, len(s.worker.Wakes())
	}
	// goesOn checks that its next wake goes on where it stood.
	goesOn := func(s *fixture, wake harness.Wake, n int) {
		s.t.Helper()
		again := s.worker.Wake(n + 1)
		if again.Epoch <= wake.Epoch || again.Offset(s.path) != wake.Offset(s.path) {
			s.t.Errorf("it was woken with %+v, after %+v", again, wake)
		}
		s.awaitState(fsm.Idle)
	}

	t.Run("is gone for callbacks, and woken by nothing old", func(t *testing.T) {
		s, wake, n := givenUp(t)
		s.refused(wake, wake.Claim(false), fsm.CodeConsumerGone)
		e.mustOperator(http.MethodPost, s.path)
		s.noWakeAfter(n, quiet)
	})
	t.Run("goes on with the next event", func(t *testing.T) {
		s, wake, n := givenUp(t)
		s.append()
		goesOn(s, wake, n)
	})
	t.Run("goes on with the next event past the gateway", func(t *testing.T) {
		s, wake, n := givenUp(t)
		s.streams.Append(s.path, `"past"`)
		goesOn(s, wake, n)
	})
	t.Run("goes on when its subscription is resumed", func(t *testing.T) {
		s, wake, n := givenUp(t)
		s.admin().Do(http.MethodPost, "/api/v1/subscriptions/"+s.sub.ID+"/resume", "")
		goesOn(s, wake, n)
	})
	t.Run("goes with its stream", func(t *testing.T) {
		s, _, n := givenUp(t)
		s.gateway.DeleteStream(s.path)
		s.awaitRemoved(s.path, soon)
		s.noWakeAfter(n, quiet)
	})
	t.Run("goes with its subscription", func(t *testing.T) {
		s, _, n := givenUp(t)
		s.gateway.DeleteSubscription(s.sub.Pattern, s.sub.ID)
		s.awaitRemoved(s.path, soon)
		s.streams.Append(s.path, `"for nobody"`)
		s.noWakeAfter(n, quiet)
	})
}
