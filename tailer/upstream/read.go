package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
)

const (
	// cursorLimit bounds the cursor that Reveille echoes, in bytes.
	cursorLimit = 1 << 10
	// chunksMax bounds the answers that one call follows.
	chunksMax = 100
)

// Event is what a read shows: a position in the stream. The last position is the tail. Offset and Cursor are empty if
// the answer did not say.
type Event struct {
	Offset   fsm.Offset
	Cursor   string
	UpToDate bool
	Closed   bool
	// Goes is true if the answer goes on after this event: it is an SSE answer.
	Goes bool
	// Cached is true if a cache gave the answer in upstream's place. A cache cannot know what is up to date.
	Cached bool
}

// Answer is what a read showed. The caller may read the data, and must close the body.
type Answer struct {
	Event
	Body io.ReadCloser
	// Empty is true if the answer has no data.
	Empty bool
	res   *http.Response
}

// question is what a read asks for. live is "long-poll", "sse" or empty for a catch-up read.
type question struct {
	kind         kind
	path         string
	from         fsm.Offset
	live, cursor string
	began        time.Time
}

// poll makes one long-poll and calls take with what the answer's headers say. It discards the body, unless it keeps the
// body for ReadBatch.
func (r *liveRequest) poll(ctx context.Context) error {
	r.live = "long-poll"
	if asked, follows := r.client.recent.asks(r.path); follows {
		return r.pollKept(ctx, asked)
	}
	res, err := r.client.get(ctx, r.conn, &r.question)
	if err != nil {
		return err
	}
	return r.shows(res)
}

//go:noinline
func (r *liveRequest) shows(res *http.Response) error {
	a, err := r.client.readHeader(res)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	return r.take(a.Event)
}

// Registry reads the registry stream from an offset: by a long-poll if live, otherwise what there is. The end of ctx
// also ends the reading of the data.
func (c *Client) Registry(
	ctx context.Context, path string, from fsm.Offset, live bool, cursor string,
) (*Answer, error) {
	mode := ""
	if live {
		mode = "long-poll"
	}
	return c.read(ctx, nil, &question{kind: kindRegistry, path: path, from: from, live: mode, cursor: cursor})
}

// ReadBeyond reads on from an offset until it is beyond a tail, or until nothing more comes. It returns the offset that
// it reached, also with an error.
func (c *Client) ReadBeyond(ctx context.Context, path string, from, tail fsm.Offset) (fsm.Offset, error) {
	for range chunksMax {
		e, err := c.readOnce(ctx, path, from)
		switch {
		case errors.Is(err, ErrNotKept):
			return from, nil
		case err != nil:
			return from, err
		case !e.Offset.After(from) || e.Offset.After(tail):
			return e.Offset, nil
		}
		from = e.Offset
	}
	return from, AnswerError{What: "it does not come to its end"}
}

// readTail returns where a stream ends if HEAD does not say; Start if the stream shows no event.
func (c *Client) readTail(ctx context.Context, path string) (fsm.Offset, error) {
	from := fsm.Start
	for range chunksMax {
		e, err := c.readOnce(ctx, path, from)
		switch {
		case err != nil:
			return "", err
		case e.Cached:
			return "", fmt.Errorf("GET: %w", AnswerError{What: "it comes from a cache, which was asked for a new one"})
		case !e.Offset.After(from):
			return from, nil
		}
		from = e.Offset
	}
	return "", AnswerError{What: "it does not come to its end"}
}

// readOnce returns what a read from an offset shows. The result has the same offset if nothing lies beyond it.
func (c *Client) readOnce(ctx context.Context, path string, from fsm.Offset) (Event, error) {
	ctx, done := context.WithTimeout(ctx, c.cfg.HeadTimeout)
	defer done()
	a, err := c.read(ctx, nil, &question{kind: kindRead, path: path, from: from})
	if err != nil {
		return Event{}, err
	}
	defer a.Body.Close()
	a.Offset = cmp.Or(a.Offset, from)
	return a.Event, nil
}

