package httpapi

import (
	"bufio"
	"container/list"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// slow is a gateway that takes few connections, in front of a stream server that answers no write until it is released.
type slow struct {
	*harness
	root string
	// begun gets each write whose header is there, complete each whose body is.
	begun, complete chan struct{}
	release         chan struct{}
}

func slowBehind(t *testing.T, protocol string, connections int) *slow {
	t.Helper()
	s := &slow{begun: make(chan struct{}), complete: make(chan struct{}), release: make(chan struct{})}
	say := func(r *http.Request, what chan struct{}) {
		select {
		case what <- struct{}{}:
		case <-r.Context().Done():
		}
	}
	s.harness, s.root = behindProtocol(t, protocol, func(c *Config) { c.MaxConnections = connections },
		func(_ http.ResponseWriter, r *http.Request) {
			say(r, s.begun)
			if _, err := io.Copy(io.Discard, r.Body); err == nil {
				say(r, s.complete)
			}
			select {
			case <-s.release:
			case <-r.Context().Done():
			}
		})
	return s
}

// send sends a write, or the beginning of one, and waits until upstream has come so far.
func (s *slow) send(text string, reached ...chan struct{}) net.Conn {
	s.T.Helper()
	c := dial(s.T, s.root, text)
	for _, stage := range reached {
		select {
		case <-stage:
		case <-time.After(time.Minute):
			s.T.Fatal("upstream did not get it")
		}
	}
	return c
}

// awaitWaiting waits until at least so many connections wait for a request.
func (s *slow) awaitWaiting(n int) {
	s.T.Helper()
	waiting := func() int {
		s.conns.mu.Lock()
		defer s.conns.mu.Unlock()
		return s.conns.waiting.Len()
	}
	for deadline := time.Now().Add(time.Minute); waiting() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			s.T.Fatalf("%d connections wait for a request, want %d", waiting(), n)
		}
	}
}

// succeeds fails the test unless each write gets upstream's answer.
func (s *slow) succeeds(writes ...net.Conn) {
	s.T.Helper()
	close(s.release)
	for n, c := range writes {
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			s.T.Fatalf("write %d has no answer: %v", n, err)
		}
		if a := s.Read(res); a.Status != http.StatusOK {
			s.T.Errorf("write %d: %d %s", n, a.Status, a.Text)
		}
	}
}

// What writes begin with, after their method.
const (
	start   = " /a HTTP/1.1\r\nHost: x\r\n"
	chunked = "Transfer-Encoding: chunked\r\n"
)

func TestAWriteThatIsCompleteIsNotClosedInFavourOfAConnectionThatIsIdle(t *testing.T) {
	const writes = 8
	for _, protocol := range protocols {
		for name, text := range map[string]string{
			"a POST with a length":     "POST" + start + "Content-Length: 5\r\n\r\nevent",
			"a PUT without a body":     "PUT" + start + "\r\n",
			"a POST of length 0":       "POST" + start + "Content-Length: 0\r\n\r\n",
			"a PATCH in chunks":        "PATCH" + start + chunked + "\r\n5\r\nevent\r\n0\r\n\r\n",
			"a POST without any chunk": "POST" + start + chunked + "\r\n0\r\n\r\n",
			"a DELETE with a trailer":  "DELETE" + start + chunked + "Trailer: X\r\n\r\n1\r\ne\r\n0\r\nX: 5\r\n\r\n",
		} {
			t.Run(protocol+", "+name, func(t *testing.T) {
				s := slowBehind(t, protocol, writes+1)
				var all []net.Conn
				for range writes {
					all = append(all, s.send(text, s.begun, s.complete))
				}
				idle, r := request(t, s.root)
				answered(t, r)
				s.awaitWaiting(1)
				_, r = request(t, s.root)
				answered(t, r)
				isClosed(t, idle)
				s.succeeds(all...)
				s.awaitWaiting(writes + 1) // after their answers they are idle like the others
			})
		}
	}
}

func TestAWriteThatTricklesIsClosedInFavourOfThoseThatAreComplete(t *testing.T) {
	const complete = "POST" + start + "Content-Length: 5\r\n\r\nevent"
	for _, protocol := range protocols {
		for name, text := range map[string]string{
			"with a length": "POST" + start + "Content-Length: 6\r\n\r\nevent",
			"in chunks":     "POST" + start + chunked + "\r\n5\r\nevent\r\n",
		} {
			t.Run(protocol+", "+name, func(t *testing.T) {
				s := slowBehind(t, protocol, 3)
				first, second := s.send(complete, s.begun, s.complete), s.send(complete, s.begun, s.complete)
				trickling := s.send(text, s.begun)
				_, r := request(t, s.root)
				answered(t, r)
				isClosed(t, trickling)
				s.succeeds(first, second)
			})
		}
	}
}

func TestABodyThatEndsAfterItsRequestIsOverLeavesTheConnectionWaiting(t *testing.T) {
	for name, over := range map[string]bool{"before": false, "after": true} {
		client, server := net.Pipe()
		defer func() { _ = client.Close() }()
		all := &conns{max: 1}
		c := all.add(server)
		b := arriving(keepConn(t.Context(), c), io.NopCloser(strings.NewReader("event")))
		if over {
			b.over()
		}
		if text, err := io.ReadAll(b); string(text) != "event" || err != nil {
			t.Errorf("%s: read %q, %v", name, text, err)
		}
		want := map[bool]*list.List{false: &all.working, true: &all.waiting}[over]
		if c.in != want {
			t.Errorf("the body ended %s the request was over: the connection is in the wrong list", name)
		}
		_ = c.Close()
	}
}

// A client that has sent all and sends nothing more (RFC 9112, Tear-down) counts as gone. Upstream may not have its
// write, so an answer of net/http itself would be wrong.
func TestAClientThatSendsNothingMoreIsNotToldThatUpstreamHasItsWrite(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			s := slowBehind(t, protocol, 3)
			c := s.send("POST"+start+"Content-Length: 5\r\n\r\nevent", s.begun, s.complete)
			if err := c.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if answer, err := io.ReadAll(c); len(answer) > 0 {
				t.Errorf("it is told %q, %v", answer, err)
			}
		})
	}
}
