package upstream

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// h2Window is how much may arrive at a connection before upstream hears that it did, in bytes. Whether it was read
	// does not matter here: each answer has a window of its own (aheadLimit).
	h2Window = 1 << 20
	// h2Frame is the largest frame, and h2Table the size of the table of headers, in bytes. Both hold unless a setting
	// says otherwise.
	h2Frame, h2Table = 16 << 10, 4 << 10
	// h2Streams bounds the requests under way on a connection if upstream does not.
	h2Streams = 1000
	// h2LastID is the last number that a stream can have. h2FrameHeader is the length of a frame's header, in bytes.
	h2LastID, h2FrameHeader = 1<<31 - 1, 9
)

var (
	// errNoHTTP2 says that upstream chose another protocol for a connection.
	errNoHTTP2 = errors.New("upstream does not speak HTTP/2 on this connection")
	// errUnprocessed says that upstream did not look at a request. It can be sent again.
	errUnprocessed = errors.New("upstream did not process the request")
	// errRetired says that a connection takes no further requests. Those under way go on.
	errRetired = errors.New("the connection takes no further requests")
)

// h2Conn is a connection to an upstream that speaks HTTP/2. Its goroutine (serve) reads the frames. It hands the header
// and the data of each answer to the goroutine that waits for them. Requests have no body, so upstream's windows do not
// matter: updates of them are ignored.
type h2Conn struct {
	set    *h2Conns
	conn   net.Conn
	in     *bufio.Reader
	framer *http2.Framer
	// owed is how much has arrived since upstream last heard of it. It belongs to the goroutine.
	owed int

	// writing guards what follows, and the writing side of the framer. It is locked before mu.
	writing sync.Mutex
	block   bytes.Buffer
	encoder *hpack.Encoder

	mu sync.Mutex
	// streams are the requests under way, by number. nextID is the number of the next one.
	streams map[uint32]*h2Stream
	nextID  uint32
	// open counts the requests that have a place (reserve); limit bounds it. It was 0 for the last time at idle.
	open, limit int
	idle        time.Time
	// closing is why the connection takes no further requests; nil while it does.
	closing error
}

// dial makes a connection with a place for the request that needs it, and exchanges the settings with upstream.
func (cs *h2Conns) dial(ctx context.Context) (*h2Conn, error) {
	conn, err := cs.client.connect(ctx, http2.NextProtoTLS, "http/1.1")
	if err != nil {
		return nil, err
	}
	c := &h2Conn{
		set: cs, conn: conn, in: bufio.NewReader(conn),
		streams: map[uint32]*h2Stream{}, nextID: 1, open: 1, limit: h2Streams,
	}
	c.encoder = hpack.NewEncoder(&c.block)
	c.framer = http2.NewFramer(conn, c.in)
	c.framer.ReadMetaHeaders = hpack.NewDecoder(h2Table, nil)
	c.framer.MaxHeaderListSize = headerLimit
	c.framer.SetMaxReadFrameSize(h2Frame)
	c.framer.SetReuseFrames()
	_ = conn.SetDeadline(time.Now().Add(dialTime))
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(past) })
	if err = c.greet(); !stop() {
		err = ctx.Err()
	}
	if err != nil {
		c.hangUp()
		return nil, err
	}
	return c, nil
}

// greet sends the settings and waits for those of upstream. They say how many requests it takes at a time.
func (c *h2Conn) greet() error {
	if secure, ok := c.conn.(*tls.Conn); ok && secure.ConnectionState().NegotiatedProtocol != http2.NextProtoTLS {
		return errNoHTTP2
	}
	var out bytes.Buffer
	framer := http2.NewFramer(&out, nil)
	_, _ = out.WriteString(http2.ClientPreface)
	_ = framer.WriteSettings(
		http2.Setting{ID: http2.SettingEnablePush, Val: 0},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: aheadLimit},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: headerLimit},
	)
	_ = framer.WriteWindowUpdate(0, h2Window-(1<<16-1)) // it begins with 64 KiB - 1
	if _, err := c.conn.Write(out.Bytes()); err != nil {
		return err
	}
	f, err := c.framer.ReadFrame()
	if err != nil {
		return h2Error(err)
	}
	settings, ok := f.(*http2.SettingsFrame)
	if !ok || settings.IsAck() {
		return h2Error(errors.New("upstream does not begin with its settings"))
	}
	if err := c.adopt(settings); err != nil {
		return h2Error(err)
	}
	if c.limit == 0 {
		return h2Error(errors.New("upstream takes no requests"))
	}
	return nil
}

