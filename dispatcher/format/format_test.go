package format

import (
	"strings"
	"testing"
	"time"

	"reveille/fsm"
)

// TestWhatALaterVersionStoredIsAnErrorThatNamesIt holds that the error names each value that this version does not
// know, and its subscription.
func TestWhatALaterVersionStoredIsAnErrorThatNamesIt(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*fsm.Subscription)
		want   string
	}{
		{"the mode", func(s *fsm.Subscription) { s.Mode = "pull" }, `subscription s has the mode "pull"`},
		{"the format", func(s *fsm.Subscription) { s.Format = "ojs" }, `subscription s has the format "ojs"`},
		{
			"the signature", func(s *fsm.Subscription) { s.Signature = "standard" },
			`has the signature scheme "standard"`,
		},
		{"what is empty", func(s *fsm.Subscription) { s.Mode = "" }, `subscription s has the mode ""`},
		{
			"a long value, but not all of it",
			func(s *fsm.Subscription) { s.Format = fsm.Format(strings.Repeat("x", 1000)) },
			`the format "` + strings.Repeat("x", 100) + `"`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sub := fsm.Subscription{ID: "s", Secret: "whsec_1"}.WithDefaults()
			if _, err := Of(sub); err != nil {
				t.Fatal(err)
			}
			tc.change(&sub)
			_, err := Of(sub)
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), sub.Secret) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

// TestEveryRequestHasABodyAndItsType holds that of each format, whatever is in the stream, also of test deliveries. The
// events have nothing or little for a body.
func TestEveryRequestHasABodyAndItsType(t *testing.T) {
	batches := map[string]fsm.Batch{
		"an object":                          jsonBatch(`{}`),
		"a number":                           jsonBatch(`0`),
		"an empty text":                      jsonBatch(`""`),
		"null":                               jsonBatch(`null`),
		"a CloudEvent without data":          jsonBatch(least(``)),
		"a CloudEvent whose data are null":   jsonBatch(least(`,"data":null`)),
		"a CloudEvent with an empty text":    jsonBatch(least(`,"datacontenttype":"text/plain","data":""`)),
		"a CloudEvent with no bytes":         jsonBatch(least(`,"data_base64":""`)),
		"a CloudEvent with bytes of a type":  jsonBatch(least(`,"datacontenttype":"image/png","data_base64":"YQ=="`)),
		"a CloudEvent with bytes of no type": jsonBatch(least(`,"data_base64":"YQ=="`)),
		"bytes":                              {ContentType: "text/plain", Events: eventsOf("\x00")},
		"bytes without a type":               {Events: eventsOf("\x00")},
	}
	for _, mode := range fsm.Modes {
		for _, f := range fsm.Formats[mode] {
			sub := fsm.Subscription{ID: "s", Mode: mode, Format: f, Secret: exampleSecret}.WithDefaults()
			check := func(what string, of func(fsm.Subscription) (Format, error), d Content) {
				t.Helper()
				d.Secret, d.PublicURL, d.At = exampleSecret, publicURL, time.Unix(1704067200, 0)
				format, err := of(sub)
				if err != nil {
					t.Fatal(err)
				}
				h, body, err := format.Request(d)
				if err != nil || len(body) == 0 || len(h.Values("Content-Type")) != 1 || h.Get("Content-Type") == "" {
					t.Errorf("%s of %s: %q with %v, %v", f, what, body, h, err)
				}
			}
			for name, b := range batches {
				b.From = "1002"
				wake := fsm.Delivery{Consumer: "s:%2Forders", Generation: "g", Primary: stream, Epoch: 3, Born: 7}
				check(name, Of, Content{Delivery: wake, ID: b.DeliveryID(wake), Batch: b})
			}
			check("a test", OfTest, Content{ID: "test_1", Batch: TestBatch(sub, "test_1", time.Unix(1704067200, 0))})
		}
	}
}
