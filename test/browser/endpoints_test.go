package browser

import (
	"crypto/tls"
	"crypto/x509"
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
	// certificate is what the endpoint has until then, and valid what it has from then on; nil without TLS.
	certificate, valid *tls.Certificate

	mu     sync.Mutex
	mended bool
	taken  chan struct{}
	secret string
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
	if e.valid == nil {
		s.Start()
	} else {
		s.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			if e.isMended() {
				return &tls.Config{Certificates: []tls.Certificate{*e.valid}}, nil
			}
			return &tls.Config{Certificates: []tls.Certificate{*e.certificate}}, nil
		}}
		s.StartTLS()
	}
	e.URL = s.URL
	e.t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
}

func (e *endpoint) isMended() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mended
}

func (e *endpoint) mend() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mended = true
}

// ServeHTTP fails, or takes a delivery.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !e.isMended() {
		e.fail(w, r)
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
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

// slow answers when nobody waits any more.
func slow(w http.ResponseWriter, r *http.Request) {
	hangs(w, r)
	w.WriteHeader(http.StatusNoContent)
}

// withTLS is an endpoint whose certificate is signed by one authority, and later by another.
func withTLS(t testing.TB, before *harness.CA, wrong func(*x509.Certificate), after *harness.CA) *endpoint {
	t.Helper()
	e := newEndpoint(t, status(http.StatusNoContent))
	bad, good := before.Certificate(t, wrong), after.Certificate(t, func(*x509.Certificate) {})
	e.certificate, e.valid = &bad, &good
	e.serve("127.0.0.1:0")
	return e
}
