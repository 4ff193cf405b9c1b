package bench

import (
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
)

// front has the stream server speak HTTP/2, without TLS. It counts the live requests that are open.
type front struct {
	url  string
	live atomic.Int64
}

func newFront(t *testing.T, root string) *front {
	t.Helper()
	to, err := url.Parse(root)
	if err != nil {
		t.Fatal(err)
	}
	path := to.Path
	to.Path = ""
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 4096}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, Transport: transport, FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	f := &front{}
	server := &http.Server{
		Protocols: new(http.Protocols),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Has("live") {
				f.live.Add(1)
				defer f.live.Add(-1)
			}
			proxy.ServeHTTP(w, r)
		}),
	}
	server.Protocols.SetUnencryptedHTTP2(true)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(func() {
		_ = server.Close()
		transport.CloseIdleConnections()
	})
	f.url = "http://" + ln.Addr().String() + path
	return f
}
