package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"sync"
)

const (
	// controlEvent and dataEvent name the events that are read. Data events are read only if their data is kept.
	controlEvent = "control"
	dataEvent    = "data"
	// eventLimit bounds the data of one event, in bytes. In events that are not read, a line is looked at up to
	// fieldLimit.
	eventLimit = recentMax
	fieldLimit = 64
	// frameBuffer is small, in bytes, because each stream that is watched over HTTP/1.1 has one.
	frameBuffer = 256
	// lineKept is the largest buffer, in bytes, that a connection keeps during the wait for the next line.
	lineKept = 1 << 10

	byteOrderMark = "\uFEFF"
)

var errNoSSE = AnswerError{What: "its content type is not text/event-stream"}

// sse reads a stream by SSE and calls take with what each control event says. It discards the data in between, unless
// it keeps the data for ReadBatch. It returns nil when the server ends the answer in good order. A cut after an event
// counts as that, because many proxies end answers so. It also ends with an event that cannot be kept for a reader who
// came after the request. The answer to the next request can be kept for that reader.
func (r *liveRequest) sse(ctx context.Context) error {
	a, err := r.openSSE(ctx)
	if err != nil {
		return err
	}
	for {
		// It waits in next: what needs more stack is in other functions.
		if more, err := a.show(a.next()); !more {
			return err
		}
	}
}

// sseAnswer is an answer by SSE that is being read.
type sseAnswer struct {
	frames
	*liveRequest
	body io.ReadCloser
	// shown is what is kept since the last control event that led on, and answered is true after the first one.
	shown    recentAnswer
	answered bool
}

//go:noinline
func (r *liveRequest) openSSE(ctx context.Context) (*sseAnswer, error) {
	asked, follows := r.client.recent.asks(r.path)
	r.live = "sse"
	res, err := r.client.get(ctx, r.conn, &r.question)
	if err != nil {
		return nil, err
	}
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); kind != "text/event-stream" {
		_ = res.Body.Close()
		return nil, fmt.Errorf("GET: %w", errNoSSE)
	}
	a := &sseAnswer{liveRequest: r, frames: newFrames(res.Body), body: res.Body}
	a.keepsData = follows && res.Header.Get(headerDataEncoding) == ""
	a.shown = recentAnswer{asked: asked, from: r.from}
	res.Header, res.Request = nil, nil // the body keeps res, of which nobody reads these
	return a, nil
}

// show passes on what the latest event shows. It says whether the answer goes on, and closes the answer if not. err is
// that of next.
//
//go:noinline
func (a *sseAnswer) show(err error) (more bool, _ error) {
	defer func() {
		if !more {
			_ = a.body.Close()
		}
	}()
	switch wrong := (AnswerError{}); {
	case errors.Is(err, io.EOF), err != nil && a.answered && !errors.As(err, &wrong):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("GET: %w", err)
	case a.event.name == dataEvent:
		a.shown.add(&a.event)
		return true, nil
	}
	e, err := a.client.readControl(a.event.data)
	if err != nil {
		return false, fmt.Errorf("GET: %w", err)
	}
	a.answered, e.Goes = true, !e.Closed
	if e.Offset.After(a.shown.from) {
		a.client.keepShown(a.path, a.shown, e.Offset)
		a.shown = recentAnswer{asked: a.shown.asked, from: e.Offset}
		e.Goes = e.Goes && !a.client.recent.isForNewer(a.path, a.shown.asked)
	}
	if err := a.heard(e); err != nil {
		return false, err
	}
	if !e.Goes && !e.Closed {
		cutOff(a.body)
		return false, nil
	}
	return true, nil
}

// readControl reads the data of a control event (protocol, SSE).
func (c *Client) readControl(data []byte) (Event, error) {
	var control struct {
		StreamNextOffset string `json:"streamNextOffset"`
		StreamCursor     string `json:"streamCursor"`
		UpToDate         bool   `json:"upToDate"`
		StreamClosed     bool   `json:"streamClosed"`
	}
	if err := json.Unmarshal(data, &control); err != nil {
		return Event{}, AnswerError{What: "a control event is not JSON"}
	}
	e := Event{UpToDate: control.UpToDate, Closed: control.StreamClosed}
	if len(control.StreamCursor) <= cursorLimit {
		e.Cursor = control.StreamCursor
	}
	var err error
	e.Offset, err = c.known().next(control.StreamNextOffset)
	return e, err
}

