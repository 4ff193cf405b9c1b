package httpapi

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/fsm/throttle"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

const (
	// deletedTimeout bounds how long the answer to a DELETE waits for the consumers to be removed.
	deletedTimeout = 5 * time.Second
	copyBuffer     = 32 << 10
)

// gateway passes requests to the stream server as they are, except for canonical paths, and answers as they come. It
// reports to discovery which streams are written to and deleted.
type gateway struct {
	root *url.URL
	// host is the host by which upstream is asked. It is upstream's own, never the client's, because other virtual
	// hosts may share its address.
	host string
	// public is where clients find the gateway; nil for the address that each client used.
	public    *url.URL
	registry  string
	streams   Writes
	upstream  Passed
	log       *zap.Logger
	metrics   *metrics
	transport http.RoundTripper
	proxy     *httputil.ReverseProxy
	// unanswered is what was logged about requests without an answer from upstream, and unnoted about deletions.
	unanswered, unnoted throttle.Trouble
}

func newGateway(cfg Config, m *metrics) *gateway {
	g := &gateway{
		root: cfg.UpstreamURL, host: cmp.Or(cfg.UpstreamHost, cfg.UpstreamURL.Host), public: cfg.PublicURL,
		registry: strings.TrimSuffix(cfg.RegistryPath, "/"),
		streams:  cfg.Streams, upstream: cfg.Upstream, transport: cfg.UpstreamTransport, log: cfg.Logger, metrics: m,
	}
	g.proxy = &httputil.ReverseProxy{
		Rewrite: g.rewrite, ModifyResponse: g.answered, ErrorHandler: g.failed,
		Transport: oneProtocol{g.transport}, FlushInterval: -1, BufferPool: &bufferPool{},
		ErrorLog: cfg.ErrorLog,
	}
	return g
}

// exchange is one request on its way through the gateway.
type exchange struct {
	// target is where the request goes: the canonical path below the root's.
	target string
	// path of the stream; empty if the request does not concern discovery.
	path string
	// write is what discovery knows of a write; reported is true once it knows the outcome.
	write    fsm.Write
	reported bool
	// kind and began are for the metrics.
	kind  string
	began time.Time
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	return ctx.Value(exchangeKey{}).(*exchange)
}

func reads(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

func isWrite(method string) bool { return method == http.MethodPut || method == http.MethodPost }

// admit says whether a request may go upstream, at which path and for which stream. Both are canonical, so that all
// spellings of a path are one stream there and here. The stream is empty if no subscription can be for it.
func (g *gateway) admit(method, raw string) (path, stream string, err error) {
	path, err = fsm.CanonicalPath(raw)
	switch {
	case err == nil:
		if g.registry != "" && (path == g.registry || strings.HasPrefix(path, g.registry+"/")) {
			return path, "", nil
		}
		return path, path, nil
	case !strings.HasPrefix(raw, "/"), errors.Is(err, fsm.ErrOutsideRoot):
		return "", "", refusal.New(fsm.CodeNotFound, "there is nothing at this path")
	case errors.Is(err, fsm.ErrWildcard) && isWrite(method):
		return "", "", refusal.New(fsm.CodeInvalidPath, "%v; for a subscription, add ?subscription=ID", err)
	case errors.Is(err, fsm.ErrWildcard), errors.Is(err, fsm.ErrPathTooLong):
		if path, err = fsm.ForwardedPath(raw); err == nil {
			return path, "", nil
		}
	}
	return "", "", refusal.New(fsm.CodeInvalidPath, "%v", err)
}

// serve passes one request, to the path and for the stream that admit returned. The writer w must be the server's own:
// a wrapper may take an informational answer (1xx) that passes through for the final one.
func (g *gateway) serve(w http.ResponseWriter, r *http.Request, path, stream string) {
	if !g.upstream.TakesWrites() && !reads(r.Method) {
		w.Header().Set("Allow", "GET, HEAD, OPTIONS")
		web.WriteRefusal(w, refusal.New(fsm.CodeMethodNotAllowed,
			"the stream server takes no writes by this protocol: events are published by its own means"))
		return
	}
	root := strings.TrimSuffix(g.root.EscapedPath(), "/")
	ex := &exchange{target: root + path, path: stream, kind: kindOf(r.Method, r.URL), began: time.Now()}
	if ex.path != "" && isWrite(r.Method) {
		ex.write = g.streams.BeforeWrite(r.Context(), ex.path, r.Method == http.MethodPut)
		defer func() {
			if !ex.reported { // no answer came, or the client did not wait for it
				g.streams.Refused(ex.write)
			}
		}()
	}
	r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, ex))
	r.Header = withoutUpgrade(r.Header)
	if r.ContentLength != 0 {
		body := arriving(r.Context(), r.Body)
		defer body.over()
		r.Body = body
	}
	g.proxy.ServeHTTP(w, r)
}

// rewrite aims the request at upstream. The query goes out byte by byte as it came in.
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
	p.Out.Host = g.host
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

// unescaped decodes a path. A malformed one was refused by the server before.
func unescaped(path string) string {
	if decoded, err := url.PathUnescape(path); err == nil {
		return decoded
	}
	return path
}

// answered reports to discovery what upstream's answer means, before the client gets it.
func (g *gateway) answered(res *http.Response) error {
	r := res.Request
	ex := exchangeOf(r.Context())
	g.metrics.passed(ex, res.StatusCode, "")
	if at := res.Header.Get("Location"); at != "" {
		res.Header.Set("Location", g.location(r, at))
	}
	if ex.path == "" {
		return nil
	}
	ok := res.StatusCode >= 200 && res.StatusCode < 300
	switch {
	case isWrite(r.Method) && ok:
		ex.reported = true
		created := r.Method == http.MethodPut && res.StatusCode == http.StatusCreated
		g.streams.Written(ex.write, g.upstream.NextOffset(res.Header), created)
	case isWrite(r.Method):
		ex.reported = true
		g.streams.Refused(ex.write)
	case r.Method == http.MethodDelete && ok:
		// The stream is deleted whether or not the client waits for the answer.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), deletedTimeout)
		defer cancel()
		if err := g.streams.Deleted(ctx, ex.path); err != nil {
			g.unnoted.Log(g.log, time.Now()).Warn("a deletion could not be stored; it will be noticed later",
				zap.String("stream", ex.path), zap.Error(err))
		}
	}
	return nil
}

// failed answers a request to which upstream gave no answer. A client that has gone away, or sends nothing more, gets
// no answer: it must not take its write for accepted.
func (g *gateway) failed(w http.ResponseWriter, r *http.Request, err error) {
	ex := exchangeOf(r.Context())
	if r.Context().Err() != nil {
		g.metrics.passed(ex, 0, "cancelled")
		g.log.Debug("client went away", zap.String("method", r.Method))
		panic(http.ErrAbortHandler) // net/http would answer with 200
	}
	g.metrics.passed(ex, 0, "none")
	g.unanswered.Log(g.log, time.Now()).Warn("upstream did not answer", zap.String("method", r.Method), zap.Error(err))
	web.WriteRefusal(w, refusal.New(fsm.CodeUpstreamUnavailable, "the stream server cannot be reached"))
}

// bufferPool has the buffers through which bodies are copied.
type bufferPool struct{ pool sync.Pool }

func (p *bufferPool) Get() []byte {
	if b, ok := p.pool.Get().(*[copyBuffer]byte); ok {
		return b[:]
	}
	return make([]byte, copyBuffer)
}

func (p *bufferPool) Put(b []byte) { p.pool.Put((*[copyBuffer]byte)(b)) }
