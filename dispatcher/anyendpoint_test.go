package dispatcher

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"pgregory.net/rapid"

	"reveille/fsm"
	"reveille/fsm/router"
)

// anyEndpoint is an endpoint by the bytes that it sends.
type anyEndpoint struct {
	// mode is "wake", "push" or "test".
	mode string
	h2   bool
	// reads is how many bytes of the request it reads before it answers; readsAll for all of them.
	reads int
	// sends is its answer. After that, it sends sendsOn again and again.
	sends, sendsOn []byte
	ends           closing
}

const readsAll = -1

type closing string

// The endings of a connection.
const (
	closes      closing = "closes"
	halfCloses  closing = "half-closes"
	resets      closing = "resets"
	staysOpen   closing = "stays open"
	readsNoMore closing = "stays open and reads no more"
)

func (e anyEndpoint) String() string {
	return fmt.Sprintf("%s, h2 %t: reads %d, sends %q and then %q, %s", e.mode, e.h2, e.reads, shortened(e.sends),
		shortened(e.sendsOn), e.ends)
}

func shortened(b []byte) string { return fmt.Sprintf("%.400s", b) }

// drawEndpoint draws how an endpoint behaves.
func drawEndpoint(t *rapid.T) anyEndpoint {
	e := anyEndpoint{
		mode:  rapid.SampledFrom([]string{"wake", "push", "test"}).Draw(t, "mode"),
		h2:    rapid.IntRange(0, 3).Draw(t, "protocol") == 0,
		reads: rapid.SampledFrom([]int{readsAll, readsAll, readsAll, 0, 1, 30, 200}).Draw(t, "reads"),
		ends: rapid.SampledFrom([]closing{closes, halfCloses, resets, staysOpen, staysOpen, readsNoMore}).
			Draw(t, "ends"),
	}
	if e.h2 {
		e.sends = drawFrames(t)
	} else {
		e.sends = drawAnswer(t)
		e.sendsOn = []byte(rapid.SampledFrom([]string{
			"", "", "", "HTTP/1.1 103 Early Hints\r\n\r\n", "X-More: of the header\r\n", "body", "1\r\nx\r\n", "\x00",
		}).Draw(t, "sends on"))
	}
	if rapid.Bool().Draw(t, "stops") {
		e.sends = e.sends[:rapid.IntRange(0, len(e.sends)).Draw(t, "stops at")]
	}
	return e
}

// drawAnswer draws an answer of HTTP/1.1, or something that a bad endpoint takes for one.
func drawAnswer(t *rapid.T) []byte {
	var b bytes.Buffer
	for range rapid.SampledFrom([]int{0, 0, 0, 1, 3, 5000}).Draw(t, "interim answers") {
		fmt.Fprintf(&b, "HTTP/1.1 %d Wait\r\n\r\n", rapid.SampledFrom([]int{100, 102, 103, 199}).Draw(t, "interim"))
	}
	status := rapid.OneOf(
		rapid.SampledFrom([]int{101, 101, 200, 204, 304, 410}), rapid.SampledFrom([]int{101, 200}),
		rapid.IntRange(100, 999), rapid.IntRange(0, 99999),
	).Draw(t, "status")
	version := rapid.SampledFrom([]string{
		"HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "SSH-2.0",
	}).Draw(t, "version")
	fmt.Fprintf(&b, "%s %03d %s\r\n", version, status, rapid.SampledFrom([]string{"", "Fine"}).Draw(t, "phrase"))
	if status == http.StatusSwitchingProtocols && rapid.Bool().Draw(t, "to another") {
		b.WriteString("Connection: Upgrade\r\nUpgrade: x\r\n")
	}
	for range rapid.IntRange(0, 4).Draw(t, "headers") {
		b.WriteString(rapid.SampledFrom([]string{
			"Connection: Upgrade\r\nUpgrade: x\r\n", "Connection: close\r\n", "Connection: keep-alive\r\n",
			"Content-Length: 0\r\n", "Content-Length: 13\r\n", "Content-Length: 1000000000\r\n",
			"Content-Length: -1\r\n",
			"Transfer-Encoding: chunked\r\n", "Transfer-Encoding: gzip, chunked\r\n", "Trailer: X-Trailer\r\n",
			"Content-Encoding: gzip\r\n", "Retry-After: 1\r\n", "Location: /elsewhere\r\n", "no header\r\n",
			"X-Long: " + strings.Repeat("x", maxHeaderBytes) + "\r\n", "\x00: x\r\n",
		}).Draw(t, "header"))
	}
	b.WriteString("\r\n")
	b.WriteString(rapid.SampledFrom([]string{
		"", `{"done":true}`, `{"done":`, "d\r\n{\"done\":true}\r\n0\r\n\r\n", "d\r\n{\"done\":true}\r\n",
		"1\r\nx\r\n0\r\nX-Trailer: x\r\n\r\n", "0\r\nX-Trailer: x\r\n", "ffffffffffffffff\r\nx", "x\r\n",
		strings.Repeat("x", 2*maxAnswer),
	}).Draw(t, "body"))
	b.WriteString(rapid.SampledFrom([]string{
		"", "", "0\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 408 Request Timeout\r\n\r\n", "x",
	}).Draw(t, "after the answer"))
	return b.Bytes()
}

