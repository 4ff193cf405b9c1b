package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"reveille/fsm"
	"reveille/test/harness"
)

// TestAProxyThatRefusesIsNoEndpointThatFails has a proxy refuse deliveries, over plain HTTP and as CONNECT, with
// statuses that would be final if they were the endpoint's. Then it passes them on: nothing is dead, and no endpoint
// was down.
func TestAProxyThatRefusesIsNoEndpointThatFails(t *testing.T) {
	t.Parallel()
	var forward atomic.Pointer[httputil.ReverseProxy]
	var plain, tunnels atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch to := forward.Load(); {
		case r.Method == http.MethodConnect:
			tunnels.Add(1)
			w.WriteHeader(http.StatusGone)
		case to != nil:
			to.ServeHTTP(w, r)
		default:
			_, _ = io.Copy(io.Discard, r.Body)
			plain.Add(1)
			w.Header().Set("Proxy-Status", "proxy.test; error=http_request_denied")
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	t.Cleanup(proxy.Close)
	e := beside(t, options{settings: map[string]string{
		"HTTP_PROXY": proxy.URL, "HTTPS_PROXY": proxy.URL, "NO_PROXY": "127.0.0.1",
		"REVEILLE_WEBHOOK_PROXY_FROM_ENV": "true",
	}})
	// The address is never dialled here.
	const host, streams = "10.1.1.1", fsm.DownAfter + 2
	var subs []*pushed
	for name, scheme := range map[string]string{"proxied-plain": "http", "proxied-tunnel": "https"} {
		p := &pushed{e.fixture(t, name, nil), harness.NewReceiver(t)}
		a := p.gateway.PutSubscription(p.folder+"/*", p.sub.ID, jsonOf(t, map[string]any{
			"mode": "push", "webhook": scheme + "://" + host + "/" + name,
			"retry": map[string]any{"max_attempts": 100, "initial": "1s", "factor": 1},
		}))
		if a.Status != http.StatusCreated {
			t.Fatalf("PUT: %d %s", a.Status, a.Body)
		}
		subs = append(subs, p)
		for n := range streams {
			path := fmt.Sprintf("%s/%d", p.folder, n)
			p.gateway.Create(path)
			p.add(path, 0, 1)
		}
	}
	harness.Eventually(t, soon, "both ways were refused more often than makes an endpoint down",
		harness.True(func() bool { return plain.Load() >= streams && tunnels.Load() >= streams }, "not yet"))
	for _, p := range subs {
		p.patch(p.gateway, jsonOf(t, map[string]string{"webhook": "http://" + host + "/" + p.sub.ID}))
	}
	if strings.Contains(e.rev.Log(), "the endpoint of a subscription is down") {
		t.Error("an endpoint was down")
	}
	receivers := map[string]*url.URL{}
	for _, p := range subs {
		receivers["/"+p.sub.ID], _ = url.Parse(p.receiver.URL)
	}
	forward.Store(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(receivers[r.In.URL.Path])
	}})
	for _, p := range subs {
		for n := range streams {
			if _, got := p.receiver.Await(fmt.Sprintf("%s/%d", p.folder, n), 1); len(got) != 1 {
				t.Errorf("stream %d: %q", n, got)
			}
		}
	}
}
