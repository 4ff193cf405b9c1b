package console

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/operator"
	"reveille/httpapi/paging"
	"reveille/httpapi/web"
)

// latest is how many lines of a list a page about something else shows.
const latest = 10

var (
	ofSubscription = filter{Key: "subscription", Label: "Subscription", Hint: "orders"}
	ofStream       = filter{Key: "stream", Label: "Stream", Hint: "/orders/17"}
	since          = filter{Key: "since", Label: "Since", Hint: "2026-11-26T17:00:00Z"}
	until          = filter{Key: "until", Label: "Until", Hint: "2026-11-26T18:00:00Z"}
)

// failedResults are the results of attempts that have failed.
const failedResults = "failed,retired,dead"

// views are all pages. The first of a menu is the one that the menu leads to.
func (f *Face) views() []view {
	return []view{
		{route: "/", menu: "Overview", template: "overview.html", read: f.overview, whole: true},
		{
			route: "/subscriptions", menu: "Subscriptions", template: "subscriptions.html",
			read:    listed(f, f.Operator.Subscriptions, func(b operator.SubscriptionsBody) string { return b.Next }),
			filters: []filter{{Key: "failing", Label: "Show", Choices: []string{"true"}}},
		},
		{route: "/subscriptions/:id", menu: "Subscriptions", template: "subscription.html", read: f.subscription},
		{
			route: "/deliveries", menu: "Deliveries", template: "deliveries.html",
			read: listed(f, f.Operator.Deliveries, func(b operator.DeliveriesBody) string { return b.Next }),
			filters: []filter{
				ofSubscription, ofStream,
				{
					Key: "result", Label: "Result",
					Choices: []string{failedResults, "failed", "dead", "retired", "done", "accepted", "abandoned"},
				},
				{Key: "status", Label: "Status", Hint: "5xx"},
				{Key: "class", Label: "Class", Hint: "timeout"},
				{Key: "id", Label: "Delivery or wake", Hint: "evt_…"},
				since, until,
			},
		},
		{
			route: "/subscriptions/:id/deliveries/:delivery", menu: "Deliveries", template: "delivery.html",
			read: f.delivery, still: true,
		},
		{
			route: "/consumers", menu: "Consumers", template: "consumers.html",
			read: listed(f, f.Operator.Consumers, func(b operator.ConsumersBody) string { return b.Next }),
			filters: []filter{
				ofSubscription,
				{Key: "state", Label: "State", Choices: []string{
					"failing", "waking", "live", "idle", "given_up", "retired", "hidden", "quarantined",
				}},
			},
		},
		{route: "/consumers/*", menu: "Consumers", template: "consumer.html", read: f.consumer},
		{
			route: "/dead-letters", menu: "Dead letters", template: "letters.html",
			read:    listed(f, f.Operator.Letters, func(b operator.LettersBody) string { return b.Next }),
			filters: []filter{ofSubscription, ofStream, since, until},
		},
		{route: "/dead-letters/:id", menu: "Dead letters", template: "letter.html", read: f.letter},
		{
			route: "/replays", menu: "Replays", template: "replays.html",
			read:    listed(f, f.Operator.Replays, func(b operator.QueuesBody) string { return b.Next }),
			filters: []filter{ofSubscription, ofStream},
		},
		{
			route: "/audit", menu: "Audit", template: "audit.html",
			read: listed(f, f.Operator.Audit, func(b operator.AuditBody) string { return b.Next }), whole: true,
			filters: []filter{ofSubscription, since, until},
		},
		{route: "/find", template: "find.html", read: f.find, still: true},
	}
}

type overviewBody struct {
	Status operator.StatusBody
	// Stats is nil if they could not be read.
	Stats *operator.StatsBody
	// Troubles say what is not well, and Unknown what is not known.
	Troubles, Unknown []string
}

func (f *Face) overview(ctx context.Context, _ echo.Context, p *page) error {
	body := overviewBody{}
	inTime, cancel := context.WithTimeout(ctx, paging.Timeout/2)
	body.Status = f.Operator.Status(inTime)
	cancel()
	if body.Status.Redis.Up {
		if stats, err := f.Operator.StatsOfAll(ctx, fsm.StatsWindows); err == nil {
			body.Stats = &stats
		}
	}
	body.judge()
	p.Body, p.AsOf = body, body.Status.AsOf
	return nil
}

