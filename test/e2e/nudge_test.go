package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"reveille/fsm"
	"reveille/test/harness"
)

// flapping is an endpoint that fails all deliveries or those of some streams, and whose trouble is waited for.
type flapping struct {
	*pushed
	turns, events int
}

func (f *flapping) path(name string) string { return f.folder + "/" + name }

// send has a stream of its own get an event, and returns what the receiver is to get.
func (f *flapping) send(name string) (path string, events []string) {
	f.t.Helper()
	path = f.path(name)
	f.gateway.Create(path)
	f.events++
	return path, f.add(path, f.events, f.events+1)
}

// failing answers 503 to the streams whose names begin so.
func (f *flapping) failing(prefix string) {
	f.receiver.Answer(func(_ int, push harness.Push) int {
		if strings.HasPrefix(push.Stream, f.path(prefix)) {
			return http.StatusServiceUnavailable
		}
		return http.StatusNoContent
	})
}

// turn has the endpoint be down and up again, and waits until what waited for it has come.
func (f *flapping) turn(bad string) {
	f.t.Helper()
	f.turns++
	f.failing("")
	came := map[string][]string{}
	for i := range fsm.DownAfter {
		path, events := f.send(fmt.Sprintf("turn-%d-%d", f.turns, i))
		came[path] = events
	}
	f.awaitMetrics(f.t, map[string]float64{"reveille_endpoints_down": 1})
	f.failing(bad)
	path, events := f.send(fmt.Sprintf("turn-%d-probe", f.turns))
	came[path] = events
	for path, events := range came {
		f.want(path, events)
	}
}

// requests counts those for a stream.
func (f *flapping) requests(path string) (n int) {
	for _, push := range f.receiver.Pushes() {
		if push.Stream == path {
			n++
		}
	}
	return n
}

// await waits until so many requests for a stream were answered.
func (f *flapping) await(path string, n int) {
	f.t.Helper()
	harness.Eventually(f.t, harness.Wait, fmt.Sprintf("%d attempts are made", n), func() error {
		if got := f.requests(path); got < n {
			return fmt.Errorf("%d are", got)
		}
		return nil
	})
}

// TestAnOperatorRetriesASubscription has what failed delivered when an operator asks.
func TestAnOperatorRetriesASubscription(t *testing.T) {
	t.Parallel()
	p := beside(t, options{}).pushes(t, map[string]any{"retry": map[string]any{"schedule": []string{"1h", "1h"}}})
	f := &flapping{pushed: p}
	f.failing("")
	path, events := f.send("fails")
	f.await(path, 1)
	f.failing("none")
	harness.Eventually(t, harness.Wait, "it is retried", func() error {
		var body struct{ Consumers int }
		f.operator().Do(http.MethodPost, "/api/v1/subscriptions/"+f.sub.ID+"/retry", "").Decode(t, &body)
		if body.Consumers != 1 {
			return fmt.Errorf("%d consumers are", body.Consumers)
		}
		return nil
	})
	f.want(path, events)
}

// TestWhatAlwaysFailsDoesNotRunThroughItsSchedule has an endpoint that is up again and again fail the same deliveries
// each time. The second attempt would be their last.
func TestWhatAlwaysFailsDoesNotRunThroughItsSchedule(t *testing.T) {
	t.Parallel()
	p := beside(t, options{}).pushes(t, map[string]any{"retry": map[string]any{"schedule": []string{"1h"}}})
	f := &flapping{pushed: p}
	f.failing("bad")
	var bad []string
	for i := range 3 {
		path, _ := f.send(fmt.Sprint("bad-", i))
		bad = append(bad, path)
	}
	for range 3 {
		f.turn("bad")
	}
	harness.Eventually(t, harness.Wait, "what fails has one attempt that counts, and one that does not", func() error {
		for _, path := range bad {
			var c struct {
				State, Attempt any
				WaitsFor       string `json:"waits_for"`
			}
			id := fsm.ConsumerID(f.sub.ID, path)
			f.operator().Do(http.MethodGet, "/api/v1/consumers/"+id, "").Decode(t, &c)
			if n := f.requests(path); n != 2 || c.State != "waking" || c.WaitsFor != "attempt" || c.Attempt != 1.0 {
				return fmt.Errorf("%s got %d requests, and is %+v", path, n, c)
			}
		}
		return nil
	})
}
