package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// h2Pauses are the pauses before a request that upstream did not process is sent again.
var h2Pauses = []time.Duration{0, 100 * time.Millisecond, time.Second}

// h2Conns are the HTTP/2 connections for live requests. http2.Transport keeps a goroutine, and the request with all its
// headers, for each request. Here, the goroutine that asks waits for the answer itself, with a small h2Stream.
type h2Conns struct {
	client *Client
	// dialing is full while a request makes a connection. freed is full if there may be a place for one that waits.
	dialing, freed chan struct{}

	mu    sync.Mutex
	conns []*h2Conn
}

// do sends a GET for a target and returns the answer. The end of the context ends what is under way.
func (cs *h2Conns) do(ctx context.Context, target string) (res *http.Response, err error) {
	for try := 0; ; try++ {
		var s *h2Stream
		if s, err = cs.send(ctx, target); err == nil {
			res, err = s.answer()
		}
		switch {
		case err == nil:
			return res, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case try == len(h2Pauses) || !errors.Is(err, errUnprocessed):
			return nil, err
		case !Sleep(ctx, Jitter(h2Pauses[try])):
			return nil, ctx.Err()
		}
	}
}

// send sends a request by any connection.
//
//go:noinline
func (cs *h2Conns) send(ctx context.Context, target string) (*h2Stream, error) {
	req := cs.client.request(ctx, http.MethodGet, target)
	host, err := httpguts.PunycodeHostPort(cmp.Or(req.Host, req.URL.Host))
	if err != nil {
		return nil, err
	}
	c, err := cs.take(ctx)
	if err != nil {
		return nil, err
	}
	s := &h2Stream{conn: c, window: aheadLimit, rest: -1}
	s.changed.L = &c.mu
	if err := c.send(s, req, host); err != nil {
		return nil, err
	}
	s.stop = context.AfterFunc(ctx, func() { s.end(ctx.Err(), http2.ErrCodeCancel) })
	return s, nil
}

// take returns a connection with a place for a request. If all are taken, a request waits for one, or for its turn to
// make a connection. It fails only by an attempt of its own.
func (cs *h2Conns) take(ctx context.Context) (*h2Conn, error) {
	for {
		if c := cs.place(); c != nil {
			return c, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-cs.freed:
		case cs.dialing <- struct{}{}:
			c, err := cs.add(ctx)
			<-cs.dialing
			return c, err
		}
	}
}

// place takes a place by a connection that there is. It returns nil if all are taken.
func (cs *h2Conns) place() *h2Conn {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, c := range cs.conns {
		if c.reserve() {
			cs.wake() // where one was free there may be more
			return c
		}
	}
	return nil
}

// wake has a request that waits look for a place.
func (cs *h2Conns) wake() {
	select {
	case cs.freed <- struct{}{}:
	default:
	}
}

// lives says whether a connection takes further requests, once it has a place.
func (cs *h2Conns) lives() bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return slices.ContainsFunc(cs.conns, func(c *h2Conn) bool { return c.ends() == nil })
}

// add makes a connection with a place for a request, unless there is a place by now.
func (cs *h2Conns) add(ctx context.Context) (*h2Conn, error) {
	if c := cs.place(); c != nil {
		return c, nil
	}
	if !cs.client.http2.Load() {
		return nil, errNoHTTP2 // another request has found out
	}
	c, err := cs.dial(ctx)
	if errors.Is(err, errNoHTTP2) {
		cs.client.http2.Store(cs.lives())
	}
	if err != nil {
		if c = cs.place(); c != nil {
			return c, nil
		}
		return nil, err
	}
	cs.mu.Lock()
	cs.conns = append(cs.conns, c)
	cs.mu.Unlock()
	go c.serve()
	cs.wake()
	return c, nil
}

func (cs *h2Conns) remove(c *h2Conn) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.conns = slices.DeleteFunc(cs.conns, func(other *h2Conn) bool { return other == c })
}

