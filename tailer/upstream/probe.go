package upstream

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"go.uber.org/zap"
)

// probeEvery is how often upstream is asked what it is, while no answer about a stream has shown it.
const probeEvery = 30 * time.Second

// errNoStreamServer is what is wrong with a server that answers, but not as a stream server does.
var errNoStreamServer = errors.New("it is no stream server")

var errNoAnswer = errors.New("nothing answers")

// Probe asks for a stream that nobody has made, and returns an error that says why upstream is no stream server, if
// it is none.
func (c *Client) Probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.headTimeout)
	defer cancel()
	req, err := c.request(ctx, http.MethodHead, "/reveille-probe-"+rand.Text(), "")
	if err != nil {
		return err
	}
	retryable, err := retryablehttp.FromRequest(req)
	if err != nil {
		return fmt.Errorf("upstream request: %w", err)
	}
	began, status := time.Now(), 0
	defer func() { c.metrics.ended(kindProbe, began, status, err) }()
	res, err := c.heads.Do(retryable)
	if err != nil {
		c.shown.Store(false)
		return fmt.Errorf("%w: %w", errNoAnswer, withoutURL(err))
	}
	_ = res.Body.Close()
	status = res.StatusCode
	err = c.judge(res)
	c.shown.Store(err == nil)
	return err
}

// judge says what an answer to Probe shows.
func (c *Client) judge(res *http.Response) error {
	offset := res.Header.Get(HeaderNextOffset)
	c.dialectOf(res.Header)
	switch status := res.StatusCode; {
	case isSuccess(status) && offset != "":
		// Only to AnyCable a name that nobody has made is a stream.
		if c.fixed == nil {
			c.found.Store(&anyCable)
		}
		_, err := c.known().next(offset)
		return err
	case isSuccess(status):
		return fmt.Errorf("it answered %d without %s: %w", status, HeaderNextOffset, errNoStreamServer)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return fmt.Errorf("it answered %d: see REVEILLE_UPSTREAM_HEADERS and REVEILLE_UPSTREAM_SIGNING_KEY", status)
	case has(standard.gone, status) && c.fixed == &anyCable:
		return fmt.Errorf("it answered %d, as AnyCable does for no stream: %w", status, errNoStreamServer)
	case has(standard.gone, status) && speaks(res.Header):
		if c.fixed == nil {
			c.found.Store(&standard)
		}
		return nil
	case has(standard.gone, status):
		return fmt.Errorf("it answered %d as any web server may; the first stream will show: %w", status,
			errNoStreamServer)
	case status >= 500:
		return fmt.Errorf("it answered %d", status)
	}
	return fmt.Errorf("it answered %d: %w", res.StatusCode, errNoStreamServer)
}

// speaks says whether an answer holds a trace of the protocol, in what browsers may read of it.
func speaks(h http.Header) bool {
	return strings.Contains(strings.ToLower(h.Get("Access-Control-Expose-Headers")), strings.ToLower(HeaderNextOffset))
}

// Shown says whether upstream has shown itself as a stream server when it was last asked.
func (c *Client) Shown() bool { return c.shown.Load() }

// Prober finds out whether upstream is a stream server, and logs what it found when that is news.
type Prober struct {
	Client *Client
	Logger *zap.Logger
	// Down says whether upstream is down, and asked for by others.
	Down func() bool
	// Backoff is the time between two probes that failed.
	Backoff Backoff
}

// Run probes at the start, and later whenever no answer about a stream has shown it for probeEvery.
func (p *Prober) Run(ctx context.Context) error {
	delay, last := p.Backoff, "?"
	for ctx.Err() == nil {
		if p.Client.active.Swap(false) || p.Down() {
			Sleep(ctx, Jitter(probeEvery))
			continue
		}
		err := p.Client.Probe(ctx)
		if ctx.Err() != nil {
			break
		}
		news := p.Client.Dialect()
		if err != nil {
			news = err.Error()
		}
		if errors.Is(err, errNoAnswer) {
			news = errNoAnswer.Error() // the rest may be another each time
		}
		if news != last {
			p.say(err)
			last = news
		}
		if err == nil {
			delay.Reset()
			Sleep(ctx, Jitter(probeEvery))
		} else {
			Sleep(ctx, Jitter(delay.Next()))
		}
	}
	return nil
}

func (p *Prober) say(err error) {
	if err == nil {
		p.Logger.Info("the stream server answers", zap.String("dialect", p.Client.Dialect()))
		return
	}
	p.Logger.Warn("no stream server answers at REVEILLE_UPSTREAM_URL; it is asked again", zap.Error(err))
}
