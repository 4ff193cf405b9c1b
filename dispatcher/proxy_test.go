package dispatcher

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"reveille/dispatcher/format"
	"reveille/fsm"
	"reveille/fsm/router"
)

// TestWhatAProxyAnswersIsTheProxys holds which answers that come through a proxy count against the endpoint, and which
// are final. They come over plain HTTP, and to a CONNECT.
func TestWhatAProxyAnswersIsTheProxys(t *testing.T) {
	const says, squid = "Proxy-Status", "X-Squid-Error"
	own := func(status int) string { return fmt.Sprintf("the proxy answered status %d", status) }
	type want struct {
		result fsm.AttemptResult
		class  format.Class
		reason string
		// counts is true if the failure counts against the endpoint.
		counts bool
	}
	for _, tc := range []struct {
		scheme, header, value string
		status                int
		want
	}{
		{scheme: "http", status: 407, want: want{class: format.ClassProxy, reason: own(407)}},
		{
			scheme: "http", header: says, value: "squid.test; error=http_request_denied", status: 400,
			want: want{class: format.ClassProxy, reason: own(400)},
		},
		{
			scheme: "http", header: says, value: `first.test, second.test; details="no"; error=dns_error`, status: 403,
			want: want{class: format.ClassProxy, reason: own(403)},
		},
		{
			scheme: "http", header: squid, value: "ERR_DNS_FAIL 0", status: 404,
			want: want{class: format.ClassProxy, reason: own(404)},
		},
		{
			scheme: "http", header: says, value: "p; error=connection_refused", status: 410,
			want: want{class: format.ClassProxy, reason: own(410)},
		},
		{
			scheme: "http", header: squid, value: "ERR_CONNECT_FAIL 111", status: 502,
			want: want{class: format.ClassProxy, reason: own(502)},
		},
		{scheme: "http", status: 403, want: want{fsm.AttemptDead, format.ClassClientError, "status 403", false}},
		{
			scheme: "http", header: says, value: "p; received-status=403", status: 403,
			want: want{fsm.AttemptDead, format.ClassClientError, "status 403", false},
		},
		{scheme: "http", status: 410, want: want{fsm.AttemptRetired, format.ClassGone, "status 410", false}},
		{
			scheme: "http", status: 502,
			want: want{class: format.ClassServerError, reason: "status 502", counts: true},
		},
		{scheme: "http", header: says, value: "p; error=x", status: 200, want: want{result: fsm.AttemptDone}},
		{scheme: "https", status: 407, want: want{class: format.ClassProxy, reason: own(407)}},
		{scheme: "https", status: 403, want: want{class: format.ClassProxy, reason: own(403)}},
		{scheme: "https", status: 410, want: want{class: format.ClassProxy, reason: own(410)}},
		{scheme: "https", status: 503, want: want{class: format.ClassProxy, reason: own(503)}},
		{scheme: "https", status: 204, want: want{class: format.ClassProxy, reason: own(204)}},
		{scheme: "http", want: want{class: format.ClassProxy, reason: "the proxy cannot be reached"}},
		{scheme: "https", want: want{class: format.ClassProxy, reason: "the proxy cannot be reached"}},
	} {
		t.Run(fmt.Sprintf("%s %d %s %s", tc.scheme, tc.status, tc.header, tc.value), func(t *testing.T) {
			proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if connects := r.Method == http.MethodConnect; connects != (tc.scheme == "https") {
					t.Errorf("the proxy got a %s", r.Method)
				}
				if tc.header != "" {
					w.Header().Set(tc.header, tc.value)
				}
				w.WriteHeader(tc.status)
			}))
			defer proxy.Close()
			if tc.status == 0 {
				proxy.Close()
			}
			at, _ := url.Parse(proxy.URL)
			results := make(chan fsm.Attempt, 1)
			f := start(t, newMemStore(), func(c *Config) {
				c.ProxyFromEnvironment, c.proxy, c.ReadBatch = true, http.ProxyURL(at), reads(oneEvent)
				c.resolver = startDNS(t, map[string][][]string{"public.test": {{"93.184.216.34"}}})
			}, func(d *Dispatcher) {
				d.cfg.Outcomes.Observe(router.Observer{Attempt: func(a fsm.Attempt) { results <- a }})
			})
			sub := f.store.pushSub(tc.scheme+"://public.test/hook", func(s *fsm.Subscription) {
				s.Retry = []time.Duration{time.Hour, time.Hour}
			})
			f.Deliver(f.store.event(sub, "/s/1", "0005"))
			a := <-results
			f.stop()
			e, _, trouble := f.store.Endpoints().Get(sub.Generation)
			got := want{a.Result, format.Class(a.Class), a.Reason, trouble && e.Failures > 0}
			if got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

// TestAnEndpointBehindNoProxyIsNotOne holds that an endpoint cannot pass its refusals off as a proxy's if it is asked
// directly, or through a tunnel.
func TestAnEndpointBehindNoProxyIsNotOne(t *testing.T) {
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Proxy-Status", "p; error=destination_unavailable")
		w.WriteHeader(http.StatusProxyAuthRequired)
	}))
	defer hook.Close()
	tunnels := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to, err := net.Dial("tcp", r.Host)
		if err != nil {
			t.Error(err)
			return
		}
		w.WriteHeader(http.StatusOK)
		conn, in, err := http.NewResponseController(w).Hijack() // in may hold what came since the 200
		if err != nil {
			t.Error(err)
			return
		}
		go func() { defer func() { _ = to.Close() }(); _, _ = io.Copy(to, in) }()
		defer func() { _ = conn.Close() }()
		_, _ = io.Copy(conn, to)
	}))
	defer tunnels.Close()
	at, _ := url.Parse(tunnels.URL)
	for name, via := range map[string]*url.URL{"directly": nil, "through a tunnel": at} {
		t.Run(name, func(t *testing.T) {
			results := make(chan fsm.Attempt, 1)
			f := start(t, newMemStore(), func(c *Config) {
				c.ProxyFromEnvironment, c.proxy, c.ReadBatch = true, http.ProxyURL(via), reads(oneEvent)
			}, func(d *Dispatcher) {
				d.sender.tls.RootCAs = hook.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
				d.cfg.Outcomes.Observe(router.Observer{Attempt: func(a fsm.Attempt) { results <- a }})
			})
			f.Deliver(f.store.event(f.store.pushSub(hook.URL, nil), "/s/1", "0005"))
			if a := <-results; a.Result != fsm.AttemptDead || a.Reason != "status 407" {
				t.Errorf("it is %s: %s", a.Result, a.Reason)
			}
			f.stop()
		})
	}
}
