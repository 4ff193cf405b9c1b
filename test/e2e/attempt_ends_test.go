package e2e

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"reveille/fsm"
	"reveille/test/harness"
)

// switching is an endpoint that answers everything with a 101, and keeps the connection as long as its client does.
func switching(t *testing.T) (hook string, requests, open *atomic.Int64) {
	t.Helper()
	requests, open = &atomic.Int64{}, &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		open.Add(1)
		defer open.Add(-1)
		requests.Add(1)
		_, _ = io.WriteString(conn,
			"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn)
	}))
	t.Cleanup(server.Close)
	return server.URL, requests, open
}

// TestNoEndpointKeepsWhatAnAttemptHolds has more attempts than there are slots answered by what is no answer to them.
// Another subscription still has its events, the settings of these can be changed, and the program can be stopped.
func TestNoEndpointKeepsWhatAnAttemptHolds(t *testing.T) {
	t.Parallel()
	const inFlight, each = 16, 8
	e := beside(t, options{settings: map[string]string{
		"REVEILLE_MAX_IN_FLIGHT":                  fmt.Sprint(inFlight),
		"REVEILLE_MAX_IN_FLIGHT_PER_SUBSCRIPTION": fmt.Sprint(each),
	}})
	hook, requests, open := switching(t)
	retry := map[string]any{"max_attempts": 100, "initial": "1s", "factor": 1}
	var bad []*pushed
	for n := range 2 * inFlight / each {
		p := &pushed{e.fixture(t, fmt.Sprint("bad-", n), nil), harness.NewReceiver(t)}
		a := p.gateway.PutSubscription(p.folder+"/*", p.sub.ID,
			jsonOf(t, map[string]any{"mode": "push", "webhook": hook, "retry": retry}))
		if a.Status != http.StatusCreated {
			t.Fatalf("PUT: %d %s", a.Status, a.Body)
		}
		bad = append(bad, p)
		for s := range each {
			path := fmt.Sprintf("%s/%d", p.folder, s)
			p.gateway.Create(path)
			p.add(path, 0, 1)
		}
	}
	woken := e.empty(t)
	woken.gateway.SubscribeURL(woken.folder+"/*", woken.sub.ID, hook)
	woken.gateway.Create(woken.path)
	harness.Eventually(t, soon, "the endpoint has had more than it could keep",
		harness.True(func() bool { return requests.Load() > inFlight }, "not yet"))

	t.Run("another subscription has its events", func(t *testing.T) {
		p := e.pushes(t, nil)
		p.want(p.path, p.add(p.path, 0, 5))
	})
	t.Run("a test delivery says what came", func(t *testing.T) {
		for range 3 {
			status, out, stderr := e.rev.Ask("", "test", bad[0].sub.ID)
			if status != 1 || !strings.Contains(out, "status 101") {
				t.Errorf("exit status %d, %s%s", status, out, stderr)
			}
		}
	})
	harness.Eventually(t, soon, "the consumer says what its last attempt came to", func() error {
		c, err := woken.store.Consumer(t.Context(), fsm.RefOf(woken.sub.ID, woken.path))
		if err == nil && c.LastError != "status 101" {
			err = fmt.Errorf("the last error is %q", c.LastError)
		}
		return err
	})
	p := bad[0]
	p.patch(p.gateway, jsonOf(t, map[string]string{"webhook": p.receiver.URL}))
	for s := range each {
		if _, got := p.receiver.Await(fmt.Sprintf("%s/%d", p.folder, s), 1); len(got) != 1 {
			t.Errorf("stream %d: %q", s, got)
		}
	}
	for _, p := range bad[1:] {
		e.gateway.DeleteSubscription("/**", p.sub.ID)
	}
	if err := e.rev.Stop(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	harness.Eventually(t, soon, "no connection is left",
		harness.True(func() bool { return open.Load() == 0 }, "there are some"))
}

// TestAWindowThatIsTooLarge has an endpoint answer by HTTP/2 with a window that overflows. That attempt fails at once,
// long before its time is up. The next one comes by HTTP/2, too.
func TestAWindowThatIsTooLarge(t *testing.T) {
	t.Parallel()
	certified := httptest.NewTLSServer(nil)
	t.Cleanup(certified.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certified.Certificate().Raw})
	if err := os.WriteFile(ca, block, 0o600); err != nil {
		t.Fatal(err)
	}
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: certified.TLS.Certificates, NextProtos: []string{"h2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	var asked atomic.Int64
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go tooLargeAtFirst(conn.(*tls.Conn), &asked)
		}
	}()
	e := beside(t, options{settings: map[string]string{"SSL_CERT_FILE": ca, "REVEILLE_WEBHOOK_TIMEOUT": "1h"}})
	s := e.fixture(t, "window", nil)
	s.gateway.SubscribeURL(s.folder+"/*", s.sub.ID, "https://"+ln.Addr().String())
	s.gateway.Create(s.path)
	s.awaitState(fsm.Idle)
	if n := asked.Load(); n != 2 {
		t.Errorf("it was asked %d times", n)
	}
}

// tooLargeAtFirst answers the first request with a window that overflows, and the others with done.
func tooLargeAtFirst(conn *tls.Conn, asked *atomic.Int64) {
	defer func() { _ = conn.Close() }()
	if _, err := io.CopyN(io.Discard, conn, int64(len(http2.ClientPreface))); err != nil {
		return
	}
	f := http2.NewFramer(conn, conn)
	_ = f.WriteSettings()
	var head bytes.Buffer
	_ = hpack.NewEncoder(&head).WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
	for {
		frame, err := f.ReadFrame()
		switch {
		case err != nil:
			return
		case frame.Header().Type != http2.FrameHeaders:
		case asked.Add(1) == 1:
			_ = f.WriteWindowUpdate(frame.Header().StreamID, 1<<31-1)
		default:
			stream := frame.Header().StreamID
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: head.Bytes(), EndHeaders: true})
			_ = f.WriteData(stream, true, []byte(`{"done":true}`))
		}
	}
}
