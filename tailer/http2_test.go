package tailer

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
)

// serve2 has an upstream speak HTTP/2, by TLS or without, and notes what it was asked by.
func serve2(t *testing.T, u *server, secure bool) (
	root *url.URL, trusted *tls.Config, connections, others *atomic.Int32,
) {
	t.Helper()
	connections, others = &atomic.Int32{}, &atomic.Int32{}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			others.Add(1)
		}
		u.ServeHTTP(w, r)
	}))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	if secure {
		srv.EnableHTTP2 = true
		srv.StartTLS()
		trusted = srv.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		trusted.NextProtos = nil
	} else {
		srv.Config.Protocols = new(http.Protocols)
		srv.Config.Protocols.SetUnencryptedHTTP2(true)
		srv.Start()
	}
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	root, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	return root, trusted, connections, others
}

func TestAnUpstreamOfHTTP2IsWatchedByFewConnections(t *testing.T) {
	for name, secure := range map[string]bool{"h2": true, "h2c": false} {
		for _, mode := range watchedBy {
			t.Run(name+" "+mode, func(t *testing.T) {
				r := newRig(t)
				root, trusted, connections, others := serve2(t, r.up, secure)
				r.build(func(c *Config) {
					c.Upstream.URL, c.Upstream.TLS, c.Upstream.H2C = root, trusted, !secure
					c.Upstream.TailMode = mode
				})
				r.start()
				r.subscribe("s", "/**")
				paths := []string{"/a", "/b", "/c", "/d", "/e", "/f", "/g", "/h", "/i", "/j"}
				for _, path := range paths {
					r.put(path)
					r.done(r.wake(path, 1))
					r.watchedLive(path) // until there is a connection, each request makes one
				}
				for _, path := range paths {
					r.watchedLive(path)
				}
				for _, path := range paths {
					r.up.append(path, "1")
					r.done(r.wake(path, 2))
				}
				if n := connections.Load(); n > 5 {
					t.Errorf("%d connections for %d streams", n, len(paths))
				}
				if others.Load() > 0 {
					t.Error("it was asked by another protocol")
				}
			})
		}
	}
}
