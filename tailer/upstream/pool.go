package upstream

import (
	"crypto/tls"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// connsKept is how many connections wait at most for the next request, connIdle for how long.
	connsKept, connIdle = limitMax, 30 * time.Second
)

// pool holds connections that several share, for requests that are answered at once.
type pool struct {
	tls  *tls.Config
	dial Dial

	mu sync.Mutex
	// idle are those that wait, the one that has waited for the shortest time last.
	idle []idleConn
	// expiry is when the first of them has waited for too long.
	expiry *time.Timer
}

type idleConn struct {
	*Conn
	since time.Time
}

// do is Conn.do on a connection that is free.
func (p *pool) do(req *http.Request) (*http.Response, error) {
	c := p.take()
	res, err := c.do(req.Context(), req.Method, func() (*http.Request, error) { return req, nil })
	if err != nil {
		return nil, err
	}
	res.Request = req
	res.Body.(*connBody).after = func() { p.give(c) }
	return res, nil
}

func (p *pool) take() *Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle)
	if n == 0 {
		return &Conn{tls: p.tls, dialer: p.dial}
	}
	c := p.idle[n-1]
	p.idle[n-1] = idleConn{}
	p.idle = p.idle[:n-1]
	return c.Conn
}

// give takes a connection back.
func (p *pool) give(c *Conn) {
	if c.conn == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, idleConn{c, time.Now()})
	if len(p.idle) > connsKept {
		p.drop(1)
	}
	if p.expiry == nil {
		p.expiry = time.AfterFunc(connIdle, p.expire)
	}
}

// expire closes those that were not needed for long.
func (p *pool) expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := 0
	for old < len(p.idle) && time.Since(p.idle[old].since) >= connIdle {
		old++
	}
	p.drop(old)
	p.expiry = nil
	if len(p.idle) > 0 {
		p.expiry = time.AfterFunc(connIdle-time.Since(p.idle[0].since), p.expire)
	}
}

// drop closes those that have waited longest. p.mu is held.
func (p *pool) drop(n int) {
	for _, c := range p.idle[:n] {
		c.Close()
	}
	p.idle = slices.Delete(p.idle, 0, n)
}

// close closes those that wait.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(len(p.idle))
	if p.expiry != nil {
		p.expiry.Stop()
		p.expiry = nil
	}
}

// The protocols that upstream may speak.
const (
	protocolUnknown int32 = iota
	protocolHTTP1
	protocolHTTP2
)

// transport sends requests that are answered at once. It finds out by which protocol upstream answers; if that is
// HTTP/1.1 they go by the pool.
type transport struct {
	shared   http.RoundTripper
	pool     pool
	protocol atomic.Int32
}

// RoundTrip is http.RoundTripper's.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t.protocol.Load() == protocolHTTP1 {
		res, err := t.pool.do(req)
		if err != nil {
			t.protocol.Store(protocolUnknown) // it may be another server from now on
		}
		return res, err
	}
	res, err := t.shared.RoundTrip(req)
	if err == nil {
		t.protocol.Store(map[bool]int32{true: protocolHTTP2, false: protocolHTTP1}[res.ProtoMajor == 2])
	}
	return res, err
}

// CloseIdleConnections is for http.Client.
func (t *transport) CloseIdleConnections() {
	t.pool.close()
	if s, ok := t.shared.(interface{ CloseIdleConnections() }); ok {
		s.CloseIdleConnections()
	}
}

// http2 says whether upstream answers by HTTP/2, as far as is known.
func (t *transport) http2() bool { return t.protocol.Load() == protocolHTTP2 }
