package tailer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"golang.org/x/sync/singleflight"

	"reveille/fsm"
)

// The protocol's header names (protocol, Headers).
const (
	headerNextOffset = "Stream-Next-Offset"
	headerCursor     = "Stream-Cursor"
	headerUpToDate   = "Stream-Up-To-Date"
	headerClosed     = "Stream-Closed"
	headerTTL        = "Stream-TTL"
)

const (
	// headerLimit bounds the headers of an answer in bytes, drainLimit the body that is read only to keep its connection,
	// cursorLimit the cursor that is echoed.
	headerLimit = 64 << 10
	drainLimit  = 256 << 10
	cursorLimit = 1 << 10
	// drainTime bounds how long such a body may take.
	drainTime = 500 * time.Millisecond
	dialTime  = 3 * time.Second
	// pingAfter is how long a connection of HTTP/2 is silent before it is asked whether it is still there, pingTime how long it may take
	// to say so: all that goes over it hangs if it is not.
	pingAfter, pingTime = 10 * time.Second, 5 * time.Second
	// aheadLimit is how much of an answer by HTTP/2 is taken, in bytes, that has not been read yet: what it shows goes to the store first.
	aheadLimit = 64 << 10
)

var dialer = &net.Dialer{Timeout: dialTime, KeepAlive: 15 * time.Second}

// statusError is an answer of upstream that is neither success nor "no such stream".
type statusError struct{ status int }

func (e statusError) Error() string { return fmt.Sprintf("upstream answered %d", e.status) }

// answerError is an answer of upstream that breaks the protocol.
type answerError struct{ what string }

func (e answerError) Error() string { return "upstream's answer is wrong: " + e.what }

var errGone = errors.New("upstream has no such stream")

// client asks the stream server.
type client struct {
	root        url.URL
	rootPath    string
	headers     http.Header
	headTimeout time.Duration
	heads       *retryablehttp.Client
	reads       *http.Client
	flights     singleflight.Group
	metrics     *metrics
	// asked is what HEADs go by.
	asked *transport
}

func newClient(cfg Config) *client {
	c := &client{
		root: *cfg.UpstreamURL, rootPath: strings.TrimSuffix(cfg.UpstreamURL.EscapedPath(), "/"),
		headers: cfg.Headers.Clone(), headTimeout: cfg.HeadTimeout, metrics: newMetrics(cfg.Metrics),
	}
	c.root.RawQuery, c.root.Fragment, c.root.RawFragment = "", "", ""
	c.reads = &http.Client{Transport: newTransport(cfg), CheckRedirect: noRedirects}
	c.heads = retryablehttp.NewClient()
	c.asked = &transport{shared: newTransport(cfg), lines: lines{tls: cfg.TLS}}
	c.heads.HTTPClient = &http.Client{Transport: c.asked, CheckRedirect: noRedirects}
	c.heads.Logger = nil
	c.heads.RetryMax = 3
	c.heads.RetryWaitMin, c.heads.RetryWaitMax = 50*time.Millisecond, 100*time.Millisecond
	// Not the default: it would wait for as long as a Retry-After says.
	c.heads.Backoff = retryablehttp.LinearJitterBackoff
	c.heads.ErrorHandler = retryablehttp.PassthroughErrorHandler
	return c
}

// newTransport is one without a limit of connections.
func newTransport(cfg Config) *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP1(!cfg.H2C)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(cfg.H2C)
	return &http.Transport{
		Protocols:              &protocols,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTime, MaxReceiveBufferPerStream: aheadLimit},
		TLSClientConfig:        cfg.TLS.Clone(),
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    dialTime,
		MaxIdleConnsPerHost:    4096,
		IdleConnTimeout:        90 * time.Second,
		DisableCompression:     true,
		MaxResponseHeaderBytes: headerLimit,
	}
}

