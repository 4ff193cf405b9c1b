package httpapi

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"reveille/fsm"
	"reveille/httpapi/web"
)

// permit is what says who asks if the operator port asks for no token.
var permit = permits("", "")

// basic is a token as the password of somebody.
func basic(token string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte("anybody:"+token))
}

// TestTheOperatorPortAsksForItsTokens holds of each resource of the port who may use it, by each method.
func TestTheOperatorPortAsksForItsTokens(t *testing.T) {
	const admin, read = "an-admin-token-of-a-test", "a-read-token-of-a-test"
	h := newHarness(t, func(c *Config) {
		c.AdminToken, c.ReadToken, c.Pprof = admin, read, true
		c.MetricsPage = http.NotFoundHandler()
	})
	h.Subscribe("orders", 1)
	for _, res := range h.svc.resources() {
		if res.Route == "" {
			continue
		}
		target := strings.NewReplacer(":id", "none", ":name", "none", "*", "none").Replace(res.Route)
		for _, name := range []string{"GET", "HEAD", "POST", "DELETE"} {
			if a := h.Operator(name, target, "{}"); a.Status/100 == 2 && res.Role != web.Anyone {
				t.Errorf("%s %s without a token: %d", name, target, a.Status)
			}
		}
		for _, m := range res.Methods {
			for _, c := range []struct {
				authorization string
				roles         []fsm.Role
			}{
				{"", nil},
				{"Bearer", nil},
				{"Bearer not-the-token-of-a-test", nil},
				{"Bearer " + admin + "x", nil},
				{basic(""), nil},
				{"bearer " + read, []fsm.Role{web.RoleRead}},
				{basic(read), []fsm.Role{web.RoleRead}},
				{"Bearer " + admin, []fsm.Role{web.RoleRead, web.RoleOperate}},
				{basic(admin), []fsm.Role{web.RoleRead, web.RoleOperate}},
			} {
				if (strings.HasSuffix(target, "/profile") || strings.HasSuffix(target, "/trace")) && len(c.roles) > 1 {
					continue // they take long
				}
				a := h.Operator(m.Name, target, "{}", "Authorization", c.authorization, "Sec-Fetch-Site", "same-origin")
				needed := web.RoleRead
				switch {
				case slices.Contains([]string{"/healthz", "/readyz", "/metrics"}, res.Route):
					needed = web.Anyone
				case m.Name != http.MethodGet, strings.HasPrefix(res.Route, "/debug/pprof/"),
					strings.HasSuffix(res.Route, "/request"): // it shows what the events hold
					needed = web.RoleOperate
				}
				want, challenges := 0, 0
				switch {
				case needed == web.Anyone || slices.Contains(c.roles, needed):
				case c.roles == nil:
					want, challenges = http.StatusUnauthorized, 2
				default:
					want = http.StatusForbidden
				}
				refused := a.Status == http.StatusUnauthorized || a.Status == http.StatusForbidden
				if refused != (want > 0) || want > 0 && a.Status != want ||
					len(a.Header.Values("WWW-Authenticate")) != challenges {
					t.Errorf("%s %s with %.10q: %d %s, want %d",
						m.Name, target, c.authorization, a.Status, a.Text, want)
				}
			}
		}
	}
	if a := h.API(http.MethodGet, "/**?subscriptions", ""); a.Status != http.StatusOK {
		t.Errorf("the API port asks for a token: %d %s", a.Status, a.Text)
	}
}

// TestAPageWithATokenIsServedAnywhere holds that browsers are answered at any address and name once they send a token,
// and that pages of others still are not.
func TestAPageWithATokenIsServedAnywhere(t *testing.T) {
	const admin, read = "an-admin-token-of-a-test", "a-read-token-of-a-test"
	h := newHarness(t, func(c *Config) { c.AdminToken, c.ReadToken, c.Origins = admin, read, []string{app} })
	h.Subscribe("orders", 1)
	if err := h.Store.RefreshCatalog(t.Context()); err != nil {
		t.Fatal(err)
	}
	const at, host = "10.1.2.3", "ops.example.com"
	ask := func(token string, header ...string) (int, string) {
		a := h.askOperator(at, host, http.MethodGet, "/subscriptions/orders", append([]string{
			"Authorization", "Bearer " + token, "X-Forwarded-For", "192.0.2.1",
		}, header...)...)
		return a.Status, a.Text
	}
	if status, text := ask(admin); status != http.StatusOK || !strings.Contains(text, `id="do-pause"`) ||
		strings.Contains(text, "may only look") {
		t.Errorf("with the admin token: %d %s", status, text)
	}
	if status, text := ask(read); status != http.StatusOK || strings.Contains(text, "<button id") ||
		strings.Contains(text, `method="post"`) || !strings.Contains(text, "may only look") {
		t.Errorf("with the read token: %d %s", status, text)
	}
	if status, text := ask("none"); status != http.StatusUnauthorized || strings.Contains(text, "orders") {
		t.Errorf("with another token: %d %s", status, text)
	}
	if status, _ := ask(admin, "Origin", "https://evil.example"); status != http.StatusForbidden {
		t.Errorf("a page of others: %d", status)
	}
	if a := h.askOperator(at, host, http.MethodGet, "/metrics"); a.Status != http.StatusForbidden {
		t.Errorf("what asks for no token is served at any name: %d", a.Status)
	}
	bearer := []string{"Authorization", "Bearer " + admin}
	for target, status := range map[string]int{"/assets/style.css": 200, "/healthz": 200, "/nothing": 403} {
		if a := h.askOperator(at, host, http.MethodGet, target, bearer...); a.Status != status {
			t.Errorf("%s with the admin token: %d, want %d", target, a.Status, status)
		}
	}
	const watch = "/api/v1/streams"
	for origin, status := range map[string]int{"http://" + host: 200, app: 200, "https://evil.example": 403} {
		if a := h.askOperator(at, host, "POST", watch, append(bearer, "Origin", origin)...); a.Status != status {
			t.Errorf("a page of %s with the admin token: %d, want %d", origin, a.Status, status)
		}
	}
	// A browser adds a password by itself to what a page of another origin sends. It may be that of a proxy.
	open := newHarness(t, func(c *Config) { c.Origins = []string{app} })
	for asked, status := range map[*harness]int{h: http.StatusForbidden, open: http.StatusOK} {
		a := asked.askOperator(at, host, "POST", watch, "Authorization", basic(admin), "Origin", app)
		if a.Status != status {
			t.Errorf("a page of %s with a password: %d %s, want %d", app, a.Status, a.Text, status)
		}
	}
	// And it would ask its user at each refresh of a page that is open since before a token was changed.
	for _, refreshed := range []string{"", "true"} {
		a := h.askOperator(at, host, http.MethodGet, "/", "HX-Request", refreshed)
		if asks := strings.Contains(fmt.Sprint(a.Header.Values("WWW-Authenticate")), "Basic"); a.Status != 401 ||
			asks != (refreshed == "") {
			t.Errorf("a request with HX-Request %q: %d, %v", refreshed, a.Status, a.Header)
		}
	}
}
