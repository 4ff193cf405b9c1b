package upstream

import (
	"context"
	"net"
	"net/http"
	"time"
)

const (
	dialTime = 3 * time.Second
	// pingAfter is how long a connection of HTTP/2 is silent before it is asked whether it is still there, pingTime
	// how long it may take to say so: all that goes over it hangs if it is not.
	pingAfter, pingTime = 10 * time.Second, 5 * time.Second
	// aheadLimit is how much of an answer by HTTP/2 is received, in bytes, before it is read: what it shows goes to the
	// store, or to a client, first.
	aheadLimit = 64 << 10
	// connsIdle is how many connections are kept for further requests, and connsIdleTime for how long.
	connsIdle, connsIdleTime = 4096, 90 * time.Second
	// passedIdle and passedIdleTime are those for clients' requests. The time is shorter than the 5 s after which Node
	// servers close an idle connection: a write that is sent on a connection at the moment it is closed fails, and
	// only the client can know whether to repeat it.
	passedIdle, passedIdleTime = 1024, 4 * time.Second
)

var dialer = &net.Dialer{Timeout: dialTime, KeepAlive: 15 * time.Second}

// Dial makes a connection.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// newTransport returns a transport without a limit of connections.
func newTransport(cfg Config) *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP1(!cfg.H2C)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(cfg.H2C)
	return &http.Transport{
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
}

// NewGatewayTransport returns a transport for requests of clients, which are passed on. Variables of the environment
// do not lead it elsewhere. h2c says that upstream speaks HTTP/2 without TLS.
func NewGatewayTransport(h2c bool) *http.Transport {
	t := newTransport(Config{H2C: h2c, Dial: dialer.DialContext})
	t.MaxIdleConnsPerHost, t.IdleConnTimeout = passedIdle, passedIdleTime
	t.ExpectContinueTimeout = time.Second
	t.MaxResponseHeaderBytes = 0 // clients decide how long a header they take
	return t
}
