package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

// TestEventsAreListedAndCancelled has a client look for its events at another replica, and cancel what waits.
func TestEventsAreListedAndCancelled(t *testing.T) {
	t.Parallel()
	settings := map[string]string{"REVEILLE_OUTBOX": "/outbox"}
	e := start(t, options{settings: settings})
	second := harness.NewClient(t, harness.StartReveille(t, e.settings(settings)).URL)
	target := newOutboxTarget(t)
	host := "&host=" + url.QueryEscape(strings.TrimPrefix(target.URL, "http://"))
	hands := func(kind string, most int) string {
		return e.handOver(e.gateway, http.StatusAccepted, fmt.Sprintf(
			`{"target_url":%q,"event_type":%q,"payload":1,"max_attempts":%d}`, target.URL+"/hook?k=s", kind, most)).ID
	}
	lists := func(path string, want ...string) {
		t.Helper()
		harness.Eventually(t, soon, path, func() error {
			var body struct{ Events []outboxEvent }
			res := second.Do(http.MethodGet, "/webhooks"+path, "")
			res.Decode(t, &body)
			got := []string{}
			for _, event := range body.Events {
				got = append(got, event.ID)
				if event.Payload != nil || event.TargetURL != target.URL+"/hook?…" {
					t.Errorf("it is listed as %+v", event)
				}
			}
			slices.Reverse(want)
			defer slices.Reverse(want)
			if !slices.Equal(got, want) {
				return fmt.Errorf("%d %s, want %q", res.Status, res.Body, want)
			}
			return nil
		})
	}

	first := hands("a", 5)
	lists("/events?status=delivered", first)
	target.mu.Lock()
	target.fails = 1
	target.mu.Unlock()
	dead := hands("b", 1)
	lists("/dlq", dead)
	lists("/events?status=dead_letter&event_type=b"+host, dead)
	lists("/events?limit=2"+host, first, dead)

	target.mu.Lock()
	target.fails, target.retryAfter = 1, "3600"
	target.mu.Unlock()
	waits := hands("c", 5)
	e.event("/events/"+waits, "retrying")
	for _, id := range []string{waits, dead} {
		if res := second.Do(http.MethodDelete, "/webhooks/events/"+id, ""); res.Status != http.StatusOK {
			t.Errorf("DELETE %s: %d %s", id, res.Status, res.Body)
		}
	}
	if res := second.Do(http.MethodDelete, "/webhooks/events/"+first, ""); res.Status != http.StatusConflict {
		t.Errorf("DELETE of what is delivered: %d %s", res.Status, res.Body)
	}
	lists("/dlq")
	lists("/events?status=cancelled", dead, waits)
	lists("/events?limit=10", first, dead, waits)
	var stats struct {
		Statuses map[string]int
		Total    map[string]float64
	}
	second.Do(http.MethodGet, "/webhooks/stats", "").Decode(t, &stats)
	for what, n := range map[string]float64{
		"handed_over": 3, "delivered": 1, "dead_letter": 1, "cancelled": 2, "success_rate": 0.5,
	} {
		if stats.Total[what] != n || stats.Total["p50_ms"] > stats.Total["p99_ms"] {
			t.Errorf("the statistics are %+v, want %s %v", stats, what, n)
		}
	}
	if stats.Statuses["delivered"] != 1 || stats.Statuses["cancelled"] != 2 || stats.Statuses["dead_letter"] != 0 {
		t.Errorf("the statistics are %+v", stats)
	}
}

// TestTheConfigurationHoldsOnEveryReplica changes it at one replica, and hands events over at both.
func TestTheConfigurationHoldsOnEveryReplica(t *testing.T) {
	t.Parallel()
	settings := map[string]string{"REVEILLE_OUTBOX": "/outbox"}
	e := start(t, options{settings: settings})
	second := harness.NewClient(t, harness.StartReveille(t, e.settings(settings)).URL)
	target := newOutboxTarget(t)
	secret := fsm.SignatureStandardWebhooks.NewSecret([]byte("the key of github, 32 bytes long"))
	body := fmt.Sprintf(`{"maxAttempts":1,"retentionMs":3600000,"secrets":{"github":%q}}`, secret)
	res := second.Do(http.MethodPatch, "/webhooks/config", body, "Content-Type", "application/json")
	if res.Status != http.StatusOK || strings.Contains(res.Body, secret) {
		t.Fatalf("%d %s", res.Status, res.Body)
	}
	hands := func(c *harness.Client, fields string) outboxEvent {
		return e.handOver(c, http.StatusAccepted, fmt.Sprintf(
			`{"target_url":%q,"event_type":"push","provider":"github","payload":1%s}`, target.URL+"/hook", fields))
	}
	for _, c := range []*harness.Client{e.gateway, second} {
		harness.Eventually(t, soon, "a replica knows of it", func() error {
			if event := hands(c, ""); event.MaxAttempts != 1 {
				return fmt.Errorf("it is %+v", event)
			}
			return nil
		})
		event := e.event("/events/"+hands(c, "").ID, "delivered")
		if event.ExpiresAt != event.DeliveredAt+3600_000 {
			t.Errorf("it is %+v", event)
		}
		own := e.event("/events/"+hands(c, `,"retention_ms":60000`).ID, "delivered")
		if own.ExpiresAt != own.DeliveredAt+60_000 {
			t.Errorf("with a retention of its own, it is %+v", own)
		}
		target.mu.Lock()
		for i, h := range target.came {
			err := harness.VerifyStandard(secret, h, []byte(target.texts[i]), time.Now())
			if err != nil && h.Get("X-Webhook-Id") == event.ID {
				t.Errorf("its signature: %v", err)
			}
		}
		target.fails = 1
		target.mu.Unlock()
		e.event("/events/"+hands(c, "").ID, "dead_letter")
	}
}
