package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/fsm/throttle"
)

// The protocol's header names (protocol, Headers).
const (
	HeaderNextOffset = "Stream-Next-Offset"
	HeaderCursor     = "Stream-Cursor"
	HeaderUpToDate   = "Stream-Up-To-Date"
	HeaderClosed     = "Stream-Closed"
	HeaderTTL        = "Stream-TTL"

	// headerDataEncoding says that the data events of SSE are not the data itself.
	headerDataEncoding = "Stream-SSE-Data-Encoding"
)

// Config of a Client.
type Config struct {
	// URL is the stream root; it may carry a path. Headers are sent with every request to it.
	URL     *url.URL
	Headers http.Header
	// TLS is for an https: URL; nil to trust what the system trusts. HTTPS negotiates HTTP/2. For plain HTTP, set H2C.
	TLS *tls.Config
	H2C bool
	// Dial replaces connections over TCP; nil for TCP.
	Dial Dial
	// Dialect is DialectAuto (default), DialectStandard or DialectAnyCable. SigningKey signs the streams, if the
	// dialect has signatures; empty for no signatures.
	Dialect    string
	SigningKey string
	// TailMode is TailAuto (default), TailLongPoll or TailSSE.
	TailMode string
	// Logger logs what upstream is found to be, and the streams and offsets that Reveille cannot ask for; nil to log
	// nothing.
	Logger *zap.Logger
	// HeadTimeout bounds a HEAD with its retries.
	HeadTimeout time.Duration
	// Metrics registers the metrics; nil for no metrics.
	Metrics prometheus.Registerer
}

// Client asks the stream server.
type Client struct {
	cfg Config
	// root is the path of the stream root. The paths of streams follow it.
	root    string
	shared  *http.Client
	heads   *retryablehttp.Client
	conns   conns
	h2      h2Conns
	flights flights
	metrics *metrics
	// readings are answers that later batches continue. recent are answers that batches begin with.
	readings readings
	recent   recent
	live     liveMode
	// atOnce is idleTime, and passTime is the constant of that name. Tests change them.
	atOnce, passTime time.Duration
	// http2 is true while upstream answers over HTTP/2, or has a connection that does. Then live requests share
	// connections, too (h2).
	http2 atomic.Bool

	// dialect is the fixed dialect, or what upstream has shown; nil before that.
	dialect atomic.Pointer[dialect]
	fixed   bool
	// headTells is true once a HEAD has shown a tail. With some servers none ever does.
	headTells atomic.Bool
	// turn makes the URLs of requests differ, because of caches.
	turn atomic.Int64
	// shown is true if upstream was a stream server at the last request. Each answer that shows it sets active.
	shown, active atomic.Bool
	// shownAt is since when shown has its value, in nanoseconds since 1970.
	shownAt atomic.Int64
	// notKept limits the log lines about offsets that are no longer kept, refused those about paths that no stream can
	// have.
	notKept, refused throttle.Trouble
}

// New returns a Client. It has no connection until it is used.
func New(cfg Config) *Client {
	if cfg.Dial == nil {
		cfg.Dial = dialer.DialContext
	}
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	if cfg.Headers = cfg.Headers.Clone(); cfg.Headers == nil {
		cfg.Headers = http.Header{}
	}
	c := &Client{
		cfg: cfg, root: strings.TrimSuffix(cfg.URL.EscapedPath(), "/"), metrics: newMetrics(cfg.Metrics),
		shared: &http.Client{Transport: newTransport(cfg), CheckRedirect: noRedirects},
		heads:  retryablehttp.NewClient(),
		atOnce: idleTime, passTime: passTime,
	}
	if strings.HasPrefix(c.root, "//") { // Go would take the rest for a host
		c.root = "//" + cfg.URL.Host + c.root
	}
	c.http2.Store(cfg.H2C)
	c.turn.Store(time.Now().UnixNano())
	c.dialect.Store(dialects[cfg.Dialect])
	c.fixed = c.dialect.Load() != nil
	c.heads.HTTPClient = c.shared
	c.h2 = h2Conns{client: c, dialing: make(chan struct{}, 1), freed: make(chan struct{}, 1)}
	if c.conns.client = c; cfg.URL.Scheme == "http" && !cfg.H2C {
		c.heads.HTTPClient = &http.Client{Transport: &c.conns, CheckRedirect: noRedirects}
	}
	c.heads.Logger = nil
	c.heads.RetryMax = 3
	c.heads.RetryWaitMin, c.heads.RetryWaitMax = 50*time.Millisecond, 100*time.Millisecond
	// The default would wait as long as a Retry-After says.
	c.heads.Backoff = retryablehttp.LinearJitterBackoff
	c.heads.ErrorHandler = retryablehttp.PassthroughErrorHandler
	return c
}

