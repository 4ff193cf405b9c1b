package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	cloudevents "github.com/cloudevents/sdk-go/v2/protocol/http"

	"reveille/fsm"
	"reveille/test/harness"
)

const consentOrigin = "reveille.example.com"

// agreeing is an endpoint that is asked for its consent.
type agreeing struct {
	URL string

	mu        sync.Mutex
	callbacks []string
	// came counts the deliveries, and named those that name their sender.
	came, named int
}

// newAgreeing starts an endpoint. The function says answers requests for consent.
func newAgreeing(t *testing.T, says http.HandlerFunc) *agreeing {
	t.Helper()
	a := &agreeing{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if r.Method == http.MethodOptions {
			a.callbacks = append(a.callbacks, r.Header.Get("WebHook-Request-Callback"))
			says(w, r)
			return
		}
		a.came++
		if r.Header.Get("Origin") == consentOrigin {
			a.named++
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"done":true}`)
	}))
	t.Cleanup(srv.Close)
	a.URL = srv.URL
	return a
}

// deliveries returns how many have come, and how many of them name their sender.
func (a *agreeing) deliveries() (all, named int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.came, a.named
}

// callback waits for a request for consent, and returns the URL that it names.
func (a *agreeing) callback(t *testing.T) (url string) {
	t.Helper()
	harness.Eventually(t, soon, "the endpoint is asked for its consent", func() error {
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(a.callbacks) == 0 {
			return errors.New("it is not")
		}
		url = a.callbacks[len(a.callbacks)-1]
		return nil
	})
	return url
}

// agreed makes a subscription with an endpoint.
func agreed(t *testing.T, f *fleet, a *agreeing) *fixture {
	t.Helper()
	s := f.fixture(t, fmt.Sprintf("s%d", names.Add(1)), nil)
	res := s.gateway.Do(http.MethodPut, s.folder+"/*?subscription="+s.sub.ID, fmt.Sprintf(`{"webhook":%q}`, a.URL),
		"Content-Type", "application/json")
	if res.Status != http.StatusCreated {
		t.Fatalf("PUT: %d %s", res.Status, res.Body)
	}
	return s
}

func getAs(t *testing.T, url, accept string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// TestNothingIsSentBeforeItsEndpointAgrees has streams grow while the endpoint says nothing, and a replica die. Then an
// administrator of the endpoint opens the callback in a browser, and all that has waited comes.
func TestNothingIsSentBeforeItsEndpointAgrees(t *testing.T) {
	t.Parallel()
	const streams = 6
	f := startFleet(t, 2, map[string]string{"REVEILLE_CONSENT": "require", "REVEILLE_ORIGIN": consentOrigin})
	f.share(0, 1)
	a := newAgreeing(t, func(http.ResponseWriter, *http.Request) {})
	s := agreed(t, f, a)
	tails := map[string]string{}
	for i := range streams {
		path := fmt.Sprintf("%s/%d", s.folder, i)
		f.gateways[i%2].Create(path)
		tails[path] = f.gateways[i%2].Append(path, `{"n":1}`)
	}
	for path := range tails {
		s.awaitOf(path, path+" waits for the consent", func(c fsm.Consumer) bool {
			return c.Held == fsm.BlockedConsent && heldBack(c)
		})
	}
	callback := a.callback(t)
	if status, out, _ := f.replicas[0].Ask("", "consent"); status != 0 || !strings.Contains(out, "pending") ||
		!strings.Contains(out, "the endpoint has neither agreed nor refused") {
		t.Errorf("reveille consent: %s", out)
	}
	f.replicas[1].Kill()
	_, query, _ := strings.Cut(callback, "?")
	at := f.replicas[0].URL + "/consent/" + s.sub.ID + "?"
	if status, _ := getAs(t, at+query+"x", "text/html"); status != http.StatusNotFound {
		t.Errorf("a forged key: %d", status)
	}
	if n, _ := a.deliveries(); n != 0 {
		t.Errorf("%d deliveries came", n)
	}
	status, page := getAs(t, at+query, "text/html")
	if status != http.StatusOK || !strings.Contains(page, consentOrigin) ||
		!strings.Contains(page, "Deliveries allowed") {
		t.Fatalf("%d %s", status, page)
	}
	if status, _ := getAs(t, at+query, "text/html"); status != http.StatusNotFound {
		t.Errorf("the key once more: %d", status)
	}
	for path, tail := range tails {
		s.awaitIdle(path, tail)
	}
	if n, named := a.deliveries(); named != n || n < streams {
		t.Errorf("%d deliveries came, %d of them name their sender", n, named)
	}
	_, key, _ := strings.Cut(query, "key=")
	for i, r := range f.replicas {
		if strings.Contains(r.Log(), key) {
			t.Errorf("the log of replica %d has the key", i)
		}
	}
}

// TestAReceiverOfTheCloudEventsSDK has its own code answer, with a callback and with headers.
func TestAReceiverOfTheCloudEventsSDK(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 1, map[string]string{"REVEILLE_CONSENT": "require", "REVEILLE_ORIGIN": consentOrigin})
	for name, tt := range map[string]struct {
		origins []string
		// withCallback lets the SDK see that a callback is offered. Then it answers without headers.
		withCallback, ack bool
		state             fsm.ConsentState
	}{
		"by callback":            {[]string{consentOrigin}, true, true, fsm.ConsentGranted},
		"by header":              {[]string{consentOrigin}, false, false, fsm.ConsentGranted},
		"by header, to all":      {[]string{"*"}, false, false, fsm.ConsentGranted},
		"by hand, and not yet":   {[]string{consentOrigin}, true, false, fsm.ConsentPending},
		"to another origin":      {[]string{"other.example.com"}, true, true, fsm.ConsentPending},
		"to a part of an origin": {[]string{"reveille."}, false, false, fsm.ConsentGranted},
	} {
		t.Run(name, func(t *testing.T) {
			sdk, err := cloudevents.New(cloudevents.WithDefaultOptionsHandlerFunc(
				[]string{http.MethodPost}, 6000, tt.origins, tt.ack))
			if err != nil {
				t.Fatal(err)
			}
			a := newAgreeing(t, func(w http.ResponseWriter, r *http.Request) {
				if !tt.withCallback {
					r.Header.Del("WebHook-Request-Callback")
				}
				sdk.OptionsHandlerFn(w, r)
			})
			s := agreed(t, f, a)
			tail := s.gateway.Create(s.path)
			a.callback(t)
			harness.Eventually(t, soon, "the state is "+string(tt.state), func() error {
				_, out, _ := f.replicas[0].Ask("", "consent", s.sub.ID)
				if !strings.Contains(out, string(tt.state)) || strings.Contains(out, "not answered yet") {
					return errors.New(out)
				}
				return nil
			})
			if tt.state != fsm.ConsentGranted {
				if n, _ := a.deliveries(); n != 0 {
					t.Errorf("%d deliveries came", n)
				}
				return
			}
			s.awaitIdle(s.path, tail)
			r := &http.Request{Header: http.Header{"Origin": {consentOrigin}}}
			if _, ok := sdk.ValidateOrigin(r); !ok {
				t.Error("the SDK does not take that name")
			}
			if n, named := a.deliveries(); named != n || n == 0 {
				t.Errorf("%d of %d deliveries name their sender", named, n)
			}
		})
	}
}
