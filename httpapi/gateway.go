package httpapi

import (
	"context"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
)

const (
	// upstreamIdle is shorter than the 5 s after which Node servers close an idle connection: a write that is sent on a
	// connection at the moment it is closed fails, and only the client can know whether to repeat it.
	upstreamIdle        = 4 * time.Second
	upstreamIdleConns   = 1024
	upstreamDialTimeout = 5 * time.Second
	// upstreamPingAfter is how long a connection of HTTP/2 is silent before it is asked whether it is still there, upstreamPingTime how
	// long it may take to say so: all requests go over one that is not, new ones too.
	upstreamPingAfter, upstreamPingTime = 10 * time.Second, 5 * time.Second
	// upstreamAhead is how much of an answer by HTTP/2 is taken, in bytes, that its client has not read yet.
	upstreamAhead = 64 << 10
	// deletedTimeout bounds how long the answer to a DELETE waits for the consumers to be removed.
	deletedTimeout = 5 * time.Second
	copyBuffer     = 32 << 10

	offsetHeader = "Stream-Next-Offset"
)

// gateway passes requests to the stream server as they are and answers as they come, and tells discovery which streams
// are written to and deleted.
type gateway struct {
	root      *url.URL
	registry  string
	streams   fsm.Streams
	upstream  fsm.Upstream
	log       *zap.Logger
	metrics   *metrics
	transport *http.Transport
	proxy     *httputil.ReverseProxy
	// unanswered is what was logged of requests that upstream gave no answer to, unnoted of deletions.
	unanswered, unnoted fsm.Trouble
}

func newGateway(cfg Config, m *metrics) *gateway {
	g := &gateway{
		root: cfg.UpstreamURL, registry: strings.TrimSuffix(cfg.RegistryPath, "/"),
		streams: cfg.Streams, upstream: cfg.Upstream, log: cfg.Logger, metrics: m,
	}
	var protocols http.Protocols
	protocols.SetHTTP1(!cfg.UpstreamH2C)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(cfg.UpstreamH2C)
	dialer := &net.Dialer{Timeout: upstreamDialTimeout, KeepAlive: 30 * time.Second}
	g.transport = &http.Transport{
		Proxy:                 nil, // upstream is a setting; variables of the environment do not lead elsewhere
		Protocols:             &protocols,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: upstreamPingAfter, PingTimeout: upstreamPingTime, MaxReceiveBufferPerStream: upstreamAhead},
		DialContext:           dialer.DialContext,
		DisableCompression:    true,
		MaxIdleConnsPerHost:   upstreamIdleConns,
		IdleConnTimeout:       upstreamIdle,
		TLSHandshakeTimeout:   upstreamDialTimeout,
		ExpectContinueTimeout: time.Second,
	}
	g.proxy = &httputil.ReverseProxy{
		Rewrite: g.rewrite, ModifyResponse: g.answered, ErrorHandler: g.failed, Transport: g.transport,
		FlushInterval: -1, BufferPool: &bufferPool{}, ErrorLog: warnings(cfg.Logger),
	}
	return g
}

// exchange is one request on its way through the gateway.
type exchange struct {
	// target is where the request goes: the path as the client wrote it below the root's.
	target string
	// path of the stream; empty if discovery is not concerned.
	path string
	// settled is true once discovery knows what became of a write.
	settled bool
	// kind and began are for the metrics.
	kind  string
	began time.Time
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	return ctx.Value(exchangeKey{}).(*exchange)
}

func isWrite(method string) bool { return method == http.MethodPut || method == http.MethodPost }

// serve passes one request. w must be the server's own writer: a wrapper may take the informational answers (1xx) that
// pass through for the final one.
func (g *gateway) serve(w http.ResponseWriter, r *http.Request, path string) {
	root := strings.TrimSuffix(g.root.EscapedPath(), "/")
	if !strings.HasPrefix(path, "/") || root != "" && climbs(path) {
		writeRefusal(w, &refusal{fsm.CodeNotFound, "there is nothing at this path"})
		return
	}
	ex := &exchange{target: root + path, path: g.observed(path), kind: kindOf(r.Method, r.URL), began: time.Now()}
	if ex.path != "" && isWrite(r.Method) {
		g.streams.BeforeWrite(r.Context(), ex.path)
		defer func() {
			if !ex.settled { // no answer came, or the client did not wait for it
				g.streams.Refused(ex.path)
			}
		}()
	}
	g.proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, ex)))
}

