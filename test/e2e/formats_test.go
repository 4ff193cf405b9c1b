package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"reveille/fsm"
	"reveille/test/harness"
)

// TestTheFormatOfAPushChanges holds that a change of the format applies from the next request on, and that replays of a
// batch bring each of its events, under its id, in a format that has room for one. What is too large for a delivery is
// so in any format.
func TestTheFormatOfAPushChanges(t *testing.T) {
	t.Parallel()
	e := shared(t)
	p := e.pushes(t, map[string]any{"batch": 10})
	p.receiver.Answer(func(int, harness.Push) int { return http.StatusUnprocessableEntity })
	p.gateway.Append(p.path, `[{"n":0},{"n":1},{"n":2}]`)
	ask := func(args ...string) string {
		t.Helper()
		status, out, errs := p.rev.Ask("", append([]string{"dead-letters"}, args...)...)
		if status != 0 {
			t.Fatalf("reveille dead-letters %s: %s", strings.Join(args, " "), errs)
		}
		return out
	}
	letter := func(says string) {
		t.Helper()
		harness.Eventually(t, soon, "the dead letter", harness.True(func() bool {
			return strings.Contains(ask("--subscription", p.sub.ID), says)
		}, "there is none that says %q", says))
	}
	letter("status 422")
	refused := p.receiver.Pushes()[0]
	ids, events, err := refused.Events()
	if err != nil || len(events) != 3 {
		t.Fatalf("it was %s, %v", refused.Body, err)
	}

	patch := func(body string) {
		t.Helper()
		if a := p.gateway.Do(http.MethodPatch, p.folder+"/*?subscription="+p.sub.ID, body); a.Status != http.StatusOK {
			t.Fatalf("PATCH %s: %d %s", body, a.Status, a.Body)
		}
	}
	patch(`{"format":"cloudevents","batch":1}`)
	p.receiver.Answer(func(int, harness.Push) int { return http.StatusNoContent })
	// taken are the ids of the requests that were taken, each of which is one CloudEvent.
	type made struct {
		ID, Source, Subject string
		Data                json.RawMessage
	}
	taken := func(replays bool) (all []made) {
		t.Helper()
		for _, push := range p.receiver.Pushes() {
			var c made
			if push.Status != http.StatusNoContent || replays != (push.Header.Get("Reveille-Replay") == "true") {
				continue
			}
			if push.Header.Get("Content-Type") == "application/cloudevents+json" {
				if err := json.Unmarshal(push.Body, &c); err != nil || c.ID != push.ID {
					t.Errorf("%s is %s, %v", push.ID, push.Body, err)
				}
			}
			all = append(all, c)
		}
		return all
	}
	await := func(replays bool, n int) (all []made) {
		t.Helper()
		harness.Eventually(t, soon, fmt.Sprintf("%d events are taken", n), func() error {
			if all = taken(replays); len(all) < n {
				return fmt.Errorf("%+v came", all)
			}
			return nil
		})
		return all
	}
	if out := ask("replay", "--subscription", p.sub.ID); !strings.HasPrefix(out, "1 to be replayed") {
		t.Errorf("replay prints %q", out)
	}
	var replayed, data []string
	for _, c := range await(true, 3) {
		if c.Source != e.rev.URL+p.path || c.Subject != p.path {
			t.Errorf("a replay is %+v", c)
		}
		replayed, data = append(replayed, c.ID), append(data, string(c.Data))
	}
	if !slices.Equal(replayed, ids) || !slices.Equal(data, events) {
		t.Errorf("the replays are %q %q, want %q %q", replayed, data, ids, events)
	}

	p.gateway.Append(p.path, `{"large":"`+strings.Repeat("x", fsm.MaxDeliveryBytes)+`"}`)
	p.gateway.Append(p.path, `{"n":4}`)
	if c := await(false, 1)[0]; string(c.Data) != `{"n":4}` {
		t.Errorf("behind what is too large came %+v", c)
	}
	letter("larger than a delivery may be")

	patch(`{"format":"json"}`)
	p.gateway.Append(p.path, `{"n":5}`)
	await(false, 2)
	if pushes := p.receiver.Pushes(); string(pushes[len(pushes)-1].Body) != `{"n":5}` {
		t.Errorf("as JSON it is %s", pushes[len(pushes)-1].Body)
	}
}