// h2Error is an error of a connection. To a reader, io.EOF would be the end of an answer.
func h2Error(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("HTTP/2: %w", err)
}

// serve reads frames until the connection ends. Then it ends the requests under way.
func (c *h2Conn) serve() {
	err := c.read()
	c.mu.Lock()
	c.broke(err)
	c.mu.Unlock()
	var broken http2.ConnectionError
	if errors.As(err, &broken) {
		_ = c.write(func(w *http2.Framer) error { return w.WriteGoAway(0, http2.ErrCode(broken), nil) })
	}
	c.hangUp()
	c.set.remove(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.streams {
		s.over(c.closing)
		c.leave()
	}
}

// broke notes what ends the requests under way, unless that is known. c.mu is held.
func (c *h2Conn) broke(err error) {
	if c.closing == nil || errors.Is(c.closing, errRetired) {
		c.closing = h2Error(err)
	}
}

// retire has the connection take no further requests. It closes after the last one. c.mu is held.
func (c *h2Conn) retire() {
	if c.closing = cmp.Or(c.closing, errRetired); c.open == 0 {
		c.hangUp()
	}
}

// hangUp closes the connection without the goodbye of TLS. That would take 5 s if upstream takes nothing, or forever if
// a write then moves the deadline.
func (c *h2Conn) hangUp() {
	conn := c.conn
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	_ = conn.Close()
}

// write sends frames. If that fails or takes too long, it closes the connection.
func (c *h2Conn) write(frames func(*http2.Framer) error) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.writeLocked(frames)
}

// writeLocked is write while c.writing is held.
func (c *h2Conn) writeLocked(frames func(*http2.Framer) error) error {
	_ = c.conn.SetWriteDeadline(time.Now().Add(pingTime))
	err := frames(c.framer)
	_ = c.conn.SetWriteDeadline(time.Time{}) // TLS also writes while it reads
	if err != nil {
		c.mu.Lock()
		c.broke(err)
		c.mu.Unlock()
		c.hangUp()
	}
	return err
}

// read reads frames until the first error that does not concern a single stream.
func (c *h2Conn) read() error {
	for {
		if err := c.await(); err != nil {
			return err
		}
		f, err := c.framer.ReadFrame()
		if err == nil {
			err = c.handle(f)
		}
		var wrong http2.StreamError
		if errors.As(err, &wrong) {
			c.mu.Lock()
			s := c.streams[wrong.StreamID]
			c.mu.Unlock()
			if s != nil {
				s.end(h2Error(wrong), wrong.Code)
			}
			continue
		}
		if detail := c.framer.ErrorDetail(); err != nil && detail != nil {
			err = fmt.Errorf("%w: %w", err, detail)
		}
		if err != nil {
			return err
		}
	}
}

// await waits for a frame. If none comes for a while, it asks with a ping whether the connection still works.
func (c *h2Conn) await() error {
	c.mu.Lock()
	if c.open == 0 && time.Since(c.idle) >= connsIdleTime {
		c.retire()
	}
	c.mu.Unlock()
	_ = c.conn.SetReadDeadline(time.Now().Add(pingAfter))
	_, err := c.in.Peek(h2FrameHeader)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if err = c.write(func(f *http2.Framer) error { return f.WritePing(false, [8]byte{}) }); err != nil {
			return err
		}
		_ = c.conn.SetReadDeadline(time.Now().Add(pingTime))
		if _, err = c.in.Peek(h2FrameHeader); err != nil {
			err = fmt.Errorf("no answer to a ping: %w", err)
		}
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(pingAfter)) // for the rest of the frame
	return err
}

