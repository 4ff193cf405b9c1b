package e2e

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"reveille/test/harness"
)

// seen is a request that reached a proxy.
type seen struct {
	method, path, query, protocol string
}

// fault deals with a request in place of the stream server, which forward passes it on to.
type fault func(w http.ResponseWriter, r *http.Request, forward http.Handler)

// status answers every request with a status.
func status(code int) fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { w.WriteHeader(code) }
}

// hang never answers.
func hang(_ http.ResponseWriter, r *http.Request, _ http.Handler) { <-r.Context().Done() }

// loseAnswers passes requests on and keeps live ones open that are answered with data.
func loseAnswers(w http.ResponseWriter, r *http.Request, forward http.Handler) {
	if !r.URL.Query().Has("live") {
		forward.ServeHTTP(w, r)
		return
	}
	answer := httptest.NewRecorder()
	forward.ServeHTTP(answer, r)
	<-r.Context().Done()
}

// proxy stands between Reveille and the stream server, counts what goes by and misbehaves as a test says.
type proxy struct {
	// URL is what Reveille takes for the stream root.
	URL string

	t    *testing.T
	addr string
	// root is the folder that the stream root is; what is counted and awaited is named by paths below it.
	root    string
	forward *httputil.ReverseProxy

	mu     sync.Mutex
	server *http.Server
	fault  fault
	log    []seen
	// live is how many live requests are open, by path.
	live map[string]int
	// h2c has it speak HTTP/2 alone; connections counts those that were ever made to it.
	h2c         bool
	connections atomic.Int64
}

// newProxy starts a proxy for a stream root.
func newProxy(t *testing.T, root string) *proxy {
	t.Helper()
	p := unstartedProxy(t, root)
	p.listen()
	return p
}

func unstartedProxy(t *testing.T, root string) *proxy {
	t.Helper()
	target, err := url.Parse(root)
	if err != nil {
		t.Fatal(err)
	}
	root = target.Path
	target.Path = ""
	p := &proxy{
		t: t, addr: fmt.Sprintf("127.0.0.1:%d", harness.FreePort(t)), root: root, live: map[string]int{},
		forward: &httputil.ReverseProxy{
			Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
			Transport:     &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 1000},
			FlushInterval: -1,
			ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
				w.WriteHeader(http.StatusBadGateway)
			},
		},
	}
	p.URL = "http://" + p.addr + root
	t.Cleanup(func() {
		p.refuse()
		p.forward.Transport.(*http.Transport).CloseIdleConnections()
	})
	return p
}

// listen takes connections, again after refuse.
func (p *proxy) listen() {
	p.t.Helper()
	var ln net.Listener
	harness.Eventually(p.t, soon, "the proxy listens", func() (err error) {
		ln, err = net.Listen("tcp", p.addr)
		return err
	})
	server := &http.Server{Handler: p, Protocols: new(http.Protocols), ConnState: func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			p.connections.Add(1)
		}
	}}
	server.Protocols.SetHTTP1(!p.h2c)
	server.Protocols.SetUnencryptedHTTP2(p.h2c)
	p.mu.Lock()
	p.server = server
	p.mu.Unlock()
	go func() { _ = server.Serve(ln) }()
}

// refuse cuts all connections and takes no more.
func (p *proxy) refuse() {
	p.mu.Lock()
	server := p.server
	p.mu.Unlock()
	_ = server.Close()
}

// setFault has requests that come from now on go to f; nil lets them through.
func (p *proxy) setFault(f fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
}

// breakDown is setFault that also cuts the requests that are open.
func (p *proxy) breakDown(f fault) {
	p.t.Helper()
	p.setFault(f)
	p.refuse()
	p.listen()
}

// ServeHTTP passes a request on, or has the fault deal with it.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	live, path := r.URL.Query().Has("live"), strings.TrimPrefix(r.URL.EscapedPath(), p.root)
	p.mu.Lock()
	p.log = append(p.log, seen{method: r.Method, path: path, query: r.URL.RawQuery, protocol: r.Proto})
	if live {
		p.live[path]++
	}
	fault := p.fault
	p.mu.Unlock()
	if live {
		defer func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.live[path]--
		}()
	}
	if fault != nil {
		fault(w, r, p.forward)
		return
	}
	p.forward.ServeHTTP(w, r)
}

// requests for a stream so far.
func (p *proxy) requests(path string) []seen {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []seen
	for _, r := range p.log {
		if r.path == path {
			list = append(list, r)
		}
	}
	return list
}

// count returns how many requests there were of a kind.
func (p *proxy) count(of func(seen) bool) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.log {
		if of(r) {
			n++
		}
	}
	return n
}

// waiting is how many live requests for a stream are open.
func (p *proxy) waiting(path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.live[path]
}

// watched is for how many streams live requests are open.
func (p *proxy) watched() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, open := range p.live {
		if open > 0 {
			n++
		}
	}
	return n
}
