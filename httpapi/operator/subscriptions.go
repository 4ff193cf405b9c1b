package operator

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/control"
	"reveille/httpapi/fields"
	"reveille/httpapi/paging"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// maxCounted bounds how many sets of consumers one page counts.
const maxCounted = 1 << 16

// SubscriptionBody is a subscription as an operator sees it. It has neither the secret nor the webhook's path and
// query, which may hold a key.
type SubscriptionBody struct {
	ID          string                 `json:"subscription_id"`
	Pattern     string                 `json:"pattern"`
	Mode        fsm.Mode               `json:"mode"`
	Start       string                 `json:"start,omitempty"`  // as in the answers to clients
	Format      fsm.Format             `json:"format,omitempty"` // of a push
	Ordering    fsm.Ordering           `json:"ordering,omitempty"`
	Rate        int                    `json:"rate,omitempty"` // requests a minute
	Events      []string               `json:"events,omitempty"`
	TypePath    string                 `json:"type_path,omitempty"`
	Filter      map[string][]fsm.Value `json:"filter,omitempty"`
	WebhookHost string                 `json:"webhook_host"`
	Description string                 `json:"description,omitempty"`
	CreatedAt   time.Time              `json:"created_at"`
	Backfill    *fields.Backfill       `json:"backfill,omitempty"`
	// PreviousSignsUntil is when the secret before the present one stops signing; only in the answer about one
	// subscription.
	PreviousSignsUntil time.Time `json:"previous_signs_until,omitzero"`

	// The counts are exact, unless AtLeast is true (fsm.Tally, Partial). Consumers, Asides and DeadLetters always are.
	// With AtLeast, the other counts may be higher, the times earlier, and Condition worse.
	AtLeast bool `json:"at_least,omitempty"`
	// Asides are deliveries that are retried by themselves, beside the consumers.
	Consumers int `json:"consumers"`
	Asides    int `json:"asides,omitempty"`
	// Pending counts the consumers and asides with a wake or a delivery under way, unless they wait for a resumption.
	Pending int `json:"pending"`
	// States counts them by state, and the ones in trouble once more by condition. States without consumers are left
	// out.
	States map[string]int `json:"states"`
	// FailingSince is the earliest time since when one of them fails, or since when the endpoint takes nothing.
	// LastError is the error of that consumer. If Condition is "refusing", or if no consumer has an error, it is the
	// endpoint's.
	FailingSince *time.Time `json:"failing_since,omitempty"`
	LastError    string     `json:"last_error,omitempty"`
	// WaitingSince is when the oldest wake or delivery began that the endpoint has not taken.
	WaitingSince *time.Time `json:"waiting_since,omitempty"`
	// DeadLetters counts the deliveries that are not tried again.
	DeadLetters int `json:"dead_letters,omitempty"`
	// Condition is the worst of the consumers and the endpoint: "retired", "down", "refusing", "asked_to_wait",
	// "failing", "ok". "paused" stands for "ok" while the subscription is paused.
	Condition fsm.Condition `json:"condition"`
	// Paused is true until an operator resumes the subscription. Disabled is true if Reveille has paused it, because
	// its endpoint has failed for DisableAfter.
	Paused      bool       `json:"paused,omitempty"`
	Disabled    bool       `json:"disabled,omitempty"`
	PausedSince *time.Time `json:"paused_since,omitempty"`
	retired     bool
	// Consent is left out if no endpoint is asked for it.
	Consent *fields.Consent `json:"consent,omitempty"`
	// The fields below are only in the answer about one subscription. LastAttempt is the latest attempt in the delivery
	// log, if the log has all attempts. If it has only failures, LastFailedAttempt is set instead.
	LastAttempt       *DeliveryBody `json:"last_attempt,omitempty"`
	LastFailedAttempt *DeliveryBody `json:"last_failed_attempt,omitempty"`
	AsOf              *time.Time    `json:"as_of,omitempty"`
}

// SubscriptionsBody is a page of subscriptions.
type SubscriptionsBody struct {
	Subscriptions []SubscriptionBody `json:"subscriptions"`
	// Next is the cursor of the next page; empty at the end.
	Next string    `json:"next,omitempty"`
	AsOf time.Time `json:"as_of"`
}

