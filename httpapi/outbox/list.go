package outbox

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/control"
	"reveille/httpapi/paging"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// The filters of the lists. Dead letters have one status.
var (
	deadFilters  = []string{"provider", "event_type", "host", "since", "until"}
	eventFilters = append([]string{"status"}, deadFilters...)
)

// listBody is a page of events, the latest first.
type listBody struct {
	Events []event `json:"events"`
	// Next is the cursor of the next page.
	Next string `json:"next,omitempty"`
}

// page answers GET /webhooks/events and GET /webhooks/dlq.
func (f *Face) page(filters []string) echo.HandlerFunc {
	return web.List(f.Outbox.Store.Partitions(), func(ctx context.Context, c echo.Context, p paging.Page) (any, error) {
		q, err := readQuery(c.QueryParam)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(filters, "status") {
			q.Status = fsm.OutboxDead
		}
		if p.From.After != "" && !fsm.ValidOutboxPlace(p.From.After) {
			return nil, refusal.New(fsm.CodeInvalidRequest, "cursor must be the next of an earlier answer")
		}
		found, next, err := f.Outbox.List(ctx, q, fsm.OutboxPlace(p.From.After), p.Limit)
		body := listBody{Events: make([]event, len(found))}
		for i, h := range found {
			body.Events[i] = f.bodyOf(h, "")
			body.Events[i].Target, body.Events[i].History = withoutQuery(h.Event.Target), nil
		}
		if next != "" {
			body.Next = paging.Place{After: string(next)}.String()
		}
		return body, err
	}, filters...)
}

func readQuery(get func(string) string) (q control.OutboxQuery, err error) {
	q = control.OutboxQuery{
		Status: fsm.OutboxStatus(get("status")), Provider: get("provider"), Type: get("event_type"), Host: get("host"),
	}
	if q.Status != "" && !slices.Contains(fsm.OutboxStatuses, q.Status) {
		var known []string
		for _, s := range fsm.OutboxStatuses {
			known = append(known, string(s))
		}
		return q, refusal.New(fsm.CodeInvalidRequest, "status must be one of %s", strings.Join(known, ", "))
	}
	if q.Since, err = readTime("since", get("since")); err == nil {
		q.Until, err = readTime("until", get("until"))
	}
	return q, err
}

// maxMillis has as many digits as the times in a list.
const maxMillis = 9_999_999_999_999

// readTime reads a time in milliseconds since 1970, as in the fields of an event, or as in the lists of the operator.
func readTime(name, text string) (at time.Time, err error) {
	if n, bad := strconv.ParseInt(text, 10, 64); bad == nil && n > 0 {
		at = time.UnixMilli(n)
	} else {
		at, err = paging.Time(name, text)
	}
	if err == nil && at.UnixMilli() > maxMillis {
		err = refusal.New(fsm.CodeInvalidRequest, "%s must be a time before the year 2286", name)
	}
	return at, err
}

// withoutQuery returns a URL as lists show it. Its query may hold a secret.
func withoutQuery(target string) string {
	if before, _, found := strings.Cut(target, "?"); found {
		return before + "?…"
	}
	return target
}

// cancel answers DELETE /webhooks/events/{id}.
func (f *Face) cancel(c echo.Context) error {
	h, err := f.Outbox.Cancel(c.Request().Context(), strings.TrimPrefix(web.RawPath(c.Request()), events))
	return web.Answer(c, http.StatusOK, f.bodyOf(h, ""), known(err))
}
