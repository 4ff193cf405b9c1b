package fault

import (
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"

	"reveille/test/harness"
)

// proxyTrouble is how often the proxy does something else than to pass a request on, whatever the scenario: by plain
// HTTP with each request, in a tunnel as it begins and with each piece of data to the receiver.
const proxyTrouble = 0.01

// The ways in which requests go through the proxy, and what it does instead. It never does so to an answer: what a
// receiver has answered, its sender gets to know.
const (
	proxyPlain  = "through the proxy by plain HTTP"
	proxyTunnel = "through a tunnel of the proxy"

	proxyRefuses  = "refused"
	proxyCuts     = "cut"
	proxySwallows = "swallowed"
)

// proxyStatuses are what the proxy refuses with. If they were the endpoint's, most would be final.
var proxyStatuses = []int{
	http.StatusForbidden, http.StatusNotFound, http.StatusProxyAuthRequired, http.StatusGone, http.StatusBadGateway,
}

// unproxied is an address that leads to this machine and is not of its loopback network, which net/http never asks a
// proxy for. NO_PROXY has it.
const unproxied = "0.0.0.0"

// forwardProxy is the proxy of the replicas' environment. It leads from the addresses of webhooks, which are never
// dialled, to receivers.
type forwardProxy struct {
	w *world
	// routes are the receivers' addresses, by what a request has as its host. They are complete before the first one.
	routes map[string]string
	plain  *httputil.ReverseProxy
	ca     *harness.CA

	conduct
}

// startProxy starts the proxy, with a link that leads to it.
func (w *world) startProxy() {
	w.t.Helper()
	quiet := log.New(io.Discard, "", 0)
	p := &forwardProxy{w: w, routes: map[string]string{}, ca: harness.NewCA(w.t, net.IPv4(10, 1, 1, 3))}
	p.plain = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.URL.Host = p.routes[r.In.Host] },
		Transport:     &http.Transport{DisableKeepAlives: true, DisableCompression: true},
		FlushInterval: -1, // a status is passed on before its body
		ErrorLog:      quiet,
		ErrorHandler: func(rw http.ResponseWriter, _ *http.Request, _ error) {
			rw.Header().Set("Proxy-Status", "proxy.test; error=connection_terminated")
			rw.WriteHeader(http.StatusBadGateway)
		},
	}
	ln, err := (&net.ListenConfig{}).Listen(w.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	server := &http.Server{Handler: p, ReadHeaderTimeout: 10 * time.Second, ErrorLog: quiet}
	go func() { _ = server.Serve(ln) }()
	w.t.Cleanup(func() { _ = server.Close() })
	w.proxy, w.toProxy = p, w.connect(linkWebhook, -1, ln.Addr().String())
}

// settings have a replica use the proxy.
func (p *forwardProxy) settings() map[string]string {
	return map[string]string{
		"REVEILLE_WEBHOOK_PROXY_FROM_ENV": "true",
		"HTTP_PROXY":                      p.w.toProxy.URL(),
		"HTTPS_PROXY":                     p.w.toProxy.URL(),
		"NO_PROXY":                        unproxied,
		"REVEILLE_WEBHOOK_ALLOW_CIDRS":    unproxied + "/32",
		"SSL_CERT_FILE":                   p.ca.File,
	}
}

// leads has the proxy lead from the host of a webhook to an address.
func (p *forwardProxy) leads(webhook, addr string) {
	scheme, host, _ := strings.Cut(webhook, "://")
	if scheme == "https" {
		host += ":443"
	}
	p.routes[host] = addr
}

// draws says what the proxy does instead of passing something on; empty if it passes it on.
func (p *forwardProxy) draws() string {
	if !p.w.chance(proxyTrouble + p.behaviour().proxy) {
		return ""
	}
	switch n := p.w.random(10); {
	case n < 5:
		return proxyRefuses
	case n < 8:
		return proxyCuts
	}
	return proxySwallows
}

// ServeHTTP passes a request on, makes a tunnel, or does neither.
func (p *forwardProxy) ServeHTTP(rw http.ResponseWriter, req *http.Request) {
	to, there := p.routes[req.Host]
	if !there {
		p.w.t.Errorf("the proxy is asked for %s", req.Host)
		rw.WriteHeader(http.StatusNotFound)
		return
	}
	way := proxyPlain
	if req.Method == http.MethodConnect {
		way = proxyTunnel
	}
	drawn := p.draws()
	if drawn != "" {
		p.w.drew(way + ", " + drawn)
	}
	switch {
	case drawn == proxyRefuses:
		_, _ = io.Copy(io.Discard, req.Body)
		if way == proxyPlain {
			rw.Header().Set("Proxy-Status", "proxy.test; error=http_request_denied")
		}
		rw.WriteHeader(proxyStatuses[p.w.random(len(proxyStatuses))])
	case drawn == proxyCuts:
		panic(http.ErrAbortHandler)
	case drawn == proxySwallows:
		swallow(p.w, req)
		panic(http.ErrAbortHandler)
	case way == proxyPlain:
		p.plain.ServeHTTP(rw, req)
	default:
		p.tunnel(rw, to)
	}
}

// tunnel passes on bytes in both directions until one of them ends.
func (p *forwardProxy) tunnel(rw http.ResponseWriter, to string) {
	receiver, err := net.Dial("tcp", to)
	if err != nil {
		rw.WriteHeader(http.StatusBadGateway)
		return
	}
	defer func() { _ = receiver.Close() }()
	rw.WriteHeader(http.StatusOK)
	client, _, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		p.w.t.Errorf("a tunnel: %v", err)
		return
	}
	var back sync.WaitGroup
	defer back.Wait()
	defer func() { _, _ = client.Close(), receiver.Close() }()
	back.Go(func() {
		_, _ = io.Copy(client, receiver)
		_, _ = client.Close(), receiver.Close()
	})
	p.forward(receiver, client)
}

// forward passes on what a tunnel's client sends, until it is drawn that it does not. A request that it cuts or
// swallows has not come to the receiver whole.
func (p *forwardProxy) forward(receiver, client net.Conn) {
	for piece := make([]byte, 32<<10); ; {
		n, err := client.Read(piece)
		if err != nil {
			return
		}
		if drawn := p.draws(); drawn == proxyCuts || drawn == proxySwallows {
			p.w.drew(proxyTunnel + ", " + drawn)
			if drawn == proxySwallows {
				_, _ = io.Copy(io.Discard, client)
			}
			return
		}
		if _, err := receiver.Write(piece[:n]); err != nil {
			return
		}
	}
}
