package httpapi

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
)

const (
	// maxCounted bounds how many sets of consumers one page counts.
	maxCounted = 1 << 16
	// conditionDown and conditionAskedToWait are those of a push subscription whose endpoint gets one delivery at a
	// time, or none for a while (fsm.Endpoint).
	conditionDown        = "down"
	conditionAskedToWait = "asked_to_wait"
)

// operatorSubscription is a subscription as an operator sees it. It has neither the secret nor the webhook's path and
// query, which may hold a key.
type operatorSubscription struct {
	ID       string       `json:"subscription_id"`
	Pattern  string       `json:"pattern"`
	Mode     fsm.Mode     `json:"mode"`
	Start    string       `json:"start,omitempty"`  // as in the answers to clients
	Format   fsm.Format   `json:"format,omitempty"` // of a push
	Ordering fsm.Ordering `json:"ordering,omitempty"`
	filterBody
	WebhookHost string        `json:"webhook_host"`
	Description string        `json:"description,omitempty"`
	CreatedAt   time.Time     `json:"created_at"`
	Backfill    *backfillBody `json:"backfill,omitempty"`
	// PreviousSignsUntil is when the secret before the present one stops signing; only in the answer about one
	// subscription.
	PreviousSignsUntil time.Time `json:"previous_signs_until,omitzero"`

	// The counts are exact (fsm.Tally). Asides are deliveries that go on by themselves, beside the consumers.
	Consumers int `json:"consumers"`
	Asides    int `json:"asides,omitempty"`
	// Pending counts those that have a wake or a delivery under way, unless they wait for a resumption.
	Pending int `json:"pending"`
	// States counts them by state, and those in trouble once more by condition. What there is none of is left out.
	States map[string]int `json:"states"`
	// FailingSince is the earliest time since when one of them fails, and LastError is of that one.
	FailingSince *time.Time `json:"failing_since,omitempty"`
	LastError    string     `json:"last_error,omitempty"`
	// DeadLetters counts the deliveries that are not tried again.
	DeadLetters int `json:"dead_letters,omitempty"`
	// Condition is the worst of them: "retired", "failing", "ok". Unless one is retired, it is "down" or
	// "asked_to_wait" if the endpoint is, or has.
	Condition string `json:"condition"`
	// Paused is true until an operator resumes the subscription, which is no part of Condition.
	Paused bool `json:"paused,omitempty"`
	// AsOf is only in the answer about one subscription.
	AsOf *time.Time `json:"as_of,omitempty"`
}

type operatorSubscriptions struct {
	Subscriptions []operatorSubscription `json:"subscriptions"`
	// Next is the cursor of the next page; empty at the end.
	Next string    `json:"next,omitempty"`
	AsOf time.Time `json:"as_of"`
}

func operatorSubscriptionOf(sub fsm.Subscription, backfills map[string]fsm.Backfill) operatorSubscription {
	b := operatorSubscription{
		ID: sub.ID, Pattern: sub.Pattern, Mode: sub.Mode, Start: sub.Start.Value(), Ordering: sub.Ordering,
		Description: sub.Description, filterBody: filterOf(sub),
		CreatedAt: sub.CreatedAt.UTC(),
		Paused:    sub.Paused,
	}
	if sub.Mode == fsm.ModePush {
		b.Format = sub.Format
	}
	if u, err := url.Parse(sub.Webhook); err == nil {
		b.WebhookHost = u.Host
	}
	if under, ok := backfills[sub.ID]; ok {
		b.Backfill = &backfillBody{Done: under.Done, Total: under.Total}
	}
	return b
}

// show describes some subscriptions. Unless all of their consumers were counted, it returns an error.
func (s *Service) show(ctx context.Context, subs []fsm.Subscription) ([]operatorSubscription, error) {
	bodies, err := s.describe(ctx, subs)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil, refuse(fsm.CodeUnavailable, "the consumers could not be counted within %s; try again", pageTimeout)
	}
	return bodies, err
}

func (s *Service) describe(ctx context.Context, subs []fsm.Subscription) ([]operatorSubscription, error) {
	backfills, err := s.cfg.Store.Backfills(ctx)
	if err != nil {
		return nil, err
	}
	letters, err := s.cfg.Store.CountDeadLetters(ctx)
	if err != nil {
		return nil, err
	}
	tallies, err := s.cfg.Store.TallyConsumers(ctx, subs)
	if err != nil {
		return nil, err
	}
	bodies := make([]operatorSubscription, len(subs))
	for i, sub := range subs {
		b := operatorSubscriptionOf(sub, backfills)
		b.count(tallies[i])
		for _, inPartition := range letters {
			b.DeadLetters += inPartition.Of[sub.ID]
		}
		e, now, trouble := s.cfg.Store.Endpoints().Get(sub.Generation)
		b.Condition = conditionOfAll(tallies[i], trouble && e.Down(), trouble && e.AskedToWait(now))
		bodies[i] = b
	}
	return bodies, nil
}

func (b *operatorSubscription) count(t fsm.Tally) {
	b.Consumers, b.Asides, b.Pending, b.States = t.Consumers, t.Asides, t.Pending, map[string]int{}
	for state, n := range map[string]int{
		string(fsm.Idle): t.Idle, string(fsm.Waking): t.Waking, string(fsm.Live): t.Live,
		string(fsm.GivenUp): t.GivenUp,
		conditionFailing:    t.Failing, conditionRetired: t.Retired, conditionHidden: t.Hidden,
	} {
		if n > 0 {
			b.States[state] = n
		}
	}
	b.FailingSince, b.LastError = shown(t.FailingSince), t.LastError
}

// conditionOfAll is the condition of a subscription, whose endpoint may be down or have asked to wait.
func conditionOfAll(t fsm.Tally, down, askedToWait bool) string {
	switch {
	case t.Retired > 0:
		return conditionRetired
	case down:
		return conditionDown
	case askedToWait:
		return conditionAskedToWait
	case t.Failing > 0:
		return conditionFailing
	}
	return conditionOK
}

// showSubscriptions lists subscriptions by ID.
func (s *Service) showSubscriptions(c echo.Context) error {
	p, err := s.readPage(c.QueryParams())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request().Context(), pageTimeout)
	defer cancel()
	all, err := s.subscriptionsOf(ctx, "")
	if err != nil {
		return err
	}
	for len(all) > 0 && all[0].ID <= p.from.After {
		all = all[1:]
	}
	n := min(p.limit, max(1, maxCounted/s.cfg.Store.Partitions()), len(all))
	body := operatorSubscriptions{AsOf: s.cfg.Clock().UTC()}
	if body.Subscriptions, err = s.show(ctx, all[:n]); err != nil {
		return err
	}
	if n < len(all) {
		body.Next = place{After: all[n-1].ID}.String()
	}
	writeJSON(c.Response(), http.StatusOK, body)
	return nil
}

// showSubscription shows one subscription.
func (s *Service) showSubscription(c echo.Context) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), pageTimeout)
	defer cancel()
	sub, err := s.subscriptionOf(ctx, c.Param("id"))
	if err != nil {
		return err
	}
	now := s.cfg.Clock()
	bodies, err := s.show(ctx, []fsm.Subscription{sub})
	if err != nil {
		return err
	}
	b := bodies[0]
	b.AsOf = shown(now)
	if previous := sub.Previous; previous.At(now) != "" {
		b.PreviousSignsUntil = previous.Until.UTC()
	}
	writeJSON(c.Response(), http.StatusOK, b)
	return nil
}
