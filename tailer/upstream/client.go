package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/singleflight"

	"reveille/fsm"
)

// The protocol's header names (protocol, Headers).
const (
	HeaderNextOffset = "Stream-Next-Offset"
	HeaderCursor     = "Stream-Cursor"
	HeaderUpToDate   = "Stream-Up-To-Date"
	HeaderClosed     = "Stream-Closed"
	HeaderTTL        = "Stream-TTL"
)

const (
	// headerLimit bounds the headers of an answer in bytes, drainLimit the body that is read only to keep its
	// connection, and cursorLimit the cursor that is echoed.
	headerLimit = 64 << 10
	drainLimit  = 256 << 10
	cursorLimit = 1 << 10
	// drainTime bounds how long such a body may take.
	drainTime = 500 * time.Millisecond
)

// Config of a Client.
type Config struct {
	// URL is the stream root; it may carry a path. Headers are sent with every request to it.
	URL     *url.URL
	Headers http.Header
	// TLS is for an https: URL; nil to trust what the system does. HTTPS negotiates HTTP/2. For plain HTTP, set H2C.
	TLS *tls.Config
	H2C bool
	// Dial replaces connections by TCP; nil for these.
	Dial Dial
	// Dialect is DialectAuto (default), DialectStandard or DialectAnyCable. SigningKey is what streams are signed
	// with, where the dialect has such a thing; empty if they are not to be.
	Dialect    string
	SigningKey string
	// Logger is told of reads from offsets that upstream does not keep any more; nil for nobody.
	Logger *zap.Logger
	// HeadTimeout bounds a HEAD with its retries.
	HeadTimeout time.Duration
	// Metrics is what the metrics are registered with; nil for nowhere.
	Metrics prometheus.Registerer
}

// Client asks the stream server. It is fsm.Upstream.
type Client struct {
	root        url.URL
	rootPath    string
	tls         *tls.Config
	dial        Dial
	headers     http.Header
	headTimeout time.Duration
	heads       *retryablehttp.Client
	reads       *http.Client
	flights     singleflight.Group
	metrics     *metrics
	// asked is what HEADs go by.
	asked *transport

	// fixed is the dialect that was set, or nil; found is the one that upstream has shown, or nil.
	fixed      *dialect
	found      atomic.Pointer[dialect]
	signingKey string
	// headTells is true once a HEAD has shown a tail: there are servers of which none does.
	headTells atomic.Bool
	// turn makes the URLs of two requests differ, for caches.
	turn atomic.Int64
	// shown is true if upstream was a stream server when it was last asked; active is set by each answer that shows it.
	shown, active atomic.Bool
	log           *zap.Logger
	// notKept is what was logged of reads from offsets that are not kept any more.
	notKept fsm.Trouble
}

// New returns a Client, which has no connection until it is used.
func New(cfg Config) *Client {
	c := &Client{
		root: *cfg.URL, rootPath: strings.TrimSuffix(cfg.URL.EscapedPath(), "/"), tls: cfg.TLS,
		headers: cfg.Headers.Clone(), headTimeout: cfg.HeadTimeout, metrics: newMetrics(cfg.Metrics),
		fixed: dialects[cfg.Dialect], signingKey: cfg.SigningKey, log: cfg.Logger,
	}
	if c.dial = cfg.Dial; c.dial == nil {
		c.dial = dialer.DialContext
	}
	cfg.Dial = c.dial
	if c.log == nil {
		c.log = zap.NewNop()
	}
	c.turn.Store(time.Now().UnixNano())
	c.root.RawQuery, c.root.Fragment, c.root.RawFragment = "", "", ""
	c.reads = &http.Client{Transport: newTransport(cfg), CheckRedirect: noRedirects}
	c.heads = retryablehttp.NewClient()
	c.asked = &transport{shared: newTransport(cfg), pool: pool{tls: cfg.TLS, dial: c.dial}}
	c.heads.HTTPClient = &http.Client{Transport: c.asked, CheckRedirect: noRedirects}
	c.heads.Logger = nil
	c.heads.RetryMax = 3
	c.heads.RetryWaitMin, c.heads.RetryWaitMax = 50*time.Millisecond, 100*time.Millisecond
	// Not the default: it would wait for as long as a Retry-After says.
	c.heads.Backoff = retryablehttp.LinearJitterBackoff
	c.heads.ErrorHandler = retryablehttp.PassthroughErrorHandler
	return c
}

// NewConn returns a connection for the live requests of one stream.
func (c *Client) NewConn() Conn { return Conn{tls: c.tls, dialer: c.dial} }

