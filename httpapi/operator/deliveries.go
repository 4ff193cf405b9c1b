package operator

import (
	"context"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/paging"
	"reveille/httpapi/refusal"
)

// DeliveryBody is a delivery attempt as an operator sees it.
type DeliveryBody struct {
	// ID names the attempt among the attempts of its subscription.
	ID           string    `json:"id"`
	Subscription string    `json:"subscription_id"`
	At           time.Time `json:"at"`
	Stream       string    `json:"stream"`
	Consumer     string    `json:"consumer_id"`
	WakeID       string    `json:"wake_id"`
	// DeliveryID is the ID by which the receiver of events recognizes the delivery; empty for a wake.
	DeliveryID string `json:"delivery_id,omitempty"`
	Attempt    int    `json:"attempt"`
	// MaxAttempts is how many attempts are made of the delivery; 0 if no number bounds them.
	MaxAttempts int    `json:"max_attempts,omitempty"`
	Result      string `json:"result"`
	StatusCode  int    `json:"status_code,omitempty"`
	Class       string `json:"class,omitempty"`
	Reason      string `json:"reason,omitempty"`
	// TookMS is in milliseconds, to the microsecond.
	TookMS float64 `json:"took_ms"`
	// Events is the number of events that were sent, and Bytes the length of the body. The first event is read from the
	// offset From, behind Skip others.
	Events int    `json:"events,omitempty"`
	Bytes  int    `json:"bytes,omitempty"`
	From   string `json:"from,omitempty"`
	Skip   int64  `json:"skip,omitempty"`
	// WaitedMS and ExchangeMS are in milliseconds, as TookMS.
	WaitedMS      float64 `json:"waited_ms,omitempty"`
	ExchangeMS    float64 `json:"exchange_ms,omitempty"`
	RemoteAddress string  `json:"remote_address,omitempty"`
	HTTPVersion   string  `json:"http_version,omitempty"`
	TLSVersion    string  `json:"tls_version,omitempty"`
	ResponseBody  string  `json:"response_body,omitempty"`
}

// DeliveriesBody is a page of delivery attempts.
type DeliveriesBody struct {
	Deliveries []DeliveryBody `json:"deliveries"`
	// From and To are IDs of subscriptions. With them, the page has only attempts of the subscriptions between them. So
	// it is if there are many subscriptions, once the attempts before the page are the latest of all.
	From string `json:"from_subscription,omitempty"`
	To   string `json:"to_subscription,omitempty"`
	// Next is the cursor of the next page; empty at the end.
	Next string    `json:"next,omitempty"`
	AsOf time.Time `json:"as_of"`
}

