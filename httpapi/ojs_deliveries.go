package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/paging"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

const (
	// ojsLooks bounds how many entries of delivery logs one request looks at, and ojsMost how many subscriptions. Each
	// subscription has an equal share of the entries.
	ojsLooks = 10_000
	ojsMost  = 1000
)

// ojsStatus is the outcome of a delivery, by the names of the spec (11.2).
type ojsStatus string

const (
	ojsSuccess ojsStatus = "success"
	// ojsFailed will be tried again.
	ojsFailed ojsStatus = "failed"
	ojsDead   ojsStatus = "dead"
)

func ojsStatusOf(result string) ojsStatus {
	switch result {
	case fsm.AttemptDone.String(), fsm.AttemptAccepted.String():
		return ojsSuccess
	case fsm.AttemptDead.String():
		return ojsDead
	}
	return ojsFailed
}

// ojsDeliveryBody is a delivery: all attempts to bring an event to a subscription. The spec defines no body for it. The
// names are the spec's names for the result of a test (6.6), and for the parts of a request (5.3).
type ojsDeliveryBody struct {
	ID           string    `json:"id"`
	Subscription string    `json:"subscription_id"`
	Status       ojsStatus `json:"status"`
	Stream       string    `json:"stream"`
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
	NextAttemptAt *time.Time   `json:"next_attempt_at,omitempty"`
	History       []ojsAttempt `json:"history,omitempty"`
}

type ojsAttempt struct {
	Attempt        int       `json:"attempt"`
	At             time.Time `json:"at"`
	Status         ojsStatus `json:"status"`
	StatusCode     int       `json:"status_code,omitempty"`
	ResponseTimeMS int64     `json:"response_time_ms"`
	Error          string    `json:"error,omitempty"`
}

type ojsDeliveriesBody struct {
	Deliveries []ojsDeliveryBody `json:"deliveries"`
	// Next is the cursor of the next page; empty at the end.
	Next string `json:"next,omitempty"`
}

func ojsAttemptOf(a fsm.LoggedAttempt) ojsAttempt {
	reason := a.Reason
	if a.Result == fsm.AttemptAbandoned.String() {
		reason = "Reveille stopped before there was an answer"
	}
	return ojsAttempt{
		Attempt: a.Attempt, At: a.At.UTC(), Status: ojsStatusOf(a.Result), StatusCode: a.Status,
		ResponseTimeMS: a.Took.Milliseconds(), Error: reason,
	}
}

func ojsBodyOfLogged(sub fsm.Subscription, latest fsm.LoggedAttempt) ojsDeliveryBody {
	a := ojsAttemptOf(latest)
	return ojsDeliveryBody{
		ID: latest.DeliveryID, Subscription: sub.ID, Status: a.Status, Stream: latest.Stream, Attempts: a.Attempt,
		LastAttemptAt: &a.At, StatusCode: a.StatusCode, ResponseTimeMS: &a.ResponseTimeMS, Error: a.Error,
	}
}

func ojsBodyOfLetter(l fsm.DeadLetter) ojsDeliveryBody {
	return ojsDeliveryBody{
		ID: l.DeliveryID, Subscription: l.Subscription, Status: ojsDead, Stream: l.Stream, Attempts: l.Attempts,
		StatusCode: l.Status, ResponseBody: l.Answer, Error: l.Reason, DeadAt: web.Time(l.DeadAt),
	}
}

// ojsDeliverers returns the subscriptions whose deliveries a request is about: the named one, or all.
func (s *Service) ojsDeliverers(ctx context.Context, named string) ([]fsm.Subscription, error) {
	if named != "" {
		sub, err := s.ojsSubscription(ctx, named)
		return []fsm.Subscription{sub}, err
	}
	if err := s.cfg.Store.RefreshCatalog(ctx); err != nil {
		return nil, err
	}
	var subs []fsm.Subscription
	for _, sub := range s.cfg.Store.Catalog().All() {
		if isOJS(sub) {
			subs = append(subs, sub)
		}
	}
	if len(subs) > ojsMost {
		return nil, refusal.New(fsm.CodeInvalidRequest,
			"there are more than %d subscriptions: name the one by ?subscription_id=sub_…", ojsMost)
	}
	return subs, nil
}

