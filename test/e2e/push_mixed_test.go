package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"reveille/fsm"
	"reveille/test/harness"
)

// TestWhatAnEndpointTakesIsNotHeldUpByWhatItRefuses has an endpoint fail for some streams and work for others. Those
// that fail bring it down; the first delivery that it takes opens it again for all.
func TestWhatAnEndpointTakesIsNotHeldUpByWhatItRefuses(t *testing.T) {
	t.Parallel()
	const failing, healthy, rounds = fsm.DownAfter, 8 * fsm.DownAfter, 10
	e := with(t, startRedis(t), nil) // it counts the endpoints that are down
	p := e.pushes(t, map[string]any{"retry": map[string]any{"max_attempts": 100, "initial": "1s", "factor": 1}})
	path := func(kind string, i int) string { return fmt.Sprintf("%s/%s-%d", p.folder, kind, i) }
	waiting := make(chan struct{})
	p.receiver.Answer(func(n int, push harness.Push) int {
		if n > failing {
			select { // the pause between probes doubles with each that fails
			case <-waiting:
			case <-t.Context().Done():
			}
		}
		if bytes.Contains(push.Body, []byte(`"fails"`)) {
			return http.StatusInternalServerError
		}
		return http.StatusNoContent
	})
	var failed, taken [][]string
	for i := range failing {
		p.gateway.Create(path("fails", i))
		events := []string{`{"fails":"at first"}`, `{"n":2}`}
		for _, event := range events {
			p.gateway.Append(path("fails", i), event)
		}
		failed = append(failed, events)
	}
	for i := range healthy {
		p.gateway.Create(path("works", i))
		taken = append(taken, nil)
	}
	e.awaitMetrics(t, map[string]float64{"reveille_endpoints_down": 1})
	for n := range rounds {
		for i := range healthy {
			taken[i] = append(taken[i], p.add(path("works", i), n, n+1)...)
		}
		if n == 0 {
			close(waiting)
		}
		// A probe at a time, as an endpoint gets that is down, would take much longer.
		harness.Eventually(t, harness.Wait, fmt.Sprintf("the events of round %d are taken", n), func() error {
			for i := range healthy {
				if _, events := p.receiver.Taken(path("works", i)); len(events) < len(taken[i]) {
					return fmt.Errorf("%s waits, after %d requests", path("works", i), len(p.receiver.Pushes()))
				}
			}
			return nil
		})
	}
	for i := range failing {
		if _, events := p.receiver.Taken(path("fails", i)); len(events) > 0 {
			t.Errorf("%s went on behind what fails: %q", path("fails", i), events)
		}
	}
	p.receiver.Answer(func(int, harness.Push) int { return http.StatusNoContent })
	for i, events := range slices.Concat(failed, taken) {
		if i < failing {
			p.want(path("fails", i), events)
		} else {
			p.want(path("works", i-failing), events)
		}
	}
	e.awaitMetrics(t, map[string]float64{"reveille_endpoints_down": 0})
}
