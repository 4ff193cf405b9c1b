package e2e

import (
	"net/http"
	"strings"
	"testing"

	"reveille/test/harness"
)

// TestTheOperatorPortAsksForATokenIfOneIsSet holds what each token is good for, at the real ports.
func TestTheOperatorPortAsksForATokenIfOneIsSet(t *testing.T) {
	t.Parallel()
	const admin, read = "the-admin-token-of-a-test-of-the-ports", "the-read-token-of-a-test-of-the-ports"
	e := beside(t, options{settings: map[string]string{"REVEILLE_ADMIN_TOKEN": admin, "REVEILLE_READ_TOKEN": read}})
	worker := harness.NewWorker(t)
	e.gateway.Subscribe("/"+name(t)+"/*", "orders", worker) // the API port asks nobody
	operator := harness.NewClient(t, e.rev.Operator)
	for _, c := range []struct {
		method, path string
		// status is that without a token, with the read token, and with the admin token.
		status [3]int
	}{
		{"GET", "/readyz", [3]int{200, 200, 200}},
		{"GET", "/metrics", [3]int{200, 200, 200}},
		{"GET", "/", [3]int{401, 200, 200}},
		{"GET", "/api/v1/status", [3]int{401, 200, 200}},
		{"POST", "/api/v1/subscriptions/orders/pause", [3]int{401, 403, 200}},
	} {
		for n, token := range []string{"", read, admin} {
			a := operator.Do(c.method, c.path, "", "Authorization", "Bearer "+token, "Content-Type", "application/json")
			challenged := a.Header.Get("WWW-Authenticate") != ""
			if a.Status != c.status[n] || challenged != (a.Status == http.StatusUnauthorized) {
				t.Errorf("%s %s with %.10q: %d %s", c.method, c.path, token, a.Status, a.Body)
			}
		}
	}
	if status, out, errs := e.rev.Ask("", "resume", "orders"); status != 0 || !strings.Contains(out, "is resumed") {
		t.Errorf("a command with the token: %d, %q %q", status, out, errs)
	}
}
