package operator_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec"
	"reveille/httpapi"
	"reveille/httpapi/control"
	"reveille/test/ports"
)

// finds returns what a search finds.
func (h *harness) finds(q string) []map[string]any {
	h.T.Helper()
	a := h.Operator(http.MethodGet, "/api/v1/find?q="+url.QueryEscape(q), "")
	if a.Status != http.StatusOK {
		h.T.Errorf("%s: %d %s", q, a.Status, a.Text)
	}
	return ports.RowsOf(a, "found")
}

// TestASearchFindsWhatHasAnID holds it for every kind of thing that has one.
func TestASearchFindsWhatHasAnID(t *testing.T) {
	h := newHarness(t, func(c *httpapi.Config) {
		c.Outbox, c.OutboxServer = "/outbox", struct{ control.OutboxServer }{}
	})
	h.pushed("s", 2)
	h.Subscribe("wakes", 1)
	sub := h.Store.DB.Subscriptions()["s"]
	consumer := fsm.ConsumerID("s", "/s/0")
	h.Change(consumer, func(c *fsm.Consumer) { c.LastError = "status 503" })
	h.Store.DB.PutLetter(fsm.DeadLetter{
		Subscription: "s", Generation: sub.Generation, Consumer: consumer, Stream: "/s/0", DeliveryID: "evt_dead",
		Reason: "status 400",
	})
	letter := ports.RowsOf(h.Operator(http.MethodGet, "/api/v1/dead-letters", ""), "dead_letters")[0]["id"].(string)
	span := h.Operator(http.MethodPost, "/api/v1/subscriptions/s/replay", `{"stream":"/s/1","from":"-1"}`)
	event := fsm.OutboxEvent{ID: fsm.NewOutboxID(3, "1"), Key: "key-1", CreatedAt: h.Clock().UnixMilli()}
	h.Store.DB.PutEvent(fsm.OutboxRecord{Event: event, Stream: "/outbox/t/0", Status: fsm.OutboxPending})
	if _, err := h.Store.ReserveKey(t.Context(), event.Key, fsm.OutboxKey{ID: event.ID}); err != nil {
		t.Fatal(err)
	}
	h.Store.DB.PutLogged(sub, fsm.LoggedAttempt{
		At: h.Clock(), Stream: "/s/1", Consumer: fsm.ConsumerID("s", "/s/1"), WakeID: "w_1", DeliveryID: "evt_1",
		Attempt: 1, MaxAttempts: 9, Result: "done", Status: 204,
	})
	for q, want := range map[string]string{
		"s":                             "subscription s",
		consumer:                        "consumer " + consumer + " s /s/0 idle status 503",
		"/s/0":                          "consumer " + consumer + " s /s/0 idle status 503",
		letter:                          "dead_letter " + letter + " s /s/0 status 400",
		"evt_dead":                      "delivery evt_dead s /s/0 dead status 400",
		"evt_1":                         "delivery evt_1 s /s/1 taken",
		" w_1 ":                         "wake w_1 s /s/1 taken",
		event.ID:                        "event " + event.ID + " /outbox/t/0 pending",
		event.Key:                       "event " + event.ID + " /outbox/t/0 pending",
		span.Body["replay_id"].(string): "replay " + span.Body["replay_id"].(string) + " s /s/1",
	} {
		found := h.finds(q)
		if len(found) != 1 {
			t.Errorf("%s: %v", q, found)
			continue
		}
		var got []string
		for _, field := range []string{"kind", "id", "subscription_id", "stream", "state", "reason"} {
			if text, there := found[0][field].(string); there {
				got = append(got, text)
			}
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%s: %s, want %s", q, got, want)
		}
	}
	for query, status := range map[string]int{
		"q=evt_1&subscription=s": 200, "q=evt_dead&subscription=s": 200, "q=evt_1&subscription=wakes": 404,
		"q=s&subscription=s": 404, "q=evt_1&subscription=none": 404, "q=evt_1&subscription=%2F": 400,
	} {
		if a := h.Operator(http.MethodGet, "/api/v1/find?"+query, ""); a.Status != status {
			t.Errorf("?%s: %d %s", query, a.Status, a.Text)
		}
	}
	// An event that has failed may have stepped aside from its wake.
	for i, result := range []string{"failed", "done"} {
		h.Store.DB.PutLogged(sub, fsm.LoggedAttempt{
			At: h.Clock(), Stream: "/s/1", Consumer: fsm.ConsumerID("s", "/s/1"), WakeID: fmt.Sprint("w_aside_", i),
			DeliveryID: "evt_aside", Attempt: i + 1, Result: result,
		})
	}
	if found := h.finds("w_aside_0")[0]; found["state"] != "taken" || len(found["attempts"].([]any)) != 2 {
		t.Errorf("the wake that it has stepped aside from is %v", found)
	}
	attempts, _ := h.finds("evt_1")[0]["attempts"].([]any)
	if len(attempts) != 1 || attempts[0].(map[string]any)["max_attempts"] != 9.0 {
		t.Errorf("its attempts are %v", attempts)
	}
	const nothing = "nothing that is known has this id"
	for _, q := range []string{
		"nobody", "/nobody", "s:%2Fs%2F9", "evt_2", "w_2", "dl_1_2", "dl_x", "rp_1_2", "rp_x", fsm.NewOutboxID(3, "2"),
	} {
		h.Want(h.Operator(http.MethodGet, "/api/v1/find?q="+url.QueryEscape(q), ""), 404, fsm.CodeNotFound, nothing)
	}
	for query, says := range map[string]string{
		"": "q must be an id", "?q=": "q must be an id", "?q=" + strings.Repeat("x", 5000): "of at most 4096 bytes",
		"?q=s&kind=x": `"kind" is not a parameter`,
	} {
		h.Want(h.Operator(http.MethodGet, "/api/v1/find"+query, ""), 400, fsm.CodeInvalidRequest, says)
	}
	h.Store.Fail(fsm.ErrUnavailable)
	h.Want(h.Operator(http.MethodGet, "/api/v1/find?q=s", ""), 503, fsm.CodeUnavailable, "")
}