// drawFrames draws frames of HTTP/2, mostly of the only stream that there is, in any order.
func drawFrames(t *rapid.T) []byte {
	var b, block bytes.Buffer
	f := http2.NewFramer(&b, nil)
	f.AllowIllegalWrites = true
	encoder := hpack.NewEncoder(&block)
	if rapid.IntRange(0, 5).Draw(t, "settings first") > 0 {
		_ = f.WriteSettings(rapid.SampledFrom([][]http2.Setting{
			nil, nil,
			{{ID: http2.SettingMaxConcurrentStreams, Val: 0}},
			{{ID: http2.SettingInitialWindowSize, Val: 0}},
			{{ID: http2.SettingMaxFrameSize, Val: 1}},
			{{ID: http2.SettingHeaderTableSize, Val: 0}},
		}).Draw(t, "settings")...)
		_ = f.WriteSettingsAck()
	}
	for range rapid.IntRange(0, 8).Draw(t, "frames") {
		stream := rapid.SampledFrom([]uint32{1, 1, 1, 1, 1, 0, 2, 3}).Draw(t, "stream")
		end := rapid.Bool().Draw(t, "end")
		switch rapid.SampledFrom([]string{
			"headers", "headers", "headers", "data", "data", "trailers", "reset", "goaway", "window", "ping", "promise",
			"continuation", "settings", "unknown", "priority",
		}).Draw(t, "frame") {
		case "headers":
			block.Reset()
			status := rapid.OneOf(
				rapid.SampledFrom([]int{200, 204, 103, 101}), rapid.IntRange(0, 1099),
			).Draw(t, "status")
			_ = encoder.WriteField(hpack.HeaderField{Name: ":status", Value: fmt.Sprint(status)})
			if rapid.Bool().Draw(t, "length") {
				_ = encoder.WriteField(hpack.HeaderField{
					Name:  "content-length",
					Value: rapid.SampledFrom([]string{"0", "13", "x"}).Draw(t, "content-length"),
				})
			}
			_ = f.WriteHeaders(http2.HeadersFrameParam{
				StreamID: stream, BlockFragment: block.Bytes(), EndStream: end,
				EndHeaders: rapid.IntRange(0, 5).Draw(t, "end of headers") > 0,
			})
		case "data":
			_ = f.WriteData(stream, end, bytes.Repeat([]byte("x"), rapid.SampledFrom([]int{0, 13, 1 << 14, 1 << 20}).
				Draw(t, "data")))
		case "trailers":
			block.Reset()
			_ = encoder.WriteField(hpack.HeaderField{Name: "x-trailer", Value: "x"})
			_ = f.WriteHeaders(http2.HeadersFrameParam{
				StreamID: stream, BlockFragment: block.Bytes(), EndStream: end, EndHeaders: true,
			})
		case "reset":
			_ = f.WriteRSTStream(stream, http2.ErrCode(rapid.Uint32Range(0, 14).Draw(t, "code")))
		case "goaway":
			_ = f.WriteGoAway(stream, http2.ErrCode(rapid.Uint32Range(0, 14).Draw(t, "code")), []byte("bye"))
		case "window":
			_ = f.WriteWindowUpdate(stream, rapid.SampledFrom([]uint32{0, 1, 1 << 20, 1<<31 - 1}).Draw(t, "window"))
		case "ping":
			_ = f.WritePing(end, [8]byte{1})
		case "promise":
			_ = f.WritePushPromise(http2.PushPromiseParam{StreamID: stream, PromiseID: 2, EndHeaders: true})
		case "continuation":
			_ = f.WriteContinuation(stream, end, []byte("x"))
		case "settings":
			_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
		case "unknown":
			_ = f.WriteRawFrame(http2.FrameType(rapid.IntRange(10, 255).Draw(t, "type")), 0, stream, []byte("x"))
		case "priority":
			_ = f.WritePriority(stream, http2.PriorityParam{StreamDep: stream})
		}
	}
	return b.Bytes()
}

