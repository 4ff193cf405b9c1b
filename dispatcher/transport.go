package dispatcher

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"time"
)

const (
	dialTimeout      = 10 * time.Second
	handshakeTimeout = 10 * time.Second
	idleConnTimeout  = 90 * time.Second
	maxHeaderBytes   = 64 << 10
	// pingAfter is how long an HTTP/2 connection with requests on it may be silent before it is
	// asked for a sign of life.
	pingAfter = 15 * time.Second
)

// errTarget is the cause of an error about a stored webhook URL that the settings of today do not allow.
var errTarget = errors.New("the webhook URL is not allowed")

// sender makes requests to webhooks. It follows no redirects and keeps no cookies.
type sender struct {
	guard *guard
	// direct judges every address it dials.
	direct *http.Transport
	// proxied dials nothing but proxies of the environment, whose addresses are the operator's business. It is nil
	// unless the operator wants them used.
	proxied *http.Transport
	proxy   func(*http.Request) (*url.URL, error)
}

func newSender(cfg Config, g *guard) *sender {
	s := &sender{guard: g}
	guarded := &net.Dialer{Timeout: dialTimeout, Resolver: g.resolver, ControlContext: g.control}
	s.direct = newTransport(cfg, guarded)
	if cfg.ProxyFromEnvironment {
		s.proxy = cfg.proxy
		s.proxied = newTransport(cfg, &net.Dialer{Timeout: dialTimeout})
		s.proxied.Proxy = s.proxy
	}
	return s
}

func newTransport(cfg Config, dialer *net.Dialer) *http.Transport {
	return &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    handshakeTimeout,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingAfter},
		DisableCompression:     true,
		MaxIdleConns:           cfg.MaxInFlight,
		MaxIdleConnsPerHost:    cfg.MaxInFlightPerSubscription,
		IdleConnTimeout:        idleConnTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
}

// send makes one request. On the way through a proxy, what the host resolves to is judged first, since the dial then
// says nothing of the target. The attempt closes the body of the answer (Dispatcher.pass).
//
//bodyclose:handled
func (s *sender) send(ctx context.Context, req *http.Request) (*http.Response, error) {
	if s.proxied == nil {
		return s.direct.RoundTrip(req)
	}
	via, err := s.proxy(req)
	switch {
	case err != nil:
		return nil, err
	case via == nil:
		return s.direct.RoundTrip(req)
	case s.guard.checkTarget(ctx, withoutQuery(req.URL)) != nil:
		return nil, errTarget
	}
	return s.proxied.RoundTrip(req)
}

// withoutQuery returns a URL for the guard: an authorization in its query may make it longer than a webhook may be.
func withoutQuery(u *url.URL) string {
	bare := *u
	bare.RawQuery = ""
	return bare.String()
}

func (s *sender) close() {
	s.direct.CloseIdleConnections()
	if s.proxied != nil {
		s.proxied.CloseIdleConnections()
	}
}