// TestASearchSaysWhereADeliveryStands holds it for a delivery that failed.
func TestASearchSaysWhereADeliveryStands(t *testing.T) {
	later := func(c *fsm.Consumer) { c.Deadline = c.Deadline.Add(time.Minute) }
	for name, c := range map[string]struct {
		change       func(*fsm.Consumer)
		paused       bool
		state, block string
		waits        bool
	}{
		"it waits":                {later, false, "waits", "retry", true},
		"it is paused":            {later, true, "waits", "paused", true},
		"it is out":               {func(c *fsm.Consumer) { c.Sent = true }, false, "sent", "", false},
		"its consumer is over it": {func(c *fsm.Consumer) { c.WakeID = "w_2" }, false, "over", "", false},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			h := newHarness(t, nil)
			h.pushed("s", 1)
			sub := h.Store.DB.Subscriptions()["s"]
			sub.Paused = c.paused
			h.Store.DB.PutSubscription(sub)
			consumer := spec.NewConsumer(sub, "/s/0", "0003", 7)
			consumer.State, consumer.WakeID, consumer.Attempt, consumer.Handed = fsm.Waking, "w_1", 2, 2
			consumer.Deadline, consumer.FirstFailure = h.Clock(), h.Clock()
			c.change(&consumer)
			h.Store.DB.PutConsumer(consumer)
			h.Store.DB.PutLogged(sub, fsm.LoggedAttempt{
				At: h.Clock(), Stream: "/s/0", Consumer: consumer.ID, WakeID: "w_1", DeliveryID: "evt_1", Epoch: 7,
				Attempt: 1, Result: "failed", Status: 503, Reason: "status 503",
			})
			found := h.finds("evt_1")[0]
			block, _ := found["blocked"].(map[string]any)
			if got := fmt.Sprint(block["reason"]); found["state"] != c.state || block != nil != (c.block != "") ||
				block != nil && got != c.block {
				t.Errorf("it is %v", found)
			}
			if waits := found["next_attempt_at"] != nil; waits != c.waits {
				t.Errorf("its next attempt is at %v", found["next_attempt_at"])
			}
		})
	}
}
