package attack

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"reveille/test/harness"
)

// silentAboutConsent is an endpoint that notes the callbacks that it is offered, and what comes without its consent.
type silentAboutConsent struct {
	URL       string
	mu        sync.Mutex
	callbacks map[string]string // by path
	unasked   atomic.Int64
}

func newSilentAboutConsent(t *testing.T) *silentAboutConsent {
	t.Helper()
	s := &silentAboutConsent{callbacks: map[string]string{}}
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodOptions {
			s.unasked.Add(1)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.callbacks[r.URL.Path] = r.Header.Get("WebHook-Request-Callback")
	}))
	t.Cleanup(srv.Close)
	s.URL = srv.URL
	return s
}

// callback waits until a path was asked for its consent.
func (s *silentAboutConsent) callback(t *testing.T, path string) (url string) {
	t.Helper()
	harness.Eventually(t, patience, path+" is asked", harness.True(func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		url = s.callbacks[path]
		return url != ""
	}, "not yet"))
	return url
}

// TestForgedConsents guesses keys, uses one for another subscription and URL and several times at once, and has
// endpoints answer the request for consent with all that is bad. Nothing is sent, and nothing but the true key counts.
func TestForgedConsents(t *testing.T) {
	r := newRig(t, map[string]string{
		"REVEILLE_CONSENT": "require", "REVEILLE_ORIGIN": "reveille.example.com", "REVEILLE_UNCONSENTED_RATE": "6000",
	})
	victim := newSilentAboutConsent(t)
	subscribe := func(id, webhook string) {
		r.must(http.MethodPut, "/"+id+"/*?subscription="+id, fmt.Sprintf(`{"webhook":%q}`, webhook))
		r.gateway.Create("/" + id + "/1")
	}
	subscribe("victim", victim.URL+"/victim")
	subscribe("other", victim.URL+"/other")
	true1, other := victim.callback(t, "/victim"), victim.callback(t, "/other")
	_, key, _ := strings.Cut(true1, "key=")
	_, otherKey, _ := strings.Cut(other, "key=")
	ask := func(method, url string, header ...string) int {
		req, err := http.NewRequestWithContext(context.Background(), method, url, http.NoBody)
		if err != nil {
			t.Error(err)
			return 0
		}
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Error(err)
			return 0
		}
		defer func() { _ = res.Body.Close() }()
		_, _ = io.Copy(io.Discard, res.Body)
		return res.StatusCode
	}
	at := r.rev.URL + "/consent/"
	forged := []string{
		"victim", "victim?key=", "victim?key=" + otherKey, "victim?key=" + strings.ToLower(key),
		"victim?key=" + key[:51],
		"victim?key=" + key + "A", "victim?key=" + key + "&key=" + key, "victim?Key=" + key, "victim?key=%00" + key,
		"VICTIM?key=" + key, "victim/?key=" + key, "x/../victim?key=", "other?key=" + key, "unknown?key=" + key,
	}
	for i := range size(500, 20_000) {
		forged = append(forged, fmt.Sprintf("victim?key=%052d", i))
	}
	together(len(forged), func(i int) {
		if status := ask([]string{http.MethodGet, http.MethodPost}[i%2], at+forged[i]); status != http.StatusNotFound {
			t.Errorf("%s: %d", forged[i], status)
		}
	})
	for _, method := range []string{http.MethodHead, http.MethodPut, http.MethodOptions, http.MethodDelete} {
		if status := ask(method, true1); status == http.StatusOK {
			t.Errorf("%s agrees", method)
		}
	}
	if status := ask(http.MethodPost, true1, "WebHook-Allowed-Rate", "-1"); status != http.StatusBadRequest {
		t.Errorf("a forged rate: %d", status)
	}
	bad := startAttacker(t, order{Behaviours: append([]string{"silent"}, endless...)})
	defer bad.end()
	for i, e := range bad.account().Endpoints {
		subscribe(fmt.Sprint("bad-", i), e.URL+"/hook")
	}
	harness.Eventually(t, patience, "the bad endpoints are asked", harness.True(func() bool {
		for _, e := range bad.account().Endpoints {
			if e.Seen == 0 {
				return false
			}
		}
		return true
	}, "not yet"))
	if n := victim.unasked.Load(); n != 0 {
		t.Errorf("%d deliveries came without consent", n)
	}
	_, out, _ := r.rev.Ask("", "consent", "--all")
	if strings.Contains(out, "granted") || strings.Contains(out, key) {
		t.Errorf("reveille consent: %s", out)
	}
	// The true key opens once, however many use it at the same time.
	var opened atomic.Int64
	together(64, func(int) {
		if ask(http.MethodPost, true1) == http.StatusOK {
			opened.Add(1)
		}
	})
	if n := opened.Load(); n != 1 {
		t.Errorf("the key has opened %d times", n)
	}
	harness.Eventually(t, patience, "what has waited comes", harness.True(func() bool {
		return victim.unasked.Load() > 0
	}, "not yet"))
	if log := r.rev.Log(); strings.Contains(log, key) || strings.Contains(log, otherKey) {
		t.Error("the log has a key")
	}
}