// judge says what is not well, and what is not known.
func (b *overviewBody) judge() {
	s := b.Status
	trouble := func(is bool, format string, args ...any) {
		if is {
			b.Troubles = append(b.Troubles, fmt.Sprintf(format, args...))
		}
	}
	unwell, gone := 0, 0
	for _, condition := range fsm.Severities {
		unwell += s.Conditions[condition]
	}
	for _, r := range s.Replicas {
		if !r.Alive {
			gone++
		}
	}
	atLeast := ""
	if !s.ConsumersCounted {
		atLeast = "at least "
	}
	trouble(unwell > 0, "%s%s not well", atLeast, are(unwell, "subscription"))
	trouble(!s.Redis.Up, "Redis is away")
	trouble(s.StreamServer.State != fsm.StreamServerUp, "the stream server is %s", words(s.StreamServer.State))
	trouble(gone > 0, "%s gone", are(gone, "replica"))
	trouble(s.Unowned != nil && *s.Unowned > 0, "some partitions have no replica")
	if s.Subscriptions == nil {
		b.Unknown = append(b.Unknown, "the subscriptions are not read yet")
	} else if !s.ConsumersCounted {
		b.Unknown = append(b.Unknown, "not all consumers are counted: more subscriptions may be failing")
	}
	if s.Redis.Up && b.Stats == nil {
		b.Unknown = append(b.Unknown, "the statistics could not be read in time")
	}
}

type subscriptionBody struct {
	operator.SubscriptionBody
	Stats      operator.StatsBody
	Deliveries []operator.DeliveryBody
}

// Latest is the latest failure in the delivery log, while the subscription is not well.
func (b subscriptionBody) Latest() *operator.DeliveryBody {
	if !slices.Contains(fsm.Severities, b.Condition) {
		return nil
	}
	for _, d := range b.Deliveries {
		if d.Class != "" {
			return &d
		}
	}
	return nil
}

func (f *Face) subscription(ctx context.Context, c echo.Context, p *page) (err error) {
	var body subscriptionBody
	id := c.Param("id")
	if body.SubscriptionBody, err = f.Operator.Subscription(ctx, id); err != nil {
		return err
	}
	if body.Stats, err = f.Operator.Attempts(ctx, id); err != nil {
		return err
	}
	deliveries, err := f.Operator.Deliveries(ctx, url.Values{"subscription": {id}}, paging.Page{Limit: latest})
	body.Deliveries = deliveries.Deliveries
	p.Body, p.Title = body, id
	return err
}

type consumerBody struct {
	operator.ConsumerBody
	Deliveries []operator.DeliveryBody
	// Rewinds is true if it can be led back: it is not pushed the events.
	Rewinds bool
}

func (f *Face) consumer(ctx context.Context, c echo.Context, p *page) (err error) {
	var body consumerBody
	// A template writes these escaped, and an ID has them as they are.
	id := strings.NewReplacer("%27", "'", "%28", "(", "%29", ")").Replace(
		strings.TrimPrefix(web.RawPath(c.Request()), "/consumers/"))
	if body.ConsumerBody, err = f.Operator.Consumer(ctx, id); err != nil {
		return err
	}
	query := url.Values{"subscription": {body.Subscription}, "stream": {body.Primary}}
	deliveries, err := f.Operator.Deliveries(ctx, query, paging.Page{Limit: latest})
	if err != nil {
		return err
	}
	sub, err := f.Operator.Control.Subscription(ctx, body.Subscription)
	body.Deliveries, body.Rewinds = deliveries.Deliveries, sub.Mode == fsm.ModeWake
	p.Body, p.Title = body, body.ID
	return err
}

func (f *Face) letter(ctx context.Context, c echo.Context, p *page) error {
	body, err := f.Operator.Letter(ctx, c.Param("id"))
	p.Body, p.Title = body, c.Param("id")
	return err
}

// deliveryBody is a delivery or a wake. Shown is the request of an attempt, if it is asked for; otherwise nil.
type deliveryBody struct {
	operator.FoundBody
	Shown *shownRequest
}

func (f *Face) delivery(ctx context.Context, c echo.Context, p *page) error {
	id, of := c.Param("delivery"), c.Param("id")
	found, err := f.Operator.Find(ctx, id, of)
	if err != nil {
		return err
	}
	body := deliveryBody{FoundBody: found.Found[0]}
	if attempt := p.Query.Get("request"); attempt != "" && !p.ReadOnly {
		body.Shown = f.request(ctx, of, attempt, body.Attempts)
	}
	p.Body, p.Title, p.Delivery = body, id, true
	return nil
}

// request reads the request of an attempt, which is one of those that the page shows.
func (f *Face) request(
	ctx context.Context, subscription, attempt string, attempts []operator.DeliveryBody,
) *shownRequest {
	i := slices.IndexFunc(attempts, func(d operator.DeliveryBody) bool { return d.ID == attempt })
	if i < 0 {
		return &shownRequest{Problem: "This page does not show that attempt (any more)."}
	}
	r, err := f.Operator.Request(ctx, subscription, cmp.Or(attempts[i].DeliveryID, attempts[i].WakeID), attempt)
	if err != nil {
		return &shownRequest{Attempt: attempt, Problem: f.Refusal(err).Message}
	}
	return &shownRequest{Attempt: attempt, Request: &r}
}

func (f *Face) find(ctx context.Context, c echo.Context, p *page) error {
	p.Title = "Find " + c.QueryParam("q")
	body, err := f.Operator.Find(ctx, c.QueryParam("q"), c.QueryParam("subscription"))
	p.Body = body
	return err
}
