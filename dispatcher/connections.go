package dispatcher

import (
	"container/list"
	"context"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"
)

// pool keeps the connections to each host in a set, which is a transport of net/http of its own. After a while, the
// host gets another set. Once no exchange uses a former set, all its connections are closed. These include connections
// that net/http neither uses nor closes any more, such as an HTTP/2 connection after a GOAWAY.
type pool struct {
	// transport makes the transport of a set.
	transport func(key poolKey) *http.Transport
	// age is how long connections are used at most.
	age time.Duration
	// most is how many connections may be open before sets are given up, the least recently used set first. There are
	// no more sets than most.
	most int

	mu   sync.Mutex
	sets map[poolKey]*connections
	// used has the sets in the order of their last use, the latest first.
	used list.List
	open int
}

// poolKey is a way to a host, or to a proxy that knows the way.
type poolKey struct {
	scheme, host string
	// proxied is true if a proxy is on the way.
	proxied bool
}

// connections is a set of connections to a host. The pool's mutex guards it.
type connections struct {
	pool      *pool
	key       poolKey
	transport *http.Transport
	// until is when the host gets another set.
	until time.Time
	// usedAt is when an exchange last began to use the set, users how many exchanges use it now.
	usedAt time.Time
	users  int
	place  *list.Element // in used
	// former is true once no exchange may begin to use the set.
	former bool
	open   map[*connection]struct{}
}

// connection is one connection of a set.
type connection struct {
	net.Conn
	set    *connections
	remote remote
}

// remote is an address whose text is made once: each attempt on a connection shows it.
type remote struct {
	net.Addr
	text string
}

// String implements net.Addr.
func (r remote) String() string { return r.text }

// RemoteAddr implements net.Conn.
func (c *connection) RemoteAddr() net.Addr { return &c.remote }

func newPool(most int, age time.Duration, transport func(key poolKey) *http.Transport) *pool {
	return &pool{transport: transport, age: age, most: most, sets: map[poolKey]*connections{}}
}

// use returns the set of a host for one exchange, which releases the set at its end.
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
		pool: p, key: key, open: map[*connection]struct{}{},
		until: now.Add(p.age - rand.N(p.age/4+1)), // not all hosts get another set at once
	}
	set.transport = set.newTransport()
	set.place = p.used.PushFront(set)
	p.sets[key] = set
	return set
}

// newTransport returns a transport whose connections belong to the set.
func (s *connections) newTransport() *http.Transport {
	t := s.pool.transport(s.key)
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

// once returns a transport that makes its request on a new connection, and closes the connection after it.
func (s *connections) once() *http.Transport {
	t := s.newTransport()
	t.DisableKeepAlives = true
	return t
}

// retire makes the next exchange with a host use another set. It returns the connections to close. p.mu is held.
func (p *pool) retire(set *connections) []*connection {
	if !set.former {
		set.former = true
		p.used.Remove(set.place)
		delete(p.sets, set.key)
	}
	return set.over()
}

// shed retires sets until no more than a given number of them are left, and no more connections are open than p.most.
// It returns the connections to close. p.mu is held.
func (p *pool) shed(sets int) (over []*connection) {
	for p.used.Len() > 0 && (p.used.Len() > sets || p.open-len(over) > p.most) {
		over = append(over, p.retire(p.used.Back().Value.(*connections))...)
	}
	return over
}

// sweep retires the sets that were not used for idleConnTimeout: the time that an idle connection is kept.
func (p *pool) sweep() {
	since := time.Now().Add(-idleConnTimeout)
	p.mu.Lock()
	var over []*connection
	for last := p.used.Back(); last != nil && last.Value.(*connections).usedAt.Before(since); last = p.used.Back() {
		over = append(over, p.retire(last.Value.(*connections))...)
	}
	p.mu.Unlock()
	closeAll(over)
}

// close retires all sets. It closes the connections that no exchange uses; the others are closed when they are
// released.
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

// endsUse makes the next exchange with the host use new connections. The connections of the set are closed when its
// present exchanges are over.
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

// over returns the connections of a former set once no exchange uses the set. The pool's mutex is held.
func (s *connections) over() (over []*connection) {
	if s.former && s.users == 0 {
		for c := range s.open {
			over = append(over, c)
		}
	}
	return over
}

// opened takes a connection into the set. The exchange that dialled it may be over already.
func (s *connections) opened(conn net.Conn) net.Conn {
	addr := conn.RemoteAddr()
	c := &connection{conn, s, remote{addr, addr.String()}}
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