// listOJSDeliveries answers GET …/deliveries (10). It lists the deliveries with attempts in the log, the latest attempt
// first. If the request asks for dead deliveries, it lists these instead.
func (s *Service) listOJSDeliveries(c echo.Context) error {
	query := c.QueryParams()
	p, err := paging.Read(query, s.cfg.Store.Partitions(), "subscription_id", "status")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request().Context(), paging.Timeout)
	defer cancel()
	status := ojsStatus(query.Get("status"))
	switch {
	case !slices.Contains([]ojsStatus{"", ojsSuccess, ojsFailed, ojsDead}, status):
		return refusal.New(fsm.CodeInvalidRequest, "status must be %s, %s or %s", ojsSuccess, ojsFailed, ojsDead)
	case p.From.After != "" && (status == ojsDead || !fsm.ValidLogID(p.From.After)):
		return refusal.New(fsm.CodeInvalidRequest, "cursor must be the next of an earlier answer")
	case status == ojsDead:
	case !s.cfg.DeliveryLog.Takes(fsm.AttemptFailed):
		return refusal.New(fsm.CodeNotFound,
			"REVEILLE_DELIVERY_LOG is off: only what is dead is listed, by ?status=dead")
	case status == ojsSuccess && !s.cfg.DeliveryLog.Takes(fsm.AttemptDone):
		return refusal.New(fsm.CodeNotFound, "REVEILLE_DELIVERY_LOG is failures: what was delivered is not listed")
	}
	subs, err := s.ojsDeliverers(ctx, query.Get("subscription_id"))
	if err != nil {
		return err
	}
	var body ojsDeliveriesBody
	if status == ojsDead {
		body, err = s.deadOJS(ctx, query.Get("subscription_id"), p)
	} else {
		body, err = s.recentOJS(ctx, subs, status, p)
	}
	if err != nil {
		return err
	}
	web.WriteJSON(c.Response(), http.StatusOK, body)
	return nil
}

// recentOJS lists the deliveries with a status, or all, by their latest attempts.
func (s *Service) recentOJS(
	ctx context.Context, subs []fsm.Subscription, status ojsStatus, p paging.Page,
) (ojsDeliveriesBody, error) {
	type row struct {
		id string // of the log
		ojsDeliveryBody
	}
	// order is the order of the list: an entry of another subscription may have the same ID.
	order := func(a, b row) int {
		return cmp.Or(fsm.CompareLogIDs(b.id, a.id), cmp.Compare(a.Subscription, b.Subscription))
	}
	last := row{id: p.From.After, ojsDeliveryBody: ojsDeliveryBody{Subscription: p.From.Subscription}}
	var rows []row
	for _, sub := range subs {
		seen := map[string]bool{}
		err := s.control.ListAttempts(ctx, sub, "", ojsLooks/len(subs), func(a fsm.LoggedAttempt) bool {
			r := row{a.ID, ojsBodyOfLogged(sub, a)}
			later := seen[a.DeliveryID] // the status goes by that later attempt
			seen[a.DeliveryID] = true
			if fsm.ValidDeliveryID(a.DeliveryID) && // a stop may have come before it had one
				!later && (status == "" || status == r.Status) && (last.id == "" || order(last, r) < 0) {
				rows = append(rows, r)
			}
			return true
		})
		if err != nil {
			return ojsDeliveriesBody{}, err
		}
	}
	slices.SortFunc(rows, order)
	body := ojsDeliveriesBody{Deliveries: []ojsDeliveryBody{}}
	for i, r := range rows {
		if i == p.Limit {
			body.Next = paging.Place{After: rows[i-1].id, Subscription: rows[i-1].Subscription}.String()
			break
		}
		body.Deliveries = append(body.Deliveries, r.ojsDeliveryBody)
	}
	return body, nil
}

// deadOJS lists the deliveries that have left a dead letter, in the order of the letters.
func (s *Service) deadOJS(ctx context.Context, named string, p paging.Page) (body ojsDeliveriesBody, err error) {
	body.Deliveries = []ojsDeliveryBody{}
	body.Next, err = s.control.ListLetters(ctx, s.control.LettersOf(named), p.From, func(l fsm.DeadLetter) bool {
		switch {
		case len(body.Deliveries) == p.Limit:
			return false
		case s.leftByOJS(l):
			body.Deliveries = append(body.Deliveries, ojsBodyOfLetter(l))
		}
		return true
	})
	return body, err
}

// leftByOJS says whether a dead letter was left by a delivery of one of these subscriptions, as it is now.
func (s *Service) leftByOJS(l fsm.DeadLetter) bool {
	sub, there := s.cfg.Store.Catalog().Get(l.Subscription)
	return l.DeliveryID != "" && there && isOJS(sub) && sub.Generation == l.Generation
}
