package upstream

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// headerLimit bounds the headers of an answer, in bytes. If a body is read only to keep its connection, drainLimit
	// bounds it in bytes, and drainTime bounds the time.
	headerLimit = 64 << 10
	drainLimit  = 256 << 10
	drainTime   = 500 * time.Millisecond
	// readBuffer is small, in bytes, because thousands of answers may come at the same time.
	readBuffer = 1 << 10
)

// errStale says that a connection was unusable after it was idle. Usually, upstream has closed it.
var errStale = errors.New("the connection could not be used any more after it was idle")

// past is a deadline that ends what is under way.
var past = time.Unix(1, 0)

// All connections share writers and readers. A connection that waits for its answer needs neither.
var (
	writers = sync.Pool{New: func() any { return bufio.NewWriter(nil) }}
	readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, readBuffer) }}
)

// Conn is a connection to an upstream that speaks HTTP/1.1, for requests without a body, one after the other. These are
// the live requests of a stream, or HEADs, which share it (conns). A request dials it when needed. http.Transport keeps
// two goroutines and two buffers for each connection. With a Conn, the goroutine that asks waits for the answer itself,
// with nothing but the connection. That makes a silent stream cheap. Only one goroutine uses a Conn at a time.
type Conn struct {
	client *Client
	conn   net.Conn
	// tailing is nil for HEADs.
	tailing *tailing
}

// arrivals is what arrives at a connection. The wait for more needs no buffer, only its first byte.
type arrivals struct {
	conn  net.Conn
	first [1]byte
	// n is how many bytes of first are unread, and err is the error of the wait.
	n   int
	err error
	// alone is true from the wait until a Read has read from conn.
	alone bool
	// stop releases the context, unless the context has ended.
	stop func() bool
}

func (a *arrivals) wait() error {
	a.n, a.err = a.conn.Read(a.first[:])
	a.alone = true
	return a.err
}

// Read implements [io.Reader].
func (a *arrivals) Read(p []byte) (int, error) {
	if a.n == 0 && a.err == nil {
		a.alone = false
		return a.conn.Read(p)
	}
	n := copy(p, a.first[:a.n])
	a.n -= n
	return n, a.err
}

// NewConn returns a connection for the live requests of one stream.
func (c *Client) NewConn() Conn { return Conn{client: c, tailing: &tailing{}} }

// Close closes the connection. The next request dials another.
func (c *Conn) Close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// reset closes a connection before the end of an answer. An orderly close would keep a port for a minute, and a busy
// stream has many such answers.
func (c *Conn) reset() {
	conn := c.conn
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	c.Close()
}

// do sends a GET or HEAD for a target and returns the answer. The caller must close its body before the next request.
// do replaces a connection that upstream closed while it was idle. The end of the context ends what is under way.
func (c *Conn) do(ctx context.Context, method, target string) (*http.Response, error) {
	res, err := c.try(ctx, method, target)
	if errors.Is(err, errStale) && ctx.Err() == nil {
		res, err = c.try(ctx, method, target)
	}
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return res, err
}

// try waits for the answer: what needs more stack is in other functions.
func (c *Conn) try(ctx context.Context, method, target string) (*http.Response, error) {
	idle := c.conn != nil
	in, err := c.ask(ctx, method, target)
	if err == nil {
		err = in.wait()
	}
	return c.answer(in, method, idle, err)
}

// ask sends a request, by a new connection if there is none. It returns nil without a connection.
//
//go:noinline
func (c *Conn) ask(ctx context.Context, method, target string) (*arrivals, error) {
	if c.conn == nil {
		conn, err := c.client.connect(ctx, "http/1.1")
		if err != nil {
			return nil, err
		}
		c.conn = conn
	}
	conn := c.conn
	in := &arrivals{conn: conn, stop: context.AfterFunc(ctx, func() { _ = conn.SetDeadline(past) })}
	return in, c.send(ctx, method, target)
}

// answer reads an answer that has begun. err is why none has. idle says that the connection was used before.
//
//go:noinline
func (c *Conn) answer(in *arrivals, method string, idle bool, err error) (res *http.Response, _ error) {
	if in == nil {
		return nil, err
	}
	if err == nil {
		res, err = c.receive(method, in)
	}
	switch {
	case !idle:
	case err != nil: // the bytes may be the rest of an answer that was longer than it said
		err = errStale
	case res.StatusCode == http.StatusRequestTimeout: // some proxies answer so on an idle connection
		_ = res.Body.Close()
		err = errStale
	}
	if err != nil {
		in.stop()
		c.Close()
		return nil, err
	}
	return res, nil
}