func noRedirects(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Close lets go of the idle connections.
func (c *Client) Close() {
	c.reads.CloseIdleConnections()
	c.heads.HTTPClient.CloseIdleConnections()
}

// request makes the request for a stream. The path goes into it as it stands: what Go's URL cannot hold as a path (a
// "%" that encodes nothing, a "|" beside a "%2F") goes in opaque.
func (c *Client) request(ctx context.Context, method, path, query string) (*http.Request, error) {
	root, d := c.root, c.known()
	if d.cacheable {
		query = and(query, "cursor", strconv.FormatInt(c.turn.Add(1), 10))
	}
	if c.signingKey != "" && c.fixed == nil && c.found.Load() == nil {
		d = &anyCable // what is not signed would be refused
	}
	if d.signed != nil && c.signingKey != "" {
		parameter, value := d.signed(c.signingKey, path)
		query = and(query, parameter, value)
	}
	bare := url.URL{Scheme: root.Scheme, Host: root.Host, Path: "/"}
	req, err := http.NewRequestWithContext(ctx, method, bare.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("upstream request: %w", err)
	}
	raw := c.rootPath + path
	u := root
	u.Path, u.RawPath, u.RawQuery = raw, "", query
	if p, err := url.PathUnescape(raw); err == nil {
		u.Path, u.RawPath = p, raw
	}
	if u.EscapedPath() != raw && !strings.HasPrefix(raw, "//") {
		u.Opaque = raw
	}
	req.URL = &u
	for name, values := range c.headers {
		req.Header[name] = values
	}
	if d.cacheable {
		req.Header["Cache-Control"] = []string{"no-cache"}
	}
	if h := c.headers.Get("Host"); h != "" {
		req.Host = h
	}
	return req, nil
}

// and adds a parameter to a query.
func and(query, parameter, value string) string {
	if query != "" {
		query += "&"
	}
	return query + parameter + "=" + url.QueryEscape(value)
}

// Head is fsm.Upstream's. One caller's cancelled context leaves the others' shared request alone: it runs on its own
// time, at most HeadTimeout.
func (c *Client) Head(ctx context.Context, path string) (fsm.StreamInfo, error) {
	flight := c.flights.DoChan(path, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.headTimeout)
		defer cancel()
		info, err := c.head(ctx, path)
		return info, err
	})
	select {
	case <-ctx.Done():
		return fsm.StreamInfo{}, ctx.Err()
	case res := <-flight:
		if res.Err != nil {
			return fsm.StreamInfo{}, res.Err
		}
		return res.Val.(fsm.StreamInfo), nil
	}
}

// HeadAnew is fsm.Upstream's: it joins no request that began before the call. One that begins between the two calls
// here began after this one.
func (c *Client) HeadAnew(ctx context.Context, path string) (fsm.StreamInfo, error) {
	c.flights.Forget(path)
	return c.Head(ctx, path)
}

func (c *Client) head(ctx context.Context, path string) (info fsm.StreamInfo, err error) {
	req, err := c.request(ctx, http.MethodHead, path, "")
	if err != nil {
		return fsm.StreamInfo{}, err
	}
	retryable, err := retryablehttp.FromRequest(req)
	if err != nil {
		return fsm.StreamInfo{}, fmt.Errorf("upstream request: %w", err)
	}
	began, status := time.Now(), 0
	defer func() { c.metrics.ended(kindHead, began, status, err) }()
	res, err := c.heads.Do(retryable)
	if err != nil {
		return fsm.StreamInfo{}, fmt.Errorf("HEAD: %w", withoutURL(err))
	}
	defer res.Body.Close()
	status = res.StatusCode
	if c.isOpen(res) {
		// Whether the stream is empty or has this tail depends on what a name means that nobody has made.
		if err := c.Probe(ctx); err != nil && !errors.Is(err, errNoStreamServer) {
			return fsm.StreamInfo{}, fmt.Errorf("HEAD: %w", err)
		}
		if c.found.CompareAndSwap(nil, &standard) {
			c.log.Debug("the dialect shows in none of the answers: it is taken for the standard one")
		}
	}
	d := c.dialectOf(res.Header)
	switch {
	case has(d.gone, status):
		if speaks(res.Header) {
			c.shows()
		}
		return fsm.StreamInfo{}, nil
	case !isSuccess(status):
		return fsm.StreamInfo{}, fmt.Errorf("HEAD: %w", StatusError{status})
	}
	tail, err := d.next(res.Header.Get(HeaderNextOffset))
	switch {
	case err != nil:
		return fsm.StreamInfo{}, fmt.Errorf("HEAD: %w", err)
	case tail != "" && tail != fsm.Start && !isCached(res.Header):
		c.headTells.Store(true)
	case d.everyName && (tail == "" || !c.headTells.Load() || isCached(res.Header)):
		if tail, err = c.readTail(ctx, path); err != nil {
			return fsm.StreamInfo{}, err
		}
	case tail == "":
		return fsm.StreamInfo{}, fmt.Errorf("HEAD: %w", AnswerError{"it has no " + HeaderNextOffset})
	}
	c.shows()
	if tail == fsm.Start {
		return fsm.StreamInfo{Empty: true, Tail: fsm.Start}, nil
	}
	return fsm.StreamInfo{
		Exists: true, Tail: tail, TTL: res.Header.Get(HeaderTTL) != "", Closed: isTrue(res.Header.Get(HeaderClosed)),
	}, nil
}

// shows notes that an answer about a stream has shown that upstream is a stream server.
func (c *Client) shows() {
	c.shown.Store(true)
	c.active.Store(true)
}
