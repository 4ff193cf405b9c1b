package format

import (
	"strings"
	"testing"

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
