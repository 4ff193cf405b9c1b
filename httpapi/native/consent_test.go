package native_test

import (
	"net/http"
	"strings"
	"testing"

	"reveille/fsm"
	"reveille/httpapi"
	"reveille/test/ports"
	"reveille/test/ports/service"
)

func consenting(t *testing.T) *ports.Harness {
	t.Helper()
	consents := &ports.Consents{Granted: map[string]fsm.Consent{}}
	h, _ := service.New(t, func(c *httpapi.Config) { c.Consents = consents })
	consents.Catalog = h.Consents.Catalog
	h.Consents = consents
	return h
}

func TestAnEndpointAgreesByACallback(t *testing.T) {
	h := consenting(t)
	h.Subscribe("s", 0)
	if err := h.Store.RefreshCatalog(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"/consent/s", "/consent/s?key=", "/consent/s?key=wrong", "/consent/unknown?key=k", "/consent/?key=k",
		"/consent/s/?key=k", "/consent/s?key=k&key=k", "/consent/a/b?key=k", "/consent/s?key=%zz",
	} {
		a := h.API("GET", path, "")
		h.Want(a, http.StatusNotFound, fsm.CodeNotFound, "this link is unknown, was used before, or has expired")
	}
	h.Want(h.API("POST", "/consent/s?key=k", "", "WebHook-Allowed-Rate", "many"), 400, fsm.CodeInvalidRequest,
		"WebHook-Allowed-Rate")
	for _, method := range []string{"HEAD", "PUT", "DELETE"} {
		if a := h.API(method, "/consent/s?key=k", ""); a.Status != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", method, a.Status)
		}
	}
	before := h.API("GET", "/**?subscription=s", "")
	if c, _ := before.Body["consent"].(map[string]any); c["state"] != "pending" {
		t.Errorf("before, the subscription is %s", before.Text)
	}
	a := h.API("POST", "/consent/s?key=k", "ignored", "WebHook-Allowed-Rate", "120", "Content-Type", "text/plain")
	c, _ := a.Body["consent"].(map[string]any)
	if a.Status != 200 || c["state"] != "granted" || c["rate"] != 120.0 || a.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%d %s", a.Status, a.Text)
	}
	h.Want(h.API("POST", "/consent/s?key=k", ""), http.StatusNotFound, fsm.CodeNotFound, "")
	for _, a := range []ports.Answer{
		h.API("GET", "/**?subscription=s", ""), h.Operator("GET", "/api/v1/subscriptions/s", ""),
	} {
		c, _ := a.Body["consent"].(map[string]any)
		if c["state"] != "granted" || c["rate"] != 120.0 || c["origin"] != "reveille.example.com" {
			t.Errorf("it is shown as %s", a.Text)
		}
	}
}

func TestABrowserIsShownWhatWasAgreed(t *testing.T) {
	h := consenting(t)
	h.Subscribe("s", 0)
	if err := h.Store.RefreshCatalog(t.Context()); err != nil {
		t.Fatal(err)
	}
	a := h.API("GET", "/consent/s?key=k", "", "Accept", "text/html,*/*", "WebHook-Allowed-Rate", "*")
	if a.Status != 200 || !strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") ||
		a.Header.Get("Cache-Control") != "no-store" || a.Header.Get("Referrer-Policy") != "no-referrer" ||
		!strings.Contains(a.Text, "user.example.com:8443") || !strings.Contains(a.Text, "no limit") ||
		strings.Contains(a.Text, "key-of-the-webhook") || strings.Contains(a.Text, "<script") {
		t.Errorf("%d %v %s", a.Status, a.Header, a.Text)
	}
}

func TestWithoutConsentsThePathIsAStream(t *testing.T) {
	h, _ := service.New(t, nil)
	h.Want(h.API("GET", "/consent/s?key=k", ""), http.StatusNotFound, fsm.CodeNotFound, "nothing at this path")
	h.Subscribe("s", 0)
	h.Want(h.Operator("POST", "/api/v1/subscriptions/s/consent", ""), 501, fsm.CodeNotImplemented, "REVEILLE_CONSENT")
	if a := h.API("GET", "/**?subscription=s", ""); strings.Contains(a.Text, "consent") {
		t.Errorf("it is shown: %s", a.Text)
	}
}

// TestAnOperatorSeesWhoHasNotAgreed holds what the list of subscriptions can be cut to.
func TestAnOperatorSeesWhoHasNotAgreed(t *testing.T) {
	h := consenting(t)
	for _, id := range []string{"no", "yes", "zero"} {
		h.Subscribe(id, 0)
	}
	if err := h.Store.RefreshCatalog(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.API("POST", "/consent/yes?key=k", "")
	for filter, want := range map[string]string{
		"": "no yes zero", "missing": "no zero", "granted": "yes", "pending": "no zero", "refused": "",
		"unsupported": "",
	} {
		var got []string
		a := h.Operator("GET", "/api/v1/subscriptions?consent="+filter, "")
		for _, row := range ports.RowsOf(a, "subscriptions") {
			got = append(got, row["subscription_id"].(string))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q lists %q, want %q", filter, got, want)
		}
	}
	// Those that are left out take no place on a page.
	a := h.Operator("GET", "/api/v1/subscriptions?consent=missing&limit=2", "")
	if len(ports.RowsOf(a, "subscriptions")) != 2 || a.Body["next"] != nil {
		t.Errorf("a page is %s", a.Text)
	}
	h.Want(h.Operator("GET", "/api/v1/subscriptions?consent=yes", ""), 400, fsm.CodeInvalidRequest, "consent must be")
	off, _ := service.New(t, nil)
	off.Want(off.Operator("GET", "/api/v1/subscriptions?consent=missing", ""), 501, fsm.CodeNotImplemented,
		"REVEILLE_CONSENT")
}

func TestAnOperatorAsksForConsent(t *testing.T) {
	h := consenting(t)
	h.Subscribe("s", 0)
	a := h.Operator("POST", "/api/v1/subscriptions/s/consent", "")
	c, _ := a.Body["consent"].(map[string]any)
	if a.Status != 200 || c["state"] != "pending" || len(h.Consents.Asked) != 1 {
		t.Errorf("%d %s, asked %v", a.Status, a.Text, h.Consents.Asked)
	}
	h.Want(h.Operator("POST", "/api/v1/subscriptions/t/consent", ""), 404, fsm.CodeSubscriptionNotFound, "")
	h.Consents.Err = fsm.ErrNoTurn
	h.Want(h.Operator("POST", "/api/v1/subscriptions/s/consent", ""), 429, fsm.CodeTooManyRequests, "asked too often")
}