func subscriptionBodyOf(sub fsm.Subscription, backfills map[string]fsm.Backfill) SubscriptionBody {
	b := SubscriptionBody{
		ID: sub.ID, Pattern: sub.Pattern, Mode: sub.Mode, Start: sub.Start.Value(), Ordering: sub.Ordering,
		Rate:   sub.Rate,
		Events: sub.Filter.Events, TypePath: sub.Filter.TypePath, Filter: sub.Filter.Values,
		Description: sub.Description, CreatedAt: sub.CreatedAt.UTC(),
		Paused: sub.Paused, Disabled: sub.Disabled, PausedSince: web.Time(sub.PausedAt), retired: sub.Retired,
	}
	if sub.Mode == fsm.ModePush {
		b.Format = sub.Format
	}
	if u, err := url.Parse(sub.Webhook); err == nil {
		b.WebhookHost = u.Host
	}
	if under, ok := backfills[sub.ID]; ok {
		b.Backfill = &fields.Backfill{Done: under.Done, Total: under.Total}
	}
	return b
}

// show describes some subscriptions. It returns an error unless all of their consumers were counted.
func (f *Face) show(ctx context.Context, subs []fsm.Subscription) ([]SubscriptionBody, error) {
	bodies, err := f.describe(ctx, subs)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil, refusal.New(fsm.CodeUnavailable,
			"the consumers could not be counted within %s; try again", paging.Timeout)
	}
	return bodies, err
}

func (f *Face) describe(ctx context.Context, subs []fsm.Subscription) ([]SubscriptionBody, error) {
	ids := make([]string, len(subs))
	for i, sub := range subs {
		ids[i] = sub.ID
	}
	backfills, err := f.Control.View.BackfillsOf(ctx, ids)
	if err != nil {
		return nil, err
	}
	letters, err := f.Control.View.LettersOf(ctx, ids)
	if err != nil {
		return nil, err
	}
	tallies, err := f.Control.View.TallyConsumers(ctx, subs)
	if err != nil {
		return nil, err
	}
	bodies := make([]SubscriptionBody, len(subs))
	for i, sub := range subs {
		b := subscriptionBodyOf(sub, backfills)
		if c, ok := f.Control.Consent(sub); ok {
			shown := fields.ConsentOf(c)
			b.Consent = &shown
		}
		b.count(tallies[i])
		for _, inPartition := range letters {
			b.DeadLetters += inPartition.Of[sub.ID]
		}
		b.judge(tallies[i], f.Control.View.Endpoints().Of(sub))
		bodies[i] = b
	}
	return bodies, nil
}

func (b *SubscriptionBody) count(t fsm.Tally) {
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
	b.FailingSince, b.LastError = web.Time(t.FailingSince), t.LastError
	b.WaitingSince, b.AtLeast = web.Time(t.WaitingSince), t.Partial
}

// mayBeUnwell says whether something is wrong with the consumers or the endpoint, as far as is known.
func (b SubscriptionBody) mayBeUnwell() bool {
	return b.AtLeast || b.Condition != fsm.ConditionOK && b.Condition != conditionPaused
}

// withinBound leaves out the subscriptions from the first one on whose consumers were not all counted, as the others
// have used up what one page may look at. The next page begins with it. A page has at least one.
func withinBound(bodies []SubscriptionBody) []SubscriptionBody {
	i := slices.IndexFunc(bodies, func(b SubscriptionBody) bool { return b.AtLeast })
	if i < 0 {
		return bodies
	}
	return bodies[:max(i, 1)]
}

// judge says what is wrong with the consumers and the endpoint, and since when.
func (b *SubscriptionBody) judge(t fsm.Tally, e fsm.EndpointNow) {
	switch b.Condition = e.Condition(); {
	case t.Retired > 0 || b.retired:
		b.Condition = fsm.ConditionRetired
	case b.Condition == fsm.ConditionOK && t.Failing > 0:
		b.Condition = fsm.ConditionFailing
	case b.Condition == fsm.ConditionOK && b.Paused:
		b.Condition = conditionPaused
	case b.Condition == fsm.ConditionOK:
	case b.Condition == fsm.ConditionRefusing, b.LastError == "":
		b.LastError = e.Reason
	}
	if b.FailingSince == nil || !e.Since.IsZero() && e.Since.Before(*b.FailingSince) {
		b.FailingSince = web.Time(e.Since)
	}
}

