package upstream

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// one is what given takes for one connection.
func one(c net.Conn) <-chan net.Conn {
	conns := make(chan net.Conn, 1)
	conns <- c
	close(conns)
	return conns
}

// overHTTP2 is a transport for the gateway whose connections, of HTTP/2, go where serve reads from.
func overHTTP2(t *testing.T, serve func(net.Conn)) *http.Transport {
	transport := NewGatewayTransport(true)
	transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
		conn, peer := net.Pipe()
		t.Cleanup(func() { _, _ = conn.Close(), peer.Close() })
		go serve(peer)
		return conn, nil
	}
	return transport
}

func TestARequestByADeadConnectionOfHTTP2Ends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := overHTTP2(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://streams/a", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := transport.RoundTrip(req)
		if err == nil {
			_ = res.Body.Close()
		}
		if err == nil || ctx.Err() != nil {
			t.Errorf("it hung: %v", err)
		}
	})
}

func TestAClientThatDoesNotReadHoldsUpAnUpstreamOfHTTP2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int64
		srv := &http.Server{
			Protocols: new(http.Protocols),
			Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for {
					n, err := w.Write(make([]byte, 16<<10))
					if sent.Add(int64(n)); err != nil || sent.Load() > 8<<20 {
						return
					}
				}
			}),
		}
		srv.Protocols.SetUnencryptedHTTP2(true)
		transport := overHTTP2(t, func(c net.Conn) { _ = srv.Serve(given(one(c))) })
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://streams/a", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		synctest.Wait()
		if n := sent.Load(); n > 256<<10 {
			t.Errorf("%d bytes of an answer were taken that nobody reads", n)
		}
	})
}
