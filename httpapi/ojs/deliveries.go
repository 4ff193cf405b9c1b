package ojs

import (
	"context"
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/paging"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

const (
	// maxLooks bounds how many entries of delivery logs one request looks at, and maxSubscriptions how many logs.
	maxLooks         = 10_000
	maxSubscriptions = 1000
)

// outcome is the outcome of a delivery, by the names of the spec (11.2).
type outcome string

const (
	success outcome = "success"
	// failed will be tried again.
	failed outcome = "failed"
	dead   outcome = "dead"
)

func outcomeOf(result string) outcome {
	switch result {
	case fsm.AttemptDone.String(), fsm.AttemptAccepted.String():
		return success
	case fsm.AttemptDead.String():
		return dead
	}
	return failed
}

// deliveryBody is a delivery: all attempts to bring an event to a subscription. The spec defines no body for it. The
// names are the spec's names for the result of a test (6.6), and for the parts of a request (5.3).
type deliveryBody struct {
	ID           string  `json:"id"`
	Subscription string  `json:"subscription_id"`
	Status       outcome `json:"status"`
	Stream       string  `json:"stream"`
	// Attempts is the number of attempts; a replay counts anew. The fields below are about the last attempt.
	Attempts       int        `json:"attempts"`
	LastAttemptAt  *time.Time `json:"last_attempt_at,omitempty"`
	StatusCode     int        `json:"status_code,omitempty"`
	ResponseTimeMS *int64     `json:"response_time_ms,omitempty"`
	// ResponseBody is the beginning of the answer's body. It is kept only for dead deliveries.
	ResponseBody string     `json:"response_body,omitempty"`
	Error        string     `json:"error,omitempty"`
	DeadAt       *time.Time `json:"dead_at,omitempty"`
	// NextAttemptAt and History are only in the answer about one delivery. History has the attempts that the log
	// still has, in their order.
	NextAttemptAt *time.Time    `json:"next_attempt_at,omitempty"`
	History       []attemptBody `json:"history,omitempty"`
}

type attemptBody struct {
	Attempt        int       `json:"attempt"`
	At             time.Time `json:"at"`
	Status         outcome   `json:"status"`
	StatusCode     int       `json:"status_code,omitempty"`
	ResponseTimeMS int64     `json:"response_time_ms"`
	Error          string    `json:"error,omitempty"`
}

type deliveriesBody struct {
	Deliveries []deliveryBody `json:"deliveries"`
	// Next is the cursor of the next page; empty at the end.
	Next string `json:"next,omitempty"`
}

func attemptOf(a fsm.LoggedAttempt) attemptBody {
	reason := a.Reason
	if a.Result == fsm.AttemptAbandoned.String() {
		reason = "Reveille stopped before there was an answer"
	}
	return attemptBody{
		Attempt: a.Attempt, At: a.At.UTC(), Status: outcomeOf(a.Result), StatusCode: a.Status,
		ResponseTimeMS: a.Took.Milliseconds(), Error: reason,
	}
}

func bodyOfLogged(latest fsm.LoggedAttempt) deliveryBody {
	a := attemptOf(latest)
	return deliveryBody{
		ID: latest.DeliveryID, Subscription: latest.Subscription, Status: a.Status, Stream: latest.Stream,
		Attempts: a.Attempt, LastAttemptAt: &a.At, StatusCode: a.StatusCode, ResponseTimeMS: &a.ResponseTimeMS,
		Error: a.Error,
	}
}

func bodyOfLetter(l fsm.DeadLetter) deliveryBody {
	return deliveryBody{
		ID: l.DeliveryID, Subscription: l.Subscription, Status: dead, Stream: l.Stream, Attempts: l.Attempts,
		StatusCode: l.Status, ResponseBody: l.Answer, Error: l.Reason, DeadAt: web.Time(l.DeadAt),
	}
}

// deliverers returns the subscriptions whose deliveries a request is about: the named one, or all.
func (f *Face) deliverers(ctx context.Context, named string) ([]fsm.Subscription, error) {
	if named != "" {
		sub, err := f.subscription(ctx, named)
		return []fsm.Subscription{sub}, err
	}
	all, err := f.Control.Subscriptions(ctx, "")
	if err != nil {
		return nil, err
	}
	subs := slices.DeleteFunc(slices.Clone(all), func(sub fsm.Subscription) bool { return !isOurs(sub) })
	if len(subs) > maxSubscriptions {
		return nil, refusal.New(fsm.CodeInvalidRequest,
			"there are more than %d subscriptions: name the one by ?subscription_id=sub_…", maxSubscriptions)
	}
	return subs, nil
}

// listDeliveries answers GET …/deliveries (10). It lists the deliveries with attempts in the log, the latest attempt
// first. If the request asks for dead deliveries, it lists these instead.
func (f *Face) listDeliveries(ctx context.Context, c echo.Context, p paging.Page) (any, error) {
	query := c.QueryParams()
	status := outcome(query.Get("status"))
	switch {
	case !slices.Contains([]outcome{"", success, failed, dead}, status):
		return nil, refusal.New(fsm.CodeInvalidRequest, "status must be %s, %s or %s", success, failed, dead)
	case p.From.After != "" && (status == dead || !fsm.ValidLogID(p.From.After)):
		return nil, refusal.New(fsm.CodeInvalidRequest, "cursor must be the next of an earlier answer")
	case status == dead:
	case !f.DeliveryLog.Takes(fsm.AttemptFailed):
		return nil, refusal.New(fsm.CodeNotFound,
			"REVEILLE_DELIVERY_LOG is off: only what is dead is listed, by ?status=dead")
	case status == success && !f.DeliveryLog.Takes(fsm.AttemptDone):
		return nil, refusal.New(fsm.CodeNotFound, "REVEILLE_DELIVERY_LOG is failures: what was delivered is not listed")
	}
	subs, err := f.deliverers(ctx, query.Get("subscription_id"))
	if err != nil {
		return nil, err
	}
	if status == dead {
		return f.listDead(ctx, query.Get("subscription_id"), p)
	}
	return f.listRecent(ctx, subs, status, p)
}

// listRecent lists the deliveries with a status, or all, by their latest attempts.
func (f *Face) listRecent(
	ctx context.Context, subs []fsm.Subscription, status outcome, p paging.Page,
) (deliveriesBody, error) {
	body := deliveriesBody{Deliveries: []deliveryBody{}}
	behind := fsm.LoggedAttempt{ID: p.From.After, Subscription: p.From.Subscription}
	seen, looked := map[[2]string]bool{}, 0
	var last fsm.LoggedAttempt
	err := f.Control.ListAttempts(ctx, subs, fsm.LoggedAttempt{}, time.Time{}, func(a fsm.LoggedAttempt) bool {
		id := [2]string{a.Subscription, a.DeliveryID}
		later := seen[id] // the status goes by that later attempt
		seen[id] = true
		b := bodyOfLogged(a)
		switch {
		case !fsm.ValidDeliveryID(a.DeliveryID): // a stop came before it had one
		case later, status != "" && status != b.Status, behind.ID != "" && fsm.CompareLogged(a, behind) <= 0:
		case len(body.Deliveries) == p.Limit:
			body.Next = paging.Place{After: last.ID, Subscription: last.Subscription}.String()
			return false
		default:
			body.Deliveries, last = append(body.Deliveries, b), a
		}
		looked++
		return looked < maxLooks
	})
	return body, err
}

// listDead lists the deliveries that have left a dead letter, in the order of the letters.
func (f *Face) listDead(ctx context.Context, named string, p paging.Page) (body deliveriesBody, err error) {
	body.Deliveries = []deliveryBody{}
	body.Next, err = f.Control.ListLetters(ctx, f.Control.LettersOf(named), p.From, func(l fsm.DeadLetter) bool {
		switch {
		case len(body.Deliveries) == p.Limit:
			return false
		case f.leftByOurs(ctx, l):
			body.Deliveries = append(body.Deliveries, bodyOfLetter(l))
		}
		return true
	})
	return body, err
}

// leftByOurs says whether a dead letter was left by a delivery of one of these subscriptions, as it is now.
func (f *Face) leftByOurs(ctx context.Context, l fsm.DeadLetter) bool {
	sub, there := f.Control.View.Subscription(ctx, l.Subscription)
	return l.DeliveryID != "" && there && isOurs(sub) && sub.Generation == l.Generation
}
