package upstream

import (
	"context"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/http2"
)

const (
	dialTime = 3 * time.Second
	// pingAfter is how long an HTTP/2 connection is silent before a ping. pingTime bounds the wait for the reply. If
	// the connection is dead, all requests on it hang.
	pingAfter, pingTime = 10 * time.Second, 5 * time.Second
	// aheadLimit is how much of an HTTP/2 answer arrives before it is read, in bytes. What was read goes to the store,
	// or to a client, first.
	aheadLimit = 64 << 10
	// connsIdle bounds the connections that are kept for further requests, connsIdleTime how long.
	connsIdle, connsIdleTime = 4096, 90 * time.Second
	// passedIdle and passedIdleTime are these bounds for clients' requests. Node servers close an idle connection after
	// 5 s, so the time is shorter. A write that is sent just as its connection closes fails. Only the client can know
	// whether to repeat it.
	passedIdle, passedIdleTime = 1024, 4 * time.Second
)

var dialer = &net.Dialer{Timeout: dialTime, KeepAlive: 15 * time.Second}

// Dial makes a connection.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// newTransport returns a transport that does not limit its connections. Live requests do without: see Conn and h2Conns.
func newTransport(cfg Config) *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP1(!cfg.H2C)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(cfg.H2C)
	t := &http.Transport{
		Protocols: &protocols,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: pingAfter, PingTimeout: pingTime, MaxReceiveBufferPerStream: aheadLimit,
		},
		TLSClientConfig:        cfg.TLS.Clone(),
		DialContext:            cfg.Dial,
		TLSHandshakeTimeout:    dialTime,
		MaxIdleConnsPerHost:    connsIdle,
		IdleConnTimeout:        connsIdleTime,
		DisableCompression:     true,
		MaxResponseHeaderBytes: headerLimit,
	}
	//lint:ignore SA1019 HTTP/2 of Go 1.26 hangs for good if the other side makes a window too large. This does not.
	if _, err := http2.ConfigureTransports(t); err != nil {
		panic(err) // only for a transport that has HTTP/2 already
	}
	return t
}

// NewGatewayTransport returns a transport for requests that the gateway passes on. It ignores proxy variables of the
// environment. h2c says that upstream speaks HTTP/2 without TLS.
func NewGatewayTransport(h2c bool) *http.Transport {
	t := newTransport(Config{H2C: h2c, Dial: dialer.DialContext})
	t.MaxIdleConnsPerHost, t.IdleConnTimeout = passedIdle, passedIdleTime
	t.ExpectContinueTimeout = time.Second
	t.MaxResponseHeaderBytes = 0 // clients decide how long a header they accept
	return t
}