// close has each connection close after its last request.
func (cs *h2Conns) close() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, c := range cs.conns {
		c.mu.Lock()
		c.retire()
		c.mu.Unlock()
	}
}

// ends returns why a connection takes no further requests, or nil.
func (c *h2Conn) ends() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closing
}

// reserve takes a place for a request, and says whether there was one.
func (c *h2Conn) reserve() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing != nil || c.open >= c.limit {
		return false
	}
	c.open++
	return true
}

// leave gives a place back. c.mu is held.
func (c *h2Conn) leave() {
	c.set.wake()
	if c.open--; c.open > 0 {
		return
	}
	if c.idle = time.Now(); c.closing != nil {
		c.hangUp()
	}
}

// send sends a request that has a place.
func (c *h2Conn) send(s *h2Stream, req *http.Request, host string) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	if c.closing != nil {
		defer c.mu.Unlock()
		c.leave()
		return fmt.Errorf("%w: %w", errUnprocessed, c.closing)
	}
	s.id, c.streams[c.nextID] = c.nextID, s
	if c.nextID += 2; c.nextID > h2LastID {
		c.retire()
	}
	c.mu.Unlock()
	c.block.Reset()
	c.encode(":method", req.Method)
	c.encode(":scheme", req.URL.Scheme)
	c.encode(":authority", host)
	c.encode(":path", strings.TrimPrefix(req.URL.RequestURI(), req.URL.Scheme+"://"+req.URL.Host))
	if req.Header.Get("User-Agent") == "" {
		c.encode("user-agent", "Go-http-client/2.0")
	}
	for name, values := range req.Header {
		switch name {
		case "Host", "Connection", "Proxy-Connection", "Keep-Alive", "Transfer-Encoding", "Upgrade", "Content-Length":
			continue // they are none of HTTP/2
		}
		for _, value := range values {
			c.encode(strings.ToLower(name), value)
		}
	}
	// If this fails, the end of the connection ends the request, unless it has ended for a better reason.
	_ = c.writeLocked(func(w *http2.Framer) error {
		block := c.block.Bytes()
		part := block[:min(len(block), h2Frame)]
		err := w.WriteHeaders(http2.HeadersFrameParam{
			StreamID: s.id, BlockFragment: part, EndStream: true, EndHeaders: len(part) == len(block),
		})
		for block = block[len(part):]; err == nil && len(block) > 0; block = block[len(part):] {
			part = block[:min(len(block), h2Frame)]
			err = w.WriteContinuation(s.id, len(part) == len(block), part)
		}
		return err
	})
	return nil
}

func (c *h2Conn) encode(name, value string) {
	_ = c.encoder.WriteField(hpack.HeaderField{Name: name, Value: value}) // into a buffer
}

// h2Stream is one request, and the body of its answer.
type h2Stream struct {
	conn *h2Conn
	id   uint32
	// early and begun belong to the connection's goroutine: how long the informational headers are, in bytes, and
	// whether the header was there.
	early uint32
	begun bool
	// stop releases the context.
	stop func() bool

	// conn.mu guards the rest. changed wakes the goroutine that waits.
	changed sync.Cond
	res     *http.Response
	// data has arrived and is not read yet. window is how much may still arrive. owed was read since upstream last
	// heard of it.
	data         []byte
	window, owed int
	// rest is what is missing of the length that the header gave; -1 without one.
	rest int64
	// err is why nothing more arrives: io.EOF at the end of the answer.
	err error
}

// answer waits for the header of the answer.
func (s *h2Stream) answer() (*http.Response, error) {
	s.conn.mu.Lock()
	for s.res == nil && s.err == nil {
		s.changed.Wait()
	}
	res, err := s.res, s.err
	s.res = nil
	s.conn.mu.Unlock()
	if res == nil {
		s.stop()
		return nil, err
	}
	return res, nil
}

// wait waits until a Read returns at once. Silent streams wait here.
func (s *h2Stream) wait() {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	for len(s.data) == 0 && s.err == nil {
		s.changed.Wait()
	}
}

