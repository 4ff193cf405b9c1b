package httpapi

import (
	"container/list"
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"reveille/fsm/throttle"
)

const (
	// writeTimeout is how long a client may take for writeChunk bytes of an answer, however long the whole takes.
	writeTimeout = time.Minute
	writeChunk   = 64 << 10
	// acceptTries is how often Accept tries at once while there is no file for a connection.
	acceptTries = 8
)

// conns are the connections of the API port. Each costs memory and a file, so there are no more than max. A connection
// beyond max takes the place of another: the connection that has waited longest for a complete request. So slow
// clients, however many, keep out no client that is not slow. Only if every connection has a complete request, the
// oldest of these connections is closed.
type conns struct {
	max          int
	writeTimeout time.Duration
	log          *zap.Logger

	mu sync.Mutex
	// waiting has the connections that are idle, or whose request is on its way; working has those with a complete
	// request. The first connection of each list has been in it for longest.
	waiting, working list.List

	// crowded is what was logged about connections beyond max, and filesOut about connections without a file.
	crowded, filesOut throttle.Trouble
}

// conn is one of these connections.
type conn struct {
	net.Conn
	all *conns
	// in is the list of the connection, and at its place there; in is nil once the connection is closed.
	in *list.List
	at *list.Element
}

type connKey struct{}

// listener adds what it accepts to the connections.
type listener struct {
	net.Listener
	conns *conns
}

// Listen returns a listener for the APIServer that bounds its connections. Without it there is no bound.
func (s *Service) Listen(ln net.Listener) net.Listener {
	return &listener{ln, &conns{max: s.cfg.MaxConnections, writeTimeout: writeTimeout, log: s.log}}
}

// Accept takes a connection. It closes another if there are too many, or if the process has no file left for it.
// Another part of the process may take the file that has become free, so it tries a few times. After that the server
// waits and tries again.
func (l *listener) Accept() (net.Conn, error) {
	for tries := 1; ; tries++ {
		c, err := l.Listener.Accept()
		switch {
		case err == nil:
			return l.conns.add(c), nil
		case !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE), tries == acceptTries,
			!l.conns.closeLongestWaiting(err):
			return nil, err
		}
	}
}

func (cs *conns) add(nc net.Conn) *conn {
	c := &conn{Conn: nc, all: cs}
	cs.mu.Lock()
	var victim *conn
	if cs.waiting.Len()+cs.working.Len() >= cs.max {
		from := &cs.waiting
		if from.Len() == 0 {
			from = &cs.working
		}
		victim = from.Front().Value.(*conn)
		victim.leave()
	}
	c.enter(&cs.waiting)
	cs.mu.Unlock()
	if victim == nil {
		return c
	}
	_ = victim.Conn.Close()
	cs.crowded.Log(cs.log, time.Now()).Warn(
		"too many connections; those that have waited longest for a request are closed", zap.Int("limit", cs.max))
	return c
}

// closeLongestWaiting closes the connection that has waited longest for a request, if one waits, and returns when its
// file is closed.
func (cs *conns) closeLongestWaiting(because error) bool {
	cs.mu.Lock()
	first := cs.waiting.Front()
	if first == nil {
		cs.mu.Unlock()
		return false
	}
	victim := first.Value.(*conn)
	victim.leave()
	cs.mu.Unlock()
	_ = victim.Conn.Close()
	cs.filesOut.Log(cs.log, time.Now()).Warn(
		"no open file is left for a new connection; those that have waited longest for a request are closed",
		zap.Error(because))
	return true
}

// enter puts the connection at the end of a list. all.mu is held.
func (c *conn) enter(l *list.List) { c.in, c.at = l, l.PushBack(c) }

// leave takes the connection out of its list. all.mu is held.
func (c *conn) leave() {
	if c.in != nil {
		c.in.Remove(c.at)
		c.in = nil
	}
}

// move puts the connection in another list, unless it is closed.
func (c *conn) move(l *list.List) {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if c.in != nil && c.in != l {
		c.leave()
		c.enter(l)
	}
}

// Close closes the connection, so that there may be another.
func (c *conn) Close() error {
	c.all.mu.Lock()
	c.leave()
	c.all.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite tells the client that nothing more comes, so that it reads an answer that ends the connection.
func (c *conn) CloseWrite() error {
	if tcp, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return tcp.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Write writes in pieces, and each piece has its own time. A client that does not read is disconnected; a client that
// reads for long is not.
func (c *conn) Write(p []byte) (written int, err error) {
	for {
		piece := p[written:min(len(p), written+writeChunk)]
		if err := c.SetWriteDeadline(time.Now().Add(c.all.writeTimeout)); err != nil {
			return written, err
		}
		n, err := c.Conn.Write(piece)
		written += n
		if err != nil || written == len(p) {
			return written, err
		}
	}
}

// keepConn is a server's ConnContext.
func keepConn(ctx context.Context, nc net.Conn) context.Context {
	if c, ok := nc.(*conn); ok {
		return context.WithValue(ctx, connKey{}, c)
	}
	return ctx
}

// noteState is a server's ConnState: after an answer a connection waits for the next request.
func noteState(nc net.Conn, state http.ConnState) {
	if c, ok := nc.(*conn); ok && state == http.StateIdle {
		c.move(&c.all.waiting)
	}
}

// arrived says that a request is complete: at once if it has no body, otherwise when the body has been read to its end.
func arrived(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(*conn); ok {
		c.move(&c.all.working)
	}
}
