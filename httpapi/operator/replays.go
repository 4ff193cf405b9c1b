package operator

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/control"
	"reveille/httpapi/paging"
	"reveille/httpapi/web"
)

// replayBody says how many dead letters are queued for a replay, and how many cannot be replayed.
type replayBody struct {
	Queued  int `json:"queued"`
	Refused int `json:"refused,omitempty"`
	// Next is where the same request goes on, if there was no time for all letters.
	Next string `json:"next,omitempty"`
}

// replayLetter replays one dead letter.
func (f *Face) replayLetter(c echo.Context) error {
	if err := f.Bodies.Nothing(c); err != nil {
		return err
	}
	l, err := f.Control.Letter(c.Request().Context(), c.Param("id"))
	if err == nil {
		err = f.Control.ReplayLetter(c.Request().Context(), l)
	}
	return web.Answer(c, http.StatusAccepted, replayBody{Queued: 1}, err)
}

// replayLetters replays the dead letters that a subscription has now.
func (f *Face) replayLetters(c echo.Context) error {
	which, err := f.readWhichLetters(c, letterFields...)
	if err != nil {
		return err
	}
	work, next, err := f.Control.ReplayLetters(c.Request().Context(), which)
	return web.Answer(c, http.StatusAccepted, replayBody{Queued: work.Done, Refused: work.Refused, Next: next}, err)
}

// spanBody is a span of a stream that is replayed.
type spanBody struct {
	ID           string `json:"replay_id"`
	Subscription string `json:"subscription_id"`
	Stream       string `json:"stream"`
	From         string `json:"from"`
	To           string `json:"to"`
}

// replaySpan delivers the events of a stream again that lie between two offsets.
func (f *Face) replaySpan(c echo.Context) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), paging.Timeout)
	defer cancel()
	get, err := f.texts(c, false, "stream", "from", "to")
	if err != nil {
		return err
	}
	r, err := f.ReplaySpan(ctx, c.Param("id"), get)
	return web.Answer(c, http.StatusAccepted, spanBody{
		ID: r.ID, Subscription: r.Subscription, Stream: r.Stream, From: r.From.Value(), To: r.To.Value(),
	}, err)
}

// ReplaySpan is control.Service.ReplaySpan by the fields of a request.
func (f *Face) ReplaySpan(ctx context.Context, id string, get func(string) string) (r control.Replay, err error) {
	path, err := streamIn(get, "stream")
	if err != nil {
		return r, err
	}
	from, err := f.offsetIn(get, "from")
	if err != nil {
		return r, err
	}
	var to fsm.Offset
	if get("to") != "" {
		if to, err = f.offsetIn(get, "to"); err != nil {
			return r, err
		}
	}
	return f.Control.ReplaySpan(ctx, id, path, from, to)
}

// QueueBody is the replay queue of a consumer.
type QueueBody struct {
	Subscription string `json:"subscription_id"`
	Stream       string `json:"stream"`
	Consumer     string `json:"consumer_id"`
	// Waiting counts the replays that are not over. Done counts the finished ones since the queue was last empty.
	Waiting int `json:"waiting"`
	Done    int `json:"done"`
	// UnderWay is the dead letter, or the span, that is replayed now.
	UnderWay string `json:"under_way,omitempty"`
	// At is the offset that its events are read from now. A read from there shows Skip others before them. The replay
	// ends behind the first ToSkip events that a read from To shows.
	At           string     `json:"at,omitempty"`
	Skip         int64      `json:"skip,omitempty"`
	To           string     `json:"to,omitempty"`
	ToSkip       int64      `json:"to_skip,omitempty"`
	Attempt      int        `json:"attempt,omitempty"`
	FailingSince *time.Time `json:"failing_since,omitempty"`
	LastError    string     `json:"last_error,omitempty"`
}

// QueuesBody is a page of replay queues.
type QueuesBody struct {
	Replays []QueueBody `json:"replays"`
	// Next is the cursor of the next page; empty at the end.
	Next string `json:"next,omitempty"`
}

// Replays lists the replay queues, by partition and consumer.
func (f *Face) Replays(ctx context.Context, query url.Values, p paging.Page) (body QueuesBody, err error) {
	which, err := f.WhichLetters(query.Get)
	if err != nil {
		return body, err
	}
	p.From.Partition = max(p.From.Partition, which.First)
	body.Replays = []QueueBody{}
	body.Next, err = f.Control.ListReplays(ctx, which, p.From, func(q fsm.ReplayQueue) (bool, error) {
		if len(body.Replays) == p.Limit {
			return false, nil
		}
		at, skip := q.At.Split()
		to, toSkip := q.To.Split()
		b := QueueBody{
			Subscription: q.Subscription, Stream: q.Stream, Consumer: q.Consumer, Waiting: q.Waiting, Done: q.Done,
			At: at.Value(), Skip: skip, To: to.Value(), ToSkip: toSkip, Attempt: q.Attempt,
			FailingSince: web.Time(q.FirstFailure), LastError: q.LastError,
		}
		if q.Number != 0 {
			b.UnderWay = f.Control.ReplayID(q)
		}
		body.Replays = append(body.Replays, b)
		return true, nil
	})
	return body, err
}

type cancelledBody struct {
	// Cancelled counts the dead letters and spans that are not replayed any more.
	Cancelled int `json:"cancelled"`
}

// cancelReplays ends the replays of a subscription, or of one of its streams if the request names one. Dead letters
// stay.
func (f *Face) cancelReplays(c echo.Context) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), paging.Timeout)
	defer cancel()
	which, err := f.readWhichLetters(c, "subscription", "stream")
	if err != nil {
		return err
	}
	n, err := f.Control.CancelReplays(ctx, which)
	return web.Answer(c, http.StatusOK, cancelledBody{n}, err)
}
