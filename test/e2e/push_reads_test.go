package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"reveille/fsm"
	"reveille/test/harness"
)

// atRest waits until the consumer of a stream has nothing to do before an offset, which is the tail.
func (s *fixture) atRest(path, at string) {
	s.t.Helper()
	s.awaitOf(path, "the consumer of "+path+" is at rest at "+at, func(c fsm.Consumer) bool {
		return c.State == fsm.Idle && c.Links[path].Acked.Value() == at
	})
}

// TestAPushIsNotReadOnceMore holds that what the watch of a stream was shown is not asked for again, for whichever of
// its subscriptions.
func TestAPushIsNotReadOnceMore(t *testing.T) {
	t.Parallel()
	// A look that comes before the long-poll's answer has the events read.
	e := beside(t, options{settings: map[string]string{"REVEILLE_TAIL_CHECK": "1h"}})
	p := e.pushes(t, nil)
	other := pushed{fixture: new(fixture), receiver: harness.NewReceiver(t)}
	*other.fixture = *p.fixture
	a := p.gateway.PutSubscription(p.folder+"/*", p.sub.ID+"-2", jsonOf(t, map[string]any{
		"mode": "push", "webhook": other.receiver.URL, "batch": 10,
	}))
	if a.Status != http.StatusCreated {
		t.Fatalf("PUT: %d %s", a.Status, a.Body)
	}
	a.Decode(t, &other.sub)
	const turns = 20
	var events []string
	for n := range turns {
		events = append(events, fmt.Sprintf(`{"n":%d}`, n))
		at := e.streams.Append(p.path, events[n])
		p.want(p.path, events)
		other.want(p.path, events)
		p.atRest(p.path, at)
		other.atRest(p.path, at)
	}
	found, _ := e.scrape(t)
	if reads := found[`reveille_upstream_requests_total{kind="push",outcome="ok"}`]; reads == 0 || reads > turns {
		t.Errorf("%d pushes took %v reads", 2*turns, reads)
	}
}

// TestAPushBringsNothingOfADeletedStream has a stream deleted and made anew past Reveille, with the same offsets.
func TestAPushBringsNothingOfADeletedStream(t *testing.T) {
	t.Parallel()
	e := shared(t)
	p := e.pushes(t, nil)
	path := p.folder + "/anew"
	add := func(text string) (events []string) {
		for n := range 4 {
			events = append(events, fmt.Sprintf(`{"%s":%d}`, text, n))
			p.atRest(path, p.streams.Append(path, events[n]))
		}
		return events
	}
	p.gateway.Create(path)
	events := add("old")
	p.streams.DeleteStream(path)
	p.streams.Create(path)
	p.want(path, append(events, add("new")...))
}