// consentMissing is for the subscriptions whose endpoints have not agreed to deliveries, for whatever reason.
const consentMissing = "missing"

// conditionPaused is the condition of a subscription without trouble that an operator has paused.
const conditionPaused fsm.Condition = "paused"

// conditionUnknown stands for ConditionOK if not all consumers were looked at, where conditions are counted.
const conditionUnknown fsm.Condition = "not_known"

// Subscriptions lists subscriptions by ID: all of them, those whose endpoints have or have not consented, or only the
// ones that may be unhealthy. A page may have fewer than its limit.
func (f *Face) Subscriptions(ctx context.Context, query url.Values, p paging.Page) (body SubscriptionsBody, err error) {
	failing := query.Get("failing")
	if failing != "" && failing != "true" && failing != "false" {
		return body, refusal.New(fsm.CodeInvalidRequest, "failing must be true or false")
	}
	consent := query.Get("consent")
	if consent != "" && consent != consentMissing && !slices.Contains(fsm.ConsentStates, fsm.ConsentState(consent)) {
		return body, refusal.New(fsm.CodeInvalidRequest,
			"consent must be missing, granted, pending, refused or unsupported")
	}
	if consent != "" && f.Control.Consents == nil {
		return body, control.NoConsents()
	}
	all, err := f.Control.Subscriptions(ctx, "")
	if err != nil {
		return body, err
	}
	if consent != "" {
		all = slices.DeleteFunc(slices.Clone(all), func(sub fsm.Subscription) bool {
			has, _ := f.Control.Consent(sub)
			if consent == consentMissing {
				return has.State == fsm.ConsentGranted
			}
			return string(has.State) != consent
		})
	}
	for len(all) > 0 && all[0].ID <= p.From.After {
		all = all[1:]
	}
	n := min(p.Limit, max(1, maxCounted/f.Control.View.Partitions()), len(all))
	body.AsOf = f.Control.Clock().UTC()
	if body.Subscriptions, err = f.show(ctx, all[:n]); err != nil {
		return body, err
	}
	body.Subscriptions = withinBound(body.Subscriptions)
	n = len(body.Subscriptions)
	if failing == "true" {
		body.Subscriptions = slices.DeleteFunc(body.Subscriptions, func(b SubscriptionBody) bool {
			return !b.mayBeUnwell()
		})
	}
	if n < len(all) {
		body.Next = paging.Place{After: all[n-1].ID}.String()
	}
	return body, nil
}

func (f *Face) showSubscription(c echo.Context) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), paging.Timeout)
	defer cancel()
	b, err := f.Subscription(ctx, c.Param("id"))
	return web.Answer(c, http.StatusOK, b, err)
}

// Subscription returns one subscription.
func (f *Face) Subscription(ctx context.Context, id string) (b SubscriptionBody, err error) {
	sub, err := f.Control.Subscription(ctx, id)
	if err != nil {
		return b, err
	}
	now := f.Control.Clock()
	bodies, err := f.show(ctx, []fsm.Subscription{sub})
	if err != nil {
		return b, err
	}
	b = bodies[0]
	b.AsOf = web.Time(now)
	if previous := sub.Previous; previous.At(now) != "" {
		b.PreviousSignsUntil = previous.Until.UTC()
	}
	return b, f.addLastAttempt(ctx, sub, &b)
}

// addLastAttempt adds the latest attempt that the delivery log has.
func (f *Face) addLastAttempt(ctx context.Context, sub fsm.Subscription, b *SubscriptionBody) error {
	if !f.DeliveryLog.Takes(fsm.AttemptFailed) {
		return nil
	}
	latest, err := f.Control.View.LoggedAttempts(ctx, []fsm.LogPlace{{Subscription: sub}}, 1)
	if err != nil || len(latest[0]) == 0 {
		return err
	}
	last := deliveryBodyOf(latest[0][0])
	if f.DeliveryLog == fsm.LogAll {
		b.LastAttempt = &last
	} else {
		b.LastFailedAttempt = &last
	}
	return nil
}
