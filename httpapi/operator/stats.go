package operator

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/control"
	"reveille/httpapi/paging"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// StatsBody says how deliveries have been going, of a subscription or of all.
type StatsBody struct {
	Subscription string       `json:"subscription_id,omitempty"`
	Windows      []WindowBody `json:"windows"`
	// Pending, WaitingSince, AtLeast and DeadLetters are as of a subscription (SubscriptionBody).
	Pending      int        `json:"pending"`
	WaitingSince *time.Time `json:"waiting_since,omitempty"`
	AtLeast      bool       `json:"at_least,omitempty"`
	DeadLetters  int        `json:"dead_letters"`
	AsOf         time.Time  `json:"as_of"`
	// Counts are what the windows are made of.
	Counts fsm.AttemptCounts `json:"-"`
}

// WindowBody counts the delivery attempts in a span of time up to the present.
type WindowBody struct {
	Window string `json:"window"`
	// Since is when the first minute, or the first hour, of the window began.
	Since    time.Time `json:"since"`
	Attempts int64     `json:"attempts"`
	// Taken counts the attempts that the endpoint took, and Failed those that it did not; Dead are those of them after
	// which the events were not tried again. What a stop of a replica has ended is neither.
	Taken  int64 `json:"taken"`
	Failed int64 `json:"failed"`
	Dead   int64 `json:"dead"`
	// Failures counts the failed attempts by class.
	Failures map[string]int64 `json:"failures"`
	// Events counts the events that the endpoint took. Wakes bring none.
	Events int64 `json:"events"`
	// The percentiles are of how long endpoints took, whatever they answered.
	P50 *int64 `json:"p50_ms,omitempty"`
	P95 *int64 `json:"p95_ms,omitempty"`
	P99 *int64 `json:"p99_ms,omitempty"`
}

func windowBodyOf(counts fsm.AttemptCounts, w fsm.StatsWindow) WindowBody {
	slots, since := counts.In(w)
	sum := fsm.AttemptTally{Failures: map[string]int64{}}
	for _, slot := range slots {
		sum.Add(slot)
	}
	b := WindowBody{
		Window: w.Name, Since: since.UTC(), Attempts: sum.Attempts(),
		Taken:  sum.Of(fsm.AttemptAccepted, fsm.AttemptDone),
		Failed: sum.Of(fsm.AttemptFailed, fsm.AttemptRetired, fsm.AttemptDead),
		Dead:   sum.Of(fsm.AttemptDead), Failures: sum.Failures, Events: sum.Events,
	}
	b.P50, b.P95, b.P99 = sum.Times.Millis(0.5), sum.Times.Millis(0.95), sum.Times.Millis(0.99)
	return b
}

// showStats shows the statistics of one subscription.
func (f *Face) showStats(c echo.Context) error {
	return f.inWindows(c, func(ctx context.Context, windows []fsm.StatsWindow) (StatsBody, error) {
		return f.Stats(ctx, c.Param("id"), windows)
	})
}

// showAllStats shows the statistics of all subscriptions together.
func (f *Face) showAllStats(c echo.Context) error { return f.inWindows(c, f.StatsOfAll) }

// inWindows answers a request for statistics, of all windows or of one.
func (f *Face) inWindows(
	c echo.Context, read func(context.Context, []fsm.StatsWindow) (StatsBody, error),
) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), paging.Timeout)
	defer cancel()
	if err := web.OnlyParams(c, "window"); err != nil {
		return err
	}
	windows := fsm.StatsWindows
	if name := c.QueryParam("window"); name != "" {
		i := slices.IndexFunc(windows, func(w fsm.StatsWindow) bool { return w.Name == name })
		if i < 0 {
			var names []string
			for _, w := range windows {
				names = append(names, w.Name)
			}
			return refusal.New(fsm.CodeInvalidRequest, "window must be one of %s", strings.Join(names, ", "))
		}
		windows = windows[i : i+1]
	}
	b, err := read(ctx, windows)
	return web.Answer(c, http.StatusOK, b, err)
}

// Stats returns the statistics of a subscription in some windows.
func (f *Face) Stats(ctx context.Context, id string, windows []fsm.StatsWindow) (body StatsBody, err error) {
	sub, err := f.Control.Subscription(ctx, id)
	if err != nil {
		return body, err
	}
	st, err := f.Control.Stats(ctx, sub)
	if err != nil {
		return body, err
	}
	return statsBodyOf(id, st, windows), nil
}

// Attempts returns what is counted of the attempts of a subscription: its statistics without what waits.
func (f *Face) Attempts(ctx context.Context, id string) (body StatsBody, err error) {
	sub, err := f.Control.Subscription(ctx, id)
	if err != nil {
		return body, err
	}
	counts, err := f.Control.View.CountedAttempts(ctx, sub)
	if err != nil {
		return body, err
	}
	return statsBodyOf(id, control.Stats{Counts: counts}, fsm.StatsWindows), nil
}

// StatsOfAll returns the statistics of all subscriptions together in some windows.
func (f *Face) StatsOfAll(ctx context.Context, windows []fsm.StatsWindow) (body StatsBody, err error) {
	st, err := f.Control.StatsOfAll(ctx)
	if err != nil {
		return body, err
	}
	return statsBodyOf("", st, windows), nil
}

func statsBodyOf(id string, st control.Stats, windows []fsm.StatsWindow) StatsBody {
	b := StatsBody{
		Subscription: id, Pending: st.Pending, WaitingSince: web.Time(st.WaitingSince), AtLeast: st.AtLeast,
		DeadLetters: st.DeadLetters, AsOf: st.Counts.Now.UTC(), Counts: st.Counts,
	}
	for _, w := range windows {
		b.Windows = append(b.Windows, windowBodyOf(st.Counts, w))
	}
	return b
}
