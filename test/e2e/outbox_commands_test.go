package e2e

import (
	"slices"
	"strings"
	"testing"
)

// TestEventsOnTheCommandLine has the program itself hand events over, and look after them.
func TestEventsOnTheCommandLine(t *testing.T) {
	t.Parallel()
	e := start(t, options{settings: map[string]string{"REVEILLE_OUTBOX": "/outbox"}})
	target := newOutboxTarget(t)
	// ask returns the words of what a command prints.
	ask := func(want int, stdin string, args ...string) []string {
		t.Helper()
		status, out, errs := e.rev.Ask(stdin, args...)
		if status != want || errs != "" {
			t.Fatalf("reveille %q: exit status %d, want %d, %s%s", args, status, want, out, errs)
		}
		return strings.Fields(out)
	}
	send := func(want int, more ...string) (id string, said []string) {
		t.Helper()
		args := append([]string{"send", target.URL + "/hook?k=s", "--data", "-"}, more...)
		said = ask(want, `{"ref": "<main>"}`, args...)
		return said[1], said
	}
	has := func(said []string, words string) {
		t.Helper()
		if !strings.Contains(strings.Join(said, " "), words) {
			t.Errorf("it is %q, want %q", said, words)
		}
	}

	taken, said := send(0, "--type", "push", "--provider", "github", "--key", "build 17", "--wait")
	has(said, "delivered, 1 of 5 attempts")
	if _, bodies := target.of(taken, "X-Webhook-Id"); !slices.Equal(bodies, []string{`{"ref": "<main>"}`}) {
		t.Errorf("the target got %q", bodies)
	}
	if again, _ := send(0, "--type", "push", "--provider", "github", "--key", "build 17"); again != taken {
		t.Errorf("the same key is the event %s, want %s", again, taken)
	}

	target.mu.Lock()
	target.fails = 1
	target.mu.Unlock()
	dead, said := send(1, "--type", "pull", "--max-attempts", "1", "--wait")
	has(said, "dead_letter, 1 of 1 attempts; status 503")
	list := ask(0, "", "events", "--status", "dead_letter", "--since", "1h")
	has(list, dead+" dead_letter 1/1 pull "+target.URL+"/hook?… ")
	if slices.Contains(list, taken) {
		t.Errorf("the list is %q", list)
	}
	has(ask(0, "", "events", dead), `payload {"ref":"<main>"}`)
	replayed := ask(0, "", "events", "replay", dead)
	has(replayed, dead+" is delivered again as whe_")
	has(ask(0, "", "events", "cancel", dead), dead+" is cancelled")
	e.event("/events/"+replayed[len(replayed)-1], "delivered")
	has(ask(0, "", "events", replayed[len(replayed)-1]), "replay of "+dead)

	first := ask(0, "", "events", "--limit", "1")
	has(first, "There is more: reveille events --limit 1 --cursor ")
	has(ask(0, "", "events", "--limit", "2", "--cursor", first[len(first)-1]), dead+" cancelled")
	said = ask(0, "", "events", "stats")
	has(said, "now 2 delivered, 1 cancelled")
	has(said, "github 1 1 100.0 %")
	has(said, "(all) 3 2 1 1 66.6 %")
	if status, _, errs := e.rev.Ask("", "events", "cancel", taken); status != 1 ||
		!strings.HasPrefix(errs, "reveille: CANCEL_REFUSED: ") {
		t.Errorf("a cancel of what is delivered: exit status %d, %s", status, errs)
	}
}
