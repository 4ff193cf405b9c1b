package httpapi

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.uber.org/goleak"

	"reveille/test/ports"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harness is a Service with everything around it at hand.
type harness struct {
	*ports.Harness
	svc *Service
	// conns are those of the API port, once server has started it.
	conns *conns
}

func newHarness(t *testing.T, change func(*Config)) *harness {
	t.Helper()
	h := &harness{Harness: ports.New(t)}
	cfg := Config{
		Store: h.Store, Upstream: h.Up, Streams: h.Rec, Outcomes: h.Outcomes, Targets: h.Rec, Tokens: h.Tokens,
		Tester: h.Tester, Rebuilder: h.Rebuilder, Health: h.Health,
		UpstreamTransport: &http.Transport{DisableCompression: true, ExpectContinueTimeout: time.Second},
		Ready:             h.Store.Ready, Logger: h.Logger, Clock: h.Clock, HeadTimeout: 50 * time.Millisecond,
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if h.svc, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	h.Harness.Serve(h.svc.API(), h.svc.Operator())
	t.Cleanup(h.svc.Close)
	return h
}

// server starts the API port for real.
func (h *harness) server() (root string, client *http.Client) {
	srv := httptest.NewUnstartedServer(nil)
	limited := h.svc.Listen(srv.Listener).(*listener)
	h.conns, srv.Config, srv.Listener = limited.conns, h.svc.APIServer(""), limited
	srv.Start()
	h.T.Cleanup(srv.Close)
	return srv.URL, srv.Client()
}
