package dispatcher

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"reveille/fsm"
	"reveille/fsm/router"
)

// usedEndpoint is an endpoint that takes the first request of a connection, and ends the connection with its second.
type usedEndpoint struct {
	// dies ends a connection on which a request has come. The part of the request that reads names was read.
	dies  func(conn net.Conn, raw *net.TCPConn)
	reads string // "nothing", "header" or "all"
	// fresh makes it end each connection after the first as well, with its first request.
	fresh bool

	mu          sync.Mutex
	connections int
	// requests has the number of the connection of each request that came.
	requests []int
}

func (e *usedEndpoint) serve(raw *net.TCPConn, config *tls.Config) {
	e.mu.Lock()
	e.connections++
	number := e.connections
	e.mu.Unlock()
	defer func() { _ = raw.Close() }()
	var conn net.Conn = raw
	if config != nil {
		conn = tls.Server(raw, config)
	}
	in := bufio.NewReader(conn)
	for n := 1; ; n++ {
		if _, err := in.Peek(1); err != nil {
			return
		}
		e.mu.Lock()
		e.requests = append(e.requests, number)
		e.mu.Unlock()
		last := n == 2 || e.fresh && number > 1
		if !last || e.reads != "nothing" {
			req, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			if !last || e.reads == "all" {
				_, _ = io.Copy(io.Discard, req.Body)
			}
		}
		if last {
			e.dies(conn, raw)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
	}
}

// TestAUsedConnectionThatIsClosedIsNoFailure holds that the request is sent once more, on a new connection, if no byte
// of an answer has come. The repetition is reported, and is no attempt of its own.
func TestAUsedConnectionThatIsClosedIsNoFailure(t *testing.T) {
	closes := func(conn net.Conn, _ *net.TCPConn) { _ = conn.Close() }
	resets := func(_ net.Conn, raw *net.TCPConn) { _ = raw.SetLinger(0) }
	begins := func(text string) func(net.Conn, *net.TCPConn) {
		return func(conn net.Conn, _ *net.TCPConn) { _, _ = io.WriteString(conn, text) }
	}
	large := fsm.Batch{
		ContentType: "application/json", JSON: true, To: "0005", Tail: "0005",
		Events: [][]byte{fmt.Appendf(nil, "%q", strings.Repeat("x", 1<<20))},
	}
	for _, tc := range []struct {
		name     string
		tls      bool
		endpoint *usedEndpoint
		headers  map[string]string
		batch    fsm.Batch
		// requests has the connection of each request that arrives, results the results of the attempts.
		requests []int
		results  []fsm.AttemptResult
	}{
		{name: "closed before it is read", endpoint: &usedEndpoint{dies: closes, reads: "nothing"}},
		{name: "closed after the header", endpoint: &usedEndpoint{dies: closes, reads: "header"}},
		{name: "closed after the request", endpoint: &usedEndpoint{dies: closes, reads: "all"}},
		{name: "reset", endpoint: &usedEndpoint{dies: resets, reads: "all"}},
		{
			name:  "reset in the middle of a large request",
			batch: large, endpoint: &usedEndpoint{dies: resets, reads: "header"},
		},
		{name: "closed with TLS's goodbye", tls: true, endpoint: &usedEndpoint{dies: closes, reads: "all"}},
		{name: "reset below TLS", tls: true, endpoint: &usedEndpoint{dies: resets, reads: "all"}},
		{
			name: "with a header by which net/http repeats", endpoint: &usedEndpoint{dies: closes, reads: "all"},
			headers: map[string]string{"Idempotency-Key": "x"},
		},
		{
			name: "and the new one, too", endpoint: &usedEndpoint{dies: closes, reads: "all", fresh: true},
			requests: []int{1, 1, 2}, results: []fsm.AttemptResult{fsm.AttemptDone, fsm.AttemptFailed},
		},
		{
			name: "after a byte of an answer", endpoint: &usedEndpoint{dies: begins("H"), reads: "all"},
			requests: []int{1, 1}, results: []fsm.AttemptResult{fsm.AttemptDone, fsm.AttemptFailed},
		},
		{
			name:     "after an interim answer",
			endpoint: &usedEndpoint{dies: begins("HTTP/1.1 103 Early Hints\r\n\r\n"), reads: "all"},
			requests: []int{1, 1}, results: []fsm.AttemptResult{fsm.AttemptDone, fsm.AttemptFailed},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.requests == nil {
				tc.requests = []int{1, 1, 2}
				tc.results = []fsm.AttemptResult{fsm.AttemptDone, fsm.AttemptDone}
			}
			if tc.batch.Events == nil {
				tc.batch = oneEvent
			}
			hook, certified := rawEndpoint(t, tc.tls, nil, tc.endpoint.serve)
			attempts := make(chan fsm.Attempt, 2)
			f := start(t, newMemStore(), func(c *Config) { c.ReadBatch = reads(tc.batch) }, func(d *Dispatcher) {
				d.sender.tls.RootCAs = certified.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
				d.cfg.Outcomes.Observe(router.Observer{Attempt: func(a fsm.Attempt) { attempts <- a }})
			})
			sub := f.store.pushSub(hook, func(s *fsm.Subscription) {
				s.Retry, s.Headers = []time.Duration{time.Hour}, tc.headers
			})
			var results []fsm.AttemptResult
			for n := range 2 {
				f.Deliver(f.store.event(sub, fmt.Sprintf("/s/%d", n), "0005"))
				a := <-attempts
				results = append(results, a.Result)
				if a.Delivery.Attempt != 1 || a.Repeated != (n == 1 && len(tc.requests) == 3) {
					t.Errorf("attempt %d, repeated: %t", a.Delivery.Attempt, a.Repeated)
				}
			}
			f.stop()
			tc.endpoint.mu.Lock()
			defer tc.endpoint.mu.Unlock()
			if !slices.Equal(tc.endpoint.requests, tc.requests) || !slices.Equal(results, tc.results) {
				t.Errorf("requests on the connections %v, results %v; want %v and %v", tc.endpoint.requests, results,
					tc.requests, tc.results)
			}
			if said := f.logs.FilterField(zap.Bool("repeated", true)).Len() > 0; said != (len(tc.requests) == 3) {
				t.Errorf("the log says that it was repeated: %t", said)
			}
		})
	}
}

