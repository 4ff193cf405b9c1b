package httpapi

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/ports"
)

const slowRequest = "POST /callback/x HTTP/1.1\r\nHost: x\r\n"

// crowd is a service whose API port takes three connections. poll makes a request through the gateway that is complete
// and has no answer, and returns once upstream has it.
func crowd(t *testing.T) (root string, poll func() net.Conn) {
	there := make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		there <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(upstream.Close)
	h := newHarness(t,
		func(c *Config) { c.MaxConnections, c.Gateway, c.UpstreamURL = 3, true, ports.MustURL(t, upstream.URL) })
	root, _ = h.server()
	return root, func() net.Conn {
		c := dial(t, root, "GET /a?live=long-poll HTTP/1.1\r\nHost: x\r\n\r\n")
		<-there
		return c
	}
}

// request sends a whole one and returns its connection.
func request(t *testing.T, root string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c := dial(t, root, "GET /**?subscriptions HTTP/1.1\r\nHost: x\r\n\r\n")
	return c, bufio.NewReader(c)
}

func answered(t *testing.T, r *bufio.Reader) {
	t.Helper()
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
}

// isClosed waits until a connection is closed.
func isClosed(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("it is open still: %v", err)
	}
}

func isOpen(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("it is not open any more: %v", err)
	}
}

func TestAConnectionBeyondTheLimitTakesThePlaceOfTheOneThatHasWaitedLongest(t *testing.T) {
	root, _ := crowd(t)
	first, second, third := dial(t, root, slowRequest), dial(t, root, slowRequest), dial(t, root, slowRequest)
	_, r := request(t, root)
	answered(t, r)
	isClosed(t, first)
	isOpen(t, second)
	_, r = request(t, root)
	answered(t, r)
	isClosed(t, second)
	isOpen(t, third)
}

func TestSlowClientsHoweverManyPushOutNoRequestThatIsComplete(t *testing.T) {
	root, poll := crowd(t)
	c := poll()
	for range 20 {
		dial(t, root, slowRequest)
	}
	// All of them were taken once this one is answered.
	_, r := request(t, root)
	answered(t, r)
	isOpen(t, c)
}

func TestOfRequestsThatAreAllCompleteTheOldestGoes(t *testing.T) {
	root, poll := crowd(t)
	all := []net.Conn{poll(), poll(), poll()}
	_, r := request(t, root)
	answered(t, r)
	isClosed(t, all[0])
	isOpen(t, all[1])
	isOpen(t, all[2])
}

func TestAClientThatDoesNotReadItsAnswersIsLetGo(t *testing.T) {
	h := newHarness(t, nil)
	for n := range 2000 {
		h.Store.DB.PutSubscription(fsm.Subscription{
			ID: fmt.Sprint(n), Pattern: "/a", Webhook: "https://w",
			Description: strings.Repeat("x", 4000),
		})
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	limited := h.svc.Listen(ln).(*listener)
	limited.conns.writeTimeout = 200 * time.Millisecond
	srv := h.svc.APIServer("")
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(limited) }()
	t.Cleanup(func() { _ = srv.Close(); <-done })

	c, _ := request(t, "http://"+ln.Addr().String())
	deadline := time.Now().Add(10 * time.Second)
	for limited.conns.count() == 0 && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	for limited.conns.count() > 0 {
		if time.Now().After(deadline) {
			t.Fatal("it is still there")
		}
		time.Sleep(time.Millisecond)
	}
	_ = c.Close()

	// One that reads slowly, but does, gets all of it.
	limited.conns.writeTimeout = 5 * time.Second
	_, r := request(t, "http://"+ln.Addr().String())
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if a := h.Read(res); len(a.Body["subscriptions"].([]any)) != 2000 {
		t.Errorf("the answer is cut short: %d bytes", len(a.Text))
	}
}

func (cs *conns) count() int {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.waiting.Len() + cs.working.Len()
}

// short has no file for the next connections.
type short struct {
	net.Listener
	missing atomic.Int32
}

func (s *short) Accept() (net.Conn, error) {
	if s.missing.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return s.Listener.Accept()
}

func TestAConnectionThatThereIsNoFileForTakesThePlaceOfOneThatWaits(t *testing.T) {
	h := newHarness(t, nil)
	inner, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = inner.Close() }()
	without := &short{Listener: inner}
	ln := h.svc.Listen(without)
	waiting := make([]net.Conn, 3)
	for i := range waiting {
		waiting[i] = dial(t, "http://"+inner.Addr().String(), slowRequest)
		if _, err := ln.Accept(); err != nil {
			t.Fatal(err)
		}
	}
	without.missing.Store(2)
	dial(t, "http://"+inner.Addr().String(), slowRequest)
	newest, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	isClosed(t, waiting[0])
	isClosed(t, waiting[1])
	isOpen(t, waiting[2])
	if n := h.Logs.FilterMessageSnippet("no open file is left").Len(); n != 1 {
		t.Errorf("logged %d times", n)
	}

	arrived(keepConn(t.Context(), newest)) // has a request, and does not give way
	without.missing.Store(2)
	if _, err := ln.Accept(); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("%v, want the error when nobody waits", err)
	}
	isClosed(t, waiting[2])
}
