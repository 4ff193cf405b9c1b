package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"reveille/test/anycable"
	"reveille/test/harness"
)

// brings says whether a request has the event of a number.
func brings(p harness.Push, n int) bool {
	return bytes.Contains(p.Body, fmt.Appendf(nil, `{"n":%d,`, n))
}

// TestAPushThatFailsStepsAside holds "ordering":"none" for real: what fails holds up nothing.
func TestAPushThatFailsStepsAside(t *testing.T) {
	t.Parallel()
	e := shared(t)
	const attempts = 100
	patient := map[string]any{"max_attempts": attempts, "initial": "1s", "factor": 1}

	t.Run("the others do not wait for it, and it comes under its own id", func(t *testing.T) {
		p := e.pushes(t, map[string]any{"retry": patient, "ordering": "none"})
		ordered := &pushed{fixture: p.fixture, receiver: harness.NewReceiver(t)}
		a := p.gateway.PutSubscription(p.folder+"/*", p.sub.ID+"-ordered", jsonOf(t, map[string]any{
			"mode": "push", "webhook": ordered.receiver.URL, "retry": patient, "ordering": "stream",
		}))
		if a.Status != http.StatusCreated {
			t.Fatalf("PUT: %d %s", a.Status, a.Body)
		}
		for _, r := range []*harness.Receiver{p.receiver, ordered.receiver} {
			failed := 0
			r.Answer(func(_ int, push harness.Push) int {
				if !brings(push, 3) {
					return http.StatusOK
				}
				// With the order of the stream, the others never come before it.
				_, taken := p.receiver.Taken(p.path)
				if failed++; failed <= 2 || r == p.receiver && len(taken) < 19 {
					return http.StatusInternalServerError
				}
				return http.StatusOK
			})
		}
		events := p.add(p.path, 1, 21)
		ids, got := p.receiver.Await(p.path, len(events))
		if want := append(slices.Delete(slices.Clone(events), 2, 3), events[2]); !slices.Equal(got, want) {
			t.Errorf("they came as %q", got)
		}
		tries := 0
		for _, push := range p.receiver.Pushes() {
			if !brings(push, 3) {
				continue
			}
			if tries++; push.ID != ids[len(ids)-1] || string(push.Body) != events[2] {
				t.Errorf("one of its attempts is %s %s, the last is %s", push.ID, push.Body, ids[len(ids)-1])
			}
		}
		if tries < 3 {
			t.Errorf("it came after %d attempts", tries)
		}
		if other := ordered.want(p.path, events); slices.Contains(other, ids[0]) {
			t.Errorf("both subscriptions have an event %s", ids[0])
		}
		p.awaitAsides(0)
	})

	t.Run("operators see it, and it goes with its stream", func(t *testing.T) {
		p := e.pushes(t, map[string]any{"retry": map[string]any{"schedule": []string{"1h"}}, "ordering": "none"})
		p.receiver.Answer(func(_ int, push harness.Push) int {
			if brings(push, 0) || brings(push, 2) {
				return http.StatusInternalServerError
			}
			return http.StatusOK
		})
		events := p.add(p.path, 0, 4)
		p.want(p.path, []string{events[1], events[3]})
		p.awaitAsides(2)
		p.gateway.DeleteStream(p.path)
		p.awaitAsides(0)
	})
}

// TestWhatIsAsideAndNotKeptIsDead has later events drop what has stepped aside, and holds that operators are told.
func TestWhatIsAsideAndNotKeptIsDead(t *testing.T) {
	t.Parallel()
	const kept = 10
	c := startBroker(t, anycable.Options{History: kept}, nil, nil)
	receiver := harness.NewReceiver(t)
	receiver.Answer(func(_ int, push harness.Push) int {
		if string(push.Body) == "2" {
			return http.StatusInternalServerError
		}
		return http.StatusNoContent
	})
	a := c.gateway.PutSubscription("/t1", "s", jsonOf(t, map[string]any{
		"mode": "push", "webhook": receiver.URL, "ordering": "none",
		"retry": map[string]any{"max_attempts": 100, "initial": "1s", "factor": 1},
	}))
	if a.Status != http.StatusCreated {
		t.Fatalf("PUT: %d %s", a.Status, a.Body)
	}
	c.server.Publish("t1", "1", "2", "3")
	receiver.Await("/t1", 2) // 2 is aside
	c.server.Publish("t1", slices.Repeat([]string{"0"}, kept)...)
	c.awaitMetrics(t, map[string]float64{
		`reveille_delivery_attempts_total{outcome="dead",status="none",subscription="s"}`: 1,
		`reveille_delivery_failures_total{class="not_kept"}`:                              1,
		`reveille_consumers{state="aside"}`:                                               0,
	})
	c.awaitLog(t, "events are dead", `"reason":"the stream server does not keep the events any more"`)
	receiver.Await("/t1", 2+kept)
}

// awaitAsides waits until operators see so many asides of the subscription.
func (p *pushed) awaitAsides(n int) {
	p.t.Helper()
	harness.Eventually(p.t, harness.Wait, fmt.Sprintf("%d deliveries are aside", n), func() error {
		var list struct {
			Consumers []struct {
				ID        string `json:"consumer_id"`
				AsideOf   string `json:"aside_of"`
				Condition string `json:"condition"`
				LastError string `json:"last_error"`
			} `json:"consumers"`
		}
		p.operator().Do(http.MethodGet, "/api/v1/consumers?subscription="+p.sub.ID, "").Decode(p.t, &list)
		found := 0
		for _, c := range list.Consumers {
			if c.AsideOf == "" {
				continue
			}
			var one struct {
				Streams []struct{ Path string }
			}
			a := p.operator().Do(http.MethodGet, "/api/v1/consumers/"+c.ID, "")
			if a.Status == http.StatusNotFound {
				continue // it is done
			}
			a.Decode(p.t, &one)
			if found++; len(one.Streams) != 1 || c.Condition != "failing" || c.LastError != "status 500" {
				p.t.Errorf("an aside is shown as %+v, %s", c, a.Body)
			}
		}
		if found != n {
			return fmt.Errorf("there are %d", found)
		}
		return nil
	})
}