// read sends a read and returns what the header of its answer says.
func (c *Client) read(ctx context.Context, conn *Conn, q *question) (*Answer, error) {
	res, err := c.get(ctx, conn, q)
	if err != nil {
		return nil, err
	}
	return c.readHeader(res)
}

//go:noinline
func (c *Client) readHeader(res *http.Response) (a *Answer, err error) {
	h := res.Header
	a = &Answer{Body: res.Body, Empty: res.StatusCode != http.StatusOK, res: res}
	if a.Offset, err = c.dialectOf(h).next(h.Get(HeaderNextOffset)); err != nil {
		_ = res.Body.Close()
		return nil, fmt.Errorf("GET: %w", err)
	}
	a.Closed, a.Cached = isTrue(h.Get(HeaderClosed)), isCached(h)
	a.UpToDate = isTrue(h.Get(HeaderUpToDate)) && !a.Cached
	if cursor := h.Get(HeaderCursor); len(cursor) <= cursorLimit {
		a.Cursor = cursor
	}
	return a, nil
}

// get sends a read: by HTTP/2 or by conn, or, if conn is nil, by the transport that all share. The caller closes the
// body. The error is ErrGone, ErrNotKept or an AnswerError. Or it says that the path is no stream's, or what ended the
// connection. A live request waits in this call: what needs more stack is in other functions.
func (c *Client) get(ctx context.Context, conn *Conn, q *question) (res *http.Response, err error) {
	target, err := c.targetOf(q)
	if err != nil {
		return nil, err
	}
	switch {
	case conn == nil:
		res, err = c.ofShared(ctx, target)
	case c.http2.Load():
		if res, err = c.h2.do(ctx, target); !errors.Is(err, errNoHTTP2) {
			break
		}
		fallthrough
	default:
		res, err = conn.do(ctx, http.MethodGet, target)
	}
	return c.answered(q, res, err)
}

//go:noinline
func (c *Client) targetOf(q *question) (string, error) {
	query := url.Values{"offset": {q.from.Value()}}
	if q.live != "" {
		query.Set("live", q.live)
	}
	if q.cursor != "" {
		query.Set("cursor", q.cursor)
	}
	q.began = time.Now()
	target, err := c.target(q.path, query)
	if err != nil {
		return "", fmt.Errorf("GET: %w", err)
	}
	return target, nil
}

//go:noinline
func (c *Client) ofShared(ctx context.Context, target string) (*http.Response, error) {
	return c.shared.Do(c.request(ctx, http.MethodGet, target))
}

// answered counts an answer to a read. It returns the answer if it shows what was asked for.
//
//go:noinline
func (c *Client) answered(q *question, res *http.Response, err error) (*http.Response, error) {
	if err != nil {
		c.metrics.ended(q.kind, q.began, 0, err)
		return nil, fmt.Errorf("GET: %w", withoutURL(err))
	}
	status, d := res.StatusCode, c.dialectOf(res.Header)
	switch {
	case status == http.StatusOK || status == http.StatusNoContent:
		c.shows()
		_, invalid := d.next(res.Header.Get(HeaderNextOffset))
		c.metrics.ended(q.kind, q.began, status, invalid)
		return res, nil
	case slices.Contains(d.notKept, status):
		err = ErrNotKept
		c.notKept.Log(c.cfg.Logger, time.Now()).Warn(
			"the stream server does not keep an offset any more, or stops; reading goes on from what there is",
			zap.String("stream", q.path), zap.String("offset", q.from.Value()))
	case slices.Contains(d.gone, status) && status == http.StatusGone:
		err = errGoneThere
	case slices.Contains(d.gone, status):
		err = ErrGone
	default:
		err = AnswerError{Status: status}
	}
	c.metrics.ended(q.kind, q.began, status, err)
	_ = res.Body.Close()
	return nil, fmt.Errorf("GET: %w", err)
}

// isCached says whether a cache has kept an answer for a while before it gave it.
func isCached(h http.Header) bool {
	age := h.Get("Age")
	return age != "" && age != "0"
}

func isTrue(s string) bool { return strings.EqualFold(s, "true") }
