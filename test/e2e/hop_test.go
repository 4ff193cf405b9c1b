package e2e

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
)

// hop is a proxy between Reveille and the stream server that can be told to misbehave.
type hop struct {
	mu        sync.Mutex
	intercept func(w http.ResponseWriter, r *http.Request) bool
	alter     func(*http.Response)
	// cut ends the requests that are under way.
	cut context.CancelFunc
	now context.Context
}

// before puts the hop in front of the stream server at a URL and returns the hop's own.
func (h *hop) before(t *testing.T) func(string) string {
	h.do(nil)
	return func(upstream string) string {
		target, err := url.Parse(upstream)
		if err != nil {
			t.Fatal(err)
		}
		proxy := &httputil.ReverseProxy{
			Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(target) }, FlushInterval: -1,
			ErrorLog: log.New(io.Discard, "", 0),
			ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
				w.WriteHeader(http.StatusBadGateway)
			},
			ModifyResponse: func(res *http.Response) error {
				if alter := h.altering(); alter != nil {
					alter(res)
				}
				return nil
			},
		}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			intercept, now := h.intercepting()
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			defer context.AfterFunc(now, cancel)()
			if r = r.WithContext(ctx); intercept == nil || !intercept(w, r) {
				proxy.ServeHTTP(w, r)
			}
		}))
		t.Cleanup(func() {
			server.CloseClientConnections()
			server.Close()
		})
		return server.URL
	}
}

func (h *hop) intercepting() (func(http.ResponseWriter, *http.Request) bool, context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.intercept, h.now
}

func (h *hop) altering() func(*http.Response) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.alter
}

// do cuts the requests that are under way and has those that follow go to a function first; it returns true if it has
// answered. nil ends that.
func (h *hop) do(intercept func(w http.ResponseWriter, r *http.Request) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cut != nil {
		h.cut()
	}
	h.now, h.cut = context.WithCancel(context.Background())
	h.intercept = intercept
}

// change has answers go through a function. nil ends that.
func (h *hop) change(alter func(*http.Response)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.alter = alter
}

// answer has every request answered with a status.
func (h *hop) answer(status int) {
	h.do(func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(status); return true })
}
