package upstream

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// scripted is a server that writes an answer as it stands to each request, and then keeps the connection or closes it.
type scripted struct {
	net.Listener
	connections, requests atomic.Int32
}

// newScripted calls answer with the number of the connection and that of the request on it, both from 1.
func newScripted(t *testing.T, answer func(connection, request int) (text string, closes bool)) *scripted {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	s := &scripted{Listener: l}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			n := int(s.connections.Add(1))
			go func() {
				defer func() { _ = conn.Close() }()
				in := bufio.NewReader(conn)
				for k := 1; ; k++ {
					if _, err := http.ReadRequest(in); err != nil {
						return
					}
					s.requests.Add(1)
					text, closes := answer(n, k)
					if _, err := io.WriteString(conn, text); err != nil || closes {
						return
					}
				}
			}()
		}
	}()
	return s
}

// connTo returns a connection to a server.
func connTo(t *testing.T, root string, trusted *tls.Config) *Conn {
	t.Helper()
	u, err := url.Parse(root)
	if err != nil {
		t.Fatal(err)
	}
	c := New(Config{URL: u, TLS: trusted}).NewConn()
	t.Cleanup(c.Close)
	return &c
}

func (s *scripted) conn(t *testing.T) *Conn {
	t.Helper()
	return connTo(t, "http://"+s.Addr().String(), nil)
}

// readAnswer asks and reads the whole answer.
func readAnswer(t *testing.T, c *Conn) (status int, body string) {
	t.Helper()
	res, err := c.do(t.Context(), http.MethodGet, "/a?offset=1")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.StatusCode, string(text)
}

const fine = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func TestAConnIsKeptWhileItCanBe(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(connection, request int) (string, bool)
		// connections is how many two requests need.
		connections int32
	}{
		"an answer of known length": {func(int, int) (string, bool) { return fine, false }, 1},
		"an answer in chunks": {func(int, int) (string, bool) {
			return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", false
		}, 1},
		"an answer without a body": {
			func(int, int) (string, bool) { return "HTTP/1.1 204 No Content\r\n\r\n", false },
			1,
		},
		"an answer after others": {func(int, int) (string,
			bool,
		) {
			return "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + fine, false
		}, 1},
		"the server says it closes": {func(int, int) (string, bool) {
			return "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", true
		}, 2},
		"the answer ends by closing": {func(int, int) (string, bool) { return "HTTP/1.1 200 OK\r\n\r\nok", true }, 2},
		"closed while it was idle":   {func(int, int) (string, bool) { return fine, true }, 2},
		"more than was asked for":    {func(int, int) (string, bool) { return fine + "HTTP/1.1 200 OK\r\n", false }, 2},
		"a 408 after a while": {func(n, k int) (string, bool) {
			if n == 1 && k == 2 {
				return "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", true
			}
			return fine, false
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScripted(t, c.answer)
			conn := s.conn(t)
			for range 2 {
				if status, body := readAnswer(t, conn); status != 204 && (status != 200 || body != "ok") {
					t.Errorf("got %d %q", status, body)
				}
			}
			if n := s.connections.Load(); n != c.connections {
				t.Errorf("%d connections, want %d", n, c.connections)
			}
		})
	}
}

// TestAnAnswerLongerThanItSaidCostsTheNextOneNothing holds that what comes on an idle connection is nobody's answer.
func TestAnAnswerLongerThanItSaidCostsTheNextOneNothing(t *testing.T) {
	srv := newScripted(t, func(_, request int) (string, bool) {
		const answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
		if request == 2 {
			return "hello" + answer, false // the body that an answer to HEAD must not have, and that comes late
		}
		return answer, false
	})
	conn := connTo(t, "http://"+srv.Addr().String(), nil)
	for n := range 2 {
		res, err := conn.do(t.Context(), http.MethodHead, "/a")
		if err != nil {
			t.Fatalf("HEAD %d: %v", n+1, err)
		}
		_ = res.Body.Close()
	}
	if n := srv.connections.Load(); n != 2 {
		t.Errorf("%d connections, want another one for the second HEAD", n)
	}
}

func TestAConnGivesUpAnAnswerThatBreaksTheRules(t *testing.T) {
	for name, answer := range map[string]string{
		"not HTTP":                          "hello\r\n\r\n",
		"cut off in its header":             "HTTP/1.1 200 OK\r\nContent-",
		"a header that does not end":        "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 2*headerLimit),
		"many short lines of a header":      "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", headerLimit/4),
		"one 1xx after the other":           strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 100),
		"nothing, on a new connection":      "",
		"a length that is no number":        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
		"the same header, differently, too": "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			s := newScripted(t, func(int, int) (string, bool) { return answer, true })
			conn := s.conn(t)
			if res, err := conn.do(t.Context(), http.MethodGet, "/a"); err == nil {
				_ = res.Body.Close()
				t.Error("it was taken for an answer")
			}
			if conn.conn != nil {
				t.Error("the connection is kept")
			}
			if n := s.requests.Load(); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