// TestAClosedHTTP2ConnectionIsNoFailure holds the same over HTTP/2, where a stream that is reset is a failure.
func TestAClosedHTTP2ConnectionIsNoFailure(t *testing.T) {
	for _, tc := range []struct {
		name     string
		dies     func(f *http2.Framer, stream uint32)
		requests int
		result   fsm.AttemptResult
	}{
		{"closed", func(*http2.Framer, uint32) {}, 3, fsm.AttemptDone},
		{"closed after a GOAWAY that counts it", func(f *http2.Framer, stream uint32) {
			_ = f.WriteGoAway(stream, http2.ErrCodeNo, nil)
		}, 3, fsm.AttemptDone},
		{"after the stream was reset", func(f *http2.Framer, stream uint32) {
			_ = f.WriteRSTStream(stream, http2.ErrCodeInternal)
			_, _ = f.ReadFrame()
			time.Sleep(time.Millisecond)
		}, 2, fsm.AttemptFailed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var mu sync.Mutex
			requests, connections := 0, 0
			hook, certified := rawEndpoint(t, true, []string{"h2"}, func(raw *net.TCPConn, config *tls.Config) {
				mu.Lock()
				connections++
				mu.Unlock()
				defer func() { _ = raw.Close() }()
				conn := tls.Server(raw, config)
				_, _ = io.CopyN(io.Discard, conn, int64(len(http2.ClientPreface)))
				f := http2.NewFramer(conn, conn)
				_ = f.WriteSettings()
				for n := 0; ; {
					frame, err := f.ReadFrame()
					if err != nil {
						return
					}
					if !frame.Header().Flags.Has(http2.FlagDataEndStream) || frame.Header().Type != http2.FrameData {
						continue
					}
					mu.Lock()
					requests++
					last := requests == 2
					mu.Unlock()
					if n++; last {
						tc.dies(f, frame.Header().StreamID)
						return
					}
					var block bytes.Buffer
					_ = hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: "204"})
					_ = f.WriteHeaders(http2.HeadersFrameParam{
						StreamID: frame.Header().StreamID, BlockFragment: block.Bytes(), EndStream: true,
						EndHeaders: true,
					})
				}
			})
			attempts := make(chan fsm.Attempt, 2)
			f := start(t, newMemStore(), func(c *Config) { c.ReadBatch = reads(oneEvent) }, func(d *Dispatcher) {
				d.sender.tls.RootCAs = certified.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
				d.cfg.Outcomes.Observe(router.Observer{Attempt: func(a fsm.Attempt) { attempts <- a }})
			})
			sub := f.store.pushSub(hook, func(s *fsm.Subscription) { s.Retry = []time.Duration{time.Hour} })
			for n, want := range []fsm.AttemptResult{fsm.AttemptDone, tc.result} {
				f.Deliver(f.store.event(sub, fmt.Sprintf("/s/%d", n), "0005"))
				if a := <-attempts; a.Result != want {
					t.Errorf("attempt %d is %s (%s), want %s", n, a.Result, a.Reason, want)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if requests != tc.requests || connections != tc.requests-1 {
				t.Errorf("%d requests on %d connections", requests, connections)
			}
		})
	}
}

// rawEndpoint is an endpoint whose connections are served one by one, and a server whose certificate it has.
func rawEndpoint(
	t *testing.T, encrypted bool, protocols []string, serve func(*net.TCPConn, *tls.Config),
) (hook string, certified *httptest.Server) {
	t.Helper()
	certified = httptest.NewTLSServer(nil)
	t.Cleanup(certified.Close)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait)
	t.Cleanup(func() { _ = ln.Close() })
	hook, config := "http://"+ln.Addr().String(), (*tls.Config)(nil)
	if encrypted {
		hook = "https://" + ln.Addr().String()
		config = &tls.Config{Certificates: certified.TLS.Certificates, NextProtos: protocols}
	}
	serving.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { serve(conn.(*net.TCPConn), config) })
		}
	})
	return hook, certified
}