func deliveryBodyOf(a fsm.LoggedAttempt) DeliveryBody {
	from, skip := a.From.Split()
	b := DeliveryBody{
		ID: a.ID, Subscription: a.Subscription, At: a.At.UTC(), Stream: a.Stream, Consumer: a.Consumer,
		WakeID: a.WakeID, Attempt: a.Attempt, MaxAttempts: a.MaxAttempts, Result: a.Result, StatusCode: a.Status,
		Class: a.Class, Reason: a.Reason, TookMS: millis(a.Took), Events: a.Events, Bytes: a.Bytes, From: from.Value(),
		Skip: skip, WaitedMS: millis(a.Waited), ExchangeMS: millis(a.Exchanged), RemoteAddress: a.Remote,
		HTTPVersion: a.HTTP, TLSVersion: a.TLS, ResponseBody: a.Answer,
	}
	if a.DeliveryID != a.WakeID {
		b.DeliveryID = a.DeliveryID
	}
	return b
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// loggedResults are the results that attempts in a delivery log can have.
var loggedResults = func() map[string]bool {
	results := map[string]bool{}
	for i := range fsm.AttemptResults {
		if r := fsm.AttemptResult(i); fsm.LogAll.Takes(r) {
			results[r.String()] = true
		}
	}
	return results
}()

// whichDeliveries are the filters of a request for delivery attempts. An empty filter matches all.
type whichDeliveries struct {
	stream       string
	results      map[string]bool
	since, until time.Time
	// stored is since when the log has the attempt. An attempt is stored a moment after its end.
	stored time.Time
	// status is that of the answer, "503", or the first digit of it, "5xx". class is of a failure. id is that of a wake
	// or of what the receiver got.
	status, class, id string
}

func (w whichDeliveries) shows(a fsm.LoggedAttempt) bool {
	status := strconv.Itoa(a.Status)
	return (w.stream == "" || w.stream == a.Stream) && (len(w.results) == 0 || w.results[a.Result]) &&
		!a.At.Before(w.since) && (w.until.IsZero() || a.At.Before(w.until)) &&
		(w.status == "" || w.status == status || w.status == status[:1]+"xx") &&
		(w.class == "" || w.class == a.Class) && (w.id == "" || w.id == a.DeliveryID || w.id == a.WakeID)
}

var statusFilter = regexp.MustCompile(`^[1-9](xx|[0-9][0-9])$`)

func readWhichDeliveries(get func(string) string) (w whichDeliveries, err error) {
	if stream := get("stream"); stream != "" {
		if w.stream, err = fsm.CanonicalPath(stream); err != nil {
			return w, refusal.New(fsm.CodeInvalidPath, "stream: %v", err)
		}
	}
	if list := get("result"); list != "" {
		w.results = map[string]bool{}
		for result := range strings.SplitSeq(list, ",") {
			if !loggedResults[result] {
				return w, refusal.New(fsm.CodeInvalidRequest, "result must be one or more, separated by commas, of %s",
					strings.Join(slices.Sorted(maps.Keys(loggedResults)), ", "))
			}
			w.results[result] = true
		}
	}
	w.status, w.class, w.id = get("status"), get("class"), get("id")
	if w.status != "" && !statusFilter.MatchString(w.status) {
		return w, refusal.New(fsm.CodeInvalidRequest, "status must be that of an answer, such as 503 or 5xx")
	}
	if w.since, err = paging.Time("since", get("since")); err == nil {
		w.until, err = paging.Time("until", get("until"))
	}
	if err == nil {
		w.stored, err = paging.Time("stored_since", get("stored_since"))
	}
	return w, err
}

// deliveryFilters are the parameters of a list of delivery attempts.
var deliveryFilters = []string{"stream", "result", "since", "until", "stored_since", "status", "class", "id"}

// showDeliveries lists the entries of a subscription's delivery log, the latest first.
func (f *Face) showDeliveries(ctx context.Context, c echo.Context, p paging.Page) (any, error) {
	sub, err := f.Control.Subscription(ctx, c.Param("id"))
	if err != nil {
		return nil, err
	}
	return f.listDeliveries(ctx, c.QueryParams(), p, []fsm.Subscription{sub})
}

// Deliveries lists the entries of the delivery logs of all subscriptions, or of one that is named, the latest first.
func (f *Face) Deliveries(ctx context.Context, query url.Values, p paging.Page) (body DeliveriesBody, err error) {
	subs, err := f.Control.Subscriptions(ctx, query.Get("subscription"))
	if err != nil {
		return body, err
	}
	if stream, err := fsm.CanonicalPath(query.Get("stream")); err == nil && query.Get("subscription") == "" {
		subs = f.Control.View.Matching(ctx, stream)
	}
	return f.listDeliveries(ctx, query, p, subs)
}

func (f *Face) listDeliveries(
	ctx context.Context, query url.Values, p paging.Page, subs []fsm.Subscription,
) (body DeliveriesBody, err error) {
	for _, id := range []string{p.From.After, p.From.Top} {
		if id != "" && !fsm.ValidLogID(id) {
			return body, refusal.New(fsm.CodeInvalidRequest, "cursor must be the next of an earlier answer")
		}
	}
	which, err := readWhichDeliveries(query.Get)
	if err != nil {
		return body, err
	}
	body, looked := DeliveriesBody{
		Deliveries: []DeliveryBody{}, From: p.From.Group, To: p.From.GroupEnd, AsOf: f.Control.Clock().UTC(),
	}, 0
	next, err := f.Control.PageAttempts(ctx, subs, p.From, which.stored, func(a fsm.LoggedAttempt) bool {
		if shows := which.shows(a); len(body.Deliveries) == p.Limit && shows || looked == paging.MaxCost {
			return false
		} else if shows {
			body.Deliveries = append(body.Deliveries, deliveryBodyOf(a))
		}
		looked++
		return true
	})
	if err != nil && ctx.Err() != nil && looked > 0 { // the next request goes on from there
		err = nil
	}
	if next != nil {
		body.Next = next.String()
	}
	return body, err
}
