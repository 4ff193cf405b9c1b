package attack

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// behaviour deals with one request on a connection, until that is closed.
type behaviour func(c net.Conn)

// badServer is an endpoint that does not behave.
type badServer struct {
	url      string
	requests atomic.Int64

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

func newBadServer(behave behaviour) (*badServer, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &badServer{url: "http://" + ln.Addr().String(), conns: map[net.Conn]struct{}{}}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.serve(c, behave)
		}
	}()
	return s, nil
}

func (s *badServer) serve(c net.Conn, behave behaviour) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = struct{}{}
	go func() {
		if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			_, _ = io.Copy(io.Discard, r.Body)
			s.requests.Add(1)
			behave(c)
		}
		_ = c.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, c)
	}()
}

// open is how many connections are open.
func (s *badServer) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// behaviours by name; endless are those whose answers have no end.
var (
	behaviours = map[string]behaviour{
		"silent": silent, "endless body": endlessBody, "endless header": endlessHeader,
		"endless information": endlessInformation,
		"trickled body":       trickledBody, "trickled header": trickledHeader,
	}
	endless = []string{"endless body", "endless header", "endless information", "trickled body", "trickled header"}
)

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
type slowClient struct{ Name, First, Again string }

// startSlowClients keeps n connections of slow clients open for as long as the process lasts: one that is closed is
// replaced by another. It returns the count of those that were made.
func startSlowClients(host string, n int, kinds []slowClient) *atomic.Int64 {
	begun := &atomic.Int64{}
	for i := range n {
		kind := kinds[i%len(kinds)]
		go func() {
			for {
				slowly(host, kind, begun)
				time.Sleep(time.Second)
			}
		}()
	}
	return begun
}

// slowly is one connection of a slow client.
func slowly(host string, kind slowClient, begun *atomic.Int64) {
	c, err := net.DialTimeout("tcp", host, 10*time.Second)
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
	_ = c.SetWriteDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.WriteString(c, kind.First)
	begun.Add(1)
	gone := make(chan struct{})
	if !strings.HasPrefix(kind.Name, "answers") { // that one reads nothing
		go func() {
			defer close(gone)
			_, _ = io.Copy(io.Discard, c)
		}()
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-gone:
			return
		case <-tick.C:
		}
		_ = c.SetWriteDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.WriteString(c, kind.Again); err != nil {
			return
		}
	}
}
