package redisstore

import (
	"reflect"
	"testing"
	"time"

	"reveille/fsm"
)

// TestTheRecordHasEveryFieldOfASubscription fails for a new one that the record or this test lacks.
func TestTheRecordHasEveryFieldOfASubscription(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_123)
	sub := fsm.Subscription{
		ID: "s", Generation: "g", Owner: "acme", Pattern: "/a", Webhook: "https://example.com/", Secret: "whsec_y",
		Previous: fsm.PreviousSecret{Secret: "whsec_x", Until: now}, Description: "d", Mode: fsm.ModePush,
		Format: fsm.FormatOJS, Signature: fsm.SignatureHMAC, Start: fsm.Start, Batch: 2,
		Filter: fsm.Filter{
			Events: []string{"a"}, TypePath: "kind", Values: map[string][]fsm.Value{"data.queue": {"1"}},
		},
		Ordering: fsm.OrderingNone, Timeout: time.Second, Retry: []time.Duration{time.Minute}, Rate: 7,
		Headers: map[string]string{"X-A": "1"}, Authorization: fsm.Authorization{Query: "q", Secret: "hush"},
		Metadata: map[string]string{"k": "v"}, CreatedAt: now, Version: 1, Revision: 2, Told: true, Paused: true,
		PausedAt: now, Disabled: true, Retired: true, OpenedAt: now, DisableAfter: time.Hour,
		Consent: fsm.Consent{
			State: fsm.ConsentGranted, Origin: "a.example", Webhook: "h", Rate: 1, ByCallback: true, AskedAt: now,
			Until: now, Failures: 1, Reason: "r", Key: "k", KeyUntil: now,
		},
	}
	text, err := encodeSubscription(sub, "")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decodeSubscription(text); err != nil || !reflect.DeepEqual(got, sub) {
		t.Errorf("it is read as %+v, %v; want %+v", got, err, sub)
	}
	for _, part := range []any{sub, sub.Previous, sub.Filter, sub.Authorization, sub.Consent} {
		v := reflect.ValueOf(part)
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("this test does not set %s of %T", v.Type().Field(i).Name, part)
			}
		}
	}
}