// Read implements [io.Reader] for the body of the answer.
func (s *h2Stream) Read(p []byte) (n int, err error) {
	s.wait()
	s.conn.mu.Lock()
	if n = copy(p, s.data); len(s.data) == 0 {
		err = s.err
	}
	if s.data = s.data[n:]; len(s.data) == 0 {
		s.data = nil
	}
	back := s.credit(n)
	s.conn.mu.Unlock()
	s.widen(back)
	return n, err
}

// Close implements [io.Closer] for the body of the answer.
func (s *h2Stream) Close() error {
	s.stop()
	s.end(http.ErrBodyReadAfterClose, http2.ErrCodeCancel)
	return nil
}

// end ends the stream from this side, unless it has ended. The connection has its place again when upstream hears it.
func (s *h2Stream) end(reason error, code http2.ErrCode) {
	s.conn.mu.Lock()
	ended := s.err != nil
	switch {
	case !ended:
		s.over(reason)
	case len(s.data) > 0:
		s.err = reason // what is dropped here must not pass for the end of the answer
	}
	s.data = nil
	s.conn.mu.Unlock()
	if ended {
		return
	}
	_ = s.conn.write(func(w *http2.Framer) error { return w.WriteRSTStream(s.id, code) })
	s.conn.mu.Lock()
	s.conn.leave()
	s.conn.mu.Unlock()
}

// over notes why nothing more arrives. Afterwards, leave gives the place back. conn.mu is held.
func (s *h2Stream) over(reason error) {
	s.err = reason
	delete(s.conn.streams, s.id)
	s.changed.Signal()
}

// begin notes the header of the answer. conn.mu is held.
func (s *h2Stream) begin(status int, f *http2.MetaHeadersFrame) {
	header := http.Header{}
	for _, field := range f.RegularFields() {
		header.Add(field.Name, field.Value)
	}
	if length, err := strconv.ParseUint(header.Get("Content-Length"), 10, 63); err == nil {
		s.rest = int64(length)
	} else if f.StreamEnded() {
		s.rest = 0
	}
	s.begun = true
	s.res = &http.Response{
		StatusCode: status, Proto: "HTTP/2.0", ProtoMajor: 2, Header: header, ContentLength: s.rest, Body: s,
	}
	s.changed.Signal()
}

// take adds data of a size, with its padding, to the answer.
func (s *h2Stream) take(f *http2.DataFrame, size int) error {
	s.conn.mu.Lock()
	back := 0
	defer func() {
		s.conn.mu.Unlock()
		s.widen(back)
	}()
	data := f.Data()
	switch {
	case s.err != nil:
		return nil
	case !s.begun:
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeProtocol}
	case size > s.window:
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeFlowControl}
	case s.rest >= 0 && int64(len(data)) > s.rest:
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeProtocol}
	}
	if s.rest >= 0 {
		s.rest -= int64(len(data))
	}
	s.window -= size
	s.data = append(s.data, data...)
	back = s.credit(size - len(data))
	if f.StreamEnded() {
		s.ended()
	}
	s.changed.Signal()
	return nil
}

// ended notes that upstream has ended the answer. conn.mu is held.
func (s *h2Stream) ended() {
	reason := io.EOF
	if s.rest > 0 {
		reason = io.ErrUnexpectedEOF
	}
	s.over(reason)
	s.conn.leave()
}

// credit notes that bytes need no place any more. It returns by how much the window is to be widened now. conn.mu is
// held.
func (s *h2Stream) credit(n int) int {
	if s.owed += n; s.owed < aheadLimit/2 || s.err != nil {
		return 0
	}
	back := s.owed
	s.window, s.owed = s.window+back, 0
	return back
}

// widen tells upstream that it may send more.
func (s *h2Stream) widen(by int) {
	if by > 0 {
		_ = s.conn.write(func(w *http2.Framer) error { return w.WriteWindowUpdate(s.id, uint32(by)) })
	}
}
