package dispatcher

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/net/http2"
)

const (
	dialTimeout      = 10 * time.Second
	handshakeTimeout = 10 * time.Second
	idleConnTimeout  = 90 * time.Second
	maxHeaderBytes   = 64 << 10
	// pingAfter is how long an HTTP/2 connection with requests on it may be silent before a ping asks for a sign of
	// life.
	pingAfter = 15 * time.Second
)

// errTarget is the cause of an error about a stored webhook URL that the present settings do not allow.
var errTarget = errors.New("the webhook URL is not allowed")

// sender makes requests to webhooks. It follows no redirects and keeps no cookies.
type sender struct {
	guard *guard
	pool  *pool
	// dial judges every address that it dials. dialProxy dials only proxies of the environment: their addresses are the
	// operator's business.
	dial, dialProxy func(ctx context.Context, network, addr string) (net.Conn, error)
	tls             *tls.Config
	// proxy returns the proxy for a request. The function is nil unless the operator wants proxies used.
	proxy func(*http.Request) (*url.URL, error)
}

func newSender(cfg Config, g *guard) *sender {
	s := &sender{guard: g, tls: &tls.Config{MinVersion: tls.VersionTLS12}}
	s.dial = (&net.Dialer{Timeout: dialTimeout, Resolver: g.resolver, ControlContext: g.control}).DialContext
	s.dialProxy = (&net.Dialer{Timeout: dialTimeout}).DialContext
	if cfg.ProxyFromEnvironment {
		s.proxy = cfg.proxy
	}
	// Beside the connections in use, as many may be idle.
	s.pool = newPool(2*cfg.MaxInFlight, cfg.ConnectionAge, func(key poolKey) *http.Transport {
		t := &http.Transport{
			DialContext:            s.dial,
			TLSClientConfig:        s.tls.Clone(),
			TLSHandshakeTimeout:    handshakeTimeout,
			HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingAfter},
			DisableCompression:     true,
			MaxIdleConnsPerHost:    cfg.MaxInFlightPerSubscription,
			IdleConnTimeout:        idleConnTimeout,
			MaxResponseHeaderBytes: maxHeaderBytes,
		}
		if key.proxied {
			t.DialContext, t.Proxy = s.dialProxy, s.proxy
			t.OnProxyConnectResponse = onConnect
		}
		//lint:ignore SA1019 HTTP/2 of Go 1.26 hangs for good if an endpoint makes a window too large. This does not.
		if _, err := http2.ConfigureTransports(t); err != nil {
			panic(err) // only for a transport that has HTTP/2 already
		}
		return t
	})
	return s
}

// send makes one request. The request asks for no other protocol. If an answer changes to one, it gets no body, and its
// connection is closed, which no context would do. For a request through a proxy, the dial says nothing about the
// target. So send first judges what the host resolves to. The attempt closes the body of the answer (attempt.closes).
//
//bodyclose:handled
func (s *sender) send(ctx context.Context, e *exchange, req *http.Request) (*http.Response, error) {
	key, err := s.way(ctx, req)
	if err != nil {
		return nil, err
	}
	set := s.pool.use(key)
	if !e.uses(set) {
		return nil, errOverdue
	}
	again := req.GetBody
	if idempotent(req.Header) {
		req.GetBody = nil
	}
	res, err := set.transport.RoundTrip(req)
	if err != nil && e.repeats(req.Context(), err) {
		if req.Body, err = again(); err != nil {
			return nil, err
		}
		res, err = set.once().RoundTrip(req)
	}
	if err != nil && e.swallowed(req.Context()) {
		set.endsUse()
	}
	switch {
	case err != nil:
		return nil, err
	case key.proxied && key.scheme == "http" && ofProxy(res):
		_ = res.Body.Close()
		return nil, &proxyError{res.StatusCode}
	case res.StatusCode < http.StatusOK:
		_ = res.Body.Close()
		res.Body = http.NoBody
	}
	return res, nil
}

// idempotent says whether a request has a header that makes net/http repeat it by itself, any number of times. A
// subscription may have it among its headers.
func idempotent(h http.Header) bool {
	return len(h["Idempotency-Key"])+len(h["X-Idempotency-Key"]) > 0
}

// way returns which connections a request may use.
func (s *sender) way(ctx context.Context, req *http.Request) (poolKey, error) {
	key := poolKey{scheme: req.URL.Scheme, host: req.URL.Host}
	if s.proxy == nil {
		return key, nil
	}
	via, err := s.proxy(req)
	switch {
	case err != nil || via == nil:
		return key, err
	case s.guard.checkTarget(ctx, withoutQuery(req.URL)) != nil:
		return key, errTarget
	case req.URL.Scheme == "http": // the connections to the proxy serve every host
		key.host = via.Host
	}
	key.proxied = true
	return key, nil
}

// withoutQuery returns a URL for the guard. An authorization in its query may make a URL longer than a webhook may be.
func withoutQuery(u *url.URL) string {
	bare := *u
	bare.RawQuery = ""
	return bare.String()
}