func noRedirects(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Close closes the idle connections, and the answers that are kept open.
func (c *Client) Close() {
	c.readings.close()
	c.recent.close()
	c.h2.close()
	c.conns.CloseIdleConnections()
}

// target returns what a request for a stream asks for, as it stands on the wire. Every request for a stream calls it.
// It refuses a path that no stream may have, even if it is on record. Such a path may lead out of the root, where
// Reveille's credentials must not go.
func (c *Client) target(path string, query url.Values) (string, error) {
	asked, err := fsm.CanonicalPath(path)
	if err != nil {
		c.refused.Log(c.cfg.Logger, time.Now()).Warn(
			"a stream on record is never asked for: its path is none that a stream may have",
			zap.String("stream", path), zap.Error(err))
		return "", err
	}
	if c.known().cacheable {
		query.Set("cursor", strconv.FormatInt(c.turn.Add(1), 10))
	}
	// While the dialect is unknown, the server might refuse a request without a signature.
	if d := cmp.Or(c.dialect.Load(), &anyCable); d.signed != nil && c.cfg.SigningKey != "" {
		query.Set(d.signed(c.cfg.SigningKey, asked))
	}
	return c.root + asked + "?" + query.Encode(), nil
}

// request makes a request for a target.
func (c *Client) request(ctx context.Context, method, target string) *http.Request {
	path, query, _ := strings.Cut(target, "?")
	req := &http.Request{
		Method: method, Header: maps.Clone(c.cfg.Headers), Host: c.cfg.Headers.Get("Host"),
		// Opaque keeps the path. Go's URL cannot hold each path as it is: a "%" that encodes nothing, a "|" beside a
		// "%2F".
		URL: &url.URL{Scheme: c.cfg.URL.Scheme, Host: c.cfg.URL.Host, Opaque: path, RawQuery: query},
	}
	if c.known().cacheable {
		req.Header["Cache-Control"] = []string{"no-cache"}
	}
	return req.WithContext(ctx)
}

// Head returns a stream's metadata, from a request that begins after the call. Callers share requests: for each path,
// at most one is under way and one waits for its end. A request does not end with a caller's context. It takes at most
// HeadTimeout.
func (c *Client) Head(ctx context.Context, path string) (fsm.StreamInfo, error) {
	return c.flights.join(ctx, path, func() (fsm.StreamInfo, error) {
		return c.HeadAnew(context.WithoutCancel(ctx), path)
	})
}

// HeadAnew is Head at once, with a request that no other caller shares.
func (c *Client) HeadAnew(ctx context.Context, path string) (info fsm.StreamInfo, err error) {
	bounded, cancel := context.WithTimeout(ctx, c.cfg.HeadTimeout)
	defer cancel()
	err = c.ask(bounded, kindHead, path, func(res *http.Response) error {
		info, err = c.info(bounded, path, res)
		return err
	})
	switch {
	case err == nil:
		return info, nil
	case ctx.Err() != nil:
		return fsm.StreamInfo{}, ctx.Err()
	}
	return fsm.StreamInfo{}, fmt.Errorf("HEAD: %w", err)
}

// ask sends a HEAD, with its retries. judge evaluates the answer, and the metrics count the result.
func (c *Client) ask(ctx context.Context, k kind, path string, judge func(*http.Response) error) (err error) {
	target, err := c.target(path, url.Values{})
	if err != nil {
		return err
	}
	began, status := time.Now(), 0
	defer func() { c.metrics.ended(k, began, status, err) }()
	res, err := c.heads.Do(&retryablehttp.Request{Request: c.request(ctx, http.MethodHead, target)})
	if err != nil {
		return fmt.Errorf("%w: %w", errNoAnswer, withoutURL(err))
	}
	_ = res.Body.Close()
	status = res.StatusCode
	c.http2.Store(res.ProtoMajor == 2 || c.h2.lives())
	return judge(res)
}

// info reads what an answer to a HEAD says about a stream.
func (c *Client) info(ctx context.Context, path string, res *http.Response) (fsm.StreamInfo, error) {
	offset := res.Header.Get(HeaderNextOffset)
	if c.dialect.Load() == nil && isSuccess(res.StatusCode) && isAnyCableStart(offset) {
		// Whether the stream is empty or has this tail depends on the dialect (everyName).
		if err := c.Probe(ctx); err != nil && !errors.Is(err, errNoStreamServer) {
			return fsm.StreamInfo{}, err
		}
		if c.dialect.CompareAndSwap(nil, &standard) {
			c.cfg.Logger.Debug("the dialect shows in none of the answers: it is taken for the standard one")
		}
	}
	d := c.dialectOf(res.Header)
	switch {
	case slices.Contains(d.gone, res.StatusCode):
		if speaks(res.Header) {
			c.shows()
		}
		return fsm.StreamInfo{}, nil
	case !isSuccess(res.StatusCode):
		return fsm.StreamInfo{}, AnswerError{Status: res.StatusCode}
	}
	tail, err := d.next(offset)
	switch {
	case err != nil:
		return fsm.StreamInfo{}, err
	case tail != "" && tail != fsm.Start && !isCached(res.Header):
		c.headTells.Store(true)
	case d.everyName && (tail == "" || !c.headTells.Load() || isCached(res.Header)):
		if tail, err = c.readTail(ctx, path); err != nil {
			return fsm.StreamInfo{}, err
		}
	case tail == "":
		return fsm.StreamInfo{}, AnswerError{What: "it has no " + HeaderNextOffset}
	}
	c.shows()
	if tail == fsm.Start {
		return fsm.StreamInfo{Empty: true, Tail: fsm.Start}, nil
	}
	return fsm.StreamInfo{
		Exists: true, Tail: tail, TTL: res.Header.Get(HeaderTTL) != "", Closed: isTrue(res.Header.Get(HeaderClosed)),
		NotJSON: res.Header.Get("Content-Type") != "" && !ofJSONStream(res.Header),
	}, nil
}

// noteShown notes whether upstream is a stream server, and since when.
func (c *Client) noteShown(is bool) {
	if c.shown.Swap(is) != is {
		c.shownAt.Store(time.Now().UnixNano())
	}
}

// shows notes that an answer about a stream has shown that upstream is a stream server.
func (c *Client) shows() {
	c.noteShown(true)
	c.active.Store(true)
}