func noRedirects(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func (c *client) close() {
	c.reads.CloseIdleConnections()
	c.heads.HTTPClient.CloseIdleConnections()
}

// request makes the request for a stream. The path goes into it as it stands: what Go's URL cannot hold as a path (a "%"
// that encodes nothing, a "|" beside a "%2F") goes in opaque.
func (c *client) request(ctx context.Context, method, path, query string) (*http.Request, error) {
	root := c.root
	req, err := http.NewRequestWithContext(ctx, method, (&url.URL{Scheme: root.Scheme, Host: root.Host, Path: "/"}).String(), nil)
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
	if h := c.headers.Get("Host"); h != "" {
		req.Host = h
	}
	return req, nil
}

// Head is fsm.Upstream's. One caller's cancelled context leaves the others' shared request alone: it runs on its own
// time, at most HeadTimeout.
func (c *client) Head(ctx context.Context, path string) (fsm.StreamInfo, error) {
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

// HeadAnew is fsm.Upstream's. A flight that begins between the two calls here also began after this one.
func (c *client) HeadAnew(ctx context.Context, path string) (fsm.StreamInfo, error) {
	c.flights.Forget(path)
	return c.Head(ctx, path)
}

func (c *client) head(ctx context.Context, path string) (info fsm.StreamInfo, err error) {
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
	switch {
	case res.StatusCode == http.StatusNotFound || res.StatusCode == http.StatusGone:
		return fsm.StreamInfo{}, nil
	case res.StatusCode < 200 || res.StatusCode > 299:
		return fsm.StreamInfo{}, fmt.Errorf("HEAD: %w", statusError{res.StatusCode})
	}
	tail, err := headerOffset(res.Header)
	switch {
	case err != nil:
		return fsm.StreamInfo{}, fmt.Errorf("HEAD: %w", err)
	case tail == "":
		return fsm.StreamInfo{}, fmt.Errorf("HEAD: %w", answerError{"it has no " + headerNextOffset})
	}
	return fsm.StreamInfo{
		Exists: true, Tail: tail, TTL: res.Header.Get(headerTTL) != "", Closed: isTrue(res.Header.Get(headerClosed)),
	}, nil
}

// ParseOffset is fsm.Upstream's, for servers whose offsets sort by themselves.
func (c *client) ParseOffset(s string) (fsm.Offset, error) { return fsm.ParseOffset(s) }

// event is what a live request shows: a position in the stream, of which the last is the tail. Offset and cursor are empty if
// it did not say.
type event struct {
	offset   fsm.Offset
	cursor   string
	upToDate bool
	closed   bool
}

// poll makes one long-poll, calls take with what the answer's headers say, then lets the body go.
func (c *client) poll(ctx context.Context, l *line, path string, from fsm.Offset, cursor string, take func(event) error) error {
	res, err := c.get(ctx, l, kindTail, path, from, "long-poll", cursor)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	e, err := headerEvent(res.Header)
	if err != nil {
		return err
	}
	if err := take(e); err != nil || res.ContentLength > drainLimit {
		return err
	}
	stop := time.AfterFunc(drainTime, res.abort)
	defer func() {
		if !stop.Stop() {
			res.abort() // it is on its way, and must not come after the next request
		}
	}()
	// The data is of no use here. A body that does not end in time or size costs its connection and nothing else.
	_, _ = io.CopyN(io.Discard, res.Body, drainLimit+1)
	return nil
}

// readOn returns where a read from an offset leads to: the offset itself if nothing lies beyond it.
func (c *client) readOn(ctx context.Context, path string, from fsm.Offset) (fsm.Offset, error) {
	ctx, done := context.WithTimeout(ctx, c.headTimeout)
	defer done()
	res, err := c.get(ctx, nil, kindRead, path, from, "", "")
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	next, err := headerOffset(res.Header)
	if err == nil && next == "" {
		next = from
	}
	return next, err
}

// readsMax bounds the answers of readBeyond.
const readsMax = 100

// readBeyond returns where reading from an offset leads to, until that lies beyond a tail or nothing more comes.
func (c *client) readBeyond(ctx context.Context, path string, from, tail fsm.Offset) (fsm.Offset, error) {
	for range readsMax {
		next, err := c.readOn(ctx, path, from)
		if err != nil || !next.After(from) || next.After(tail) {
			return next, err
		}
		from = next
	}
	return from, nil
}

// reply is an answer to a read.
type reply struct {
	*http.Response
	// abort ends the reading of its body.
	abort func()
}

// get sends a read. live is "long-poll", "sse" or empty for a catch-up read. It goes by the line, if that is not nil and upstream does not
// speak HTTP/2. The caller closes the body. The error is errGone, a statusError, or what the connection died of.
func (c *client) get(
	ctx context.Context, l *line, k kind, path string, from fsm.Offset, live, cursor string,
) (reply, error) {
	query := "offset=" + url.QueryEscape(from.Value())
	if live != "" {
		query += "&live=" + live
	}
	if cursor != "" {
		query += "&cursor=" + url.QueryEscape(cursor)
	}
	began := time.Now()
	var res reply
	var err error
	if l != nil && !c.asked.http2() {
		res, err = c.getByLine(ctx, l, path, query)
	} else {
		res, err = c.getShared(ctx, path, query)
	}
	if err != nil {
		c.metrics.ended(k, began, 0, err)
		return reply{}, fmt.Errorf("GET: %w", withoutURL(err))
	}
	_, invalid := headerOffset(res.Header)
	c.metrics.ended(k, began, res.StatusCode, invalid)
	switch {
	case res.StatusCode == http.StatusOK || res.StatusCode == http.StatusNoContent:
		return res, nil
	case res.StatusCode == http.StatusNotFound || res.StatusCode == http.StatusGone:
		err = fmt.Errorf("GET: %w", errGone)
	default:
		err = fmt.Errorf("GET: %w", statusError{res.StatusCode})
	}

	_ = res.Body.Close()
	return reply{}, err
}

func (c *client) getByLine(ctx context.Context, l *line, path, query string) (reply, error) {
	res, err := l.do(ctx, http.MethodGet, func() (*http.Request, error) { return c.request(ctx, http.MethodGet, path, query) }) //nolint:bodyclose // the caller does
	if err != nil {
		return reply{}, err
	}
	return reply{res, res.Body.(*lineBody).abort}, nil
}

// getShared is for connections that others use too.
func (c *client) getShared(ctx context.Context, path, query string) (reply, error) {
	ctx, cancel := context.WithCancel(ctx)
	req, err := c.request(ctx, http.MethodGet, path, query)
	if err != nil {
		cancel()
		return reply{}, err
	}
	res, err := c.reads.Do(req) //nolint:bodyclose // the caller does
	if err != nil {
		cancel()
		return reply{}, err
	}
	res.Body = &sharedBody{res.Body, cancel}
	return reply{res, cancel}, nil
}

// sharedBody is a body whose end is that of its request.
type sharedBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b *sharedBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

func headerEvent(h http.Header) (event, error) {
	offset, err := headerOffset(h)
	if err != nil {
		return event{}, fmt.Errorf("GET: %w", err)
	}
	e := event{offset: offset, upToDate: isTrue(h.Get(headerUpToDate)), closed: isTrue(h.Get(headerClosed))}
	if cur := h.Get(headerCursor); len(cur) <= cursorLimit {
		e.cursor = cur
	}
	return e, nil
}

// headerOffset is empty if the answer has none. "-1" is never a tail.
func headerOffset(h http.Header) (fsm.Offset, error) {
	v := h.Get(headerNextOffset)
	if v == "" {
		return "", nil
	}
	return serverOffset(v)
}

func serverOffset(v string) (fsm.Offset, error) {
	o, err := fsm.ParseOffset(v)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: %w", answerError{"its next offset"}, err)
	case o == fsm.Start:
		return "", answerError{"its next offset is \"-1\", which is no tail"}
	}
	return o, nil
}

func isTrue(s string) bool { return strings.EqualFold(s, "true") }

// withoutURL takes the URL out of an error of the HTTP client: it may hold credentials.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// isDown says whether an error is one that a server that is down would give: no answer at all, or 5xx.
func isDown(err error) bool {
	var status statusError
	var answer answerError
	switch {
	case err == nil, errors.Is(err, errGone), errors.As(err, &answer):
		return false
	case errors.As(err, &status):
		return status.status >= 500
	}
	return true
}

// unconnected says whether there was no connection to ask by: nobody listens, the name leads nowhere, or the certificate is wrong.
func unconnected(err error) bool {
	var dial *net.OpError
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &certificate) || errors.As(err, &dial) && dial.Op == "dial"
}
