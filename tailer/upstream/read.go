package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
)

// Event is what a read shows: a position in the stream, of which the last is the tail. Offset and Cursor are empty if
// the answer did not say.
type Event struct {
	Offset   fsm.Offset
	Cursor   string
	UpToDate bool
	Closed   bool
	// Cached is true if a cache gave the answer in upstream's place.
	Cached bool
}

// Poll makes one long-poll, calls take with what the answer's headers say, then lets the body go.
func (c *Client) Poll(
	ctx context.Context, conn *Conn, path string, from fsm.Offset, cursor string, take func(Event) error,
) error {
	res, err := c.get(ctx, conn, kindTail, path, from, "long-poll", cursor)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	e, err := c.event(res.Header)
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

// readOnce returns what a read from an offset shows: the offset itself if nothing lies beyond it.
func (c *Client) readOnce(ctx context.Context, path string, from fsm.Offset) (Event, error) {
	ctx, done := context.WithTimeout(ctx, c.headTimeout)
	defer done()
	res, err := c.get(ctx, nil, kindRead, path, from, "", "")
	if err != nil {
		return Event{}, err
	}
	defer res.Body.Close()
	e, err := c.event(res.Header)
	if err == nil && e.Offset == "" {
		e.Offset = from
	}
	return e, err
}

// readTail returns where a stream ends whose HEAD does not say: Start if it shows no event.
func (c *Client) readTail(ctx context.Context, path string) (fsm.Offset, error) {
	from := fsm.Start
	for range chunksMax {
		e, err := c.readOnce(ctx, path, from)
		switch {
		case err != nil:
			return "", err
		case e.Cached:
			return "", fmt.Errorf("GET: %w", AnswerError{"it comes from a cache, which was asked for a new one"})
		case !e.Offset.After(from):
			return from, nil
		}
		from = e.Offset
	}
	return "", AnswerError{"it does not come to its end"}
}

// chunksMax bounds the answers of ReadBeyond.
const chunksMax = 100

// ReadBeyond returns where reading from an offset leads to, until that lies beyond a tail or nothing more comes.
func (c *Client) ReadBeyond(ctx context.Context, path string, from, tail fsm.Offset) (fsm.Offset, error) {
	for range chunksMax {
		e, err := c.readOnce(ctx, path, from)
		switch {
		case errors.Is(err, ErrNotKept):
			return from, nil
		case err != nil || !e.Offset.After(from) || e.Offset.After(tail):
			return e.Offset, err
		}
		from = e.Offset
	}
	return from, nil
}

// Answer is what a read showed. Whoever has it reads the data if he wants to, and closes the body.
type Answer struct {
	Event
	Body io.ReadCloser
	// Empty is true if the answer has no data.
	Empty bool
}

// Registry reads the registry stream from an offset: by a long-poll if live, otherwise what is there. The end of ctx
// ends the reading of the data, too.
func (c *Client) Registry(
	ctx context.Context, path string, from fsm.Offset, live bool, cursor string,
) (*Answer, error) {
	mode := ""
	if live {
		mode = "long-poll"
	}
	res, err := c.get(ctx, nil, kindRegistry, path, from, mode, cursor)
	if err != nil {
		return nil, err
	}
	e, err := c.event(res.Header)
	if err != nil {
		_ = res.Body.Close()
		return nil, err
	}
	return &Answer{Event: e, Body: res.Body, Empty: res.StatusCode != http.StatusOK}, nil
}

// reply is an answer to a read.
type reply struct {
	*http.Response
	// abort ends the reading of its body.
	abort func()
}

// get sends a read. live is "long-poll", "sse" or empty for a catch-up read. It goes by the connection, if that is
// not nil and upstream does not speak HTTP/2. The caller closes the body. The error is ErrGone, a StatusError, or
// what the connection died of.
func (c *Client) get(
	ctx context.Context, conn *Conn, k kind, path string, from fsm.Offset, live, cursor string,
) (reply, error) {
	query := "offset=" + url.QueryEscape(from.Value())
	if live != "" {
		query += "&live=" + live
	}
	if cursor != "" && !c.known().cacheable {
		query += "&cursor=" + url.QueryEscape(cursor)
	}
	began := time.Now()
	var res reply
	var err error
	if conn != nil && !c.asked.http2() {
		res, err = c.getByConn(ctx, conn, path, query)
	} else {
		res, err = c.getShared(ctx, path, query)
	}
	if err != nil {
		c.metrics.ended(k, began, 0, err)
		return reply{}, fmt.Errorf("GET: %w", withoutURL(err))
	}
	d := c.dialectOf(res.Header)
	_, invalid := d.next(res.Header.Get(HeaderNextOffset))
	if has(d.notKept, res.StatusCode) {
		invalid = ErrNotKept
	}
	c.metrics.ended(k, began, res.StatusCode, invalid)
	switch {
	case res.StatusCode == http.StatusOK || res.StatusCode == http.StatusNoContent:
		c.shows()
		return res, nil
	case has(d.notKept, res.StatusCode):
		if times, log := c.notKept.Happened(time.Now()); log {
			c.log.Warn("the stream server does not keep an offset any more, or stops; "+
				"reading goes on from what there is",
				zap.String("stream", path), zap.String("offset", from.Value()), zap.Int("times", times))
		}
		err = fmt.Errorf("GET: %w", ErrNotKept)
	case has(d.gone, res.StatusCode):
		err = fmt.Errorf("GET: %w", ErrGone)
	default:
		err = fmt.Errorf("GET: %w", StatusError{res.StatusCode})
	}
	_ = res.Body.Close()
	return reply{}, err
}

func (c *Client) getByConn(ctx context.Context, conn *Conn, path, query string) (reply, error) {
	request := func() (*http.Request, error) { return c.request(ctx, http.MethodGet, path, query) }
	res, err := conn.do(ctx, http.MethodGet, request) //nolint:bodyclose // the caller does
	if err != nil {
		return reply{}, err
	}
	return reply{res, res.Body.(*connBody).abort}, nil
}

// getShared goes by connections that others use too.
func (c *Client) getShared(ctx context.Context, path, query string) (reply, error) {
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
