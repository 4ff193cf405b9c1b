package httpapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"reveille/test/ports"
)

func TestGatewayRequestsAreCountedByKindAndStatus(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch {
		case req.URL.Path == "/cut":
			panic(http.ErrAbortHandler)
		case req.URL.Query().Get("live") != "" && req.URL.Path == "/hang":
			giveUp()
			<-req.Context().Done()
		case req.Method == http.MethodPost:
			w.WriteHeader(http.StatusConflict)
		}
	}))
	t.Cleanup(srv.Close)
	h := newHarness(t, func(c *Config) { c.Metrics, c.Gateway, c.UpstreamURL = r, true, ports.MustURL(t, srv.URL) })
	root, client := h.server()
	send := func(ctx context.Context, method, path string) {
		t.Helper()
		req, err := http.NewRequestWithContext(ctx, method, root+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
	}
	for _, s := range [][2]string{
		{"GET", "/a"},
		{"HEAD", "/a"},
		{"GET", "/a?offset=-1&live=long-poll"},
		{"PUT", "/a"},
		{"POST", "/a"},
		{"DELETE", "/a"},
		{"OPTIONS", "/a"},
		{"DELETE", "/cut"},
	} {
		send(t.Context(), s[0], s[1])
	}
	send(ctx, "GET", "/hang?live=sse")
	want := map[string]int{
		"read 2xx": 2, "live 2xx": 1, "write 2xx": 1, "write 4xx": 1, "delete 2xx": 1, "delete none": 1, "other 2xx": 1,
		"live cancelled": 1,
	}
	deadline := time.Now().Add(10 * time.Second)
	for fmt.Sprint(ports.Counted(t, r, "reveille_gateway_requests_total")) != fmt.Sprint(want) {
		if time.Now().After(deadline) {
			t.Fatalf("counted %v, want %v", ports.Counted(t, r, "reveille_gateway_requests_total"), want)
		}
		time.Sleep(time.Millisecond)
	}
	if got := ports.Counted(t, r, "reveille_gateway_duration_seconds"); got["read"] != 2 || got["live"] != 1 ||
		got["delete"] != 1 {
		t.Errorf("the time of these was taken: %v", got)
	}
}

func TestTheOperatorPortAnswersScrapesIfThereIsAPage(t *testing.T) {
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "figures") })
	h := newHarness(t, func(c *Config) { c.MetricsPage = page })
	if a := h.Operator(http.MethodGet, "/metrics", ""); a.Status != 200 || a.Text != "figures" {
		t.Errorf("got %d %q", a.Status, a.Text)
	}
	if a := h.Operator(http.MethodPost, "/metrics", ""); a.Status != 405 {
		t.Errorf("a POST got %d", a.Status)
	}
	if a := newHarness(t, nil).Operator(http.MethodGet, "/metrics", ""); a.Status != 404 {
		t.Errorf("without a page it got %d", a.Status)
	}
}
