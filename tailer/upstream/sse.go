package upstream

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"

	"reveille/fsm"
)

const (
	// controlEvent and dataEvent name the events that are read. Data events are read only if their data is kept.
	controlEvent = "control"
	dataEvent    = "data"
	// eventLimit bounds the data of one event, in bytes. In events that are not read, a line is looked at up to
	// fieldLimit.
	eventLimit = recentMax
	fieldLimit = 64
	// frameBuffer is small, in bytes, because each watched stream has one.
	frameBuffer = 256
	// lineKept is the largest buffer, in bytes, that a connection keeps during the wait for the next line.
	lineKept = 1 << 10

	byteOrderMark = "\uFEFF"
)

var errNoSSE = AnswerError{What: "its content type is not text/event-stream"}

// SSE reads a stream by SSE and calls take with what each control event says. It discards the data in between, unless
// it keeps the data for ReadBatch. It returns nil when the server ends the answer in good order. A cut after an event
// counts as that, because many proxies end answers so. It also ends with an event that cannot be kept for a reader who
// came after the request. The answer to the next request can be kept for that reader.
func (c *Client) SSE(
	ctx context.Context, conn *Conn, path string, from fsm.Offset, cursor string, take func(Event) error,
) error {
	asked, follows := c.recent.asks(path)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	res, err := c.get(ctx, conn, kindTail, path, from, "sse", cursor)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); kind != "text/event-stream" {
		return fmt.Errorf("GET: %w", errNoSSE)
	}
	frames := newFrames(res.Body)
	frames.keepsData = follows && res.Header.Get(headerDataEncoding) == ""
	shown := recentAnswer{asked: asked, from: from}
	for heard := false; ; {
		event, err := frames.next()
		switch wrong := (AnswerError{}); {
		case errors.Is(err, io.EOF), err != nil && heard && !errors.As(err, &wrong):
			return nil
		case err != nil:
			return fmt.Errorf("GET: %w", err)
		case event.name == dataEvent:
			shown.add(event)
			continue
		}
		e, err := c.readControl(event.data)
		if err != nil {
			return fmt.Errorf("GET: %w", err)
		}
		heard, e.Goes = true, !e.Closed
		if e.Offset.After(shown.from) {
			c.keepShown(path, shown, e.Offset)
			shown = recentAnswer{asked: asked, from: e.Offset}
			e.Goes = e.Goes && !c.recent.isForNewer(path, asked)
		}
		if err := take(e); err != nil {
			return err
		}
		if !e.Goes && !e.Closed {
			cancel()
			return nil
		}
	}
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
	in        *bufio.Reader
	keepsData bool
	// begun is true once a byte order mark was passed over, if there is one.
	begun bool
	// skipLF is true after a CR. An LF that follows belongs to it.
	skipLF bool
	line   []byte
}

func newFrames(r io.Reader) *frames { return &frames{in: bufio.NewReaderSize(r, frameBuffer)} }

// frame is an event that is being read.
type frame struct {
	name string
	data []byte
	// lines counts the lines of data. incomplete says that some of the data was not kept.
	lines      int
	incomplete bool
}

// next returns the next control event that has data, or, if keepsData is set, the next data event. If the input ends
// within an event, that event was never sent: io.EOF.
func (f *frames) next() (frame, error) {
	var e frame
	for {
		long, err := f.readLine(f.limit(&e))
		switch {
		case err != nil:
			return frame{}, err
		case len(f.line) > 0:
			e.take(f.line, long, f.limit(&e))
			continue
		case e.name == dataEvent && f.keepsData:
			return e.whole(), nil
		case e.name != controlEvent:
		case e.incomplete:
			return frame{}, AnswerError{What: "a control event is too long"}
		case len(e.data) > 0:
			return e.whole(), nil
		}
		e = frame{}
	}
}

// limit is how much of the next line is looked at, in bytes. The data may come before the name.
func (f *frames) limit(e *frame) int {
	if e.name == "" || e.name == controlEvent || e.name == dataEvent && f.keepsData {
		return eventLimit
	}
	return fieldLimit
}

// whole returns the event without its last line end.
func (e *frame) whole() frame {
	e.data = e.data[:max(len(e.data)-1, 0)]
	return *e
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
	if !f.begun {
		f.begun = true
		if mark, err := f.in.Peek(len(byteOrderMark)); err == nil && string(mark) == byteOrderMark {
			_, _ = f.in.Discard(len(byteOrderMark))
		}
	}
	if f.line = f.line[:0]; cap(f.line) > lineKept {
		f.line = nil
	}
	for {
		b, err := f.in.ReadByte()
		if err != nil {
			return false, err
		}
		switch {
		case b == '\n' && f.skipLF:
			f.skipLF = false
			continue
		case b == '\n' || b == '\r':
			f.skipLF = b == '\r'
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
