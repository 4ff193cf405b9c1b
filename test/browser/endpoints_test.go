package browser

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"reveille/test/harness"
)

// endpoint fails in its way until it is mended. Then it takes all.
type endpoint struct {
	t testing.TB
	// URL is the webhook.
	URL string
	// fail answers until then.
	fail http.HandlerFunc
	// before is the TLS of the endpoint until then, and after is its TLS from then on; nil without TLS.
	before, after *tls.Config

	mu     sync.Mutex
	mended bool
	// secret is what it verifies deliveries with; empty if it verifies none.
	secret string
	taken  chan struct{}
	once   sync.Once
}

func newEndpoint(t testing.TB, fail http.HandlerFunc) *endpoint {
	return &endpoint{t: t, fail: fail, taken: make(chan struct{})}
}

// serve starts the endpoint at an address.
func (e *endpoint) serve(addr string) {
	e.t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(e.t.Context(), "tcp", addr)
	if err != nil {
		e.t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(e)
	_ = s.Listener.Close()
	s.Listener, s.Config.ErrorLog = ln, log.New(io.Discard, "", 0) // of handshakes that fail, as they are to
	if e.after == nil {
		s.Start()
	} else {
		s.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			if mended, _ := e.now(); mended {
				return e.after, nil
			}
			return e.before, nil
		}}
		s.StartTLS()
	}
	e.URL = s.URL
	e.t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
}

func (e *endpoint) now() (mended bool, secret string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mended, e.secret
}

// mend has the endpoint take what is signed with a secret; with an empty one, everything.
func (e *endpoint) mend(secret string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mended, e.secret = true, secret
}

// ServeHTTP fails, or takes a delivery.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	mended, secret := e.now()
	if !mended {
		e.fail(w, r)
		return
	}
	body, _ := io.ReadAll(r.Body)
	if secret != "" && harness.VerifyStandard(secret, r.Header, body, time.Now()) != nil {
		status(http.StatusUnauthorized)(w, r)
		return
	}
	w.WriteHeader(http.StatusNoContent)
	e.once.Do(func() { close(e.taken) })
}

// await waits until the endpoint has taken something.
func (e *endpoint) await() {
	e.t.Helper()
	select {
	case <-e.taken:
	case <-time.After(harness.Wait):
		e.t.Fatal("nothing was delivered")
	}
}

// status answers with a status and a text that says so.
func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch code {
		case http.StatusFound:
			w.Header().Set("Location", "/elsewhere")
		case http.StatusTooManyRequests:
			w.Header().Set("Retry-After", "7200")
		}
		w.WriteHeader(code)
		_, _ = fmt.Fprintf(w, "this endpoint answers %d", code)
	}
}

// hangs answers nothing.
func hangs(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// hangsLater answers with a status, and never comes to the end of its text.
func hangsLater(w http.ResponseWriter, r *http.Request) {
	status(http.StatusInternalServerError)(w, r)
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// slow says at once that it works on it, and answers when nobody waits any more.
func slow(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.WriteHeader(http.StatusProcessing)
	<-r.Context().Done()
	w.WriteHeader(http.StatusNoContent)
}

// resets breaks off the connection.
func resets(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // otherwise, the connection may be reset and not closed
	panic(http.ErrAbortHandler)
}