// climbs says whether a path would lead out of the stream root by "..", however upstream reads encoded dots and slashes,
// backslashes and empty segments: what else is at its host is not for the clients of the gateway.
func climbs(path string) bool {
	for _, p := range []string{path, unescaped(path)} {
		depth := 0
		for segment := range strings.SplitSeq(strings.ReplaceAll(p, `\`, "/"), "/") {
			switch strings.ReplaceAll(strings.ToLower(segment), "%2e", ".") {
			case "", ".":
			case "..":
				if depth--; depth < 0 {
					return true
				}
			default:
				depth++
			}
		}
	}
	return false
}

// observed is the canonical path of the stream that a request is for; empty if no subscription can be for it.
func (g *gateway) observed(raw string) string {
	path, err := fsm.CanonicalPath(raw)
	if err != nil || g.registry != "" && (path == g.registry || strings.HasPrefix(path, g.registry+"/")) {
		return ""
	}
	return path
}

// rewrite aims the request at upstream. Path and query go out byte by byte as they came in.
func (g *gateway) rewrite(p *httputil.ProxyRequest) {
	u, target := p.Out.URL, exchangeOf(p.In.Context()).target
	u.Scheme, u.Host, u.User = g.root.Scheme, g.root.Host, nil
	u.RawQuery, u.ForceQuery = p.In.URL.RawQuery, p.In.URL.ForceQuery
	u.Path, u.RawPath, u.Opaque = unescaped(target), target, ""
	if u.EscapedPath() != target {
		// The path has bytes that url.URL would encode. An opaque URL is written as it stands, but one that begins with
		// "//" means a host.
		u.Opaque = target
		if strings.HasPrefix(target, "//") {
			u.Opaque = "//" + u.Host + target
		}
	}
	p.Out.Trailer = p.In.Trailer // filled in as the body ends

	in := p.In.Header
	p.Out.Header["X-Forwarded-For"] = in["X-Forwarded-For"]
	p.SetXForwarded()
	// A proxy in front of the gateway knows the public address better.
	for _, h := range []string{"X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded"} {
		if v, ok := in[h]; ok {
			p.Out.Header[h] = v
		}
	}
}

// unescaped decodes a path. One that is malformed was refused by the server already.
func unescaped(path string) string {
	if decoded, err := url.PathUnescape(path); err == nil {
		return decoded
	}
	return path
}

// answered tells discovery what upstream's answer means, before the client gets it.
func (g *gateway) answered(res *http.Response) error {
	r := res.Request
	ex := exchangeOf(r.Context())
	g.metrics.passed(ex, res.StatusCode, "")
	if ex.path == "" {
		return nil
	}
	ok := res.StatusCode >= 200 && res.StatusCode < 300
	switch {
	case isWrite(r.Method) && ok:
		ex.settled = true
		tail, err := g.upstream.ParseOffset(res.Header.Get(offsetHeader))
		if err != nil {
			tail = ""
		}
		g.streams.Written(ex.path, tail, r.Method == http.MethodPut && res.StatusCode == http.StatusCreated)
	case isWrite(r.Method):
		ex.settled = true
		g.streams.Refused(ex.path)
	case r.Method == http.MethodDelete && ok:
		// The stream is deleted whether or not the client waits for the answer.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), deletedTimeout)
		defer cancel()
		if err := g.streams.Deleted(ctx, ex.path); err != nil {
			if times, log := g.unnoted.Happened(time.Now()); log {
				g.log.Warn("a deletion could not be noted, it will be found out later", zap.String("stream", ex.path),
					zap.Int("times", times), zap.Error(err))
			}
		}
	}
	return nil
}

// failed answers a request that upstream gave no answer to.
func (g *gateway) failed(w http.ResponseWriter, r *http.Request, err error) {
	ex := exchangeOf(r.Context())
	if r.Context().Err() != nil {
		g.metrics.passed(ex, 0, "cancelled")
		g.log.Debug("client went away", zap.String("method", r.Method))
		return
	}
	g.metrics.passed(ex, 0, "none")
	if times, log := g.unanswered.Happened(time.Now()); log {
		g.log.Warn("upstream gave no answer", zap.String("method", r.Method), zap.Int("times", times), zap.Error(err))
	}
	writeRefusal(w, &refusal{fsm.CodeUpstreamUnavailable, "the stream server cannot be reached"})
}

// bufferPool is what bodies are copied through.
type bufferPool struct{ pool sync.Pool }

func (p *bufferPool) Get() []byte {
	if b, ok := p.pool.Get().(*[copyBuffer]byte); ok {
		return b[:]
	}
	return make([]byte, copyBuffer)
}

func (p *bufferPool) Put(b []byte) { p.pool.Put((*[copyBuffer]byte)(b)) }
