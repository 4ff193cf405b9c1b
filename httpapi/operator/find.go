package operator

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/control"
	"reveille/httpapi/paging"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

const (
	// maxQuery bounds what is looked for, in bytes.
	maxQuery = 4096
	// maxFound bounds the consumers of a stream that one search shows, and the attempts of a delivery.
	maxFound = 100
	// maxTried bounds the consumers that a search of a stream looks for.
	maxTried = 1000
)

// The kinds of what a search finds.
const (
	kindSubscription = "subscription"
	kindConsumer     = "consumer"
	kindDelivery     = "delivery"
	kindWake         = "wake"
	kindLetter       = "dead_letter"
	kindReplay       = "replay"
	kindEvent        = "event"
)

// The states of a delivery or a wake that was found.
const (
	stateTaken = "taken"
	stateSent  = "sent"
	stateWaits = "waits"
	stateDead  = "dead"
	// stateOver is that of a delivery that nobody works on, and that has left no dead letter, or none that is kept.
	stateOver = "over"
)

// FoundBody is something that has an ID.
type FoundBody struct {
	Kind         string `json:"kind"`
	ID           string `json:"id"`
	Subscription string `json:"subscription_id,omitempty"`
	Stream       string `json:"stream,omitempty"`
	Consumer     string `json:"consumer_id,omitempty"`
	// State of a consumer, a delivery, a wake or an event.
	State string `json:"state,omitempty"`
	// NextAttemptAt is when a delivery that waits is sent again, or is looked at again. Blocked is why it is not sent
	// before.
	NextAttemptAt *time.Time   `json:"next_attempt_at,omitempty"`
	Blocked       *BlockedBody `json:"blocked,omitempty"`
	// Letter is the dead letter that a delivery has left, and Reason why its last attempt failed.
	Letter string `json:"dead_letter_id,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Attempts of a delivery are the latest that the log has, the latest first.
	Attempts []DeliveryBody `json:"attempts,omitempty"`
}

// FindBody is all that a search has found.
type FindBody struct {
	Found []FoundBody `json:"found"`
	AsOf  time.Time   `json:"as_of"`
}

func (f *Face) find(c echo.Context) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), paging.Timeout)
	defer cancel()
	if err := web.OnlyParams(c, "q", "subscription"); err != nil {
		return err
	}
	b, err := f.Find(ctx, c.QueryParam("q"), c.QueryParam("subscription"))
	return web.Answer(c, http.StatusOK, b, err)
}

// Find returns what has an ID, of whatever kind, or which consumers a stream has. If it names a subscription, it is the
// delivery or the wake of that subscription.
func (f *Face) Find(ctx context.Context, q, subscription string) (body FindBody, err error) {
	q = strings.TrimSpace(q)
	if q == "" || len(q) > maxQuery {
		return body, refusal.New(fsm.CodeInvalidRequest,
			"q must be an id, or the path of a stream, of at most %d bytes", maxQuery)
	}
	if err := f.Control.View.RefreshCatalog(ctx); err != nil {
		return body, err
	}
	body.AsOf = f.Control.Clock().UTC()
	if subscription == "" {
		for _, look := range []func(context.Context, string) ([]FoundBody, error){
			f.findSubscription, f.findConsumers, f.findLetter, f.findReplay, f.findEvent,
		} {
			found, err := look(ctx, q)
			if err != nil && !errors.Is(err, fsm.ErrNotFound) {
				return body, err
			}
			body.Found = append(body.Found, found...)
		}
	}
	if len(body.Found) == 0 {
		subs, err := f.Control.Subscriptions(ctx, subscription)
		if err != nil {
			return body, err
		}
		if body.Found, err = f.findDelivery(ctx, subs, q); err != nil { // which may cost more
			return body, err
		}
	}
	if len(body.Found) == 0 {
		return body, refusal.New(fsm.CodeNotFound, "nothing that is known has this id (any more)")
	}
	return body, nil
}

func (f *Face) findSubscription(ctx context.Context, q string) ([]FoundBody, error) {
	sub, there := f.Control.View.Subscription(ctx, q)
	if !there {
		return nil, nil
	}
	return []FoundBody{{Kind: kindSubscription, ID: sub.ID}}, nil
}

// findConsumers finds a consumer by its ID, or those of a stream.
func (f *Face) findConsumers(ctx context.Context, q string) (found []FoundBody, err error) {
	ids := []string{q}
	_, home, ok := fsm.ParseAnyConsumerID(q)
	if !ok {
		if home, err = fsm.CanonicalPath(q); err != nil {
			return nil, nil
		}
		ids = nil
		for _, sub := range f.Control.View.Matching(ctx, home) {
			ids = append(ids, fsm.ConsumerID(sub.ID, home))
		}
	}
	if len(ids) > maxTried {
		return nil, refusal.New(fsm.CodeInvalidRequest,
			"the patterns of %d subscriptions match this stream: name a consumer by its id", len(ids))
	}
	now := f.Control.Clock()
	for _, id := range ids {
		c, err := f.Control.View.Consumer(ctx, fsm.ConsumerRef{ID: id, Home: home})
		switch {
		case errors.Is(err, fsm.ErrNotFound):
			continue
		case err != nil:
			return nil, err
		case len(found) == maxFound:
			return found, nil
		}
		b := f.consumerBody(ctx, c, now)
		found = append(found, FoundBody{
			Kind: kindConsumer, ID: c.ID, Subscription: c.Subscription, Stream: c.Primary, State: string(c.State),
			Blocked: b.Blocked, Reason: c.LastError,
		})
	}
	return found, nil
}

func (f *Face) findLetter(ctx context.Context, q string) ([]FoundBody, error) {
	l, err := f.Control.Letter(ctx, q)
	if errors.As(err, new(*refusal.Error)) { // no dead letter can have this ID, or none has it
		return nil, nil
	}
	return []FoundBody{{
		Kind: kindLetter, ID: q, Subscription: l.Subscription, Stream: l.Stream, Consumer: l.Consumer, Reason: l.Reason,
	}}, err
}

// findReplay finds the span of a stream whose replay is under way.
func (f *Face) findReplay(ctx context.Context, q string) (found []FoundBody, err error) {
	partition, ok := f.Control.PartitionOfReplay(q)
	if !ok {
		return nil, nil
	}
	which := f.Control.LettersOf("")
	which.First, which.Last = partition, partition
	next, err := f.Control.ListReplays(ctx, which, paging.Place{Partition: which.First},
		func(r fsm.ReplayQueue) (bool, error) {
			if r.Number != 0 && f.Control.ReplayID(r) == q {
				found = []FoundBody{{
					Kind: kindReplay, ID: q, Subscription: r.Subscription, Stream: r.Stream, Consumer: r.Consumer,
					Reason: r.LastError,
				}}
			}
			return len(found) == 0, nil
		})
	if err == nil && len(found) == 0 && next != "" {
		err = refusal.New(fsm.CodeNotFound,
			"no replay with this id is among the first %d of its partition: list those of its stream", paging.MaxCost)
	}
	return found, err
}

// findEvent finds an event that was handed over, by its ID or its idempotency key.
func (f *Face) findEvent(ctx context.Context, q string) ([]FoundBody, error) {
	if f.Outbox == nil {
		return nil, nil
	}
	e, err := f.Outbox.Find(ctx, q)
	if err != nil {
		return nil, err
	}
	return []FoundBody{{
		Kind: kindEvent, ID: e.Event.ID, Stream: e.Stream, Consumer: e.Consumer, State: string(e.OutboxState.Status),
		NextAttemptAt: web.Time(e.NextRetryAt), Reason: e.LastError,
	}}, nil
}

// findDelivery finds a delivery or a wake by its attempts in the log, or by the dead letter that it has left.
func (f *Face) findDelivery(ctx context.Context, subs []fsm.Subscription, q string) ([]FoundBody, error) {
	if strings.HasPrefix(q, "/") { // a path is no ID
		return nil, nil
	}
	d, whole, err := f.Control.FindDelivery(ctx, subs, q, paging.MaxCost)
	switch {
	case err != nil:
		return nil, err
	case !d.Known() && !whole:
		return nil, refusal.New(fsm.CodeNotFound,
			"nothing with this id is among the latest %d attempts of the %d subscriptions with the latest ones, nor "+
				"among as many dead letters; name its subscription", paging.MaxCost, control.LogsAtATime)
	case !d.Known():
		return nil, nil
	}
	b := FoundBody{Kind: kindDelivery, ID: q, Subscription: d.Subscription.ID, State: stateOver}
	for _, a := range d.Attempts[:min(len(d.Attempts), maxFound)] {
		b.Attempts = append(b.Attempts, deliveryBodyOf(a))
	}
	if len(d.Attempts) > 0 {
		latest := d.Attempts[0]
		b.Stream, b.Consumer, b.Reason = latest.Stream, latest.Consumer, latest.Reason
		if latest.DeliveryID != q || latest.WakeID == q {
			b.Kind = kindWake
		}
	}
	switch {
	case d.Letter != nil:
		b.State, b.Letter, b.Reason = stateDead, d.Letter.ID.String(), d.Letter.Reason
		b.Stream, b.Consumer = d.Letter.Stream, d.Letter.Consumer
	case d.Consumer != nil && d.Consumer.Sent:
		b.State = stateSent
	case d.Consumer != nil:
		shown := f.consumerBody(ctx, *d.Consumer, f.Control.Clock())
		b.State, b.NextAttemptAt, b.Blocked = stateWaits, shown.Deadline, shown.Blocked
	case d.Taken():
		b.State = stateTaken
	}
	return []FoundBody{b}, nil
}
