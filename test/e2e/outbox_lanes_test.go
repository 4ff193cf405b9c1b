package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"reveille/test/harness"
)

// TestTenFirstAttemptsAreMadeAtOnce holds how many deliveries one target gets at once, however many events wait for it,
// and that it delays no other target.
func TestTenFirstAttemptsAreMadeAtOnce(t *testing.T) {
	t.Parallel()
	e := start(t, options{settings: map[string]string{"REVEILLE_OUTBOX": "/outbox"}})
	slow, quick := newOutboxTarget(t), newOutboxTarget(t)
	slow.held = make(gate)
	var all []outboxEvent
	for lanes := map[byte]bool{}; len(lanes) < 10; {
		event := e.handOver(e.gateway, http.StatusAccepted, direct(slow.URL, "", "held"))
		all, lanes[event.ID[len(event.ID)-1]] = append(all, event), true
	}
	for range 20 { // further ones, behind them
		all = append(all, e.handOver(e.gateway, http.StatusAccepted, direct(slow.URL, "", "held")))
	}
	harness.Eventually(t, soon, "ten are under way", func() error {
		slow.mu.Lock()
		defer slow.mu.Unlock()
		if slow.open != 10 {
			return fmt.Errorf("%d are under way", slow.open)
		}
		return nil
	})
	other := e.handOver(e.gateway, http.StatusAccepted, direct(quick.URL, "", "other"))
	e.event("/events/"+other.ID, "delivered")
	close(slow.held)
	for _, event := range all {
		e.event("/events/"+event.ID, "delivered")
	}
	if slow.most != 10 {
		t.Errorf("%d deliveries were under way at once", slow.most)
	}
}

// TestAnOperatorReplaysADeadEvent holds that the event is then delivered under its own id, and counted as delivered.
func TestAnOperatorReplaysADeadEvent(t *testing.T) {
	t.Parallel()
	e := start(t, options{settings: map[string]string{"REVEILLE_OUTBOX": "/outbox"}})
	target := newOutboxTarget(t)
	target.fails = 1
	event := e.handOver(e.gateway, http.StatusAccepted,
		fmt.Sprintf(`{"target_url":%q,"event_type":"e","payload":7,"max_attempts":1}`, target.URL))
	e.event("/events/"+event.ID, "dead_letter")
	ask := func(args ...string) string {
		t.Helper()
		status, out, errs := e.rev.Ask("", append([]string{"dead-letters"}, args...)...)
		if status != 0 || errs != "" {
			t.Fatalf("dead-letters %q: exit status %d, %s%s", args, status, out, errs)
		}
		return out
	}
	letter := ""
	harness.Eventually(t, soon, "its dead letter is listed", func() error {
		for _, word := range strings.Fields(ask()) {
			if strings.HasPrefix(word, "dl_") {
				letter = word
				return nil
			}
		}
		return errors.New("there is none")
	})
	ask("replay", letter)
	done := e.event("/events/"+event.ID, "delivered")
	values, bodies := target.of(event.ID, "Reveille-Replay")
	if len(values) != 2 || values[1] != "true" || bodies[1] != "7" || done.LastError != "" || len(done.History) != 2 {
		t.Errorf("it is %+v, and came with %q", done, values)
	}
	if list := e.gateway.Do(http.MethodGet, "/webhooks/dlq", ""); strings.Contains(list.Body, event.ID) {
		t.Errorf("the dead are %s", list.Body)
	}
}
