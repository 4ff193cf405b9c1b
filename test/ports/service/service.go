// Package service has the ports answer in a test of what they answer with.
package service

import (
	"net/http"
	"testing"
	"time"

	"reveille/httpapi"
	"reveille/test/ports"
)

// New returns the ports of a Service. The function change, unless it is nil, changes its configuration.
func New(t *testing.T, change func(*httpapi.Config)) (*ports.Harness, *httpapi.Service) {
	t.Helper()
	h := ports.New(t)
	cfg := httpapi.Config{
		Store: h.Store, Upstream: h.Up, Streams: h.Rec, Outcomes: h.Outcomes, Targets: h.Rec, Tokens: h.Tokens,
		Tester: h.Tester, Rebuilder: h.Rebuilder, Health: h.Health,
		UpstreamTransport: &http.Transport{DisableCompression: true, ExpectContinueTimeout: time.Second},
		Ready:             h.Store.Ready, Logger: h.Logger, Clock: h.Clock, HeadTimeout: 50 * time.Millisecond,
	}
	if change != nil {
		change(&cfg)
	}
	svc, err := httpapi.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h.Serve(svc.API(), svc.Operator())
	t.Cleanup(svc.Close)
	return h, svc
}
