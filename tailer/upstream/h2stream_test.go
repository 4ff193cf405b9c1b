package upstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// TestRequestsOverHTTP2ShareConnections holds how many connections a number of requests at the same time needs.
func TestRequestsOverHTTP2ShareConnections(t *testing.T) {
	for name, c := range map[string]struct {
		settings    []http2.Setting
		connections int
	}{
		"the server has no limit": {nil, 1},
		"the server has one":      {[]http2.Setting{{ID: http2.SettingMaxConcurrentStreams, Val: 3}}, 4},
		"one at a time":           {[]http2.Setting{{ID: http2.SettingMaxConcurrentStreams, Val: 1}}, 10},
	} {
		t.Run(name, func(t *testing.T) {
			var asked sync.WaitGroup
			asked.Add(10)
			client, connections := h2Serve(t, h2Greeting(c.settings...), func(p *h2Peer, _ int) {
				var waiting []uint32
				for id := p.asked(); id != 0; id = p.asked() {
					if len(c.settings) > 0 && len(waiting) == int(c.settings[0].Val) {
						t.Error("more requests than the server takes")
					}
					p.header(id, false, ":status", "200")
					waiting = append(waiting, id)
				}
			})
			ctx, cancel := context.WithCancel(t.Context())
			var over sync.WaitGroup
			for range 10 {
				over.Go(func() {
					res, err := client.h2.do(ctx, "/root/a")
					if asked.Done(); err != nil {
						t.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, res.Body)
					_ = res.Body.Close()
				})
			}
			asked.Wait()
			cancel()
			over.Wait()
			if n := connections(); n != c.connections {
				t.Errorf("%d connections, want %d", n, c.connections)
			}
		})
	}
}

// TestAServerOfHTTP2ChangesItsSettings holds that a limit counts from when the server says it.
func TestAServerOfHTTP2ChangesItsSettings(t *testing.T) {
	client, connections := h2Serve(t, h2Greeting(), func(p *h2Peer, n int) {
		id := p.asked()
		if n > 1 {
			_ = p.WriteGoAway(id, http2.ErrCodeNo, nil) // the next one goes by the first connection, or by a third
			p.ok(id, "ok")
			return
		}
		_ = p.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1},
			http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0})
		p.await(func(f http2.Frame) bool {
			s, ok := f.(*http2.SettingsFrame)
			return ok && s.IsAck()
		})
		p.ReadMetaHeaders.SetMaxDynamicTableSize(0)
		p.header(id, false, ":status", "200")
		_ = p.WriteData(id, false, []byte("a"))
		p.rest()
	})
	res, err := client.h2.do(t.Context(), "/root/a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(res.Body, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if _, body, err := h2Get(t.Context(), client); body != "ok" || connections() != 2 {
		t.Errorf("got %q, %v, by %d connections", body, err, connections())
	}
	_ = res.Body.Close()
	for range 3 { // by the first connection, which has a place again
		if _, body, err := h2Get(t.Context(), client); body != "ok" || connections() != 2 {
			t.Errorf("got %q, %v, by %d connections", body, err, connections())
		}
	}
}

// TestALongAnswerOverHTTP2Arrives holds that upstream may send more as what it sent is read, or is dropped.
func TestALongAnswerOverHTTP2Arrives(t *testing.T) {
	text := bytes.Repeat([]byte("0123456789abcdef"), 4*h2Window/16)
	client := h2Real(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(text) })
	var over sync.WaitGroup
	for i := range 8 {
		over.Go(func() {
			if i%2 == 0 {
				if _, body, err := h2Get(t.Context(), client); err != nil || body != string(text) {
					t.Errorf("%d bytes arrived, %v", len(body), err)
				}
				return
			}
			for range 50 {
				res, err := client.h2.do(t.Context(), "/root/a")
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.ReadFull(res.Body, make([]byte, 100))
				_ = res.Body.Close()
			}
		})
	}
	over.Wait()
}

