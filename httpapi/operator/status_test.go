package operator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/httpapi"
	"reveille/test/ports"
)

// inTrouble has one subscription in each condition, and so many more that are failing, the later the longer.
func (h *harness) inTrouble(more int) {
	fails := func(sub fsm.Subscription, times int, f fsm.EndpointFailure) {
		h.T.Helper()
		for range times {
			if _, err := h.Store.FailEndpoint(h.T.Context(), sub, f); err != nil {
				h.T.Fatal(err)
			}
		}
	}
	h.Subscribe("ok", 1)
	fails(h.Subscribe("down", 1), fsm.DownAfter, fsm.EndpointFailure{Reason: "status 500"})
	fails(h.Subscribe("refusing", 1), 1, fsm.EndpointFailure{Refused: true, Reason: "status 404"})
	fails(h.elsewhere("asked_to_wait"), 1, fsm.EndpointFailure{RetryAfter: time.Minute, Reason: "status 503"})
	h.Subscribe("retired", 1)
	h.Change("retired:%2Fretired%2F0", func(c *fsm.Consumer) {
		c.State, c.Retired, c.WokeAt = fsm.Waking, true, h.Clock().Add(-time.Hour)
		c.FirstFailure, c.LastError = h.Clock().Add(-time.Hour), "status 410"
	})
	for i := range more {
		id := fmt.Sprint("f", i)
		h.Subscribe(id, 1)
		h.Change(fmt.Sprintf("%s:%%2F%[1]s%%2F0", id), func(c *fsm.Consumer) {
			c.State, c.WokeAt = fsm.Waking, h.Clock().Add(-time.Duration(i)*time.Second)
			c.FirstFailure, c.LastError = c.WokeAt, "status 503"
		})
	}
}

// elsewhere has a subscription with an origin of its own.
func (h *harness) elsewhere(id string) fsm.Subscription {
	sub := h.Subscribe(id, 1)
	sub.Webhook = "https://" + id + ".example.com/hook"
	h.Store.DB.PutSubscription(sub.WithDefaults())
	return sub
}

// TestTheStatusShowsTheWhole holds the numbers of all conditions, and that the worst come first, up to a bound.
func TestTheStatusShowsTheWhole(t *testing.T) {
	h := newHarness(t, func(c *httpapi.Config) { c.Version = "1.2" })
	h.inTrouble(20)
	began := h.Clock().Add(-time.Hour)
	h.Health.Others = []fsm.ReplicaStatus{
		{ID: "one", Alive: true, Since: began, Partitions: 2}, {ID: "two", Partitions: 1},
	}
	h.Health.Unowned, h.Health.Up, h.Health.Since = 1, true, began
	h.Health.Server = fsm.StreamServerStatus{
		State: fsm.StreamServerDown, Since: began, Dialect: "standard", Watching: "sse",
	}
	a := h.Operator("GET", "/api/v1/status", "")
	at := began.Format(time.RFC3339)
	for field, want := range map[string]string{
		"version": "1.2", "replica": "one", "partitions": "4", "partitions_without_replica": "1",
		"redis":         "map[since:" + at + " up:true]",
		"stream_server": "map[dialect:standard since:" + at + " state:down watching:sse]",
		"replicas": "[map[alive:true alive_since:" + at + " id:one partitions:2] " +
			"map[alive:false id:two partitions:1]]",
		"replicas_known": "true", "subscriptions": "25", "consumers_counted": "true",
		"conditions":    "map[asked_to_wait:1 down:1 failing:20 ok:1 refusing:1 retired:1]",
		"waiting_since": at,
	} {
		if got := fmt.Sprint(a.Body[field]); got != want {
			t.Errorf("%s is %s, want %s", field, got, want)
		}
	}
	var worst []string
	for _, row := range ports.RowsOf(a, "worst") {
		worst = append(worst, fmt.Sprint(row["subscription_id"], " ", row["reason"]))
	}
	if got := strings.Join(worst, ", "); got != "retired status 410, down status 500, refusing status 404, "+
		"f19 status 503, f18 status 503, f17 status 503, f16 status 503, f15 status 503, f14 status 503, "+
		"f13 status 503" {
		t.Errorf("the worst are %s", got)
	}
}

// TestTheStatusAnswersWhileRedisIsAway holds that it shows what the replica knows, and says what that is not.
func TestTheStatusAnswersWhileRedisIsAway(t *testing.T) {
	h := newHarness(t, nil)
	h.inTrouble(0)
	if a := h.Operator("GET", "/api/v1/subscriptions", ""); a.Status != 200 { // which reads the subscriptions
		t.Fatal(a.Text)
	}
	h.Health.Err, h.Health.Since = fmt.Errorf("%w: connection refused", fsm.ErrUnavailable), h.Clock()
	h.Store.Fail(h.Health.Err)
	a := h.Operator("GET", "/api/v1/status", "")
	redis, _ := a.Body["redis"].(map[string]any)
	if a.Status != 200 || redis["up"] != false || redis["since"] != h.Clock().Format(time.RFC3339) ||
		!strings.Contains(fmt.Sprint(redis["error"]), "connection refused") {
		t.Fatalf("it answers %d %s", a.Status, a.Text)
	}
	for field, want := range map[string]string{
		"replicas": "[map[alive:true id:one partitions:4]]", "replicas_known": "false",
		"partitions_without_replica": "<nil>", "subscriptions": "5", "consumers_counted": "false",
		"conditions": "map[asked_to_wait:1 down:1 ok:2 refusing:1]", "waiting_since": "<nil>",
	} {
		if got := fmt.Sprint(a.Body[field]); got != want {
			t.Errorf("%s is %s, want %s", field, got, want)
		}
	}
}