// anyServer serves endpoints, each at an address of its own.
type anyServer struct {
	t         *testing.T
	tls       *tls.Config
	listeners []net.Listener
	// over is closed when the client has nothing more to do.
	over chan struct{}
	// connections counts the connections that are still open to their client.
	connections sync.WaitGroup
	mu          sync.Mutex
	open        map[net.Conn]string
}

func (s *anyServer) serve(e anyEndpoint) (hook string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	s.listeners = append(s.listeners, ln)
	s.connections.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			s.connections.Go(func() { s.answer(e, conn.(*net.TCPConn)) })
		}
	})
	if e.h2 {
		return "https://" + ln.Addr().String()
	}
	return "http://" + ln.Addr().String()
}

// answer returns when the client or the endpoint has closed the connection.
func (s *anyServer) answer(e anyEndpoint, raw *net.TCPConn) {
	s.mu.Lock()
	s.open[raw] = e.String()
	s.mu.Unlock()
	defer func() {
		_ = raw.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, raw)
	}()
	var conn net.Conn = raw
	if e.h2 {
		conn = tls.Server(raw, s.tls)
	}
	gone := make(chan struct{})
	switch e.reads {
	case readsAll:
		b := make([]byte, 64<<10)
		if _, err := conn.Read(b); err != nil { // the request has come, or begun to
			return
		}
	default:
		_, _ = io.CopyN(io.Discard, conn, int64(e.reads))
	}
	go func() {
		defer close(gone)
		if e.ends == readsNoMore {
			<-s.over
		}
		_, _ = io.Copy(io.Discard, raw)
	}()
	_, err := conn.Write(e.sends)
	for more := bytes.Repeat(e.sendsOn, 100); err == nil && len(more) > 0; _, err = conn.Write(more) {
		select {
		case <-gone:
			return
		case <-time.After(time.Millisecond): // one machine has many of these
		}
	}
	switch e.ends {
	case closes:
		return
	case resets:
		_ = raw.SetLinger(0)
		return
	case halfCloses:
		_ = raw.CloseWrite()
	case staysOpen, readsNoMore:
	}
	<-gone
}

