package workers

import (
	"net/http"
	"testing"
	"time"

	"reveille/dispatcher/format"
	"reveille/fsm"
	"reveille/test/harness"
)

// TestEventsAreSignedSoThatOthersCanVerifyThem holds the requests of push subscriptions against the library of Standard
// Webhooks, and against the reading of the webhook spec that the harness has.
func TestEventsAreSignedSoThatOthersCanVerifyThem(t *testing.T) {
	const secret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	library := harness.NewClient(t, script("host-standardwebhooks.mjs")(t, secret, "http://127.0.0.1:1").URL)
	now := time.Now()
	for _, s := range append(fsm.Signatures, "") {
		f, err := format.Of(fsm.Subscription{ID: "s", Mode: fsm.ModePush, Batch: 5, Signature: s}.WithDefaults())
		if err != nil {
			t.Fatal(err)
		}
		header, body, err := f.Request(format.Content{
			Delivery: fsm.Delivery{Primary: "/a"}, ID: "evt_1_3-4", Secret: secret, At: now, Batch: fsm.Batch{
				JSON: true, Events: [][]byte{[]byte(`{"text":"é €"}`), []byte("2")}, From: fsm.Offset("1").At(3, "2"),
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		verifies := func(body string) bool {
			if s == fsm.SignatureHMAC {
				return harness.VerifySignature(secret, header.Get("Webhook-Signature"), []byte(body), now) == nil
			}
			var sent []string
			for name := range header {
				sent = append(sent, name, header.Get(name))
			}
			switch status := library.Do(http.MethodPost, "/", body, sent...).Status; status {
			case http.StatusOK:
				return true
			case http.StatusUnauthorized:
			default:
				t.Fatalf("%s: status %d", s, status)
			}
			return false
		}
		if !verifies(string(body)) || verifies(string(body)+" ") {
			t.Errorf("%s: it does not verify %s with %v and nothing else", s, body, header)
		}
	}
}
