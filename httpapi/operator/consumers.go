package operator

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/paging"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// consumerPrefix is before the ID in the path of one consumer. The ID is written as in a callback's URL.
const consumerPrefix = "/api/v1/consumers/"

// scanBatch is about how many consumers are looked at in one call of the store.
const scanBatch = 200

// The conditions of a consumer's endpoint or stream, beside its state.
const (
	conditionFailing = string(fsm.ConditionFailing)
	conditionRetired = string(fsm.ConditionRetired)
	conditionHidden  = string(fsm.ConditionHidden)
)

// consumerStates are the values that can filter a list of consumers.
var consumerStates = []string{
	string(fsm.Idle), string(fsm.Waking), string(fsm.Live), string(fsm.GivenUp),
	string(fsm.InQuarantine),
	conditionFailing, conditionRetired, conditionHidden,
}

// ConsumerBody is a consumer as an operator sees it.
type ConsumerBody struct {
	ID           string `json:"consumer_id"`
	Subscription string `json:"subscription_id"`
	Primary      string `json:"primary_stream"`
	// AsideOf is the consumer whose failed delivery this one goes on with, where "ordering" is "none".
	AsideOf   string    `json:"aside_of,omitempty"`
	Partition int       `json:"partition"`
	State     fsm.State `json:"state"`
	// Condition is "failing" while deliveries fail, "retired" once the endpoint answered 410, "hidden" while the
	// primary stream is gone upstream, otherwise "ok".
	Condition string `json:"condition"`
	Epoch     int64  `json:"epoch"`
	WakeID    string `json:"wake_id,omitempty"`
	// WokenAt is when that wake began.
	WokenAt *time.Time `json:"woken_at,omitempty"`
	Attempt int        `json:"attempt,omitempty"`
	// WaitsFor is what happens at the deadline if nothing comes before: "answer" (the attempt counts as failed), or
	// "attempt" (the next one is made, or looked at again), "callback" (the consumer counts as asleep) or "stream" (the
	// stream is looked for again).
	WaitsFor     string     `json:"waits_for,omitempty"`
	Deadline     *time.Time `json:"deadline,omitempty"`
	FailingSince *time.Time `json:"failing_since,omitempty"`
	LastError    string     `json:"last_error,omitempty"`
	// Blocked says why it gets no delivery now.
	Blocked     *BlockedBody `json:"blocked,omitempty"`
	HiddenSince *time.Time   `json:"hidden_since,omitempty"`
	// Streams and Asides are only in the answer about one consumer. Asides counts the consumers that are AsideOf it.
	Streams []ConsumerStream `json:"streams,omitempty"`
	Asides  int              `json:"asides,omitempty"`
	AsOf    *time.Time       `json:"as_of,omitempty"`
}

// BlockedBody is why nothing is delivered now, and who has set that.
type BlockedBody struct {
	Reason fsm.BlockReason `json:"reason"`
	By     string          `json:"by,omitempty"`
}

// ConsumerStream is a stream that a consumer is subscribed to.
type ConsumerStream struct {
	Path    string `json:"path"`
	Acked   string `json:"acked"`
	Tail    string `json:"tail"`
	Pending bool   `json:"pending"`
}

// ConsumersBody is a page of consumers.
type ConsumersBody struct {
	Consumers []ConsumerBody `json:"consumers"`
	// Next is the cursor of the next page; empty at the end.
	Next string    `json:"next,omitempty"`
	AsOf time.Time `json:"as_of"`
}

func (f *Face) consumerBody(ctx context.Context, c fsm.Consumer, now time.Time) ConsumerBody {
	c = c.AsOf(now)
	waits, blocked := waitsFor(c), (*BlockedBody)(nil)
	if why := c.Blocked(now, f.Control.Paused(ctx, c)); why != "" {
		blocked = &BlockedBody{why, why.Rule().By}
		if why == fsm.BlockedPaused {
			waits = "" // whatever is due then waits on
		}
	}
	return ConsumerBody{
		ID: c.ID, Subscription: c.Subscription, Primary: c.Primary, AsideOf: c.Owner,
		Partition: f.Control.View.PartitionOf(c.Ref().Home), State: c.State,
		Condition: string(c.Condition()), Epoch: c.Epoch, WakeID: c.WakeID, WokenAt: web.Time(c.WokeAt),
		Attempt:  c.Attempt,
		WaitsFor: waits, Blocked: blocked, Deadline: web.Time(c.Deadline),
		FailingSince: web.Time(c.FirstFailure), LastError: c.LastError, HiddenSince: web.Time(c.HiddenAt),
	}
}

func waitsFor(c fsm.Consumer) string {
	switch {
	case c.Deadline.IsZero():
		return ""
	case !c.HiddenAt.IsZero():
		return "stream"
	case c.State == fsm.Live:
		return "callback"
	case c.State == fsm.Waking && c.Sent:
		return "answer"
	case c.State == fsm.Waking:
		return "attempt"
	}
	return ""
}

