package outbox_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/ports"
)

// keep keeps an event that was handed over some minutes after the start, and returns its ID.
func keep(h *ports.Harness, minutes int, e fsm.OutboxEvent) string {
	h.T.Helper()
	e.CreatedAt = began.Add(time.Duration(minutes) * time.Minute).UnixMilli()
	stream := fmt.Sprintf("/outbox/%x/%d", len(e.Target), minutes%10)
	e.ID, e.Key = fsm.NewOutboxID(h.Store.PartitionOf(stream), fmt.Sprintf("%x", minutes)), fmt.Sprint(minutes)
	if made, err := h.Store.AcceptEvent(h.T.Context(), e, stream, "none"); err != nil || !made {
		h.T.Fatalf("%+v is kept: %t, %v", e, made, err)
	}
	return e.ID
}

var began = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// TestEventsAreListedTheLatestFirst holds the order of the lists over all partitions, their filters and their pages.
func TestEventsAreListedTheLatestFirst(t *testing.T) {
	h := newHarness(t)
	var ids []string
	for i := range 40 {
		ids = append(ids, keep(h, i, fsm.OutboxEvent{
			Target:   fmt.Sprintf("https://w%d.example:8443/hook?key=secret", i%2),
			Provider: []string{"", "github"}[i%4/2],
			Type:     fmt.Sprintf("e%d", i%3), Payload: "1",
		}))
	}
	for _, i := range []int{3, 17} {
		h.Want(h.API(http.MethodDelete, "/webhooks/events/"+ids[i], ""), http.StatusOK, "", "")
	}
	at := func(minutes int) string {
		return url.QueryEscape(began.Add(time.Duration(minutes) * time.Minute).Format(time.RFC3339))
	}
	for query, has := range map[string]func(i int) bool{
		"":                                     func(int) bool { return true },
		"status=cancelled":                     func(i int) bool { return i == 3 || i == 17 },
		"status=pending":                       func(i int) bool { return i != 3 && i != 17 },
		"status=delivered":                     func(int) bool { return false },
		"provider=github":                      func(i int) bool { return i%4/2 == 1 },
		"event_type=e1&host=W1.example":        func(i int) bool { return i%3 == 1 && i%2 == 1 },
		"host=w0.example%3A8443":               func(i int) bool { return i%2 == 0 },
		"since=" + at(10) + "&until=" + at(20): func(i int) bool { return i >= 10 && i < 20 },
		"since=" + fmt.Sprint(began.Add(38*time.Minute).UnixMilli()): func(i int) bool { return i >= 38 },
	} {
		var want []string
		for i, id := range slices.Backward(ids) {
			if has(i) {
				want = append(want, id)
			}
		}
		for _, limit := range []int{1, 7, 100} {
			path := fmt.Sprintf("/webhooks/events?%s&limit=%d", query, limit)
			var got []string
			for cursor := ""; ; {
				a := h.API(http.MethodGet, path+cursor, "")
				rows := ports.RowsOf(a, "events")
				for _, row := range rows {
					got = append(got, row["id"].(string))
				}
				if len(rows) > limit || strings.Contains(a.Text, "secret") {
					t.Fatalf("%s: %d %s", path, a.Status, a.Text)
				}
				next, _ := a.Body["next"].(string)
				if next == "" {
					break
				}
				cursor = "&cursor=" + next
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", path, got, want)
			}
		}
	}
	for path, want := range map[string]string{
		"/webhooks/events?state=pending":              "not a parameter of this list",
		"/webhooks/dlq?status=pending":                "not a parameter of this list",
		"/webhooks/events?status=failed":              "status must be one of pending, delivering",
		"/webhooks/events?since=1h":                   "since must be a time",
		"/webhooks/events?until=10000000000000":       "until must be a time before",
		"/webhooks/events?since=6000-01-01T00:00:00Z": "since must be a time before",
		"/webhooks/events?limit=0":                    "limit must be a number",
		"/webhooks/events?cursor=bm90aGluZw":          "cursor must be the next of an earlier answer",
	} {
		h.Want(h.API(http.MethodGet, path, ""), http.StatusBadRequest, fsm.CodeInvalidRequest, want)
	}
	a := h.API(http.MethodGet, "/webhooks/dlq", "")
	if a.Status != http.StatusOK || len(ports.RowsOf(a, "events")) != 0 {
		t.Errorf("the dead are %s", a.Text)
	}
}