// frames reads server-sent events (HTML standard, Server-sent events, section 9.2.6). It keeps only the data of the
// events "control", and of "data" if keepsData is set. Ids, and the server's time until the next request, are for
// browsers. The offset says where the watch goes on, and its machine says when.
type frames struct {
	in io.Reader
	// buffer holds unread. It is nil during the wait for more, if the input can wait without it (waiter).
	buffer    *[frameBuffer]byte
	unread    []byte
	keepsData bool
	// begun is true after the first line, which may begin with a byte order mark.
	begun bool
	// skipLF is true after a CR. An LF that follows belongs to it.
	skipLF bool
	line   []byte
	// event is the latest one.
	event frame
}

// waiter is an input that can wait until a Read returns at once.
type waiter interface{ wait() }

var frameBuffers = sync.Pool{New: func() any { return new([frameBuffer]byte) }}

func newFrames(r io.Reader) frames { return frames{in: r} }

// frame is an event that is being read.
type frame struct {
	name string
	data []byte
	// lines counts the lines of data. incomplete says that some of the data was not kept.
	lines      int
	incomplete bool
}

// next reads the next control event that has data, or, if keepsData is set, the next data event. If the input ends
// within an event, that event was never sent: io.EOF.
func (f *frames) next() error {
	e := &f.event
	for *e = (frame{}); ; {
		long, err := f.readLine(f.limit(e))
		switch {
		case err != nil:
			return err
		case len(f.line) > 0:
			e.take(f.line, long, f.limit(e))
			continue
		case e.name == dataEvent && f.keepsData, e.name == controlEvent && !e.incomplete && len(e.data) > 0:
			e.data = e.data[:max(len(e.data)-1, 0)] // without its last line end
			return nil
		case e.name == controlEvent && e.incomplete:
			return AnswerError{What: "a control event is too long"}
		}
		*e = frame{}
	}
}

// limit is how much of the next line is looked at, in bytes. The data may come before the name.
func (f *frames) limit(e *frame) int {
	if e.name == "" || e.name == controlEvent || e.name == dataEvent && f.keepsData {
		return eventLimit
	}
	return fieldLimit
}

// take adds a line to the event. long says that the line is cut.
func (e *frame) take(line []byte, long bool, limit int) {
	field, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(field) {
	case "event":
		e.name = string(value[:min(len(value), fieldLimit)])
	case "data":
		e.lines++
		if long || len(e.data)+len(value) >= limit {
			e.data, e.incomplete = nil, true
		}
		if !e.incomplete {
			e.data = append(append(e.data, value...), '\n')
		}
	}
}

// readLine puts the next line, at most limit bytes of it, into f.line; long says that there was more. Lines end with
// LF, CR or both.
func (f *frames) readLine(limit int) (long bool, err error) {
	if f.line = f.line[:0]; cap(f.line) > lineKept {
		f.line = nil
	}
	for {
		if len(f.unread) == 0 {
			if err := f.fill(); err != nil {
				return false, err
			}
		}
		b := f.unread[0]
		f.unread = f.unread[1:]
		switch {
		case b == '\n' && f.skipLF:
			f.skipLF = false
			continue
		case b == '\n' || b == '\r':
			if f.skipLF = b == '\r'; !f.begun {
				f.begun, f.line = true, bytes.TrimPrefix(f.line, []byte(byteOrderMark))
			}
			return long, nil
		}
		f.skipLF = false
		if len(f.line) < limit {
			f.line = append(f.line, b)
		} else {
			long = true
		}
	}
}

// fill waits for more.
func (f *frames) fill() (err error) {
	if w, ok := f.in.(waiter); ok {
		f.release()
		if len(f.line) == 0 {
			f.line = nil
		}
		w.wait()
	}
	if f.buffer == nil {
		f.buffer = frameBuffers.Get().(*[frameBuffer]byte)
	}
	n := 0
	for n == 0 && err == nil {
		n, err = f.in.Read(f.buffer[:])
	}
	if f.unread = f.buffer[:n]; n > 0 {
		return nil // an error comes again
	}
	f.release()
	return err
}

// release gives the buffer back.
func (f *frames) release() {
	if f.buffer != nil {
		frameBuffers.Put(f.buffer)
	}
	f.buffer, f.unread = nil, nil
}
