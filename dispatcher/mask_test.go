package dispatcher

import (
	"testing"

	"reveille/fsm"
)

// TestWhatAnEndpointRepeatsOfItsSubscriptionIsMasked holds that nothing is kept of an answer that the subscription's
// owner has trusted us with.
func TestWhatAnEndpointRepeatsOfItsSubscriptionIsMasked(t *testing.T) {
	sub := fsm.Subscription{
		Secret: "whsec_0123456789", Previous: fsm.PreviousSecret{Secret: "whsec_before_that"},
		Authorization: fsm.Authorization{Secret: "Bearer token-of-somebody"},
		Headers:       map[string]string{"X-Key": "key-of-somebody", "X-Short": "yes"},
	}
	for text, want := range map[string]string{
		"yes, whatever": "yes, whatever",
		"got whsec_0123456789 and whsec_before_that":   "got [masked] and [masked]",
		`{"authorization":"Bearer token-of-somebody"}`: `{"authorization":"Bearer [masked]"}`,
		"no such token: token-of-somebody":             "no such token: [masked]",
		"X-Key: key-of-somebody":                       "X-Key: [masked]",
		"cut within key-of-so":                         "cut within [masked]",
		"cut within Bearer token-of-s":                 "cut within Bearer [masked]",
		"cut too early to tell: token-":                "cut too early to tell: token-",
	} {
		if got := mask(sub, text); got != want {
			t.Errorf("%q is kept as %q, want %q", text, got, want)
		}
	}
}