// TestAnEventIsCancelledOnce holds which events can be cancelled, and that a page of another site cancels none.
func TestAnEventIsCancelledOnce(t *testing.T) {
	h := newHarness(t)
	id := keep(h, 1, fsm.OutboxEvent{Target: "https://w.example/hook"})
	h.Want(h.API(http.MethodDelete, "/webhooks/events/"+id, "", "Origin", "https://evil.example"),
		http.StatusForbidden, fsm.CodeForbidden, "")
	for range 2 { // the answer of the first may be lost
		a := h.API(http.MethodDelete, "/webhooks/events/"+id, "")
		if a.Status != http.StatusOK || a.Body["status"] != "cancelled" || a.Body["expires_at"] == nil {
			t.Errorf("it is %d %s", a.Status, a.Text)
		}
	}
	h.Want(h.API(http.MethodDelete, "/webhooks/events/whe_0_ff", ""), http.StatusNotFound, fsm.CodeNotFound, "")
	h.Want(h.API(http.MethodDelete, "/webhooks/events/x", ""), http.StatusNotFound, fsm.CodeNotFound, "")
}

// TestStatisticsCountWhatHappened holds what is counted of the events, by provider and hour.
func TestStatisticsCountWhatHappened(t *testing.T) {
	h := newHarness(t)
	stats := func(query string) (body struct {
		Statuses  map[string]int
		Since     int64
		Waiting   int64 `json:"waiting_since"`
		Total     map[string]any
		Providers []map[string]any
		Hours     []map[string]any
	},
	) {
		t.Helper()
		a := h.API(http.MethodGet, "/webhooks/stats"+query, "")
		if err := json.Unmarshal([]byte(a.Text), &body); err != nil || a.Status != http.StatusOK {
			t.Fatalf("%d %s, %v", a.Status, a.Text, err)
		}
		return body
	}
	if s := stats(""); s.Total["handed_over"] != 0.0 || s.Total["p50_ms"] != nil || s.Waiting != 0 {
		t.Errorf("before, they are %+v", s)
	}
	const target = "https://w.example/hook"
	first := keep(h, 1, fsm.OutboxEvent{Target: target, Provider: "github"})
	for i := 2; i < 12; i++ {
		keep(h, i, fsm.OutboxEvent{Target: target, Provider: "gitlab"})
	}
	h.Pass(time.Hour)
	h.Want(h.API(http.MethodDelete, "/webhooks/events/"+first, ""), http.StatusOK, "", "")
	s := stats("")
	if s.Statuses["pending"] != 10 || s.Statuses["cancelled"] != 1 || s.Statuses["dead_letter"] != 0 ||
		s.Waiting != began.Add(2*time.Minute).UnixMilli() || len(s.Hours) != 2 || len(s.Providers) != 2 ||
		s.Total["handed_over"] != 11.0 || s.Total["cancelled"] != 1.0 || s.Providers[1]["handed_over"] != 10.0 {
		t.Errorf("they are %+v", s)
	}
	if s := stats("?hours=1"); s.Total["handed_over"] != 0.0 || s.Total["cancelled"] != 1.0 {
		t.Errorf("of this hour they are %+v", s)
	}
	if s := stats("?provider=gitlab"); s.Total["handed_over"] != 10.0 || len(s.Providers) != 1 {
		t.Errorf("of a provider they are %+v", s)
	}
	for query, want := range map[string]string{
		"hours=0": "hours must be", "hours=169": "hours must be", "hours=x": "hours must be",
		"day=1": "not a parameter",
	} {
		h.Want(h.API(http.MethodGet, "/webhooks/stats?"+query, ""), http.StatusBadRequest, fsm.CodeInvalidRequest, want)
	}
}