// TestAnAnswerOverHTTP2ThatNobodyReadsHoldsUpNoOther holds that what is kept of it is bounded.
func TestAnAnswerOverHTTP2ThatNobodyReadsHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int64
		client := h2Piped(t, serveH2(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/ok" {
				_, _ = io.WriteString(w, strings.Repeat("x", 2*h2Window))
				return
			}
			for sent.Load() < 8<<20 {
				n, err := w.Write(make([]byte, h2Frame))
				if sent.Add(int64(n)); err != nil {
					return
				}
			}
		}))
		conn := client.NewConn()
		err := client.Poll(t.Context(), &conn, "/a", "1", "", func(Event) error {
			synctest.Wait() // as long as the store does not take the event
			if n := sent.Load(); n > 4*aheadLimit {
				t.Errorf("%d bytes were taken meanwhile", n)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		sent.Store(0)
		res, err := client.h2.do(t.Context(), "/a")
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := sent.Load(); n > 4*aheadLimit {
			t.Errorf("%d bytes of an answer were taken that nobody reads", n)
		}
		if n := len(res.Body.(*h2Stream).data); n > aheadLimit {
			t.Errorf("%d bytes are kept", n)
		}
		other, err := client.h2.do(t.Context(), "/ok")
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, other.Body); n != 2*h2Window || err != nil {
			t.Errorf("%d bytes of another answer, %v", n, err)
		}
		_, _ = other.Body.Close(), res.Body.Close()
	})
}

// h2Piped returns a client whose connections go to serve. It is for tests in a bubble of synctest.
func h2Piped(t *testing.T, serve func(net.Conn)) *Client {
	return New(Config{
		URL: &url.URL{Scheme: "http", Host: "streams"}, H2C: true,
		Dial: func(context.Context, string, string) (net.Conn, error) {
			conn, peer := net.Pipe()
			t.Cleanup(func() { _, _ = conn.Close(), peer.Close() })
			go serve(peer)
			return conn, nil
		},
	})
}

// serveH2 serves connections as net/http does.
func serveH2(h http.HandlerFunc, change ...func(*http.Server)) func(net.Conn) {
	srv := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	for _, f := range change {
		f(srv)
	}
	srv.Protocols.SetUnencryptedHTTP2(true)
	return func(conn net.Conn) { _ = srv.Serve(given(one(conn))) }
}

// TestAnAnswerOverHTTP2ThatBreaksItsWindowEnds holds that a server cannot have more kept than it may send.
func TestAnAnswerOverHTTP2ThatBreaksItsWindowEnds(t *testing.T) {
	for name, last := range map[string]func(p *h2Peer, id uint32){
		"a byte":  func(p *h2Peer, id uint32) { _ = p.WriteData(id, true, []byte("x")) },
		"padding": func(p *h2Peer, id uint32) { _ = p.WriteDataPadded(id, true, nil, make([]byte, 9)) },
	} {
		t.Run(name, func(t *testing.T) {
			heard := make(chan http2.ErrCode, 1)
			client, connections := h2Serve(t, h2Greeting(), func(p *h2Peer, _ int) {
				id := p.asked()
				p.header(id, false, ":status", "200")
				for range aheadLimit / h2Frame {
					_ = p.WriteData(id, false, make([]byte, h2Frame))
				}
				last(p, id)
				heard <- p.end()
				p.rest()
			})
			res, err := client.h2.do(t.Context(), "/root/a")
			if err != nil {
				t.Fatal(err)
			}
			if code := <-heard; code != http2.ErrCodeFlowControl {
				t.Errorf("the server heard %s", code)
			}
			if text, err := io.ReadAll(res.Body); len(text) > 0 || err == nil ||
				!strings.Contains(err.Error(), "FLOW_CONTROL_ERROR") {
				t.Errorf("got %d bytes, %v", len(text), err)
			}
			_ = res.Body.Close()
			if _, body, err := h2Get(t.Context(), client); body != "ok" || connections() != 1 {
				t.Errorf("the next request: %q, %v, by %d connections", body, err, connections())
			}
		})
	}
}

