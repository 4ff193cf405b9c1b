package dispatcher

import (
	"io"
	"net/http"
	"testing"
	"time"

	"reveille/dispatcher/format"
	"reveille/fsm"
)

// TestAPreviousSecretSignsUntilItsTime holds that the time of each attempt's signature decides, whatever the list of
// subscriptions still has.
func TestAPreviousSecretSignsUntilItsTime(t *testing.T) {
	begin := time.Now().Truncate(time.Second)
	until := begin.Add(time.Hour)
	for name, tc := range map[string]struct {
		now         time.Time
		header, new string // the secrets that sign
	}{
		"before": {until.Add(-time.Millisecond), "whsec_first", "whsec_second"},
		"then":   {until, "whsec_second", ""},
	} {
		t.Run(name, func(t *testing.T) {
			type request struct {
				header http.Header
				body   []byte
			}
			got := make(chan request, 1)
			hook := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				got <- request{r.Header, body}
				_, _ = io.WriteString(w, `{"done":true}`)
			})
			f := start(t, newMemStore(), func(c *Config) { c.Clock = func() time.Time { return tc.now } })
			sub := f.store.addSubscription("s", hook)
			sub.Secret, sub.Previous = "whsec_second", fsm.PreviousSecret{Secret: "whsec_first", Until: until}
			f.store.db.PutSubscription(sub)
			f.Deliver(f.store.event(sub, "/s/1", "0005"))
			r := <-got
			if h := r.header.Get(format.SignatureHeader); h != format.Sign(tc.header, tc.now, r.body) {
				t.Errorf("%s is %s, which is not by %s", format.SignatureHeader, h, tc.header)
			}
			want := ""
			if tc.new != "" {
				want = format.Sign(tc.new, tc.now, r.body)
			}
			if h := r.header.Get(format.NewSignatureHeader); h != want {
				t.Errorf("%s is %q, want %q", format.NewSignatureHeader, h, want)
			}
		})
	}
}
