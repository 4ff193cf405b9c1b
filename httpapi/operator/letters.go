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
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// LetterBody is a dead letter as an operator sees it.
type LetterBody struct {
	ID           string `json:"id"`
	Subscription string `json:"subscription_id"`
	Stream       string `json:"stream"`
	// Consumer is whom the events were for. Those of a push that has stepped aside were for the consumer it came from.
	Consumer string `json:"consumer_id"`
	// DeliveryID is the ID by which the receiver recognizes the delivery; it names the events, too. It is empty if no
	// attempt has left the letter.
	DeliveryID string `json:"delivery_id,omitempty"`
	// From is the offset that the events are read from. A read from there shows Skip others before them (bytes, if the
	// stream is not JSON). Events is their number. If it is 0, the number is not known: they go up to the offset To.
	From   string `json:"from"`
	Skip   int64  `json:"skip,omitempty"`
	Events int64  `json:"events"`
	To     string `json:"to,omitempty"`
	// Attempts counts the attempts that were made. The other fields are about the last one.
	Attempts   int    `json:"attempts"`
	Class      string `json:"class,omitempty"`
	Reason     string `json:"reason"`
	StatusCode int    `json:"status_code,omitempty"`
	// ResponseBody is the beginning of the answer's body.
	ResponseBody string     `json:"response_body,omitempty"`
	FailingSince *time.Time `json:"failing_since,omitempty"`
	DeadAt       time.Time  `json:"dead_at"`
}

// LettersBody is a page of dead letters.
type LettersBody struct {
	DeadLetters []LetterBody `json:"dead_letters"`
	// Next is the cursor of the next page; empty at the end.
	Next string `json:"next,omitempty"`
}

func letterBodyOf(l fsm.DeadLetter) LetterBody {
	from, skip := l.From.Split()
	to := ""
	if l.Events == 0 {
		to = l.To.Value()
	}
	return LetterBody{
		ID: l.ID.String(), Subscription: l.Subscription, Stream: l.Stream, Consumer: l.Consumer,
		DeliveryID: l.DeliveryID, From: from.Value(), Skip: skip, Events: l.Events, To: to,
		Attempts: l.Attempts, Class: l.Class, Reason: l.Reason, StatusCode: l.Status, ResponseBody: l.Answer,
		FailingSince: web.Time(l.FirstFailure), DeadAt: l.DeadAt.UTC(),
	}
}

// Letters lists dead letters.
func (f *Face) Letters(ctx context.Context, query url.Values, p paging.Page) (body LettersBody, err error) {
	which, err := f.WhichLetters(query.Get)
	if err != nil {
		return body, err
	}
	p.From.Partition = max(p.From.Partition, which.First)
	body.DeadLetters = []LetterBody{}
	body.Next, err = f.Control.ListLetters(ctx, which, p.From, func(l fsm.DeadLetter) bool {
		switch {
		case len(body.DeadLetters) == p.Limit:
			return false
		case which.Stream == "" || which.Stream == l.Stream || which.Stream == primaryOf(l):
			body.DeadLetters = append(body.DeadLetters, letterBodyOf(l))
		}
		return true
	})
	return body, err
}

// primaryOf is the primary stream of a letter's consumer, in whose partition the letter is. A consumer that was given
// up may have left a letter about another of its streams.
func primaryOf(l fsm.DeadLetter) string {
	_, path, _ := fsm.ParseConsumerID(l.Consumer)
	return path
}

func (f *Face) showLetter(c echo.Context) error {
	b, err := f.Letter(c.Request().Context(), c.Param("id"))
	return web.Answer(c, http.StatusOK, b, err)
}

// Letter returns one dead letter.
func (f *Face) Letter(ctx context.Context, id string) (LetterBody, error) {
	l, err := f.Control.Letter(ctx, id)
	return letterBodyOf(l), err
}

// discardLetter drops one dead letter.
func (f *Face) discardLetter(c echo.Context) error {
	l, err := f.Control.Letter(c.Request().Context(), c.Param("id"))
	if err == nil {
		err = f.Control.DiscardLetter(c.Request().Context(), l)
	}
	return web.Answer(c, http.StatusOK, discardedBody{Discarded: 1}, err)
}

type discardedBody struct {
	Discarded int `json:"discarded"`
	// Next is where the same request goes on, if there was no time for all letters.
	Next string `json:"next,omitempty"`
}

// discardLetters drops the dead letters that a subscription has now.
func (f *Face) discardLetters(c echo.Context) error {
	which, err := f.readWhichLetters(c, letterFields...)
	if err != nil {
		return err
	}
	n, next, err := f.Control.DiscardLetters(c.Request().Context(), which)
	return web.Answer(c, http.StatusOK, discardedBody{Discarded: n, Next: next}, err)
}

// letterFields are the fields of a request that is about many dead letters.
var letterFields = []string{"subscription", "stream", "since", "until", "cursor"}

// WhichLetters reads the filters of a request.
func (f *Face) WhichLetters(get func(string) string) (w control.Letters, err error) {
	w = f.Control.LettersOf(get("subscription"))
	if w.Subscription != "" {
		if err := fsm.ValidateSubscriptionID(w.Subscription); err != nil {
			return w, refusal.New(fsm.CodeInvalidSubscriptionID, "subscription: %v", err)
		}
	}
	if stream := get("stream"); stream != "" {
		if w.Stream, err = fsm.CanonicalPath(stream); err != nil {
			return w, refusal.New(fsm.CodeInvalidPath, "stream: %v", err)
		}
		w = f.Control.InPartitionOf(w, w.Stream)
	}
	for _, bound := range []struct {
		name   string
		number *int64
		less   int64
	}{{"since", &w.From, 0}, {"until", &w.Through, 1}} {
		at, err := paging.Time(bound.name, get(bound.name))
		if err != nil {
			return w, err
		}
		if !at.IsZero() {
			*bound.number = at.UnixMicro() - bound.less
		}
	}
	return w, nil
}

// readWhichLetters reads the body of a request that changes dead letters or their replays, by the filters that it may
// have.
func (f *Face) readWhichLetters(c echo.Context, known ...string) (w control.Letters, err error) {
	get, err := f.texts(c, true, known...)
	if err != nil {
		return w, err
	}
	return f.LettersToChange(get)
}

// LettersToChange reads which dead letters, or replays, a request changes. It must name a subscription that exists, or
// that has left some.
func (f *Face) LettersToChange(get func(string) string) (w control.Letters, err error) {
	if get("subscription") == "" {
		return w, missing("subscription", "a subscription id")
	}
	if w, err = f.WhichLetters(get); err != nil {
		return w, err
	}
	if cursor := get("cursor"); cursor != "" {
		w.At, err = paging.ReadPlace(cursor, f.Control.View.Partitions())
	}
	w.At.Partition = max(w.At.Partition, w.First)
	return w, err
}
