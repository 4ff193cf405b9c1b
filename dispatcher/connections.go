package dispatcher

import (
	"container/list"
	"context"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"
)

// pool keeps the connections to each host in a set, which is a transport of net/http of its own. A set is used for a
// while; then its host gets another one. Once no exchange uses a former set, all its connections are closed: also those
// that net/http neither uses nor closes any more, such as one over HTTP/2 on which there was a GOAWAY.
type pool struct {
	// transport makes that of a set; it speaks HTTP/1.1 only if it should.
	transport func(key poolKey, only1 bool) *http.Transport
	// age is how long connections are used at most.
	age time.Duration
	// most is how many connections may be open before sets are given up, the one that was not used for longest first.
	// There are no more sets than that.
	most int

	mu   sync.Mutex
	sets map[poolKey]*connections
	// used has them in the order of their last use, the latest first.
	used list.List
	open int
	// only1 has the hosts that are asked by HTTP/1.1 only, and until when.
	only1 map[poolKey]time.Time
}

// only1For is how long a host is asked by HTTP/1.1 only after an exchange with it was overdue.
const only1For = 10 * time.Minute

// poolKey is a way to a host, or to a proxy that knows the way.
type poolKey struct {
	scheme, host string
	// proxied is true if a proxy is on the way.
	proxied bool
}

// connections are the set of connections to a host. The pool's mutex guards it.
type connections struct {
	pool      *pool
	key       poolKey
	transport *http.Transport
	// only1 is true if it speaks HTTP/1.1 only.
	only1 bool
	// until is when its host gets another set.
	until time.Time
	// usedAt is when an exchange began to use it last, users how many use it now.
	usedAt time.Time
	users  int
	place  *list.Element // in used
	// former is true once no exchange may begin to use it.
	former bool
	open   map[*connection]struct{}
}

// connection is one of a set.
type connection struct {
	net.Conn
	set *connections
}

func newPool(most int, age time.Duration, transport func(key poolKey, only1 bool) *http.Transport) *pool {
	return &pool{
		transport: transport, age: age, most: most, sets: map[poolKey]*connections{}, only1: map[poolKey]time.Time{},
	}
}

// use returns the set of a host for one exchange. It is released after.
func (p *pool) use(key poolKey) *connections {
	now := time.Now()
	p.mu.Lock()
	set := p.sets[key]
	var over []*connection
	if set != nil && !now.Before(set.until) {
		over = p.retire(set)
		set = nil
	}
	if set == nil {
		over = append(over, p.shed(p.most-1)...)
		set = p.add(key, now)
	}
	p.used.MoveToFront(set.place)
	set.usedAt = now
	set.users++
	p.mu.Unlock()
	closeAll(over)
	return set
}

// add makes a set. p.mu is held.
func (p *pool) add(key poolKey, now time.Time) *connections {
	set := &connections{
		pool: p, key: key, only1: now.Before(p.only1[key]), open: map[*connection]struct{}{},
		until: now.Add(p.age - rand.N(p.age/4+1)), // not all hosts get others at once
	}
	set.transport = set.newTransport()
	set.place = p.used.PushFront(set)
	p.sets[key] = set
	return set
}

// newTransport returns a transport whose connections are of the set.
func (s *connections) newTransport() *http.Transport {
	t := s.pool.transport(s.key, s.only1)
	dial := t.DialContext
	t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return s.opened(conn), nil
	}
	return t
}

// once returns a transport that makes its request on a new connection, which is closed after it.
func (s *connections) once() *http.Transport {
	t := s.newTransport()
	t.DisableKeepAlives = true
	return t
}

// retire has the next exchange with a host use another set. It returns what is to be closed. p.mu is held.
func (p *pool) retire(set *connections) []*connection {
	if !set.former {
		set.former = true
		p.used.Remove(set.place)
		delete(p.sets, set.key)
	}
	return set.over()
}

// shed retires sets until there are no more than a number of them, and of connections no more than may be open. It
// returns what is to be closed. p.mu is held.
func (p *pool) shed(sets int) (over []*connection) {
	for p.used.Len() > 0 && (p.used.Len() > sets || p.open-len(over) > p.most) {
		over = append(over, p.retire(p.used.Back().Value.(*connections))...)
	}
	return over
}

// sweep retires the sets that have not been used for longer than an idle connection is kept.
func (p *pool) sweep() {
	now := time.Now()
	since := now.Add(-idleConnTimeout)
	p.mu.Lock()
	var over []*connection
	for last := p.used.Back(); last != nil && last.Value.(*connections).usedAt.Before(since); last = p.used.Back() {
		over = append(over, p.retire(last.Value.(*connections))...)
	}
	maps.DeleteFunc(p.only1, func(_ poolKey, until time.Time) bool { return !now.Before(until) })
	p.mu.Unlock()
	closeAll(over)
}

// close closes all connections that no exchange uses.
func (p *pool) close() {
	p.mu.Lock()
	over := p.shed(0)
	p.mu.Unlock()
	closeAll(over)
}

// closeAll closes connections. The pool's mutex must not be held.
func closeAll(over []*connection) {
	for _, c := range over {
		_ = c.Close()
	}
}

// fails ends a use of the set by an exchange that is overdue. No other exchange may begin to use it. HTTP/2 of net/http
// has states that it never leaves, such as after a window that the endpoint has made too large, and each keeps its
// goroutines for good. So the next set of the host speaks HTTP/1.1.
func (s *connections) fails() {
	p := s.pool
	p.mu.Lock()
	for key := range p.only1 {
		if len(p.only1) < p.most {
			break
		}
		delete(p.only1, key)
	}
	p.only1[s.key] = time.Now().Add(only1For)
	s.users--
	over := p.retire(s)
	p.mu.Unlock()
	closeAll(over)
}

// endsUse has the next exchange with the host use new connections. Those of the set are closed when the exchanges are
// over that use it now.
func (s *connections) endsUse() {
	s.pool.mu.Lock()
	over := s.pool.retire(s)
	s.pool.mu.Unlock()
	closeAll(over)
}

// release ends a use of the set.
func (s *connections) release() {
	s.pool.mu.Lock()
	s.users--
	over := s.over()
	s.pool.mu.Unlock()
	closeAll(over)
}

// over returns the connections of a former set that nothing uses. The pool's mutex is held.
func (s *connections) over() (over []*connection) {
	if s.former && s.users == 0 {
		for c := range s.open {
			over = append(over, c)
		}
	}
	return over
}

// opened takes a connection into the set. It may come when the exchange that it was for is over.
func (s *connections) opened(conn net.Conn) net.Conn {
	c := &connection{conn, s}
	p := s.pool
	p.mu.Lock()
	s.open[c] = struct{}{}
	p.open++
	over := append(s.over(), p.shed(p.most)...)
	p.mu.Unlock()
	closeAll(over)
	return c
}

func (c *connection) Close() error {
	p := c.set.pool
	p.mu.Lock()
	if _, open := c.set.open[c]; open {
		delete(c.set.open, c)
		p.open--
	}
	p.mu.Unlock()
	return c.Conn.Close()
}
