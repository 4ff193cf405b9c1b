package e2e

import (
	"encoding/json"
	"net/http"
	"testing"
)

// TestTheAuditSaysWhoHasChangedWhat has a client make, change and delete a subscription, and an operator pause it.
func TestTheAuditSaysWhoHasChangedWhat(t *testing.T) {
	t.Parallel()
	e := shared(t)
	const secret = "secret-of-the-audit"
	id := name(t)
	target := "/" + id + "/*?subscription=" + id
	do := func(method, body string) {
		t.Helper()
		if a := e.gateway.Do(method, target, body, "Content-Type", "application/json"); a.Status >= 300 {
			t.Fatalf("%s: %d %s", method, a.Status, a.Body)
		}
	}
	do(http.MethodPut, `{"webhook":"http://127.0.0.1:1/`+secret+`","headers":{"X-Key":"`+secret+`"}}`)
	do(http.MethodPatch, `{"description":"of the shop"}`)
	if status, _, errs := e.rev.Ask("", "pause", id); status != 0 {
		t.Fatal(errs)
	}
	do(http.MethodDelete, "")
	status, out, errs := e.rev.Ask("", "audit", "--subscription", id, "--output", "json")
	var body struct {
		Changes []struct {
			From, What    string
			Before, After map[string]any
		}
	}
	if err := json.Unmarshal([]byte(out), &body); status != 0 || err != nil || len(body.Changes) != 4 {
		t.Fatalf("status %d, %v, %s %s", status, err, out, errs)
	}
	for i, what := range []string{
		"subscription deleted", "subscription paused", "subscription changed", "subscription created",
	} {
		c := body.Changes[i]
		if c.What != what || c.From != "127.0.0.1" {
			t.Errorf("%d is %+v, want %q", i, c, what)
		}
	}
	if c := body.Changes[2]; len(c.After) != 1 || c.After["description"] != "of the shop" || len(c.Before) != 0 {
		t.Errorf("what was changed is %+v", c)
	}
	if made := body.Changes[3].After; made["webhook"] != "http://127.0.0.1:1" {
		t.Errorf("what was made is %+v", made)
	}
}
