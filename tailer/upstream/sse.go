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
	// controlLimit bounds the data of one control event in bytes; of other events, and of lines that are not data, no
	// more than fieldLimit is looked at.
	controlLimit = 64 << 10
	fieldLimit   = 64
)

// SSE reads a stream by SSE and calls take with what each control event says. The data between them is let go. It
// returns nil when the server ends the answer in good order.
func (c *Client) SSE(
	ctx context.Context, conn *Conn, path string, from fsm.Offset, cursor string, take func(Event) error,
) error {
	res, err := c.get(ctx, conn, kindTail, path, from, "sse", cursor)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); kind != "text/event-stream" {
		return fmt.Errorf("GET: %w", AnswerError{What: "its content type is not text/event-stream"})
	}
	frames := newFrames(res.Body)
	for {
		data, err := frames.control()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("GET: %w", err)
		}
		e, err := c.controlEvent(data)
		if err != nil {
			return fmt.Errorf("GET: %w", err)
		}
		if err := take(e); err != nil {
			return err
		}
	}
}

// controlEvent reads the data of a control event (protocol, SSE).
func (c *Client) controlEvent(data []byte) (Event, error) {
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

// frames reads server-sent events and keeps nothing but the data of those named "control".
type frames struct {
	in *bufio.Reader
	// skipLF is true after a CR: an LF that follows belongs to it.
	skipLF bool
	line   []byte
}

func newFrames(r io.Reader) *frames { return &frames{in: bufio.NewReader(r)} }

// control returns the data of the next control event. An event that the end of the input cuts short was never sent:
// io.EOF.
func (f *frames) control() ([]byte, error) {
	var name string
	var data []byte
	for {
		limit := fieldLimit
		if name == "control" {
			limit = controlLimit
		}
		long, err := f.readLine(limit)
		if err != nil {
			return nil, err
		}
		if len(f.line) == 0 {
			if name == "control" && len(data) > 0 {
				return data[:len(data)-1], nil // but for the last end of a line
			}
			name, data = "", nil
			continue
		}
		field, value, _ := bytes.Cut(f.line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case string(field) == "event":
			name = string(value)
		case string(field) == "data" && name == "control":
			if long || len(data)+len(value) >= controlLimit {
				return nil, AnswerError{What: "a control event is too long"}
			}
			data = append(append(data, value...), '\n')
		}
	}
}

// readLine puts the next line, at most limit bytes of it, into f.line; long says that there was more. Lines end with
// LF, CR or both.
func (f *frames) readLine(limit int) (long bool, err error) {
	f.line = f.line[:0]
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