// TestOneSubscriptionShowsWhatItWaitsForAndItsLastAttempt holds what is shown by what the delivery log takes.
func TestOneSubscriptionShowsWhatItWaitsForAndItsLastAttempt(t *testing.T) {
	for _, c := range []struct {
		log         fsm.DeliveryLog
		last, other string
	}{
		{fsm.LogAll, "last_attempt", "last_failed_attempt"},
		{fsm.LogFailures, "last_failed_attempt", "last_attempt"},
		{fsm.LogOff, "", "last_attempt"},
		{"", "", "last_failed_attempt"},
	} {
		h := newHarness(t, func(cfg *httpapi.Config) { cfg.DeliveryLog = c.log })
		h.logged(h.Subscribe("a", 3), 3)
		for i := range 2 {
			h.Change(fmt.Sprintf("a:%%2Fa%%2F%d", i), func(c *fsm.Consumer) {
				c.State, c.WokeAt = fsm.Waking, h.Clock().Add(-time.Duration(i)*time.Minute)
			})
		}
		a := h.Operator("GET", "/api/v1/subscriptions/a", "")
		if got, want := a.Body["waiting_since"], h.Clock().Add(-time.Minute).Format(time.RFC3339); got != want {
			t.Errorf("it has waited since %v, want %s", got, want)
		}
		last, _ := a.Body[c.last].(map[string]any)
		if c.last != "" && (last["result"] != "failed" || last["status_code"] != 503.0 ||
			last["class"] != "unavailable" || last["delivery_id"] != "evt_2") || a.Body[c.other] != nil {
			t.Errorf("with the log %q, it is shown as %s", c.log, a.Text)
		}
	}
}

// TestWhatIsNotCountedIsNotHidden holds what is shown if there are more consumers than one request may look at: a page
// of subscriptions ends before the first one that was counted in part, so that all are counted as well as they can be.
// What is only at least so says it.
func TestWhatIsNotCountedIsNotHidden(t *testing.T) {
	h := newHarness(t, nil)
	for id, n := range map[string]int{"a": 2, "b": 2, "c": 5, "d": 0, "e": 3} {
		h.Subscribe(id, n)
	}
	h.Health.Up = true
	since := h.Clock().Add(-time.Hour)
	h.Change("c:%2Fc%2F0", func(c *fsm.Consumer) { c.State, c.WakeID, c.WokeAt = fsm.Waking, "w_1", since })
	h.Store.Tallied = 4
	for filter, want := range map[string]string{
		"":              "[a b] [c at least] [d e]",
		"&failing=true": "[] [c at least] []",
	} {
		var pages []string
		for cursor := ""; ; {
			a := h.Operator("GET", "/api/v1/subscriptions?limit=100"+filter+cursor, "")
			shown := []string{}
			for _, row := range ports.RowsOf(a, "subscriptions") {
				text := fmt.Sprint(row["subscription_id"])
				if row["at_least"] == true {
					text += " at least"
				}
				shown = append(shown, text)
			}
			pages = append(pages, fmt.Sprint(shown))
			if ports.Next(a) == "" {
				break
			}
			cursor = "&cursor=" + ports.Next(a)
		}
		if got := strings.Join(pages, " "); got != want {
			t.Errorf("the pages %s are %s, want %s", filter, got, want)
		}
	}
	is, _ := h.Operator("GET", "/api/v1/status", "").Body["conditions"].(map[string]any)
	if is["ok"] == 5. || is["not_known"] == nil {
		t.Errorf("the conditions are %v", is)
	}
	for path, want := range map[string]map[string]any{
		"/api/v1/subscriptions/b":       {"at_least": nil, "consumers": 2.},
		"/api/v1/subscriptions/c":       {"at_least": true, "consumers": 5., "pending": 0.},
		"/api/v1/subscriptions/c/stats": {"at_least": true, "pending": 0.},
		"/api/v1/stats":                 {"at_least": nil, "pending": 1., "waiting_since": since.Format(time.RFC3339)},
		"/api/v1/status": {
			"consumers_counted": false, "waiting_known": true, "waiting_since": since.Format(time.RFC3339),
		},
	} {
		a := h.Operator("GET", path, "")
		for field, value := range want {
			if a.Body[field] != value {
				t.Errorf("%s: %s is %v, want %v", path, field, a.Body[field], value)
			}
		}
	}
}
