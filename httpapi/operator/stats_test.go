package operator_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"reveille/fsm"
)

// TestTheStatisticsAreShown holds what is shown of a subscription, and of all together.
func TestTheStatisticsAreShown(t *testing.T) {
	h := newHarness(t, nil)
	h.Subscribe("s", 2)
	h.Subscribe("other", 1)
	if err := h.Store.RefreshCatalog(t.Context()); err != nil {
		t.Fatal(err)
	}
	sub, _ := h.Store.Catalog().Get("s")
	other, _ := h.Store.Catalog().Get("other")
	attempt := func(r fsm.AttemptResult, class string, took time.Duration) fsm.Attempt {
		return fsm.Attempt{Result: r, Class: class, Sent: true, Events: 2, Exchanged: took}
	}
	h.Store.DB.PutCounted(sub,
		attempt(fsm.AttemptDone, "", 10*time.Millisecond), attempt(fsm.AttemptAccepted, "", 20*time.Millisecond),
		attempt(fsm.AttemptFailed, "timeout", 30*time.Millisecond), attempt(fsm.AttemptDead, "rejected", 0),
		attempt(fsm.AttemptRetired, "gone", 0), attempt(fsm.AttemptAbandoned, "", 0),
	)
	h.Store.DB.PutCounted(other, attempt(fsm.AttemptFailed, "timeout", time.Second))
	h.Change("s:%2Fs%2F0", func(c *fsm.Consumer) {
		c.State, c.WokeAt, c.WakeID = fsm.Waking, h.Clock().Add(-time.Hour), "w_1"
	})
	h.Store.DB.PutLetter(fsm.DeadLetter{
		Subscription: "s", Generation: sub.Generation, Consumer: "s:%2Fs%2F0", Stream: "/s/0", Events: 1,
	})

	window := func(name, since string, more map[string]any) map[string]any {
		w := map[string]any{
			"window": name, "since": since, "attempts": 6., "taken": 2., "failed": 3., "dead": 1., "events": 4.,
			"failures": map[string]any{"timeout": 1., "rejected": 1., "gone": 1.},
			"p50_ms":   10., "p95_ms": 30., "p99_ms": 30.,
		}
		for key, value := range more {
			w[key] = value
		}
		return w
	}
	ofAll := map[string]any{
		"attempts": 7., "failed": 4., "failures": map[string]any{"timeout": 2., "rejected": 1., "gone": 1.},
		"p50_ms": 10., "p95_ms": 1023., "p99_ms": 1023.,
	}
	whole := func(more map[string]any) (list []any) {
		for _, w := range [][2]string{
			{"15m", "2026-01-02T02:50:00Z"},
			{"1h", "2026-01-02T02:05:00Z"},
			{"24h", "2026-01-01T04:00:00Z"},
			{"7d", "2025-12-26T04:00:00Z"},
		} {
			list = append(list, window(w[0], w[1], more))
		}
		return list
	}
	around := map[string]any{
		"pending": 1., "waiting_since": "2026-01-02T02:04:05Z", "dead_letters": 1., "as_of": "2026-01-02T03:04:05Z",
	}
	for target, want := range map[string]map[string]any{
		"/api/v1/subscriptions/s/stats":            {"subscription_id": "s", "windows": whole(nil)},
		"/api/v1/stats":                            {"windows": whole(ofAll)},
		"/api/v1/stats?window=1h":                  {"windows": whole(ofAll)[1:2]},
		"/api/v1/subscriptions/s/stats?window=24h": {"subscription_id": "s", "windows": whole(nil)[2:3]},
	} {
		for key, value := range around {
			want[key] = value
		}
		if got := h.Operator("GET", target, ""); got.Status != 200 || !reflect.DeepEqual(got.Body, want) {
			t.Errorf("%s: %d\n%s\nwant\n%v", target, got.Status, got.Text, want)
		}
	}
	for query, says := range map[string]string{
		"window=2h": "window must be one of 15m, 1h, 24h, 7d", "since=1h": `"since" is not a parameter`,
	} {
		h.Want(h.Operator("GET", "/api/v1/stats?"+query, ""), 400, fsm.CodeInvalidRequest, says)
	}
	h.Want(h.Operator("GET", "/api/v1/subscriptions/none/stats", ""), 404, fsm.CodeSubscriptionNotFound, "")
	h.Store.Fail(fmt.Errorf("%w: refused", fsm.ErrUnavailable))
	h.Want(h.Operator("GET", "/api/v1/stats", ""), 503, fsm.CodeUnavailable, "")
}
