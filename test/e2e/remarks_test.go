package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"reveille/test/harness"
)

// chatty is an endpoint of raw bytes: it answers each request with 204 and then sends more on the connection.
type chatty struct {
	URL string

	mu sync.Mutex
	// requests are as they came.
	requests []string
}

func newChatty(t *testing.T, more func(request string) string) *chatty {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &chatty{URL: "http://" + ln.Addr().String()}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			conns.Go(func() { c.serve(conn, more) })
		}
	})
	t.Cleanup(func() { _ = ln.Close() })
	return c
}

func (c *chatty) serve(conn net.Conn, more func(string) string) {
	defer func() { _ = conn.Close() }()
	var raw strings.Builder
	r := bufio.NewReader(io.TeeReader(conn, &raw))
	for {
		request, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, request.Body)
		c.mu.Lock()
		c.requests = append(c.requests, raw.String())
		c.mu.Unlock()
		_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n"+more(raw.String()))
		raw.Reset()
	}
}

func (c *chatty) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.requests)
}

// TestOnlyReveilleWritesItsLog has endpoints send what answers no request, be it the request itself. The log is JSON,
// it says so now and then, and nothing that they have sent is in it, nor on any page.
func TestOnlyReveilleWritesItsLog(t *testing.T) {
	t.Parallel()
	const (
		canary, said = "canary-of-this-test", "a server sent bytes that answer no request"
		events       = 20
	)
	e := beside(t, options{})
	type delivered struct {
		hook *chatty
		want int
	}
	var all []delivered
	secrets := []string{canary, "p4ss-77", `0\r\n`}
	for i, more := range []func(request string) string{
		func(request string) string { return request },
		func(string) string { return "0\r\n\r\n" }, // as after a chunked body
		func(string) string { return canary },
	} {
		for _, mode := range []string{"push", "wake"} {
			f := e.empty(t)
			f.sub.ID = fmt.Sprint("chatty-", mode, i)
			d := delivered{hook: newChatty(t, more), want: 1}
			asked := map[string]any{"webhook": d.hook.URL + "/hook?key=query-" + canary}
			if mode == "push" {
				asked["mode"], asked["authorization"] = "push", "Bearer authorization-"+canary
				asked["headers"] = map[string]string{"X-Pin": "p4ss-77", "X-Key": "header-" + canary}
				d.want = events
			}
			path := fmt.Sprintf("%s/%s-%d", f.folder, mode, i)
			f.subscribeTo(path, jsonOf(t, asked))
			f.gateway.Create(path)
			for n := range events {
				f.gateway.Append(path, fmt.Sprintf(`{"event":"event-%s","n":%d}`, canary, n))
			}
			all, secrets = append(all, d), append(secrets, f.sub.Secret)
		}
	}
	for _, d := range all {
		harness.Eventually(t, soon, "all is delivered", harness.True(func() bool {
			return d.hook.count() >= d.want
		}, "not yet"))
	}
	harness.Eventually(t, soon, "the log says that there was more", harness.True(func() bool {
		return strings.Contains(e.rev.Log(), said)
	}, "it does not"))
	if err := e.rev.Stop(); err != nil {
		t.Fatal(err)
	}
	log := e.rev.Log()
	for line := range strings.Lines(log) {
		if !json.Valid([]byte(line)) {
			t.Errorf("a line is not JSON: %s", line)
		}
	}
	if n := strings.Count(log, said); n > 5 { // at first, and then ever less often
		t.Errorf("it is said %d times", n)
	}
	for _, secret := range secrets {
		if strings.Contains(log, secret) {
			t.Errorf("the log holds %q", secret)
		}
	}
}
