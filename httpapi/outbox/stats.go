package outbox

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/paging"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// defaultHours is how many hours the statistics have by default.
const defaultHours = 24

// statsBody is the answer to GET /webhooks/stats. Times are in milliseconds since 1970.
type statsBody struct {
	Statuses     map[fsm.OutboxStatus]int64 `json:"statuses"`
	WaitingSince *int64                     `json:"waiting_since"`
	Since        int64                      `json:"since"`
	Total        tallyBody                  `json:"total"`
	Providers    []providerBody             `json:"providers"`
	Hours        []hourBody                 `json:"hours"`
}

type tallyBody struct {
	HandedOver int64 `json:"handed_over"`
	Delivered  int64 `json:"delivered"`
	Dead       int64 `json:"dead_letter"`
	Cancelled  int64 `json:"cancelled"`
	// Rate is the share of the delivered among the delivered and the dead, from 0 to 1.
	Rate *float64 `json:"success_rate"`
	P50  *int64   `json:"p50_ms"`
	P95  *int64   `json:"p95_ms"`
	P99  *int64   `json:"p99_ms"`
}

type providerBody struct {
	Provider *string `json:"provider"`
	tallyBody
}

type hourBody struct {
	Hour int64 `json:"hour"`
	tallyBody
}

func tallyBodyOf(t fsm.OutboxTally) tallyBody {
	b := tallyBody{HandedOver: t.HandedOver, Delivered: t.Delivered, Dead: t.Dead, Cancelled: t.Cancelled}
	if over := t.Delivered + t.Dead; over > 0 {
		rate := float64(t.Delivered) / float64(over)
		b.Rate = &rate
	}
	b.P50, b.P95, b.P99 = t.Times.Millis(0.5), t.Times.Millis(0.95), t.Times.Millis(0.99)
	return b
}

// stats answers GET /webhooks/stats.
func (f *Face) stats(c echo.Context) error {
	query := c.QueryParams()
	for name := range query {
		if name != "hours" && name != "provider" {
			return refusal.New(fsm.CodeInvalidRequest, "%q is not a parameter of the statistics", name)
		}
	}
	hours := defaultHours
	if text := query.Get("hours"); text != "" {
		n, err := strconv.Atoi(text)
		if hours = n; err != nil || n < 1 || n > fsm.MaxOutboxHours {
			return refusal.New(fsm.CodeInvalidRequest, "hours must be a number from 1 to %d", fsm.MaxOutboxHours)
		}
	}
	ctx, cancel := context.WithTimeout(c.Request().Context(), paging.Timeout)
	defer cancel()
	s, err := f.Outbox.Stats(ctx, hours, query.Get("provider"))
	body := statsBody{
		Statuses: s.Statuses, WaitingSince: millis(s.WaitingSince), Since: s.From.UnixMilli(),
		Total:     tallyBodyOf(s.Total),
		Providers: []providerBody{}, Hours: []hourBody{},
	}
	for _, name := range slices.Sorted(maps.Keys(s.Providers)) {
		body.Providers = append(body.Providers, providerBody{orNull(name), tallyBodyOf(s.Providers[name])})
	}
	for _, hour := range slices.Sorted(maps.Keys(s.Hours)) {
		at := hour * time.Hour.Milliseconds()
		body.Hours = append(body.Hours, hourBody{at, tallyBodyOf(s.Hours[hour])})
	}
	return web.Answer(c, http.StatusOK, body, err)
}