// TestASilentConnectionOfHTTP2IsCheckedByPings holds how long a request takes to end whose connection is dead, and that
// one by a connection that works goes on.
func TestASilentConnectionOfHTTP2IsCheckedByPings(t *testing.T) {
	wait := func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-time.After(time.Hour):
		}
	}
	server, trusted := h2Certificate(t)
	script := func(play func(p *h2Peer, id uint32)) func(net.Conn) {
		return func(conn net.Conn) {
			if p := newH2Peer(t, conn); p != nil {
				var greets sync.WaitGroup
				greets.Go(func() { _ = p.WriteSettings() }) // the client writes first, and a pipe has no buffer
				id := p.asked()
				greets.Wait()
				play(p, id)
			}
		}
	}
	for name, c := range map[string]struct {
		serve  func(net.Conn)
		secure bool
		after  time.Duration
		err    error
	}{
		"it works":           {serveH2(wait), false, time.Hour, nil},
		"it works, with TLS": {serveH2(wait), true, time.Hour, nil},
		"it does not begin": {
			func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) },
			false, dialTime, os.ErrDeadlineExceeded,
		},
		"nothing comes": {script(func(p *h2Peer, _ uint32) {
			_, _ = io.Copy(io.Discard, p.conn)
		}), false, pingAfter + pingTime, os.ErrDeadlineExceeded},
		"a frame does not end": {script(func(p *h2Peer, id uint32) {
			_, _ = p.conn.Write([]byte{0, 0, 9, 0, 0, 0, 0, 0, byte(id), 'x'})
			_, _ = io.Copy(io.Discard, p.conn)
		}), false, pingAfter, os.ErrDeadlineExceeded},
		"a header does not end": {script(func(p *h2Peer, id uint32) {
			go func() { _, _ = io.Copy(io.Discard, p.conn) }()
			_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: id})
			for p.WriteContinuation(id, false, nil) == nil {
				time.Sleep(time.Second)
			}
		}), false, pingAfter, os.ErrDeadlineExceeded},
		"a frame comes slowly": {script(func(p *h2Peer, id uint32) {
			go func() { _, _ = io.Copy(io.Discard, p.conn) }()
			time.Sleep(pingAfter - time.Second)
			_, _ = p.conn.Write([]byte{0, 0, 4, 8, 0, 0, 0, 0, 0})
			time.Sleep(2 * time.Second)
			_, _ = p.conn.Write([]byte{0, 0, 0, 1})
			p.ok(id, "ok")
		}), false, pingAfter + time.Second, nil},
		"it takes nothing": {script(func(p *h2Peer, _ uint32) {
			for p.WritePing(false, [8]byte{1}) == nil {
				time.Sleep(time.Second)
			}
		}), false, pingTime, os.ErrDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := h2Piped(t, c.serve)
				if c.secure {
					client = h2Piped(t, func(conn net.Conn) { c.serve(tls.Server(conn, server)) })
					client.cfg.URL, client.cfg.TLS = &url.URL{Scheme: "https", Host: "example.com"}, trusted
				}
				began := time.Now()
				res, err := client.h2.do(t.Context(), "/a")
				if err == nil {
					_ = res.Body.Close()
				}
				if !errors.Is(err, c.err) || time.Since(began).Round(time.Second) != c.after {
					t.Errorf("got %v after %s", err, time.Since(began))
				}
				client.Close()
				time.Sleep(time.Minute) // until the server's side has ended
			})
		})
	}
}

// h2Certificate returns the settings for TLS of a server for example.com that speaks HTTP/2, and of its client.
func h2Certificate(t *testing.T) (server, client *tls.Config) {
	srv := httptest.NewTLSServer(nil)
	t.Cleanup(srv.Close)
	client = srv.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	return &tls.Config{Certificates: srv.TLS.Certificates, NextProtos: []string{"h2"}}, client
}

// TestAnUpstreamChoosesTheProtocolOfItsConnections holds that live requests go over HTTP/1.1 if it chooses that, also
// after it has spoken HTTP/2.
func TestAnUpstreamChoosesTheProtocolOfItsConnections(t *testing.T) {
	for _, protocol := range []string{"HTTP/2.0", "HTTP/1.1"} {
		t.Run(protocol, func(t *testing.T) {
			asked := make(chan string, 1)
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set(HeaderNextOffset, "2")
				asked <- r.Proto
			}))
			srv.EnableHTTP2 = protocol == "HTTP/2.0"
			srv.StartTLS()
			defer srv.Close()
			root, err := url.Parse(srv.URL)
			if err != nil {
				t.Fatal(err)
			}
			trusted := srv.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
			client := New(Config{URL: root, TLS: trusted})
			defer client.Close()
			client.http2.Store(true)
			conn := client.NewConn()
			defer conn.Close()
			for range 2 {
				err := client.Poll(t.Context(), &conn, "/a", "1", "", func(Event) error { return nil })
				if proto := <-asked; err != nil || proto != protocol {
					t.Errorf("by %s, %v", proto, err)
				}
			}
			if client.http2.Load() != (protocol == "HTTP/2.0") {
				t.Error("it does not show")
			}
		})
	}
}

