package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"reveille/fsm"
	"reveille/test/harness"
)

// switching is an endpoint that answers everything with a 101, and keeps the connection as long as its client does.
func switching(t *testing.T) (hook string, requests, open *atomic.Int64) {
	t.Helper()
	requests, open = &atomic.Int64{}, &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		open.Add(1)
		defer open.Add(-1)
		requests.Add(1)
		_, _ = io.WriteString(conn,
			"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn)
	}))
	t.Cleanup(server.Close)
	return server.URL, requests, open
}

// TestNoEndpointKeepsWhatAnAttemptHolds has more attempts than there are slots answered by what is no answer to them.
// Another subscription still has its events, the settings of these can be changed, and the program can be stopped.
func TestNoEndpointKeepsWhatAnAttemptHolds(t *testing.T) {
	t.Parallel()
	const inFlight, each = 16, 8
	e := beside(t, options{settings: map[string]string{
		"REVEILLE_MAX_IN_FLIGHT":                  fmt.Sprint(inFlight),
		"REVEILLE_MAX_IN_FLIGHT_PER_SUBSCRIPTION": fmt.Sprint(each),
	}})
	hook, requests, open := switching(t)
	retry := map[string]any{"max_attempts": 100, "initial": "1s", "factor": 1}
	var bad []*pushed
	for n := range 2 * inFlight / each {
		p := &pushed{e.fixture(t, fmt.Sprint("bad-", n), nil), harness.NewReceiver(t)}
		a := p.gateway.PutSubscription(p.folder+"/*", p.sub.ID,
			jsonOf(t, map[string]any{"mode": "push", "webhook": hook, "retry": retry}))
		if a.Status != http.StatusCreated {
			t.Fatalf("PUT: %d %s", a.Status, a.Body)
		}
		bad = append(bad, p)
		for s := range each {
			path := fmt.Sprintf("%s/%d", p.folder, s)
			p.gateway.Create(path)
			p.add(path, 0, 1)
		}
	}
	woken := e.empty(t)
	woken.gateway.SubscribeURL(woken.folder+"/*", woken.sub.ID, hook)
	woken.gateway.Create(woken.path)
	harness.Eventually(t, soon, "the endpoint has had more than it could keep",
		harness.True(func() bool { return requests.Load() > inFlight }, "not yet"))

	t.Run("another subscription has its events", func(t *testing.T) {
		p := e.pushes(t, nil)
		p.want(p.path, p.add(p.path, 0, 5))
	})
	t.Run("a test delivery says what came", func(t *testing.T) {
		for range 3 {
			status, out, stderr := e.rev.Ask("", "test", bad[0].sub.ID)
			if status != 1 || !strings.Contains(out, "status 101") {
				t.Errorf("exit status %d, %s%s", status, out, stderr)
			}
		}
	})
	harness.Eventually(t, soon, "the consumer says what its last attempt came to", func() error {
		c, err := woken.store.Consumer(t.Context(), fsm.RefOf(woken.sub.ID, woken.path))
		if err == nil && c.LastError != "status 101" {
			err = fmt.Errorf("the last error is %q", c.LastError)
		}
		return err
	})
	p := bad[0]
	p.patch(p.gateway, jsonOf(t, map[string]string{"webhook": p.receiver.URL}))
	for s := range each {
		if _, got := p.receiver.Await(fmt.Sprintf("%s/%d", p.folder, s), 1); len(got) != 1 {
			t.Errorf("stream %d: %q", s, got)
		}
	}
	for _, p := range bad[1:] {
		e.gateway.DeleteSubscription("/**", p.sub.ID)
	}
	if err := e.rev.Stop(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	harness.Eventually(t, soon, "no connection is left",
		harness.True(func() bool { return open.Load() == 0 }, "there are some"))
}
