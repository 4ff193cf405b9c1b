package upstream

import (
	"net/http"
	"slices"
	"sync"
	"time"
)

// headsIdle bounds the idle connections that are kept for HEADs, headsIdleTime how long each is kept. If upstream has
// closed one, the next request on it finds out.
const headsIdle, headsIdleTime = 1024, 10 * time.Second

// conns are connections that HEADs share. http.Transport hands each request to two other goroutines and back. A
// callback, and so a worker, would wait for that.
type conns struct {
	client *Client

	mu sync.Mutex
	// idle are the connections that wait for a request. The last used one is at the end.
	idle []idleConn
	// expiry closes connections that have waited too long; nil if none waits.
	expiry *time.Timer
}

type idleConn struct {
	*Conn
	since time.Time
}

// RoundTrip implements http.RoundTripper for the HEADs of [Client]. It makes each request again from its target.
func (cs *conns) RoundTrip(req *http.Request) (*http.Response, error) {
	c := cs.take()
	res, err := c.do(req.Context(), req.Method, req.URL.Opaque+"?"+req.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	_ = res.Body.Close() // an answer to a HEAD has none
	res.Body, res.Request = http.NoBody, req
	cs.give(c)
	return res, nil
}

func (cs *conns) take() *Conn {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	n := len(cs.idle)
	if n == 0 {
		return &Conn{client: cs.client}
	}
	c := cs.idle[n-1].Conn
	cs.idle = slices.Delete(cs.idle, n-1, n)
	return c
}

func (cs *conns) give(c *Conn) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c.conn == nil || len(cs.idle) == headsIdle {
		c.Close()
		return
	}
	cs.idle = append(cs.idle, idleConn{c, time.Now()})
	if cs.expiry == nil {
		cs.expiry = time.AfterFunc(headsIdleTime, func() { cs.drop(headsIdleTime) })
	}
}

// CloseIdleConnections closes all idle connections, also those for other requests: a failure on one may affect the
// others. [http.Client] finds the method by its name.
func (cs *conns) CloseIdleConnections() {
	cs.drop(0)
	cs.client.shared.CloseIdleConnections()
}

// drop closes the connections that have been idle for at least this long.
func (cs *conns) drop(idle time.Duration) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	n := 0
	for ; n < len(cs.idle) && time.Since(cs.idle[n].since) >= idle; n++ {
		cs.idle[n].Close()
	}
	cs.idle = slices.Delete(cs.idle, 0, n)
	if cs.expiry != nil {
		cs.expiry.Stop()
	}
	if cs.expiry = nil; len(cs.idle) > 0 {
		cs.expiry = time.AfterFunc(idle-time.Since(cs.idle[0].since), func() { cs.drop(idle) })
	}
}
