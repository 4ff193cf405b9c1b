package upstream

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// TestOnlyControlEventsAreKept holds how an event stream is read (HTML standard, Server-sent events). What the web
// platform's own tests of EventSource hold is said here in other words.
func TestOnlyControlEventsAreKept(t *testing.T) {
	const mark = "\uFEFF"

	for name, c := range map[string]struct {
		in   string
		want []string
		err  error
	}{
		"data is let go": {
			"event: data\ndata: x\n\nevent: control\ndata: {}\n\n",
			[]string{"{}"},
			io.EOF,
		},
		"CR and CRLF end lines": {
			"event: control\rdata: 1\r\revent: control\r\ndata: 2\r\n\r\n",
			[]string{"1", "2"},
			io.EOF,
		},
		"several lines of data": {"event: control\ndata: 1\ndata:2\n\n", []string{"1\n2"}, io.EOF},
		"comments and unknown fields": {
			": hi\nid: 7\nevent: control\nretry: 1\ndata: 1\n\n",
			[]string{"1"},
			io.EOF,
		},
		"no space after the colon":      {"event:control\ndata:1\n\n", []string{"1"}, io.EOF},
		"a frame cut short is no frame": {"event: control\ndata: 1\n", nil, io.EOF},
		"a name counts for one event": {
			"event: control\n\ndata: 1\n\nevent: control\ndata: 2\n\n",
			[]string{"2"},
			io.EOF,
		},
		"a long data event": {"event: data\ndata: " + strings.Repeat("x", 1<<20) +
			"\n\nevent: control\ndata: 1\n\n", []string{"1"}, io.EOF},
		"a control event without end": {
			"event: control\ndata: " + strings.Repeat("x", 1<<20) + "\n\n",
			nil,
			AnswerError{What: "a control event is too long"},
		},
		"the data comes before the name":  {"data: 1\nevent: control\n\n", []string{"1"}, io.EOF},
		"the data comes on both sides":    {"data: 1\nevent: control\ndata: 2\n\n", []string{"1\n2"}, io.EOF},
		"the last name counts":            {"event: data\nevent: control\ndata: 1\n\n", []string{"1"}, io.EOF},
		"the last name is another":        {"event: control\ndata: 1\nevent: data\n\n", nil, io.EOF},
		"an empty name is none":           {"event: control\nevent:\ndata: 1\n\n", nil, io.EOF},
		"a name without a colon is none":  {"event: control\nevent\ndata: 1\n\n", nil, io.EOF},
		"one space behind the colon goes": {"event: control\ndata:  1 \n\n", []string{" 1 "}, io.EOF},
		"a name with a second space":      {"event:  control\ndata: 1\n\n", nil, io.EOF},
		"names of fields have one case": {
			"Event: control\nevent: control\nDATA: 2\ndata: 1\n\n",
			[]string{"1"},
			io.EOF,
		},
		"a space before a field":         {"event: control\n data: 2\ndata: 1\n\n", []string{"1"}, io.EOF},
		"data without a colon is empty":  {"event: control\ndata\ndata\n\n", []string{"\n"}, io.EOF},
		"one empty line of data":         {"event: control\ndata:\n\n", []string{""}, io.EOF},
		"without data there is no event": {"event: control\n\nevent: control\ndata: 1\n\n", []string{"1"}, io.EOF},
		"a colon in the data":            {"event: control\ndata: a:b\n\n", []string{"a:b"}, io.EOF},
		"a comment in the middle":        {"event: control\n:\n: x\ndata: 1\n:data: 2\n\n", []string{"1"}, io.EOF},
		"a byte order mark":              {mark + "event: control\ndata: 1\n\n", []string{"1"}, io.EOF},
		"a second byte order mark": {
			mark + mark + "event: control\nevent: control\ndata: 1\n\n",
			[]string{"1"},
			io.EOF,
		},
		"a mark that is no first one": {
			"event: control\ndata: 1\n\n" + mark + "event: control\ndata: 2\n\n",
			[]string{"1"},
			io.EOF,
		},
		"a part of a mark": {
			mark[:2] + "event: control\nevent: control\ndata: 1\n\n",
			[]string{"1"},
			io.EOF,
		},
		"lines end in three ways": {
			"event: control\rdata: 1\ndata: 2\r\ndata: 3\r\n\r",
			[]string{"1\n2\n3"},
			io.EOF,
		},
		"LF and CR are two ends": {
			"event: control\ndata: 1\n\revent: control\ndata: 2\n\n",
			[]string{"1", "2"},
			io.EOF,
		},
		"a time to wait, good and bad": {
			"retry: 3000\nretry: 1x\nretry\nevent: control\ndata: 1\n\n",
			[]string{"1"},
			io.EOF,
		},
		"ids":                             {"id\nid: a\x00b\nevent: control\ndata: 1\n\n", []string{"1"}, io.EOF},
		"the end in the middle of a line": {"event: control\ndata: 1", nil, io.EOF},
		"a long data event with its name last": {"data: " + strings.Repeat("x", 1<<20) +
			"\nevent: data\n\nevent: control\ndata: 1\n\n", []string{"1"}, io.EOF},
		"a long control event with its name last": {
			"data: " + strings.Repeat("x", 1<<20) + "\nevent: control\n\n", nil,
			AnswerError{What: "a control event is too long"},
		},
		"a control event in many lines without end": {"event: control\n" + strings.Repeat("data: 1234567\n", 1<<14) +
			"\n", nil, AnswerError{What: "a control event is too long"}},
	} {
		for how, wrap := range map[string]func(io.Reader) io.Reader{
			"at once":      func(r io.Reader) io.Reader { return r },
			"byte by byte": iotest.OneByteReader,
			"with waits":   func(r io.Reader) io.Reader { return patient{iotest.HalfReader(r)} },
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				f := newFrames(wrap(strings.NewReader(c.in)))
				for _, want := range c.want {
					if err := f.next(); err != nil || string(f.event.data) != want {
						t.Fatalf("got %q, %v, want %q", f.event.data, err, want)
					}
				}
				if err := f.next(); !errors.Is(err, c.err) {
					t.Errorf("got %q, %v, want %v", f.event.data, err, c.err)
				}
				if _, err := f.readLine(fieldLimit); cap(f.line) > lineKept {
					t.Errorf("%d bytes were kept, %v", cap(f.line), err)
				}
			})
		}
	}
}

// patient is an input that can wait without a buffer.
type patient struct{ io.Reader }

func (patient) wait() {}