// TestAnAttemptEndsWhateverItsEndpointSends draws endpoints by their bytes. Each attempt has its result. Afterwards, no
// slot is taken, another subscription gets its event, and all connections are closed.
func TestAnAttemptEndsWhateverItsEndpointSends(t *testing.T) {
	certified := httptest.NewTLSServer(nil)
	defer certified.Close()
	serverTLS := &tls.Config{Certificates: certified.TLS.Certificates, NextProtos: []string{"h2"}}
	roots := x509.NewCertPool()
	roots.AddCert(certified.Certificate())
	width := 100 // rapid checks a hundred times, and a fifth of it in the short form
	if testing.Short() {
		width = 12
	}
	rapid.Check(t, func(rt *rapid.T) {
		var endpoints []anyEndpoint
		for range width {
			endpoints = append(endpoints, drawEndpoint(rt))
		}
		for _, mode := range []string{"wake", "push", "test"} {
			endpoints = append(endpoints, anyEndpoint{mode: mode, reads: readsAll, ends: staysOpen, sends: []byte(
				"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
			)})
		}
		playEndpoints(t, rt, endpoints, serverTLS, roots)
	})
}

// playEndpoints sends each endpoint one delivery.
func playEndpoints(
	t *testing.T, rt *rapid.T, endpoints []anyEndpoint, serverTLS *tls.Config, roots *x509.CertPool,
) {
	const timeout = 100 * time.Millisecond
	srv := &anyServer{t: t, tls: serverTLS, over: make(chan struct{}), open: map[net.Conn]string{}}
	results := make(chan string, 2*len(endpoints)+1)
	f := start(t, newMemStore(), func(c *Config) { c.ReadBatch = reads(oneEvent) }, func(d *Dispatcher) {
		d.sender.tls.RootCAs = roots
		d.cfg.Outcomes.Observe(router.Observer{Attempt: func(a fsm.Attempt) {
			if a.Delivery.Attempt == 1 {
				results <- a.Delivery.Subscription
			}
		}})
	})
	waiting, tests := map[string]string{}, 0
	for n, e := range endpoints {
		id, hook := fmt.Sprintf("s%d", n), srv.serve(e)
		if e.mode == "test" {
			if tests++; tests > maxTests {
				e.mode = "push"
			}
		}
		sub := f.store.pushSub(hook, func(s *fsm.Subscription) {
			s.ID, s.Generation, s.Pattern, s.Timeout = id, "g-"+id, "/"+id+"/*", timeout
			s.Retry = []time.Duration{time.Hour}
			if e.mode == "wake" {
				s.Mode = fsm.ModeWake
			}
		})
		waiting[id] = e.String()
		if e.mode == "test" {
			go func() {
				if _, err := f.Test(t.Context(), sub); err != nil {
					t.Error(err)
				}
				results <- id
			}()
			continue
		}
		f.Deliver(f.store.event(sub, "/"+id+"/1", "0005"))
	}
	patience := time.After(time.Minute)
	for len(waiting) > 0 {
		select {
		case id := <-results:
			delete(waiting, id)
		case <-patience:
			rt.Fatalf("%d attempts are not over: %v", len(waiting), waiting)
		}
	}
	healthy := f.store.addSubscription("healthy", endpoint(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"done":true}`)
	}))
	f.Deliver(f.store.event(healthy, "/healthy/1", "0005"))
	f.store.until(t, "a healthy subscription has its event", func() bool {
		return f.store.consumer("healthy:%2Fhealthy%2F1").Links["/healthy/1"].Acked == "0005"
	})
	f.stop()
	f.mu.Lock()
	if f.slots.inFlight != 0 || f.slots.bytes != 0 || len(f.tests) != 0 {
		rt.Errorf("%d slots, %d bytes and %d tests are taken", f.slots.inFlight, f.slots.bytes, len(f.tests))
	}
	f.mu.Unlock()
	close(srv.over)
	for _, ln := range srv.listeners {
		_ = ln.Close()
	}
	late := time.AfterFunc(time.Minute, srv.fail)
	srv.connections.Wait() // each is closed by its client, or by its end
	late.Stop()
}

func (s *anyServer) fail() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn, e := range s.open {
		s.t.Errorf("a connection is open: %s", e)
		_ = conn.Close()
	}
}
