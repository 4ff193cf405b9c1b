package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"reveille/test/anycable"
	"reveille/test/harness"
)

// TestASpanEndsAtTheEndThatItsStreamHad has a stream grow after the replay of a span was asked for and before it is
// read, and again while it is delivered: the span brings its events and no others, each once, and leaves no letter.
func TestASpanEndsAtTheEndThatItsStreamHad(t *testing.T) {
	t.Parallel()
	e := shared(t)
	for name, fields := range map[string]map[string]any{
		"one by one": {}, "in batches": {"batch": 3}, "all at once": {"batch": 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := e.pushes(t, fields)
			ask := func(args ...string) string {
				t.Helper()
				status, out, errs := p.rev.Ask("", args...)
				if status != 0 {
					t.Fatalf("reveille %s: %d %s", strings.Join(args, " "), status, errs)
				}
				return out
			}
			path := p.folder + "/grows"
			p.gateway.Create(path)
			span := p.add(path, 0, 7)
			p.receiver.Await(path, len(span))
			ask("pause", p.sub.ID)
			ask("replay", p.sub.ID, path, "--from", "-1")
			later := p.add(path, 7, 10)
			grown := make(chan struct{})
			p.receiver.Answer(func(_ int, push harness.Push) int {
				if push.Header.Get("Reveille-Replay") != "" {
					<-grown
				}
				return http.StatusNoContent
			})
			ask("resume", p.sub.ID)
			later = append(later, p.add(path, 10, 12)...)
			close(grown)
			if out := ask("replay", "--subscription", p.sub.ID, "--wait"); !strings.Contains(out, "replayed") {
				t.Errorf("replay --wait prints %q", out)
			}
			p.receiver.Await(path, 2*len(span)+len(later))

			var replayed, ids []string
			first := map[string]int{}
			for _, push := range p.receiver.Pushes() {
				its, events, err := push.Events()
				if err != nil || push.Stream != path {
					t.Fatalf("a push of %s: %v", push.Stream, err)
				}
				if push.Header.Get("Reveille-Replay") != "" {
					replayed, ids = append(replayed, events...), append(ids, its...)
					continue
				}
				for _, event := range events {
					first[event]++
				}
			}
			if !slices.Equal(replayed, span) {
				t.Errorf("by replay came %q", replayed)
			}
			if slices.Sort(ids); len(slices.Compact(ids)) != len(span) {
				t.Errorf("they have the ids %q", ids)
			}
			for _, event := range slices.Concat(span, later) {
				if first[event] != 1 {
					t.Errorf("%s came %d times without replay", event, first[event])
				}
			}
			if out := ask("dead-letters", "--subscription", p.sub.ID); strings.Contains(out, path) {
				t.Errorf("there are dead letters: %s", out)
			}
		})
	}
}

// TestASpanOfEventsThatAreNotThereIsRefused holds it where events have numbers, and nothing is read for that.
func TestASpanOfEventsThatAreNotThereIsRefused(t *testing.T) {
	t.Parallel()
	c := startBroker(t, anycable.Options{History: 10}, nil, nil)
	receiver := harness.NewReceiver(t)
	a := c.gateway.PutSubscription("/t1", "s", jsonOf(t, map[string]any{"mode": "push", "webhook": receiver.URL}))
	if a.Status != http.StatusCreated {
		t.Fatalf("PUT: %d %s", a.Status, a.Body)
	}
	c.server.Publish("t1", "1", "2", "3")
	receiver.Await("/t1", 3)
	for to, want := range map[string]int{"4::y001": 1, "3::z001": 1, "3::y001": 0} {
		status, out, errs := c.rev.Ask("", "replay", "s", "/t1", "--from", "-1", "--to", to, "--wait")
		if status != want || want != 0 && !strings.Contains(errs, "to: ") {
			t.Errorf("up to %s: %d %s%s", to, status, out, errs)
		}
	}
	var replayed []string
	for _, push := range receiver.Pushes() {
		if push.Header.Get("Reveille-Replay") != "" {
			replayed = append(replayed, string(push.Body))
		}
	}
	if fmt.Sprint(replayed) != "[1 2 3]" {
		t.Errorf("by replay came %q", replayed)
	}
}
