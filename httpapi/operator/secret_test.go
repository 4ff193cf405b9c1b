package operator_test

import (
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/ports"
)

func TestOperatorRotatesASecret(t *testing.T) {
	h := newHarness(t, nil)
	const path = "/api/v1/subscriptions/a/rotate-secret"
	h.Want(h.Operator("POST", path, ""), 404, fsm.CodeSubscriptionNotFound, "")
	was := h.Subscribe("a", 0)
	stored := func() fsm.Subscription {
		t.Helper()
		if err := h.Store.RefreshCatalog(t.Context()); err != nil {
			t.Fatal(err)
		}
		sub, _ := h.Store.Catalog().Get("a")
		return sub
	}
	rotate := func(body string) (secret, until string) {
		t.Helper()
		a := h.Operator("POST", path, body)
		secret, _ = a.Body["webhook_secret"].(string)
		until, _ = a.Body["previous_signs_until"].(string)
		if a.Status != 200 || len(secret) < 20 || a.Header.Get("Cache-Control") != "no-store" {
			t.Fatalf("%s: %d %s", body, a.Status, a.Text)
		}
		if now := stored(); now.Secret != h.Secret(secret) {
			t.Fatalf("%s: it has another secret than was shown", body)
		}
		return secret, until
	}
	in := func(d time.Duration) string { return h.Clock().Add(d).Format(time.RFC3339Nano) }

	// Only the two latest sign, the one before for 24 hours unless another time is asked for.
	first, until := rotate("")
	if now := stored(); until != in(24*time.Hour) || now.Previous.Secret != was.Secret {
		t.Errorf("the previous secret signs until %s, want %s", until, in(24*time.Hour))
	}
	for _, c := range []struct {
		body, until string
	}{
		{`{}`, in(24 * time.Hour)},
		{`{"overlap":null,"keep_previous":null}`, in(24 * time.Hour)},
		{`{"overlap":"168h"}`, in(168 * time.Hour)},
		{`{"overlap":"90m"}`, in(90 * time.Minute)},
	} {
		secret, until := rotate(c.body)
		if now := stored(); until != c.until || now.Previous.Secret != first {
			t.Errorf("%s: the previous secret signs until %s, want %s", c.body, until, c.until)
		}
		first = secret
	}
	known := stored().Previous.Secret
	if _, until := rotate(`{"overlap":"1h","keep_previous":true}`); until != in(time.Hour) {
		t.Errorf("the previous secret is kept until %s, want %s", until, in(time.Hour))
	}
	if now := stored(); now.Previous.Secret != known {
		t.Error("the previous secret is not kept")
	}

	// What is shown of it later has no secret.
	for _, a := range []ports.Answer{
		h.Operator("GET", "/api/v1/subscriptions/a", ""), h.Operator("GET", "/api/v1/subscriptions", ""),
		h.API("GET", "/a/*?subscription=a", ""),
	} {
		if a.Status != 200 || strings.Contains(a.Text, "secret") || strings.Contains(a.Text, "whsec") {
			t.Errorf("%d %s", a.Status, a.Text)
		}
	}
	if until := h.Operator("GET", "/api/v1/subscriptions/a", "").Body["previous_signs_until"]; until != in(time.Hour) {
		t.Errorf("the previous secret is shown to sign until %v, want %s", until, in(time.Hour))
	}

	// A refusal changes nothing.
	before := stored()
	for body, says := range map[string]string{
		`{"overlap":"169h"}`: `overlap must be a duration from "0s" to "168h"`, `{"overlap":"-1s"}`: "overlap must be",
		`{"overlap":3600}`: "overlap must be", `{"overlap":"a day"}`: "overlap must be",
		`{"keep_previous":"yes"}`: "keep_previous must be true or false", `{"overlaps":"1h"}`: `"overlaps"`,
		`[]`: "not a JSON object", `{`: "not JSON",
	} {
		h.Want(h.Operator("POST", path, body), 400, fsm.CodeInvalidRequest, says)
	}
	h.Want(h.Operator("POST", "/api/v1/subscriptions/a:b/rotate-secret", ""), 400, fsm.CodeInvalidSubscriptionID, "':'")
	h.Want(h.Operator("GET", path, ""), 405, fsm.CodeMethodNotAllowed, "")
	if now := stored(); !now.Equal(before) {
		t.Error("a refusal has changed the subscription")
	}

	// The other scheme's secret has no previous one, which would be of another form.
	if a := h.API("PATCH", "/**?subscription=a", `{"signature":"standard-webhooks"}`); a.Status != 200 {
		t.Fatal(a.Text)
	} else {
		h.Secret(a.Body["webhook_secret"].(string))
	}
	if now := stored(); now.Previous != (fsm.PreviousSecret{}) {
		t.Error("another scheme has the previous secret of the one before")
	}
	rotate("")
	if _, until := rotate(`{"overlap":"0s"}`); until != "" || stored().Previous != (fsm.PreviousSecret{}) {
		t.Errorf("without an overlap, the previous secret signs until %q", until)
	}
	if n := h.Logs.FilterMessage("secret rotated").Len(); n != 8 {
		t.Errorf("%d rotations are logged, want 8", n)
	}

	// This version would make a secret that another scheme may not take.
	later := h.Subscribe("later", 0)
	later.Signature = "ed25519"
	h.Store.DB.PutSubscription(later.WithDefaults())
	h.Want(h.Operator("POST", "/api/v1/subscriptions/later/rotate-secret", ""), 501, fsm.CodeNotImplemented, "ed25519")
	h.Store.Fail(fsm.ErrUnavailable)
	h.Want(h.Operator("POST", path, ""), 503, fsm.CodeUnavailable, "")
}
