package upstream

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestOnlyControlEventsAreKept(t *testing.T) {
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
		"a control event in many lines without end": {"event: control\n" + strings.Repeat("data: 1234567\n", 1<<14) +
			"\n", nil, AnswerError{What: "a control event is too long"}},
	} {
		for how, wrap := range map[string]func(io.Reader) io.Reader{
			"at once":      func(r io.Reader) io.Reader { return r },
			"byte by byte": iotest.OneByteReader,
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				f := newFrames(wrap(strings.NewReader(c.in)))
				for _, want := range c.want {
					if got, err := f.control(); err != nil || string(got) != want {
						t.Fatalf("got %q, %v, want %q", got, err, want)
					}
				}
				if got, err := f.control(); !errors.Is(err, c.err) {
					t.Errorf("got %q, %v, want %v", got, err, c.err)
				}
				if cap(f.line) > 2*controlLimit {
					t.Errorf("%d bytes were kept", cap(f.line))
				}
			})
		}
	}
}
