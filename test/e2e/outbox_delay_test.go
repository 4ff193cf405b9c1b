package e2e

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

// TestAnEventWaitsForItsTime has events handed over for later. They hold up no other event, and a replica that stops
// or dies has none of them lost.
func TestAnEventWaitsForItsTime(t *testing.T) {
	t.Parallel()
	root := "/" + name(t)
	f := startFleet(t, 3, map[string]string{"REVEILLE_OUTBOX": root})
	target := newOutboxTarget(t)
	hands := func(fields string) outboxEvent {
		t.Helper()
		return f.handOver(f.gateways[0], http.StatusAccepted,
			fmt.Sprintf(`{"target_url":%q,"event_type":"e","payload":"later"%s}`, target.URL, fields))
	}
	far := time.Now().Add(24 * time.Hour).UTC().Truncate(time.Second)
	waits := hands(`,"deliver_at":"` + far.Format(time.RFC3339) + `"`)
	dropped := hands(fmt.Sprintf(`,"deliver_at":%d`, far.UnixMilli()))
	for _, event := range []outboxEvent{waits, dropped} {
		if event.Status != "pending" || event.DeliverAt != far.UnixMilli() {
			t.Errorf("it is %+v, want it at %d", event, far.UnixMilli())
		}
	}
	f.fillLanes(target.URL) // the streams go on behind them
	soonDue := hands(`,"delay_ms":1500,"idempotency_key":"soon"`)
	if again := f.handOver(f.gateways[1], http.StatusOK, fmt.Sprintf(
		`{"target_url":%q,"event_type":"e","payload":"later","delay_ms":9000,"idempotency_key":"soon"}`, target.URL,
	)); again.ID != soonDue.ID || again.DeliverAt != soonDue.DeliverAt {
		t.Errorf("the same again is %+v, want %+v", again, soonDue)
	}
	cancels := f.gateways[1].Do(http.MethodDelete, "/webhooks/events/"+dropped.ID, "")
	if cancels.Status != http.StatusOK {
		t.Errorf("DELETE: %d %s", cancels.Status, cancels.Body)
	}

	e := *f.env
	e.gateway = f.gateways[1]
	// delayed waits until an event is noted for its time, or is sent already.
	delayed := func(event outboxEvent) {
		t.Helper()
		partition, _, _ := strings.Cut(strings.TrimPrefix(event.ID, fsm.OutboxPrefix), "_")
		harness.Eventually(t, soon, event.ID+" is delayed", func() error {
			if sent, _ := target.of(event.ID, "X-Webhook-Id"); len(sent) > 0 {
				return nil
			}
			return f.redis.Client().ZScore(t.Context(), "rv:{"+partition+"}:delayed", event.ID).Err()
		})
	}
	delivered := func(event outboxEvent) {
		t.Helper()
		done := e.event("/events/"+event.ID, "delivered")
		sent, bodies := target.of(event.ID, "X-Webhook-Timestamp")
		if len(sent) != 1 || bodies[0] != `"later"` || done.Attempts != 1 || string(done.Payload) != `"later"` {
			t.Fatalf("it is %+v, and came at %q", done, sent)
		}
		if at, err := strconv.ParseInt(sent[0], 10, 64); err != nil || at < event.DeliverAt {
			t.Errorf("it was sent at %d, before %d", at, event.DeliverAt)
		}
	}
	delivered(soonDue)
	for _, ends := range []func() error{f.replicas[2].Stop, func() error { f.replicas[0].Kill(); return nil }} {
		var next []outboxEvent
		for range 4 {
			next = append(next, hands(`,"delay_ms":5000`))
		}
		for _, event := range next {
			delayed(event)
		}
		if err := ends(); err != nil {
			t.Error(err)
		}
		for _, event := range next {
			delivered(event)
		}
	}
	e.event("/events/"+waits.ID, "pending")
	e.event("/events/"+dropped.ID, "cancelled")
	if again := e.replays(e.gateway, dropped.ID, http.StatusAccepted); again.DeliverAt != 0 {
		t.Errorf("it is replayed as %+v", again)
	} else {
		e.event("/events/"+again.ID, "delivered")
	}
	var stats struct {
		Statuses map[string]int
		Waiting  int64 `json:"waiting_since"`
		Total    map[string]float64
	}
	harness.Eventually(t, soon, "nothing waits but for its time", func() error {
		stats.Waiting = 0
		if e.gateway.Do(http.MethodGet, "/webhooks/stats", "").Decode(t, &stats); stats.Waiting != 0 ||
			stats.Statuses["pending"] != 1 {
			return fmt.Errorf("the statistics are %+v", stats)
		}
		return nil
	})
}