func TestAConnWaitsNoLongerThanItsContext(t *testing.T) {
	s := newScripted(t, func(_, request int) (string, bool) {
		if request == 1 {
			return fine, false
		}
		return "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok", false // the rest never comes
	})
	conn := s.conn(t)
	readAnswer(t, conn)
	ctx, cancel := context.WithCancel(t.Context())
	res, err := conn.do(ctx, http.MethodGet, "/a")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if text, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("read %q", text)
	}
	_ = res.Body.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	mute := connTo(t, "http://"+silent.Addr().String(), nil)
	if _, err := mute.do(ctx, http.MethodGet, "/a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	// The connection is as good as new.
	if _, body := readAnswer(t, conn); body != "ok" {
		t.Errorf("got %q", body)
	}
}

func TestABodyThatNobodyReadsCostsItsConnectionIfItIsLong(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		kept   bool
	}{
		"a short one":              {fine, true},
		"one that says it is long": {"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nok", false},
		"one that turns out long": {
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nf4240\r\n" + strings.Repeat("x", 1e6) + "\r\n", false,
		},
		"one that does not end": {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScripted(t, func(int, int) (string, bool) { return c.answer, false })
			conn := s.conn(t)
			res, err := conn.do(t.Context(), http.MethodGet, "/a")
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			_ = res.Body.Close()
			if kept := conn.conn != nil; kept != c.kept || time.Since(began) > 10*drainTime {
				t.Errorf("the connection is kept: %t, after %s", kept, time.Since(began))
			}
		})
	}
}

func TestAConnGoesByTLSToTheServerItWasMeantFor(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Proto)
	}))
	defer srv.Close()
	trusted := srv.Client().Transport.(*http.Transport).TLSClientConfig
	if _, body := readAnswer(t, connTo(t, srv.URL, trusted)); body != "HTTP/1.1" {
		t.Errorf("got %q", body)
	}
	_, err := connTo(t, srv.URL, nil).do(t.Context(), http.MethodGet, "/a")
	if !unconnected(err) {
		t.Errorf("a certificate that nobody vouches for: %v", err)
	}
}

func TestAnAnswerByHTTP2ThatNobodyReadsYetIsHeldUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int64
		srv := &http.Server{
			Protocols: new(http.Protocols),
			Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set(HeaderNextOffset, "2")
				for sent.Load() < 8<<20 {
					n, err := w.Write(make([]byte, 16<<10))
					if sent.Add(int64(n)); err != nil {
						return
					}
				}
			}),
		}
		srv.Protocols.SetUnencryptedHTTP2(true)
		c := New(Config{URL: &url.URL{Scheme: "http", Host: "streams"}, H2C: true})
		c.shared.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) {
			conn, peer := net.Pipe()
			t.Cleanup(func() { _, _ = conn.Close(), peer.Close() })
			go func() { _ = srv.Serve(given(one(peer))) }()
			return conn, nil
		}
		err := c.Poll(t.Context(), nil, "/a", "1", "", func(Event) error {
			synctest.Wait() // as long as the store does not take the event
			if n := sent.Load(); n > 256<<10 {
				t.Errorf("%d bytes were taken meanwhile", n)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// given is a listener for connections that are there already.
type given <-chan net.Conn

func (g given) Accept() (net.Conn, error) {
	if c, ok := <-g; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (given) Close() error   { return nil }
func (given) Addr() net.Addr { return &net.TCPAddr{} }

// TestAnAnswerThatIsCutShortKeepsNoPort has an answer by SSE stopped from here, as that of a stream that is busy is:
// the connection is reset, for one that is closed in order would keep its port for a minute.
func TestAnAnswerThatIsCutShortKeepsNoPort(t *testing.T) {
	for name, newer := range map[string]bool{"by its context": false, "for a reader who came after the request": true} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan error, 1)
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = ln.Close() }()
			c := New(Config{URL: &url.URL{Scheme: "http", Host: ln.Addr().String()}, TailMode: TailSSE})
			defer c.Close()
			go func() {
				conn, err := ln.Accept()
				if err != nil {
					ended <- err
					return
				}
				defer func() { _ = conn.Close() }()
				if _, err = http.ReadRequest(bufio.NewReader(conn)); err == nil {
					if newer {
						c.recent.find("reader", "/a", "1")
					}
					_, err = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"+news)
				}
				if err == nil {
					_, err = conn.Read(make([]byte, 1))
				}
				ended <- err
			}()
			conn := c.NewConn()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_ = c.Live(ctx, &conn, "/a", "1", "", func(Event) error {
				if !newer {
					cancel()
				}
				return ctx.Err()
			})
			if err := <-ended; !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the server saw %v, want a reset", err)
			}
		})
	}
}
