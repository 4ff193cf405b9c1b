package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"reveille/test/harness"
)

// asked is what a request to an endpoint carried to prove that it is allowed.
type asked struct{ query, authorization string }

// guarded is an endpoint that redirects the first request, and takes the others.
type guarded struct {
	*httptest.Server
	mu    sync.Mutex
	asked []asked
}

func newGuarded(t *testing.T, elsewhere string) *guarded {
	g := &guarded{}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		g.asked = append(g.asked, asked{r.URL.RawQuery, r.Header.Get("Authorization")})
		first := len(g.asked) == 1
		g.mu.Unlock()
		if first {
			http.Redirect(w, r, elsewhere, http.StatusTemporaryRedirect)
			return
		}
		_, _ = w.Write([]byte(`{"done":true}`))
	}))
	t.Cleanup(g.Close)
	return g
}

// await returns the request that came as the nth, from 1.
func (g *guarded) await(t *testing.T, n int) asked {
	t.Helper()
	harness.Eventually(t, soon, fmt.Sprintf("request %d", n), func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		if len(g.asked) < n {
			return fmt.Errorf("%d came", len(g.asked))
		}
		return nil
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked[n-1]
}

// TestAuthorization has endpoints of both modes see what each delivery is authorized by, and no one else.
func TestAuthorization(t *testing.T) {
	t.Parallel()
	const secret = "a-s3cret of the endpoint"
	e := beside(t, options{})
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a redirect was followed: %s %s", r.Method, r.URL)
	}))
	t.Cleanup(elsewhere.Close)
	query := map[string]string{"query": "access_token", "token": secret}
	for _, mode := range []string{"wake", "push"} {
		for name, tt := range map[string]struct {
			authorization any
			want          asked
		}{
			"the header": {"Bearer " + secret, asked{"a=b", "Bearer " + secret}},
			"the query":  {query, asked{"a=b&access_token=a-s3cret%20of%20the%20endpoint", ""}},
		} {
			t.Run(mode+" with "+name, func(t *testing.T) {
				s, g := e.empty(t), newGuarded(t, elsewhere.URL)
				s.gateway.Create(s.path)
				s.subscribeTo(s.path, jsonOf(t, map[string]any{
					"webhook": g.URL + "/hook?a=b", "mode": mode, "authorization": tt.authorization,
					"retry": map[string]any{"schedule": []string{"1s", "1s"}},
				}))
				s.append() // a redirect: a wake comes again, a push is dead
				s.append()
				for n := 1; n <= 2; n++ {
					if got := g.await(t, n); got != tt.want {
						t.Errorf("request %d came with %+v, want %+v", n, got, tt.want)
					}
				}
				a := s.gateway.Do(http.MethodPatch, "/**?subscription="+s.sub.ID, jsonOf(t, map[string]string{
					"webhook": elsewhere.URL,
				}))
				if a.Status != http.StatusBadRequest || !strings.Contains(string(a.Body), "authorization") {
					t.Errorf("the secret moves elsewhere: %d %s", a.Status, a.Body)
				}
				s.patch(s.gateway, `{"authorization":null}`)
				if _, found := s.gateway.Subscription(s.sub.ID); !found { // who shows it has read the list
					t.Fatal("it is not shown")
				}
				for n, bare := 3, (asked{query: "a=b"}); ; n++ {
					s.append()
					if got := g.await(t, n); got == bare {
						break // a wake that had begun before may have come first
					} else if got != tt.want || n > 5 {
						t.Fatalf("request %d came with %+v, want %+v", n, got, bare)
					}
				}
			})
		}
	}
	metrics := string(e.operator().Do(http.MethodGet, "/metrics", "").Body)
	if err := e.rev.Stop(); err != nil {
		t.Fatal(err)
	}
	log := e.rev.Log()
	if !strings.Contains(log, "redirects are not followed") {
		t.Errorf("the log tells of no redirect:\n%s", log)
	}
	for _, text := range []string{"a-s3cret", "access_token"} {
		if strings.Contains(log, text) || strings.Contains(metrics, text) {
			t.Errorf("the log or the metrics hold %q", text)
		}
	}
}