// TestAnUpstreamOfSeveralProtocols holds that a connection over HTTP/1.1 is for one request if another one speaks
// HTTP/2, and that all requests learn of it if none does.
func TestAnUpstreamOfSeveralProtocols(t *testing.T) {
	var older atomic.Bool
	var handshakes atomic.Int32
	asked := make(chan string, 1)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(HeaderNextOffset, "2")
		w.WriteHeader(http.StatusOK)
		if _ = http.NewResponseController(w).Flush(); r.Method == http.MethodGet {
			asked <- r.Proto
			<-r.Context().Done()
		}
	}))
	srv.EnableHTTP2 = true
	srv.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 1}
	srv.TLS = &tls.Config{}
	srv.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		handshakes.Add(1)
		cfg := srv.TLS.Clone()
		if cfg.GetConfigForClient = nil; older.Load() {
			cfg.NextProtos = []string{"http/1.1"}
		}
		return cfg, nil
	}
	srv.StartTLS()
	defer srv.Close()
	root, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := New(Config{
		URL: root, TLS: srv.Client().Transport.(*http.Transport).TLSClientConfig.Clone(), HeadTimeout: time.Minute,
	})
	defer client.Close()
	client.http2.Store(true)
	// begin asks, and returns what ends the answer.
	begin := func(want string) (end func()) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		conn := client.NewConn()
		a, err := client.read(ctx, &conn, &question{kind: kindTail, path: "/a", from: "1", live: "long-poll"})
		if err != nil {
			t.Fatal(err)
		}
		if proto := <-asked; proto != want {
			t.Errorf("by %s, want %s", proto, want)
		}
		return func() {
			cutOff(a.Body)
			_ = a.Body.Close()
			conn.Close()
			cancel()
		}
	}
	end := begin("HTTP/2.0")
	older.Store(true)
	if begin("HTTP/1.1")(); !client.http2.Load() {
		t.Error("HTTP/2 is over although it works")
	}
	if _, err := client.HeadAnew(t.Context(), "/a"); err != nil || !client.http2.Load() {
		t.Errorf("after a HEAD (%v), HTTP/2 is over although it works", err)
	}
	end()
	begin("HTTP/2.0")() // by the connection that there is
	client.h2.close()
	begin("HTTP/1.1")()
	before := handshakes.Load()
	if begin("HTTP/1.1")(); handshakes.Load() != before+1 || client.http2.Load() {
		t.Errorf("%d more handshakes for one request", handshakes.Load()-before)
	}
	before = handshakes.Load()
	if _, err := client.h2.do(t.Context(), "/a"); !errors.Is(err, errNoHTTP2) || handshakes.Load() != before {
		t.Errorf("one that has waited: %v", err)
	}
}

// TestAnIdleConnectionOfHTTP2IsClosed holds that it is closed after a while, and with the client.
func TestAnIdleConnectionOfHTTP2IsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open, dialled atomic.Int32
		ok := serveH2(func(w http.ResponseWriter, r *http.Request) {
			if _, _ = io.WriteString(w, "ok"); r.URL.Path == "/goes/on" {
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}
		})
		client := h2Piped(t, func(conn net.Conn) {
			_, _ = open.Add(1), dialled.Add(1)
			ok(counted{conn, func() { open.Add(-1) }})
		})
		get := func() {
			t.Helper()
			if _, body, err := h2Get(t.Context(), client); body != "ok" {
				t.Fatalf("got %q, %v", body, err)
			}
			if synctest.Wait(); open.Load() != 1 {
				t.Errorf("%d connections", open.Load())
			}
		}
		get()
		time.Sleep(connsIdleTime - pingAfter)
		if get(); dialled.Load() != 1 {
			t.Error("it was closed too soon")
		}
		time.Sleep(connsIdleTime + 2*pingAfter)
		if synctest.Wait(); open.Load() != 0 || len(client.h2.conns) != 0 {
			t.Error("it is kept")
		}
		get()
		client.Close()
		if synctest.Wait(); open.Load() != 0 {
			t.Error("it is kept although the client is closed")
		}
		res, err := client.h2.do(t.Context(), "/goes/on")
		if err != nil {
			t.Fatal(err)
		}
		client.Close()
		_ = res.Body.Close()
		if synctest.Wait(); open.Load() != 0 {
			t.Error("it is kept after its last request, although the client is closed")
		}
	})
}

// counted is a connection that says when it closes.
type counted struct {
	net.Conn
	closes func()
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.closes()
	}
	return n, err
}
