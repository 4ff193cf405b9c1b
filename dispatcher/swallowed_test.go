package dispatcher

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"reveille/fsm"
	"reveille/fsm/router"
)

// forgotten has the connections to an endpoint that a network forgets. After that, the open connections swallow
// everything, and new ones do not.
type forgotten struct {
	certificates []tls.Certificate
	// together is how many requests come before any is answered.
	together int

	mu        sync.Mutex
	arrived   int
	all       chan struct{}
	dialed    int
	oldest    int // the number of the first connection that is not forgotten
	swallowed int
}

// takes says whether the endpoint answers a request on the connection of a number. Before an answer, it waits until the
// answer may be sent.
func (f *forgotten) takes(number int) bool {
	f.mu.Lock()
	if number < f.oldest {
		f.swallowed++
		f.mu.Unlock()
		return false
	}
	if f.arrived++; f.arrived == f.together {
		close(f.all)
	}
	f.mu.Unlock()
	<-f.all
	return true
}

func (f *forgotten) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.oldest = f.dialed + 1
}

func (f *forgotten) dial(context.Context, string, string) (net.Conn, error) {
	f.mu.Lock()
	f.dialed++
	number := f.dialed
	f.mu.Unlock()
	conn, peer := net.Pipe()
	go func() {
		defer func() { _ = peer.Close() }()
		if f.certificates != nil {
			f.http2(number, tls.Server(peer, &tls.Config{Certificates: f.certificates, NextProtos: []string{"h2"}}))
			return
		}
		for in := bufio.NewReader(peer); ; {
			req, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			if f.takes(number) {
				_, _ = io.WriteString(peer, "HTTP/1.1 204 No Content\r\n\r\n")
			}
		}
	}()
	return conn, nil
}

func (f *forgotten) http2(number int, conn *tls.Conn) {
	if _, err := io.CopyN(io.Discard, conn, int64(len(http2.ClientPreface))); err != nil {
		return
	}
	framer := http2.NewFramer(conn, conn)
	answers := make(chan uint32, 10) // the streams of requests; who reads does not write: the pipe has no buffer
	defer close(answers)
	go func() {
		_ = framer.WriteSettings()
		for stream := range answers {
			var block bytes.Buffer
			_ = hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: "204"})
			_ = framer.WriteHeaders(http2.HeadersFrameParam{
				StreamID: stream, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true,
			})
		}
	}()
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return
		}
		h := frame.Header()
		if h.Type == http2.FrameData && h.Flags.Has(http2.FlagDataEndStream) && f.takes(number) {
			answers <- h.StreamID
		}
	}
}

// TestForgottenConnectionsCostOneAttempt holds that a time-out on a used connection ends the use of this connection,
// and of all others of that time.
func TestForgottenConnectionsCostOneAttempt(t *testing.T) {
	certified := httptest.NewTLSServer(nil)
	defer certified.Close()
	for name, tc := range map[string]struct {
		hook     string
		endpoint *forgotten
	}{
		"HTTP/1.1": {"http://10.0.0.1/hook", &forgotten{together: 3}},
		"HTTP/2":   {"https://127.0.0.1/hook", &forgotten{together: 1, certificates: certified.TLS.Certificates}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tc.endpoint.all = make(chan struct{})
				results := make(chan fsm.AttemptResult, 10)
				f := start(t, newMemStore(), func(c *Config) { c.ReadBatch = reads(oneEvent) }, func(d *Dispatcher) {
					d.sender.dial = tc.endpoint.dial
					d.sender.tls.RootCAs = certified.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
					d.cfg.Outcomes.Observe(router.Observer{Attempt: func(a fsm.Attempt) { results <- a.Result }})
				})
				sub := f.store.pushSub(tc.hook, func(s *fsm.Subscription) {
					s.Timeout, s.Retry = 10*time.Second, slices.Repeat([]time.Duration{time.Second}, 5)
				})
				for n := range tc.endpoint.together {
					f.Deliver(f.store.event(sub, fmt.Sprintf("/s/%d", n), "0005"))
				}
				for range tc.endpoint.together {
					if r := <-results; r != fsm.AttemptDone {
						t.Fatalf("before, one is %s", r)
					}
				}
				tc.endpoint.forget()
				f.Deliver(f.store.event(sub, "/s/later", "0005"))
				for _, want := range []fsm.AttemptResult{fsm.AttemptFailed, fsm.AttemptDone} {
					if r := <-results; r != want {
						t.Errorf("it is %s, want %s", r, want)
					}
				}
				f.stop()
				if n := tc.endpoint.swallowed; n != 1 {
					t.Errorf("%d requests were swallowed", n)
				}
			})
		})
	}
}
