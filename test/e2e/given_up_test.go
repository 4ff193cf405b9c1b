package e2e

import (
	"net/http"
	"testing"

	"reveille/fsm"
	"reveille/test/harness"
)

// TestAConsumerThatWasGivenUp holds what becomes of one.
func TestAConsumerThatWasGivenUp(t *testing.T) {
	t.Parallel()
	e := start(t, options{settings: map[string]string{"REVEILLE_GC_AFTER": "1s"}})
	givenUp := func(t *testing.T) (*fixture, harness.Wake, int) {
		t.Parallel() // they wait, and need nothing of each other
		s := e.idle(t)
		s.worker.AnswerStatus(http.StatusInternalServerError)
		s.append()
		wake := s.worker.Wake(1)
		s.awaitGivenUp(s.path, soon)
		s.worker.AnswerDone()
		return s, wake, len(s.worker.Wakes())
	}
	// goesOn checks that its next wake is its first since, and goes on where it stood.
	goesOn := func(s *fixture, wake harness.Wake, n int) {
		s.t.Helper()
		again := s.worker.Wake(n + 1)
		if again.Epoch != wake.Epoch+1 || again.Offset(s.path) != wake.Offset(s.path) {
			s.t.Errorf("it was woken with %+v, after %+v", again, wake)
		}
		s.awaitState(fsm.Idle)
	}

	t.Run("is gone for callbacks, and woken by nothing old, but by the next event", func(t *testing.T) {
		s, wake, n := givenUp(t)
		s.refused(wake, wake.Claim(false), fsm.CodeConsumerGone)
		s.mustOperator(http.MethodPost, s.path)
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
		s.gateway.Create(s.path)
		if again := s.worker.Wake(n + 1); again.Offset(s.path) != "-1" {
			t.Errorf("the first wake since is %+v, want one for the new stream", again)
		}
	})
	t.Run("goes with its subscription", func(t *testing.T) {
		s, _, n := givenUp(t)
		other := e.fixture(t, s.sub.ID+"-other", harness.NewWorker(t))
		other.path, other.folder = s.path, s.folder
		other.worker.AnswerDone()
		other.subscribe(s.folder + "/**")
		other.awaitState(fsm.Idle)
		s.gateway.DeleteSubscription(s.sub.Pattern, s.sub.ID)
		s.awaitRemoved(s.path, soon)
		s.streams.Append(s.path, `"for the other"`)
		other.worker.Wake(1)
		if got := len(s.worker.Wakes()); got > n {
			t.Errorf("%d wakes came since", got-n)
		}
	})
}