// Consumers lists consumers, by subscription.
func (f *Face) Consumers(ctx context.Context, query url.Values, p paging.Page) (body ConsumersBody, err error) {
	state := query.Get("state")
	if state != "" && !slices.Contains(consumerStates, state) {
		return body, refusal.New(fsm.CodeInvalidRequest, "state must be one of %s", strings.Join(consumerStates, ", "))
	}
	subs, err := f.Control.Subscriptions(ctx, query.Get("subscription"))
	if err != nil {
		return body, err
	}
	body = ConsumersBody{Consumers: []ConsumerBody{}, AsOf: f.Control.Clock().UTC()}
	w := walk{f: f, ctx: ctx, at: p.From, now: body.AsOf, wants: func(b ConsumerBody) bool {
		return state == "" || state == string(b.State) || state == b.Condition
	}, limit: p.Limit}
	more, err := w.over(subs)
	if err != nil {
		return body, err
	}
	body.Consumers = append(body.Consumers, w.found...)
	if more {
		body.Next = w.at.String()
	}
	return body, nil
}

// walk goes through consumers in the order of their subscriptions' IDs, from a place on.
type walk struct {
	f     *Face
	ctx   context.Context // of the request
	at    paging.Place
	now   time.Time
	limit int
	wants func(ConsumerBody) bool

	found  []ConsumerBody
	looked int
	cost   int
}

// over walks until it has found as many consumers as it may, or has cost too much. The result more says that it was not
// at the end. The place at is where to go on.
func (w *walk) over(subs []fsm.Subscription) (more bool, err error) {
	for _, sub := range subs {
		switch {
		case sub.ID < w.at.Subscription:
			continue
		case sub.ID != w.at.Subscription || sub.Generation != w.at.Generation:
			w.at = paging.Place{Subscription: sub.ID, Generation: sub.Generation, Scan: "0"}
		}
		if w.cost >= paging.MaxCost {
			return true, nil
		}
		counts, err := w.f.Control.View.CountConsumers(w.ctx, []fsm.Subscription{sub})
		if err != nil {
			return false, err
		}
		w.cost += len(counts[0])
		for ; w.at.Partition < len(counts[0]); w.at.Partition++ {
			if counts[0][w.at.Partition] == 0 {
				w.at.Scan, w.at.After = "0", ""
				continue
			}
			if more, err := w.partition(sub); more || err != nil {
				return more, err
			}
		}
	}
	return false, nil
}

func (w *walk) partition(sub fsm.Subscription) (more bool, err error) {
	for {
		if w.cost >= paging.MaxCost {
			return true, nil
		}
		batch, next, err := w.f.Control.View.ScanConsumers(w.ctx, sub, w.at.Partition, w.at.Scan, scanBatch)
		if err != nil {
			return false, err
		}
		w.cost += len(batch) + 1
		slices.SortFunc(batch, func(a, b fsm.Consumer) int { return cmp.Compare(a.ID, b.ID) })
		for _, c := range batch {
			if c.ID <= w.at.After {
				continue
			}
			if len(w.found) == w.limit {
				return true, nil
			}
			w.looked++
			w.at.After = c.ID
			if b := w.f.consumerBody(w.ctx, c, w.now); w.wants(b) {
				w.found = append(w.found, b)
			}
		}
		w.at.Scan, w.at.After = next, ""
		if next == "0" {
			return false, nil
		}
	}
}

func (f *Face) showConsumer(c echo.Context) error {
	b, err := f.Consumer(c.Request().Context(), strings.TrimPrefix(web.RawPath(c.Request()), consumerPrefix))
	return web.Answer(c, http.StatusOK, b, err)
}

// Consumer returns one consumer. Its ID is written as in a callback's URL.
func (f *Face) Consumer(ctx context.Context, id string) (body ConsumerBody, err error) {
	_, primary, ok := fsm.ParseAnyConsumerID(id)
	if !ok {
		return body, refusal.New(fsm.CodeInvalidRequest,
			"the path does not end in a consumer id, such as agent-handler:%%2Fagents%%2Ftask-1")
	}
	consumer, err := f.Control.View.Consumer(ctx, fsm.ConsumerRef{ID: id, Home: primary})
	if errors.Is(err, fsm.ErrNotFound) {
		return body, refusal.New(fsm.CodeNotFound, "there is no consumer with this id")
	} else if err != nil {
		return body, err
	}
	now := f.Control.Clock()
	body = f.consumerBody(ctx, consumer, now)
	body.AsOf, body.Asides = web.Time(now), consumer.Asides
	streams := make([]fsm.StreamTail, 0, len(consumer.Links))
	for path, l := range consumer.Links {
		streams = append(streams, fsm.StreamTail{Path: path, Acked: l.Acked, Tail: l.Tail})
	}
	fsm.SortStreams(primary, streams)
	for _, st := range streams {
		body.Streams = append(body.Streams, ConsumerStream{
			Path: st.Path, Acked: st.Acked.Value(), Tail: st.Tail.Value(),
			Pending: fsm.Link{Acked: st.Acked, Tail: st.Tail}.Pending(),
		})
	}
	return body, nil
}
