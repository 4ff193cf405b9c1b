package tailer

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
	"net/url"
	"sync"
	"time"
)

// lineBuffer is the size of a line's buffer in bytes. Tens of thousands of lines wait at a time, for an answer of which only the
// header is of use.
const lineBuffer = 1 << 10

// informational is how many answers of 1xx may come before the one that counts.
const informational = 5

var errHeaders = fmt.Errorf("the header of the answer is longer than %d bytes", headerLimit)

var errIdle = errors.New("the connection was closed because it was idle")

// past is a deadline that ends what is under way.
var past = time.Unix(1, 0)

// writers are for the requests of all lines.
var writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, lineBuffer) }}

// line is the connection by which the live requests for one stream go to an upstream that speaks HTTP/1.1, one after the other. It
// is dialled when it is needed. http.Transport keeps two goroutines for each connection; here whoever asks waits for the answer
// himself, which is what makes a silent stream cheap. Only one goroutine uses a line at a time.
type line struct {
	// tls is nil or what its connections are made with, but the name of the server.
	tls  *tls.Config
	conn net.Conn
	in   *bufio.Reader
	// left is how many bytes of an answer may still come.
	left int64
}

// Read is for the line's own buffer.
func (l *line) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errHeaders
	}
	n, err := l.conn.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	return n, err
}

func (l *line) hangUp() {
	if l.conn != nil {
		_ = l.conn.Close()
		l.conn = nil
	}
}

// do sends a request without a body and returns the answer, whose body must be closed before the next request. The body of an answer
// that was read to its end leaves the line open. A connection that upstream closed while it was idle is replaced. When the
// request's context ends so does what is under way.
func (l *line) do(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	for {
		idle := l.conn != nil
		if !idle {
			if err := l.dial(ctx, req.URL); err != nil {
				return nil, orContext(ctx, err)
			}
		}
		conn := l.conn
		stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(past) })
		begun, err := l.send(req)
		var res *http.Response
		if err == nil {
			res, err = l.receive(req)
		}
		if err == nil && idle && res.StatusCode == http.StatusRequestTimeout {
			begun, err = false, errIdle // some proxies say so of a connection that was idle for too long
		}
		if err == nil {
			res.Body = &lineBody{Reader: res.Body, l: l, stop: stop, last: res.Close, ended: res.Body == http.NoBody}
			l.left = math.MaxInt64
			return res, nil
		}
		stop()
		l.hangUp()
		if ctx.Err() != nil || !idle || begun {
			return nil, orContext(ctx, err)
		}
	}
}

// send says whether an answer has begun.
func (l *line) send(req *http.Request) (begun bool, err error) {
	out := writers.Get().(*bufio.Writer)
	defer writers.Put(out)
	out.Reset(l.conn)
	if err := req.Write(out); err != nil {
		return false, err
	}
	if err := out.Flush(); err != nil {
		return false, err
	}
	l.left = headerLimit
	_, err = l.in.Peek(1)
	return err == nil, err
}

// receive reads the header of the answer.
func (l *line) receive(req *http.Request) (*http.Response, error) {
	for range informational {
		res, err := http.ReadResponse(l.in, req)
		if err != nil || res.StatusCode >= 200 {
			return res, err
		}
	}
	return nil, answerError{"it never comes to its status"}
}

func (l *line) dial(ctx context.Context, to *url.URL) error {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	port := to.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[to.Scheme]
	}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(to.Hostname(), port))
	if err != nil {
		return err
	}
	if to.Scheme == "https" {
		cfg := l.tls.Clone()
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
	l.conn = conn
	if l.in == nil {
		l.in = bufio.NewReaderSize(l, lineBuffer)
	}
	l.in.Reset(l)
	return nil
}

// orContext is the context's error, if that is what ended something.
func orContext(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil {
		return ended
	}
	return err
}

// lineBody is the body of an answer that came by a line.
type lineBody struct {
	io.Reader
	l    *line
	stop func() bool
	// last is true if no other request can follow on the connection, ended if the body was read to its end.
	last, ended bool
}

func (b *lineBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.ended = b.ended || errors.Is(err, io.EOF)
	return n, err
}

// Close leaves the line ready for the next request, or hung up.
func (b *lineBody) Close() error {
	if !b.stop() || b.last || !b.ended || b.l.in.Buffered() > 0 {
		b.l.hangUp()
	}
	return nil
}
