package upstream

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// informational is how many answers of 1xx may come before the one that counts.
const informational = 5

var errHeaders = fmt.Errorf("the header of the answer is longer than %d bytes", headerLimit)

// past is a deadline that ends what is under way.
var past = time.Unix(1, 0)

// writers and readers are shared by all connections: one that waits for its answer needs neither.
var (
	writers = sync.Pool{New: func() any { return bufio.NewWriter(nil) }}
	readers = sync.Pool{New: func() any { return bufio.NewReader(nil) }}
)

// Conn is a connection to an upstream that speaks HTTP/1.1, for requests without a body, one after the other. It is
// dialled when it is needed. http.Transport keeps two goroutines and two buffers for each connection; here whoever
// asks waits for the answer himself, with nothing but the connection, which is what makes a silent stream cheap. Only
// one goroutine uses a Conn at a time. The zero Conn is ready for an http: upstream.
type Conn struct {
	// tls is nil or what connections are made with, but for the name of the server.
	tls *tls.Config
	// dialer is what connections are made by; nil for TCP.
	dialer Dial
	conn   net.Conn
	// first is the first byte of an answer, if there is one that was not read yet.
	first [1]byte
	begun bool
	// left is how many bytes of an answer may still come.
	left int64
}

// Read is for the buffer that an answer is read by.
func (c *Conn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errHeaders
	}
	if c.begun && len(p) > 0 {
		c.begun = false
		p[0] = c.first[0]
		c.left--
		return 1, nil
	}
	n, err := c.conn.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}

// Close closes the connection. The next request dials another.
func (c *Conn) Close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// do sends a GET or HEAD, whose context must be ctx, and returns the answer, whose body must be closed before the
// next request. The body of an answer that was read to its end leaves the connection open. A connection that upstream
// closed while it was idle is replaced. When the context ends so does what is under way. The request is made again
// for each try, so that nothing of it is kept while its answer is waited for.
func (c *Conn) do(ctx context.Context, method string, request func() (*http.Request, error)) (*http.Response, error) {
	for {
		idle := c.conn != nil
		if !idle {
			if err := c.dial(ctx, request); err != nil {
				return nil, orContext(ctx, err)
			}
		}
		conn := c.conn
		stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(past) })
		res, err := c.exchange(method, request, stop)
		if err == nil && idle && res.StatusCode == http.StatusRequestTimeout {
			// Some proxies say so of a connection that was idle for too long.
			_ = res.Body.Close()
			c.Close()
			continue
		}
		if err == nil {
			return res, nil
		}
		stop()
		c.Close()
		var unanswered noAnswerError
		if ctx.Err() != nil || !idle || !errors.As(err, &unanswered) {
			return nil, orContext(ctx, err)
		}
	}
}

// noAnswerError is what went wrong before the first byte of an answer had come.
type noAnswerError struct{ error }

func (e noAnswerError) Unwrap() error { return e.error }

func (c *Conn) exchange(
	method string, request func() (*http.Request, error), stop func() bool,
) (*http.Response, error) {
	if err := c.send(request); err != nil {
		return nil, noAnswerError{err}
	}
	if _, err := c.conn.Read(c.first[:]); err != nil {
		return nil, noAnswerError{err}
	}
	c.begun, c.left = true, headerLimit
	in := readers.Get().(*bufio.Reader)
	in.Reset(c)
	res, err := receive(in, &http.Request{Method: method})
	if err != nil {
		readers.Put(in)
		return nil, err
	}
	c.left = math.MaxInt64
	res.Body = &connBody{
		body: res.Body, owner: c, conn: c.conn, in: in, stop: stop, last: res.Close, ended: res.Body == http.NoBody,
	}
	return res, nil
}

func (c *Conn) send(request func() (*http.Request, error)) error {
	req, err := request()
	if err != nil {
		return err
	}
	out := writers.Get().(*bufio.Writer)
	defer writers.Put(out)
	out.Reset(c.conn)
	if err := req.Write(out); err != nil {
		return err
	}
	return out.Flush()
}

// receive reads the header of an answer to such a request.
func receive(in *bufio.Reader, as *http.Request) (*http.Response, error) {
	for range informational {
		res, err := http.ReadResponse(in, as)
		if err != nil || res.StatusCode >= 200 {
			return res, err
		}
	}
	return nil, AnswerError{"it never comes to its status"}
}

func (c *Conn) dial(ctx context.Context, request func() (*http.Request, error)) error {
	req, err := request()
	if err != nil {
		return err
	}
	to := req.URL
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	port := to.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[to.Scheme]
	}
	dial := c.dialer
	if dial == nil {
		dial = dialer.DialContext
	}
	conn, err := dial(ctx, "tcp", net.JoinHostPort(to.Hostname(), port))
	if err != nil {
		return err
	}
	if to.Scheme == "https" {
		cfg := c.tls.Clone()
		if cfg == nil {
			cfg = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		cfg.ServerName, cfg.NextProtos = to.Hostname(), []string{"http/1.1"}
		secure := tls.Client(conn, cfg)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return err
		}
		conn = secure
	}
	c.conn = conn
	return nil
}

// orContext is the context's error, if that is what ended something.
func orContext(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil {
		return ended
	}
	return err
}

// connBody is the body of an answer that came by a Conn.
type connBody struct {
	body  io.Reader
	owner *Conn
	conn  net.Conn
	in    *bufio.Reader
	stop  func() bool
	// after is called when the body was closed, if it is not nil.
	after func()
	// last is true if no other request can follow on the connection, ended if the body was read to its end.
	last, ended bool
	aborted     atomic.Bool
}

func (b *connBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	b.ended = b.ended || errors.Is(err, io.EOF)
	return n, err
}

// abort ends a Read that is under way, and all that follow.
func (b *connBody) abort() {
	b.aborted.Store(true)
	_ = b.conn.SetDeadline(past)
}

// Close leaves the connection ready for the next request, or closed.
func (b *connBody) Close() error {
	if b.in == nil {
		return nil
	}
	if !b.stop() || b.last || !b.ended || b.aborted.Load() || b.in.Buffered() > 0 {
		b.owner.Close()
	}
	readers.Put(b.in)
	b.in = nil
	if b.after != nil {
		b.after()
	}
	return nil
}
