package attack

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"reveille/test/harness"
)

// behaviour deals with one request on a connection, until that is closed.
type behaviour func(c net.Conn)

// badServer is an endpoint that does not behave.
type badServer struct {
	url string

	listener net.Listener
	requests atomic.Int64
	wg       sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
}

func newBadServer(t *testing.T, behave behaviour) *badServer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &badServer{url: "http://" + ln.Addr().String(), listener: ln, conns: map[net.Conn]struct{}{}}
	s.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.serve(c, behave)
		}
	})
	t.Cleanup(s.close)
	return s
}

func (s *badServer) serve(c net.Conn, behave behaviour) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = c.Close()
		return
	}
	s.conns[c] = struct{}{}
	s.wg.Go(func() {
		if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			_, _ = io.Copy(io.Discard, r.Body)
			s.requests.Add(1)
			behave(c)
		}
		_ = c.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, c)
	})
}

// open is how many connections are open, seen how many requests have come.
func (s *badServer) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

func (s *badServer) seen() int64 { return s.requests.Load() }

// close cuts all connections and takes no more.
func (s *badServer) close() {
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	_ = s.listener.Close()
	s.wg.Wait()
}

// silent never answers.
func silent(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

const ok = "HTTP/1.1 200 OK\r\n"

// flood writes a text again and again, as fast as it is taken.
func flood(c net.Conn, first, again string) {
	block := strings.Repeat(again, 1+(32<<10)/len(again))
	if _, err := io.WriteString(c, first); err != nil {
		return
	}
	for {
		if _, err := io.WriteString(c, block); err != nil {
			return
		}
	}
}

// trickle writes a byte now and then.
func trickle(c net.Conn, first, again string) {
	_, err := io.WriteString(c, first)
	for err == nil {
		time.Sleep(200 * time.Millisecond)
		_, err = io.WriteString(c, again)
	}
}

func endlessBody(c net.Conn)   { flood(c, ok+"\r\n", `{"done":true,"x":"`+strings.Repeat("x", 1000)) }
func endlessHeader(c net.Conn) { flood(c, ok, "X-More: "+strings.Repeat("x", 1000)+"\r\n") }
func endlessInformation(c net.Conn) {
	flood(c, "", "HTTP/1.1 103 Early Hints\r\nLink: </"+strings.Repeat("x", 500)+">\r\n\r\n")
}
func trickledBody(c net.Conn)   { trickle(c, ok+"\r\n", "x") }
func trickledHeader(c net.Conn) { trickle(c, ok+"X-Slow: ", "x") }

// slowClient sends the beginning of something and then a little more each second, if anything.
type slowClient struct{ name, first, again string }

// slowClients keeps n connections of slow clients open until the function that it returns is called: one that is closed is
// replaced by another. It waits until they are there.
func slowClients(t *testing.T, host string, n int, kinds []slowClient) (end func()) {
	t.Helper()
	stop := make(chan struct{})
	var begun atomic.Int64
	var wg sync.WaitGroup
	for i := range n {
		kind := kinds[i%len(kinds)]
		wg.Go(func() {
			for {
				slowly(host, kind, stop, &begun)
				select {
				case <-stop:
					return
				case <-time.After(time.Second):
				}
			}
		})
	}
	end = sync.OnceFunc(func() { close(stop); wg.Wait() })
	t.Cleanup(end)
	harness.Eventually(t, harness.Wait, "the slow clients are there", harness.True(func() bool { return begun.Load() >= int64(n) }, "not yet"))
	return end
}

// slowly is one connection of a slow client.
func slowly(host string, kind slowClient, stop <-chan struct{}, begun *atomic.Int64) {
	c, err := net.DialTimeout("tcp", host, 10*time.Second)
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
	_ = c.SetWriteDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.WriteString(c, kind.first)
	begun.Add(1)
	gone := make(chan struct{})
	if !strings.HasPrefix(kind.name, "answers") { // that one reads nothing
		go func() {
			defer close(gone)
			_, _ = io.Copy(io.Discard, c)
		}()
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-gone:
			return
		case <-tick.C:
		}
		_ = c.SetWriteDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.WriteString(c, kind.again); err != nil {
			return
		}
	}
}
