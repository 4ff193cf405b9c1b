package outbox_test

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"reveille/fsm"
)

// TestAConfigurationIsCheckedAsAWhole holds what a configuration may be, and that a wrong one changes nothing.
func TestAConfigurationIsCheckedAsAWhole(t *testing.T) {
	h := newHarness(t)
	before := h.API(http.MethodGet, "/webhooks/config", "").Text
	const defaults = `{"maxAttempts":5,"initialBackoffMs":1000,"maxBackoffMs":300000,"backoffMultiplier":2,` +
		`"deliveryTimeoutMs":30000,"maxConcurrent":10,"retentionMs":604800000,"secrets":[]}`
	if strings.TrimSpace(before) != defaults {
		t.Errorf("it is %s", before)
	}
	secret := func(n int) string {
		key := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", n)))
		return `{"secrets":{"a":"` + h.Secret("whsec_"+key) + `"}}`
	}
	for body, want := range map[string]string{
		`{"maxAttempts":0}`:                                   "maxAttempts must be a whole number from 1 to 100",
		`{"maxAttempts":"5"}`:                                 "maxAttempts must be a whole number",
		`{"maxAttempts":7,"initialBackoffMs":0}`:              "initialBackoffMs must be",
		`{"initialBackoffMs":2000,"maxBackoffMs":1999}`:       "maxBackoffMs (1999) is less than initialBackoffMs",
		`{"maxBackoffMs":999}`:                                "maxBackoffMs (999) is less than initialBackoffMs",
		`{"backoffMultiplier":0.9}`:                           "backoffMultiplier must be a number from 1 to 10",
		`{"deliveryTimeoutMs":60001}`:                         "deliveryTimeoutMs must be",
		`{"maxConcurrent":11}`:                                "maxConcurrent is always 10",
		`{"retentionMs":1}`:                                   "retentionMs must be",
		`{"attempts":1}`:                                      `unknown field \"attempts\"`,
		`{"secrets":["a"]}`:                                   "secrets must be an object",
		`{"secrets":{"":"whsec_x"}}`:                          "secrets: a secret must be whsec_",
		`{"secrets":{"":null}}`:                               "secrets: a provider is empty",
		secret(23):                                            "secrets: a secret must be whsec_",
		secret(65):                                            "secrets: a secret must be whsec_",
		strings.Replace(secret(32), "whsec_", "sec_", 1):      "secrets: a secret must be whsec_",
		`{"maxAttempts":7,"secrets":{"a":"` + secret(1) + `"`: "",
	} {
		a := h.API(http.MethodPatch, "/webhooks/config", body)
		if a.Status != http.StatusBadRequest || !strings.Contains(a.Text, want) {
			t.Errorf("%s: %d %s, want %s", body, a.Status, a.Text, want)
		}
	}
	if after := h.API(http.MethodGet, "/webhooks/config", "").Text; after != before {
		t.Errorf("it has become %s", after)
	}
	h.Want(h.API(http.MethodPatch, "/webhooks/config", `{}`, "Origin", "https://evil.example"),
		http.StatusForbidden, fsm.CodeForbidden, "")
}

// TestAChangeOfTheConfigurationSaysWhatItWas holds that what a change leaves out stays, and that no answer has a
// secret.
func TestAChangeOfTheConfigurationSaysWhatItWas(t *testing.T) {
	h := newHarness(t)
	key := h.Secret("whsec_" + base64.StdEncoding.EncodeToString([]byte("the key of github, 32 bytes long")))
	for _, step := range []struct{ body, is, was string }{
		{
			`{"maxAttempts":2,"backoffMultiplier":1.5,"maxConcurrent":10}`, `"maxAttempts":2,`, `"maxAttempts":5,`,
		},
		{`{"secrets":{"github":"` + key + `"}}`, `"backoffMultiplier":1.5,`, `"secrets":[]}`},
		{`{"secrets":{"github":null,"gitlab":"` + key + `"}}`, `"secrets":["gitlab"]`, `"secrets":["github"]}`},
		{`{}`, `"maxAttempts":2,`, `"secrets":["gitlab"]}`},
	} {
		a := h.API(http.MethodPatch, "/webhooks/config", step.body)
		is, was, _ := strings.Cut(a.Text, `"previous":`)
		if a.Status != http.StatusOK || !strings.Contains(is, step.is) || !strings.Contains(was, step.was) ||
			strings.Contains(a.Text, key) {
			t.Errorf("%s: %d %s", step.body, a.Status, a.Text)
		}
	}
	keep(h, 1, fsm.OutboxEvent{Target: "https://w.example/"})
	if a := h.API(http.MethodGet, "/webhooks/events", ""); !strings.Contains(a.Text, `"max_attempts":2,`) {
		t.Errorf("an event without a number of its own is %s", a.Text)
	}
}
