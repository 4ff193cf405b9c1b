package dispatcher

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/fsm/router"
)

// TestObserversHearWhatWasAnswered holds what is known of each exchange with an endpoint: where the request went and
// how, how long it took apart from the wait before it, and how the answer begins, without secrets.
func TestObserversHearWhatWasAnswered(t *testing.T) {
	const long = fsm.MaxLetterAnswer
	for _, protocol := range []struct {
		name, http, tls string
		start           func(*httptest.Server)
	}{
		{"plain", "1.1", "", (*httptest.Server).Start},
		{"TLS", "1.1", "1.3", (*httptest.Server).StartTLS},
		{"HTTP/2", "2.0", "1.3", func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() }},
	} {
		for _, c := range []struct {
			status       int
			keeps        bool
			answer, want string
		}{
			{http.StatusInternalServerError, false, "over capacity", "over capacity"},
			{http.StatusUnauthorized, false, "no such key: it-is-secret\x1b[31m", "no such key: [masked][31m"},
			{http.StatusBadGateway, true, strings.Repeat("x", 2*long), strings.Repeat("x", long)},
			{http.StatusOK, false, "stored", ""},
			{http.StatusOK, true, "stored", "stored"},
		} {
			t.Run(fmt.Sprintf("%s, %d, keeps all %t", protocol.name, c.status, c.keeps), func(t *testing.T) {
				const asleep = 20 * time.Millisecond
				srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					time.Sleep(asleep)
					w.WriteHeader(c.status)
					_, _ = io.WriteString(w, c.answer)
				}))
				protocol.start(srv)
				defer srv.Close()
				made := make(chan fsm.Attempt, 1)
				f := start(t, newMemStore(), func(cfg *Config) {
					cfg.ReadBatch, cfg.KeepAnswers = reads(oneEvent), c.keeps
				}, func(d *Dispatcher) {
					if srv.TLS != nil {
						d.sender.tls.RootCAs = srv.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
					}
					d.cfg.Outcomes.Observe(router.Observer{Attempt: func(a fsm.Attempt) {
						select {
						case made <- a:
						default:
						}
					}})
				})
				sub := f.store.pushSub(srv.URL, nil)
				sub.Headers = map[string]string{"X-Key": "it-is-secret"}
				f.store.db.PutSubscription(sub)
				f.Deliver(f.store.event(sub, "/s/1", "0005"))
				a := <-made
				if a.Answer != c.want || a.Status != c.status {
					t.Errorf("status %d with %q, want %q", a.Status, a.Answer, c.want)
				}
				if a.Remote != srv.Listener.Addr().String() || a.HTTP != protocol.http || a.TLS != protocol.tls {
					t.Errorf("it went to %q by HTTP %q and TLS %q", a.Remote, a.HTTP, a.TLS)
				}
				if a.MaxAttempts != len(sub.Retry)+1 {
					t.Errorf("it is attempt %d of %d", a.Delivery.Attempt, a.MaxAttempts)
				}
				if a.Exchanged < asleep || a.Waited < 0 || a.Exchanged > a.Took {
					t.Errorf("it waited %s, and then took %s of %s", a.Waited, a.Exchanged, a.Took)
				}
				f.stop()
			})
		}
	}
	t.Run("a wake is refused", func(t *testing.T) {
		f, made := attempts(t, nil)
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, "over capacity")
		}))
		defer srv.Close()
		f.Deliver(f.store.event(f.store.addSubscription("wakes", srv.URL), "/s/1", "0005"))
		if a := <-made; a.Answer != "over capacity" || a.MaxAttempts != 0 {
			t.Errorf("it is %+v", a)
		}
		f.stop()
	})
	t.Run("nobody answers", func(t *testing.T) {
		f, made := attempts(t, nil)
		srv := httptest.NewServer(nil)
		srv.Close()
		f.Deliver(f.store.event(f.store.pushSub(srv.URL, nil), "/s/1", "0005"))
		if a := <-made; a.Remote+a.HTTP+a.TLS+a.Answer != "" || a.Exchanged <= 0 || !a.Sent {
			t.Errorf("it is %+v", a)
		}
		f.stop()
	})
}
