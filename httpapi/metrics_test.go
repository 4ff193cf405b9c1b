package httpapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"reveille/fsm"
	"reveille/test/ports"
)

// counted returns the counters, and of histograms how many were observed, that are not zero, by the values of their
// labels.
func counted(t *testing.T, r prometheus.Gatherer, name string) map[string]int {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			n := int(m.GetCounter().GetValue()) + int(m.GetHistogram().GetSampleCount())
			if f.GetName() != name || n == 0 {
				continue
			}
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			found[strings.Join(labels, " ")] = n
		}
	}
	return found
}

func TestCallbacksAreCountedByCode(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	h := woken(t, func(c *Config) { c.Metrics = r })
	for _, a := range []attempt{
		{forged: true},
		{foreign: true},
		{malformed: true},
		{stale: true},
		{offset: "201"},
		{offset: "150"},
		{},
		{gone: true},
	} {
		a.send(h)
	}
	want := map[string]int{
		"OK": 2, string(fsm.CodeTokenInvalid): 2, string(fsm.CodeInvalidRequest): 1, string(fsm.CodeStaleEpoch): 1,
		string(fsm.CodeInvalidOffset): 1, string(fsm.CodeConsumerGone): 1,
	}
	if got := counted(t, r, "reveille_callbacks_total"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("counted %v, want %v", got, want)
	}
	if got := counted(t, r, "reveille_callback_duration_seconds"); got[""] != 8 {
		t.Errorf("the time of %d callbacks was taken, want 8", got[""])
	}
}

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
	for fmt.Sprint(counted(t, r, "reveille_gateway_requests_total")) != fmt.Sprint(want) {
		if time.Now().After(deadline) {
			t.Fatalf("counted %v, want %v", counted(t, r, "reveille_gateway_requests_total"), want)
		}
		time.Sleep(time.Millisecond)
	}
	if got := counted(t, r, "reveille_gateway_duration_seconds"); got["read"] != 2 || got["live"] != 1 ||
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
