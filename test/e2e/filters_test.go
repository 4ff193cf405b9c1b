package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"reveille/fsm"
	"reveille/test/harness"
)

// TestFilters holds what comes of the streams of a subscription with a filter, live, from a backlog and by replay.
func TestFilters(t *testing.T) {
	t.Parallel()
	e := beside(t, options{})
	filter := map[string]any{"events": []string{"job.*"}, "filter": map[string]any{"queues": []any{"payments", 7}}}
	p := e.pushes(t, filter)
	ask := func(args ...string) string {
		t.Helper()
		status, out, errs := p.rev.Ask("", args...)
		if status != 0 {
			t.Fatalf("reveille %s: %s%s", strings.Join(args, " "), out, errs)
		}
		return out
	}
	metric := func(name string) (sum float64) {
		found, _ := e.scrape(t)
		for series, value := range found {
			if strings.HasPrefix(series, name) {
				sum += value
			}
		}
		return sum
	}
	// atEnd waits until the consumer of a stream has come to its end.
	atEnd := func(path string) {
		t.Helper()
		p.awaitOf(path, "a consumer at the end", func(c fsm.Consumer) bool {
			l := c.Links[path]
			return c.State == fsm.Idle && string(l.Acked) == p.streams.Tail(path)
		})
	}
	if out := ask("subscriptions", p.sub.ID); !strings.Contains(out, "job.*") ||
		!strings.Contains(out, `data.queue: "payments" or 7`) {
		t.Errorf("the command line shows %s", out)
	}

	// One by one, and then many by one append, of which two match.
	p.gateway.Append(p.path, `{"type":"job.failed","n":0,"data":{"queue":"mail"}}`)
	want := []string{`{"type":"job.failed","n":1,"data":{"queue":"payments"}}`}
	p.gateway.Append(p.path, want[0])
	p.gateway.Append(p.path, `{"type":"order.made","n":2,"data":{"queue":"payments"}}`)
	p.want(p.path, want)
	var list []string
	for i := range 30_000 {
		event := fmt.Sprintf(`{"type":"job.failed","n":%d,"data":{"queue":"mail"}}`, i+3)
		if i == 20_000 || i == 20_500 {
			event = fmt.Sprintf(`{"type":"job.done","n":%d,"data":{"queue":7}}`, i+3)
			want = append(want, event)
		}
		list = append(list, event)
	}
	p.streams.Append(p.path, "["+strings.Join(list, ",")+"]")
	p.want(p.path, want)
	atEnd(p.path)
	if attempts := metric("reveille_delivery_attempts_total"); attempts != float64(len(want)) {
		t.Errorf("%v attempts were made for %d events", attempts, len(want))
	}
	if passed := metric("reveille_events_filtered_total"); passed < float64(len(list)) {
		t.Errorf("%v events were passed over", passed)
	}

	// A replay brings the same.
	ask("replay", p.sub.ID, p.path, "--from", "-1", "--wait")
	if _, events := p.receiver.Taken(p.path); !slices.Equal(events[len(want):], want) {
		t.Errorf("the replay has brought %q, want %q", events[len(want):], want)
	}

	// What fails ends without a letter once another filter leaves it out.
	patch := func(body string) {
		t.Helper()
		if a := p.gateway.Do(http.MethodPatch, p.folder+"/*?subscription="+p.sub.ID, body); a.Status != http.StatusOK {
			t.Fatalf("PATCH %s: %d %s", body, a.Status, a.Body)
		}
	}
	p.receiver.Answer(func(int, harness.Push) int { return http.StatusServiceUnavailable })
	p.gateway.Append(p.path, `{"type":"job.late","data":{"queue":7}}`)
	p.await("a failure", func(c fsm.Consumer) bool { return c.LastError != "" })
	patch(`{"filter":{"data.queue":["another"]}}`)
	ask("retry", p.sub.ID)
	atEnd(p.path)
	p.receiver.Answer(func(int, harness.Push) int { return http.StatusNoContent })
	if out := ask("dead-letters", "--subscription", p.sub.ID); strings.Count(out, "\n") != 1 {
		t.Errorf("dead letters are %s", out)
	}

	// A stream that is not JSON leaves letters, which bring its bytes once there is no filter.
	text := p.folder + "/text"
	if r := p.gateway.Do(http.MethodPut, text, "some bytes", "Content-Type", "text/plain"); r.Status != 201 {
		t.Fatalf("PUT: %d %s", r.Status, r.Body)
	}
	harness.Eventually(t, soon, "the dead letter", func() error {
		if out := ask("dead-letters", "--subscription", p.sub.ID); !strings.Contains(out, "is not JSON") {
			return fmt.Errorf("it shows %s", out)
		}
		return nil
	})
	a := p.gateway.PutSubscription(text, p.sub.ID+"-text", jsonOf(t, map[string]any{
		"mode": "push", "webhook": p.receiver.URL, "events": []string{"job.*"},
	}))
	if a.Status != http.StatusConflict || !strings.Contains(a.Body, "STREAM_NOT_JSON") {
		t.Errorf("a subscription to bytes alone: %d %s", a.Status, a.Body)
	}
	patch(`{"events":null,"filter":null}`)
	ask("dead-letters", "replay", "--subscription", p.sub.ID)
	harness.Eventually(t, soon, "the bytes", func() error {
		for _, push := range p.receiver.Pushes() {
			if push.Stream == text && string(push.Body) == "some bytes" {
				return nil
			}
		}
		return fmt.Errorf("%d pushes came", len(p.receiver.Pushes()))
	})
}
