package e2e

import (
	"net/http"
	"strings"
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
		if left := s.lostLetters(); len(left) > 0 {
			s.t.Errorf("its dead letter is left: %+v", left)
		}
	}

	t.Run("is gone for callbacks, and woken by nothing old, but by the next event", func(t *testing.T) {
		s, wake, n := givenUp(t)
		s.refused(wake, wake.Claim(false), fsm.CodeConsumerGone)
		s.mustNameStreams(http.MethodPost, s.path)
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
		s.operator().Do(http.MethodPost, "/api/v1/subscriptions/"+s.sub.ID+"/resume", "")
		goesOn(s, wake, n)
	})
	t.Run("leaves a dead letter, and goes on when that is replayed", func(t *testing.T) {
		s, wake, n := givenUp(t)
		l := s.oneLetter()
		if l.Stream != s.path || l.Class != "given_up" || l.Reason != "status 500" ||
			l.From != wake.Offset(s.path) || l.To != string(s.consumer().Links[s.path].Tail) {
			t.Errorf("the letter is %+v", l)
		}
		status, out, errs := s.rev.Ask("", "dead-letters", "replay", l.ID)
		if status != 0 || !strings.HasPrefix(out, "1 to be replayed") {
			t.Errorf("replay ends with %d %q %q", status, out, errs)
		}
		goesOn(s, wake, n)
	})
	t.Run("stays given up when its dead letter is discarded", func(t *testing.T) {
		s, wake, n := givenUp(t)
		if status, _, errs := s.rev.Ask("", "dead-letters", "discard", s.oneLetter().ID); status != 0 {
			t.Fatalf("discard: %s", errs)
		}
		s.awaitState(fsm.GivenUp)
		s.append()
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
