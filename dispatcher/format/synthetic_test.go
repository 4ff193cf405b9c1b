package format

import (
	"net/http"
	"testing"
	"time"

	"reveille/fsm"
)

// TestTheRequestOfATestDelivery holds what the endpoint of each mode gets, by both signature schemes. It is the same
// event; a push subscription gets it in its own format.
func TestTheRequestOfATestDelivery(t *testing.T) {
	at := time.Unix(1704067200, 500_600_000)
	const event = `{"type":"webhook.test","id":"test_1","subscription_id":"s","time":"2024-01-01T00:00:00.5Z"}`
	for _, tc := range []struct {
		name  string
		mode  fsm.Mode
		batch int
		body  string
	}{
		{"a wake subscription's is the event", fsm.ModeWake, 0, event},
		{"a push subscription's is the event", fsm.ModePush, 1, event},
		{"one with batches gets an array", fsm.ModePush, 5, "[" + event + "]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, s := range fsm.Signatures {
				sub := fsm.Subscription{ID: "s", Mode: tc.mode, Batch: tc.batch, Signature: s}.WithDefaults()
				f, err := OfTest(sub)
				if err != nil {
					t.Fatal(err)
				}
				header, body, err := f.Request(Content{
					ID: "test_1", Batch: TestBatch(sub, "test_1", at), Secret: exampleSecret, At: at,
				})
				if err != nil || string(body) != tc.body {
					t.Fatalf("%s: got %s, %v", s, body, err)
				}
				signature := header.Get(SignatureHeader)
				e := Examine(exampleSecret, signature, body, at, SignatureTolerance)
				if s == fsm.SignatureStandardWebhooks {
					e = ExamineStandard(exampleSecret, "test_1", header.Get(TimestampHeader), signature, body, at,
						SignatureTolerance)
				}
				_, stream := header[http.CanonicalHeaderKey(StreamHeader)]
				if !e.OK() || stream || header.Get(IDHeader) != "test_1" ||
					header.Get("Content-Type") != "application/json" {
					t.Errorf("%s: the header is %v; its signature: %+v", s, header, e)
				}
			}
		})
	}
	if _, err := OfTest(fsm.Subscription{ID: "s", Mode: "pull"}); err == nil {
		t.Error("of a mode that is not known")
	}
}