func (c *h2Conn) handle(f http2.Frame) error {
	switch f := f.(type) {
	case *http2.MetaHeadersFrame:
		return c.header(f)
	case *http2.DataFrame:
		return c.data(f)
	case *http2.SettingsFrame:
		return c.adopt(f)
	case *http2.PingFrame:
		if !f.IsAck() {
			return c.write(func(w *http2.Framer) error { return w.WritePing(true, f.Data) })
		}
	case *http2.GoAwayFrame:
		c.goAway(f)
	case *http2.RSTStreamFrame:
		return c.reset(f)
	case *http2.PushPromiseFrame:
		return http2.ConnectionError(http2.ErrCodeProtocol) // the settings forbid it
	}
	return nil
}

// adopt takes settings over and acknowledges them.
func (c *h2Conn) adopt(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	if err := f.ForeachSetting(http2.Setting.Valid); err != nil {
		return err
	}
	return c.write(func(w *http2.Framer) error {
		_ = f.ForeachSetting(func(s http2.Setting) error {
			switch s.ID {
			case http2.SettingMaxConcurrentStreams:
				c.mu.Lock()
				if c.limit = int(min(s.Val, h2Streams)); c.limit == 0 {
					c.retire() // a later setting may come after many attempts, or never
				}
				c.mu.Unlock()
				c.set.wake()
			case http2.SettingHeaderTableSize:
				c.encoder.SetMaxDynamicTableSize(min(s.Val, h2Table))
			default: // the others are about bodies of requests, or about what is not used
			}
			return nil
		})
		return w.WriteSettingsAck()
	})
}

// goAway ends the requests that upstream will not process. The others go on.
func (c *h2Conn) goAway(f *http2.GoAwayFrame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closing = h2Error(fmt.Errorf("upstream ends the connection: GOAWAY, %s", f.ErrCode))
	for id, s := range c.streams {
		if id > f.LastStreamID {
			s.over(fmt.Errorf("%w: %w", errUnprocessed, c.closing))
			c.leave()
		}
	}
	c.retire()
}

// stream returns a stream, or nil if it has ended. It returns an error if there was none of this number.
func (c *h2Conn) stream(id uint32) (*h2Stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id%2 == 0 || id >= c.nextID {
		return nil, http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return c.streams[id], nil
}

// reset ends a request that upstream has reset.
func (c *h2Conn) reset(f *http2.RSTStreamFrame) error {
	s, err := c.stream(f.StreamID)
	if s == nil {
		return err
	}
	err = h2Error(fmt.Errorf("upstream reset the stream: %s", f.ErrCode))
	if f.ErrCode == http2.ErrCodeRefusedStream {
		err = fmt.Errorf("%w: %w", errUnprocessed, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.ErrCode == http2.ErrCodeProtocol {
		c.retire() // the two sides do not agree about the connection
	}
	if s.err == nil {
		s.over(err)
		c.leave()
	}
	return nil
}

// header takes the header of an answer, or its trailers, which nobody reads.
func (c *h2Conn) header(f *http2.MetaHeadersFrame) error {
	s, err := c.stream(f.StreamID)
	if s == nil {
		return err
	}
	status, _ := strconv.Atoi(f.PseudoValue("status"))
	wrong := ""
	switch {
	case f.Truncated:
		wrong = fmt.Sprintf("the header of the answer is longer than %d bytes", headerLimit)
	case s.begun && !f.StreamEnded():
		wrong = "the answer goes on after its trailers"
	case s.begun:
	case status < 100 || status > 999 || status == http.StatusSwitchingProtocols:
		wrong = "the answer has no status"
	case status < 200:
		for _, field := range f.Fields {
			s.early += field.Size()
		}
		if !f.StreamEnded() && s.early <= headerLimit {
			return nil
		}
		wrong = "the answer has no end of informational headers"
	}
	if wrong != "" {
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeProtocol, Cause: errors.New(wrong)}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.err != nil {
		return nil
	}
	if !s.begun {
		s.begin(status, f)
	}
	if f.StreamEnded() {
		s.ended()
	}
	return nil
}

// data takes a part of an answer.
func (c *h2Conn) data(f *http2.DataFrame) error {
	size := int(f.Length) // with the padding
	if c.owed += size; c.owed >= h2Window/2 {
		back := uint32(c.owed)
		c.owed = 0
		if err := c.write(func(w *http2.Framer) error { return w.WriteWindowUpdate(0, back) }); err != nil {
			return err
		}
	}
	s, err := c.stream(f.StreamID)
	if s == nil {
		return err
	}
	return s.take(f, size)
}
