package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
)

const (
	// sampleCalls bounds how often the store is asked for consumers of one subscription in a list.
	sampleCalls = 4
	// maxCounted bounds how many sets of consumers one page counts.
	maxCounted = 1 << 16
	// conditionUnknown is that of a subscription of which only some consumers were looked at, none of them in trouble.
	conditionUnknown = "unknown"
	// conditionDown and conditionAskedToWait are those of a push subscription whose endpoint gets one delivery at a
	// time, or none for a while (fsm.Endpoint).
	conditionDown        = "down"
	conditionAskedToWait = "asked_to_wait"
)

// operatorSubscription is a subscription as an operator sees it. It has neither the secret nor the webhook's path and
// query, which may hold a key.
type operatorSubscription struct {
	ID          string        `json:"subscription_id"`
	Pattern     string        `json:"pattern"`
	Mode        fsm.Mode      `json:"mode"`
	Start       string        `json:"start,omitempty"`  // as in the answers to clients
	Format      fsm.Format    `json:"format,omitempty"` // of a push
	Ordering    fsm.Ordering  `json:"ordering,omitempty"`
	WebhookHost string        `json:"webhook_host"`
	Description string        `json:"description,omitempty"`
	CreatedAt   time.Time     `json:"created_at"`
	Backfill    *backfillBody `json:"backfill,omitempty"`
	// PreviousSignsUntil is when the secret before the present one stops signing; only in the answer about one
	// subscription.
	PreviousSignsUntil time.Time `json:"previous_signs_until,omitzero"`

	Consumers int `json:"consumers"`
	// DeadLetters counts the deliveries that are not tried again.
	DeadLetters int `json:"dead_letters,omitempty"`
	// Condition is the worst of the consumers that were looked at: "retired", "failing", "ok"; "unknown" if nothing is
	// wrong with them and there are others. Unless one is retired, it is "down" or "asked_to_wait" if the endpoint
	// is, or has.
	Condition string `json:"condition"`
	// Paused is true until an operator resumes the subscription, which is no part of Condition.
	Paused bool `json:"paused,omitempty"`
	// LookedAt is how many consumers Condition and States are of.
	LookedAt int `json:"looked_at"`
	// States counts them by state, and those in trouble once more by condition; only in the answer about one
	// subscription.
	States map[string]int `json:"states,omitempty"`
}

type operatorSubscriptions struct {
	Subscriptions []operatorSubscription `json:"subscriptions"`
	// Next is the cursor of the next page; empty at the end.
	Next string `json:"next,omitempty"`
}

func operatorSubscriptionOf(sub fsm.Subscription, backfills map[string]fsm.Backfill) operatorSubscription {
	b := operatorSubscription{
		ID: sub.ID, Pattern: sub.Pattern, Mode: sub.Mode, Start: sub.Start.Value(), Ordering: sub.Ordering,
		Description: sub.Description,
		CreatedAt:   sub.CreatedAt.UTC(),
		Paused:      sub.Paused,
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

// count adds up the dead letters.
func (b *operatorSubscription) count(byPartition []fsm.LetterCounts) {
	for _, letters := range byPartition {
		b.DeadLetters += letters.Of[b.ID]
	}
}

// judge counts a consumer in.
func (b *operatorSubscription) judge(c consumerBody) {
	b.LookedAt++
	if b.States != nil {
		b.States[string(c.State)]++
		if c.Condition != conditionOK {
			b.States[c.Condition]++
		}
	}
	switch {
	case c.Condition == conditionRetired, c.Condition == conditionFailing && b.Condition != conditionRetired:
		b.Condition = c.Condition
	}
}

// conclude comes after all consumers that are looked at.
func (s *Service) conclude(sub fsm.Subscription, b *operatorSubscription) {
	e, now, trouble := s.cfg.Store.Endpoints().Get(sub.Generation)
	switch {
	case b.Condition == conditionRetired:
	case trouble && e.Down():
		b.Condition = conditionDown
	case trouble && e.AskedToWait(now):
		b.Condition = conditionAskedToWait
	case b.Condition != "":
	case b.LookedAt < b.Consumers:
		b.Condition = conditionUnknown
	default:
		b.Condition = conditionOK
	}
}

// showSubscriptions lists subscriptions by ID, each with what a few of its consumers are like.
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
	backfills, err := s.cfg.Store.Backfills(ctx)
	if err != nil {
		return err
	}
	counts, err := s.cfg.Store.CountConsumers(ctx, all[:n])
	if err != nil {
		return err
	}
	letters, err := s.cfg.Store.CountDeadLetters(ctx)
	if err != nil {
		return err
	}
	body := operatorSubscriptions{Subscriptions: make([]operatorSubscription, n)}
	for i, sub := range all[:n] {
		b := operatorSubscriptionOf(sub, backfills)
		b.count(letters)
		if err := s.sample(ctx, sub, counts[i], &b); err != nil {
			return err
		}
		body.Subscriptions[i] = b
	}
	if n < len(all) {
		body.Next = place{After: all[n-1].ID}.String()
	}
	writeJSON(c.Response(), http.StatusOK, body)
	return nil
}

// sample looks at some of a subscription's consumers.
func (s *Service) sample(ctx context.Context, sub fsm.Subscription, counts []int, b *operatorSubscription) error {
	calls := 0
	for partition, n := range counts {
		b.Consumers += n
		if n == 0 || calls == sampleCalls {
			continue
		}
		calls++
		some, _, err := s.cfg.Store.ScanConsumers(ctx, sub, partition, "0", scanBatch/sampleCalls)
		if err != nil {
			return err
		}
		for _, c := range some {
			b.judge(s.consumerBody(c))
		}
	}
	s.conclude(sub, b)
	return nil
}

// showSubscription shows one subscription, and counts its consumers by state as far as one page may go.
func (s *Service) showSubscription(c echo.Context) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), pageTimeout)
	defer cancel()
	if c.Param("id") == "" {
		return refuse(fsm.CodeInvalidSubscriptionID, "a subscription id has 1 to 128 characters")
	}
	subs, err := s.subscriptionsOf(ctx, c.Param("id"))
	if err != nil {
		return err
	}
	backfills, err := s.cfg.Store.Backfills(ctx)
	if err != nil {
		return err
	}
	counts, err := s.cfg.Store.CountConsumers(ctx, subs)
	if err != nil {
		return err
	}
	letters, err := s.cfg.Store.CountDeadLetters(ctx)
	if err != nil {
		return err
	}
	b := operatorSubscriptionOf(subs[0], backfills)
	b.count(letters)
	b.States = map[string]int{}
	if previous := subs[0].Previous; previous.At(s.cfg.Clock()) != "" {
		b.PreviousSignsUntil = previous.Until.UTC()
	}
	for _, n := range counts[0] {
		b.Consumers += n
	}
	w := walk{s: s, ctx: ctx, limit: 1, wants: func(c consumerBody) bool { b.judge(c); return false }}
	if _, err := w.over(subs); err != nil {
		return err
	}
	s.conclude(subs[0], &b)
	writeJSON(c.Response(), http.StatusOK, b)
	return nil
}
