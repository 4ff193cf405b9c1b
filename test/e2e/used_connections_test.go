package e2e

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"reveille/test/harness"
)

// TestAnEndpointThatClosesUsedConnections has an endpoint close each connection with its second request, without an
// answer. No event is dead, and none waits for a retry.
func TestAnEndpointThatClosesUsedConnections(t *testing.T) {
	t.Parallel()
	type number struct{}
	var mu sync.Mutex
	var taken []string
	closed := 0
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		second := r.Context().Value(number{}).(*atomic.Int32).Add(1) == 2
		mu.Lock()
		defer mu.Unlock()
		if second {
			closed++
			panic(http.ErrAbortHandler)
		}
		taken = append(taken, string(body))
	}))
	server.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, number{}, &atomic.Int32{})
	}
	server.Start()
	t.Cleanup(server.Close)
	e := beside(t, options{})
	p := &pushed{e.fixture(t, "used-connections", nil), nil}
	a := p.gateway.PutSubscription(p.folder+"/*", p.sub.ID, jsonOf(t, map[string]any{
		"mode": "push", "webhook": server.URL, "retry": map[string]any{"max_attempts": 2, "initial": "1h"},
	}))
	if a.Status != http.StatusCreated {
		t.Fatalf("PUT: %d %s", a.Status, a.Body)
	}
	p.gateway.Create(p.path)
	events := p.add(p.path, 0, 48)
	got := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(taken)
	}
	harness.Eventually(t, soon, "it has all events",
		harness.True(func() bool { return len(got()) >= len(events) }, "not yet"))
	if !slices.Equal(got(), events) {
		t.Errorf("it has %q", got())
	}
	mu.Lock()
	defer mu.Unlock()
	if closed < len(events)/4 {
		t.Errorf("it closed %d connections", closed)
	}
	if strings.Contains(e.rev.Log(), "webhook delivery failed") {
		t.Error("the log has a failure")
	}
}
