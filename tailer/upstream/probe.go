package upstream

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
)

// probeEvery is how often upstream is asked what it is, while no answer about a stream has shown it.
const probeEvery = 30 * time.Second

// errNoStreamServer says that a server answers, but not as a stream server does.
var errNoStreamServer = errors.New("it is no stream server")

// Probe asks for a stream that no client has made. Its error says why upstream is no stream server.
func (c *Client) Probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.HeadTimeout)
	defer cancel()
	err := c.ask(ctx, kindProbe, "/reveille-probe-"+rand.Text(), c.judge)
	c.noteShown(err == nil)
	return err
}

// judge says what an answer to Probe shows.
func (c *Client) judge(res *http.Response) error {
	offset := res.Header.Get(HeaderNextOffset)
	c.dialectOf(res.Header)
	switch status, missing := res.StatusCode, slices.Contains(standard.gone, res.StatusCode); {
	case isSuccess(status) && offset != "":
		c.learn(&anyCable) // only to AnyCable, every name is a stream
		_, err := c.known().next(offset)
		return err
	case isSuccess(status):
		return fmt.Errorf("it answered %d without %s: %w", status, HeaderNextOffset, errNoStreamServer)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return fmt.Errorf("it answered %d: see REVEILLE_UPSTREAM_HEADERS and REVEILLE_UPSTREAM_SIGNING_KEY", status)
	case missing && c.fixed && c.known() == &anyCable:
		return fmt.Errorf("it answered %d, as AnyCable does for no stream: %w", status, errNoStreamServer)
	case missing && speaks(res.Header):
		c.learn(&standard)
		return nil
	case missing:
		return fmt.Errorf("it answered %d as any web server may; the first stream will show: %w", status,
			errNoStreamServer)
	case status >= 500:
		return fmt.Errorf("it answered %d", status)
	default:
		return fmt.Errorf("it answered %d: %w", status, errNoStreamServer)
	}
}

// speaks says whether an answer shows the protocol in the headers that browsers may read.
func speaks(h http.Header) bool {
	return strings.Contains(strings.ToLower(h.Get("Access-Control-Expose-Headers")), strings.ToLower(HeaderNextOffset))
}

// Shown says whether upstream was a stream server when it was last asked.
func (c *Client) Shown() bool { return c.shown.Load() }

// KeepProbing finds out whether upstream is a stream server, and logs what is new about that. It probes at the start,
// and whenever no answer about a stream has shown it for probeEvery. While upstream is down, other requests probe it
// instead (Health). The end of the context is no error.
func (c *Client) KeepProbing(ctx context.Context, isDown func() bool) error {
	delay, last := Backoff{Min: time.Second, Max: probeEvery}, "?"
	for ctx.Err() == nil {
		if c.active.Swap(false) || isDown() {
			Sleep(ctx, Jitter(probeEvery))
			continue
		}
		err := c.Probe(ctx)
		if ctx.Err() != nil {
			break
		}
		wait, news := probeEvery, c.Dialect()
		switch {
		case err == nil:
			delay.Reset()
		case errors.Is(err, errNoAnswer):
			wait, news = delay.Next(), errNoAnswer.Error() // the rest of the text may differ each time
		default:
			wait, news = delay.Next(), err.Error()
		}
		switch {
		case news == last:
		case err == nil:
			c.cfg.Logger.Info("the stream server answers", zap.String("dialect", news))
		default:
			c.cfg.Logger.Warn("no stream server answers at REVEILLE_UPSTREAM_URL; it is asked again", zap.Error(err))
		}
		last = news
		Sleep(ctx, Jitter(wait))
	}
	return nil
}