// send makes the request and sends it. It keeps nothing of the request for the wait.
func (c *Conn) send(ctx context.Context, method, target string) error {
	out := writers.Get().(*bufio.Writer)
	defer writers.Put(out)
	out.Reset(c.conn)
	if err := c.client.request(ctx, method, target).Write(out); err != nil {
		return err
	}
	return out.Flush()
}

// receive reads the header of an answer that has begun. It passes over informational answers (1xx).
func (c *Conn) receive(method string, in *arrivals) (res *http.Response, err error) {
	b := &connBody{by: c, arrivals: in, limited: io.LimitedReader{R: in, N: headerLimit}}
	b.borrow()
	for err == nil && (res == nil || res.StatusCode < 200) {
		res, err = http.ReadResponse(&b.in, &http.Request{Method: method})
	}
	if err != nil {
		b.giveBack()
		if b.limited.N == 0 {
			err = fmt.Errorf("the header of the answer is longer than %d bytes", headerLimit)
		}
		return nil, err
	}
	b.limited.N = math.MaxInt64
	b.body, b.res, b.ended, b.over = res.Body, res, res.Body == http.NoBody, res.Body == http.NoBody
	res.Body = b
	return res, nil
}

// connect makes a connection to upstream. With TLS, it is for one of these protocols.
func (c *Client) connect(ctx context.Context, protocols ...string) (net.Conn, error) {
	to := c.cfg.URL
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	// The name of a scheme is also the name of its port.
	conn, err := c.cfg.Dial(ctx, "tcp", net.JoinHostPort(to.Hostname(), cmp.Or(to.Port(), to.Scheme)))
	if err != nil || to.Scheme != "https" {
		return conn, err
	}
	cfg := c.cfg.TLS.Clone()
	if cfg == nil {
		cfg = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	cfg.ServerName, cfg.NextProtos = to.Hostname(), protocols
	secure := tls.Client(conn, cfg)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secure, nil
}

// connBody is the body of an answer that came over a Conn.
type connBody struct {
	body io.Reader
	res  *http.Response
	by   *Conn
	// in reads what arrives. It has the buffer of lent, which is nil during the wait for more and after Close.
	in       bufio.Reader
	lent     *bufio.Reader
	limited  io.LimitedReader
	arrivals *arrivals
	// ended is true if the body was read to its end, over if no Read brings more, cut if the rest is of no use.
	ended, over, cut bool
}

func (b *connBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	b.ended, b.over = b.ended || errors.Is(err, io.EOF), b.over || err != nil
	return n, err
}

// wait waits until a Read returns at once. Silent streams wait here, without a buffer.
func (b *connBody) wait() {
	if !b.over && b.in.Buffered() == 0 && !b.arrivals.alone {
		b.giveBack()
		_ = b.arrivals.wait() // Read returns the error
		b.borrow()
	}
}

func (b *connBody) borrow() {
	b.lent = readers.Get().(*bufio.Reader)
	b.lent.Reset(&b.limited)
	b.in = *b.lent
}

func (b *connBody) giveBack() {
	b.lent.Reset(nil)
	readers.Put(b.lent)
	b.lent, b.in = nil, bufio.Reader{}
}

// Close leaves the connection ready for the next request, or closed.
func (b *connBody) Close() error {
	if b.lent == nil {
		return nil
	}
	switch goes := b.arrivals.stop(); {
	case (!goes || b.cut) && !b.ended:
		b.by.reset()
	case !goes || b.res.Close || !b.drained() || b.in.Buffered() > 0:
		b.by.Close()
	}
	b.giveBack()
	return nil
}

// cutOff has Close end an answer that goes on, at once.
func cutOff(body io.Closer) {
	if b, ok := body.(*connBody); ok {
		b.cut = true
	}
}

// drained reads the rest of the body and says whether it reached the end. A body that does not end in time or size
// costs its connection and nothing else.
func (b *connBody) drained() bool {
	if !b.ended && b.res.ContentLength <= drainLimit {
		_ = b.by.conn.SetReadDeadline(time.Now().Add(drainTime))
		_, _ = io.CopyN(io.Discard, b, drainLimit+1)
		_ = b.by.conn.SetReadDeadline(time.Time{})
	}
	return b.ended
}
