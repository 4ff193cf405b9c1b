package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"reveille/fsm"
	"reveille/test/harness"
)

// oneLetter waits for the only dead letter of the fixture's subscription, and returns it.
func (s *fixture) oneLetter() (one lostLetter) {
	s.t.Helper()
	harness.Eventually(s.t, soon, "there is a dead letter", func() error {
		list := s.lostLetters()
		if len(list) != 1 {
			return fmt.Errorf("there are %+v", list)
		}
		one = list[0]
		return nil
	})
	return one
}

type lostLetter struct {
	ID, Stream, Class, Reason, From, To string
	Events                              int
}

func (s *fixture) lostLetters() []lostLetter {
	s.t.Helper()
	status, out, errs := s.rev.Ask("", "dead-letters", "--subscription", s.sub.ID, "--output", "json")
	var body struct {
		Letters []lostLetter `json:"dead_letters"`
	}
	if err := json.Unmarshal([]byte(out), &body); status != 0 || err != nil {
		s.t.Fatalf("reveille dead-letters: %d %s %v", status, errs, err)
	}
	return body.Letters
}

// TestAStreamThatIsDeletedLeavesALetter has a stream deleted while its endpoint fails. What was not pushed has a dead
// letter, which nobody can replay.
func TestAStreamThatIsDeletedLeavesALetter(t *testing.T) {
	t.Parallel()
	p := shared(t).pushes(t, nil)
	p.receiver.Answer(func(int, harness.Push) int { return http.StatusInternalServerError })
	from := p.gateway.Append(p.path, `{"n":1}`)
	harness.Eventually(t, soon, "the push fails", func() error {
		c, err := p.consumerOf(p.path)
		if err == nil && c.LastError == "" {
			err = fmt.Errorf("it is %+v", c)
		}
		return err
	})
	to := p.gateway.Append(p.path, `{"n":2}`)
	p.await("the second event noted", func(c fsm.Consumer) bool { return string(c.Links[p.path].Tail) == to })
	p.gateway.DeleteStream(p.path)
	l := p.oneLetter()
	if l.Stream != p.path || l.Class != "stream_deleted" || l.Reason != "the stream was deleted" || l.Events != 0 ||
		l.To != to || l.From >= from {
		t.Errorf("the letter is %+v", l)
	}
	p.awaitLog(t, "a stream is gone before all of it was pushed")
	status, _, errs := p.rev.Ask("", "dead-letters", "replay", l.ID)
	if status == 0 || !strings.Contains(errs, "cannot be replayed: its stream or its subscription is gone") {
		t.Errorf("replay ends with %d %q", status, errs)
	}
	if again := p.oneLetter(); again != l {
		t.Errorf("the letter is %+v after that", again)
	}
}
