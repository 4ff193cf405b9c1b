package tailer

import (
	"errors"
	"fmt"
	"io"
	"net/http"
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
		"data is let go":                            {"event: data\ndata: x\n\nevent: control\ndata: {}\n\n", []string{"{}"}, io.EOF},
		"CR and CRLF end lines":                     {"event: control\rdata: 1\r\revent: control\r\ndata: 2\r\n\r\n", []string{"1", "2"}, io.EOF},
		"several lines of data":                     {"event: control\ndata: 1\ndata:2\n\n", []string{"1\n2"}, io.EOF},
		"comments and unknown fields":               {": hi\nid: 7\nevent: control\nretry: 1\ndata: 1\n\n", []string{"1"}, io.EOF},
		"no space after the colon":                  {"event:control\ndata:1\n\n", []string{"1"}, io.EOF},
		"a frame cut short is no frame":             {"event: control\ndata: 1\n", nil, io.EOF},
		"a name counts for one event":               {"event: control\n\ndata: 1\n\nevent: control\ndata: 2\n\n", []string{"2"}, io.EOF},
		"a long data event":                         {"event: data\ndata: " + strings.Repeat("x", 1<<20) + "\n\nevent: control\ndata: 1\n\n", []string{"1"}, io.EOF},
		"a control event without end":               {"event: control\ndata: " + strings.Repeat("x", 1<<20) + "\n\n", nil, answerError{"a control event is too long"}},
		"a control event in many lines without end": {"event: control\n" + strings.Repeat("data: 1234567\n", 1<<14) + "\n", nil, answerError{"a control event is too long"}},
	} {
		for how, wrap := range map[string]func(io.Reader) io.Reader{"at once": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader} {
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

func TestAnSSEFrameCutInTheMiddleIsReadAgain(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Mode = ModeSSE }).start()
	r.idle("/a")
	cut := 0
	r.up.setFault(func(w http.ResponseWriter, req *http.Request) bool {
		if req.Method == http.MethodHead {
			return false
		}
		r.up.mu.Lock()
		defer r.up.mu.Unlock()
		if cut++; cut > 3 {
			return false
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "event: control\ndata: {\"streamNextOffset\":\"0000000000000000_00000")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	r.up.append("/a", "1")
	r.done(r.wake("/a", 2))
	r.up.append("/a", "2")
	r.wake("/a", 3)
}
