package ojs_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec"
	"reveille/httpapi"
	"reveille/httpapi/ojs"
	"reveille/httpapi/paging"
	"reveille/test/ports"
)

// evt is the ID of a delivery.
func evt(n int) string { return fmt.Sprintf("evt_0f9a5c1b7d3e2a4c6b80_%d", n) }

// attempted puts attempts at a delivery in the delivery log, a second after each other, the last one now. What they
// came to is done, or the status of a failure; 400 and 410 are final.
func (h *harness) attempted(sub fsm.Subscription, n int, statuses ...int) {
	h.T.Helper()
	for i, status := range statuses {
		a := fsm.LoggedAttempt{
			At: h.Clock().Add(time.Duration(i-len(statuses)+1) * time.Second), Took: 145 * time.Millisecond,
			Stream: "/jobs/a", Consumer: fsm.ConsumerID(sub.ID, "/jobs/a"), WakeID: fmt.Sprint("w_", n),
			Epoch:      int64(n),
			DeliveryID: evt(n), Attempt: i + 1, Result: "failed", Status: status, Reason: fmt.Sprint("status ", status),
			Class: "refused", Events: 1, Bytes: 99,
		}
		switch status {
		case 200:
			a.Result, a.Reason, a.Class = "done", "", ""
		case 400:
			a.Result = "dead"
		case 410:
			a.Result = "retired"
		case 0:
			a.Result, a.Reason, a.Class = "abandoned", "", ""
		}
		h.Store.DB.PutLogged(sub, a)
	}
}

// dead puts the dead letter of a delivery in the store.
func (h *harness) dead(sub fsm.Subscription, n int) {
	h.Store.DB.PutLetter(fsm.DeadLetter{
		Subscription: sub.ID, Generation: sub.Generation, Consumer: fsm.ConsumerID(sub.ID, "/jobs/a"),
		Stream: "/jobs/a", DeliveryID: evt(n), From: fsm.Start.At(int64(n), "0009"),
		To: fsm.Start.At(int64(n+1), "0009"), Within: fsm.Start.At(int64(n+1), "0009"), Events: 1, Attempts: 2,
		Class: "refused", Reason: "status 400", Status: 400, Answer: "it <broke>",
	})
}

// waits puts a consumer in the store that is at a delivery; its next attempt waits for a minute.
func (h *harness) waits(sub fsm.Subscription, id string, n int, change func(*fsm.Consumer)) fsm.Consumer {
	c := spec.NewConsumer(sub, "/jobs/a", "0003", int64(n))
	if id != c.ID {
		c.ID, c.Owner = id, c.ID
	}
	c.State, c.WakeID, c.Attempt, c.Handed = fsm.Waking, fmt.Sprint("w_", n), 1, 1
	c.Deadline = h.Clock().Add(time.Minute)
	c.Links["/jobs/a"] = fsm.Link{Acked: "0003", Tail: "0009"}
	if change != nil {
		change(&c)
	}
	h.Store.DB.PutConsumer(c)
	return c
}

func (h *harness) ojsSub() fsm.Subscription {
	h.T.Helper()
	path, _ := h.ojs("")
	return h.stored(path)
}

func logging(mode fsm.DeliveryLog) func(*httpapi.Config) {
	return func(c *httpapi.Config) { c.DeliveryLog = mode }
}

// TestOJSDeliveriesAreListed holds that each delivery is listed once, by its latest attempt, over all subscriptions of
// OJS and no other, page by page, and what narrows the list down.
func TestOJSDeliveriesAreListed(t *testing.T) {
	h := newOJS(t, logging(fsm.LogAll))
	one, two, other := h.ojsSub(), h.ojsSub(), h.Subscribe("other", 1)
	other.Format = fsm.FormatOJS
	h.attempted(other, 99, 500)
	h.dead(other, 99)
	statuses := [][]int{{200}, {500, 200}, {503}, {500, 0}, {500, 400}, {410}}
	names := []string{"success", "success", "failed", "failed", "dead", "failed"}
	want, of := []string{}, map[string][]string{}
	for i := range 60 {
		h.Pass(time.Minute)
		sub := []fsm.Subscription{one, two}[i%2]
		h.attempted(sub, i, statuses[i%6]...)
		want = append([]string{evt(i)}, want...)
		of[names[i%6]] = append([]string{evt(i)}, of[names[i%6]]...)
		of[sub.ID] = append([]string{evt(i)}, of[sub.ID]...)
		if names[i%6] == "dead" {
			h.dead(sub, i)
		}
	}
	h.dead(two, 100) // which the log does not have any more
	h.Store.DB.PutLetter(fsm.DeadLetter{Subscription: one.ID, Generation: one.Generation, Stream: "/jobs/b"})
	of["dead"] = append(of["dead"], evt(100))
	for query, want := range map[string][]string{
		"": want, "status=success": of["success"], "status=failed": of["failed"], "status=dead": of["dead"],
		"subscription_id=" + one.ID: of[one.ID],
		"status=failed&subscription_id=" + one.ID: slices.DeleteFunc(slices.Clone(of["failed"]), func(id string) bool {
			return !slices.Contains(of[one.ID], id)
		}),
		"status=dead&subscription_id=" + one.ID: slices.DeleteFunc(slices.Clone(of["dead"]), func(id string) bool {
			return !slices.Contains(of[one.ID], id)
		}),
	} {
		for _, limit := range []int{1, 7, 100} {
			var got []string
			for cursor := ""; ; {
				a := h.API("GET", fmt.Sprintf("%s?limit=%d&cursor=%s&%s", ojs.Deliveries, limit, cursor, query), "")
				page := ports.RowsOf(a, "deliveries")
				if a.Status != 200 || len(page) > limit {
					t.Fatalf("?%s: %d %s", query, a.Status, a.Text)
				}
				for _, row := range page {
					got = append(got, row["id"].(string))
				}
				if cursor, _ = a.Body["next"].(string); cursor == "" {
					break
				}
			}
			if strings.HasPrefix(query, "status=dead") { // by partition
				slices.Sort(got)
				slices.Sort(want)
			}
			if !slices.Equal(got, want) {
				t.Errorf("?%s, %d at a time: %q, want %q", query, limit, got, want)
			}
		}
	}
	row := ports.RowsOf(h.API("GET", ojs.Deliveries+"?limit=1&status=failed", ""), "deliveries")[0]
	if !maps.Equal(row, map[string]any{
		"id": evt(59), "subscription_id": two.ID, "status": "failed", "stream": "/jobs/a", "attempts": 1.0,
		"last_attempt_at": h.Clock().Format(time.RFC3339), "status_code": 410.0, "response_time_ms": 145.0,
		"error": "status 410",
	}) {
		t.Errorf("one is shown as %v", row)
	}
	a := h.API("GET", ojs.Deliveries+"?limit=1&status=dead", "")
	row = ports.RowsOf(a, "deliveries")[0]
	if row["response_body"] != "it <broke>" || row["dead_at"] == nil || row["attempts"] != 2.0 ||
		row["error"] != "status 400" || row["status_code"] != 400.0 {
		t.Errorf("one that is dead is shown as %s", a.Text)
	}
	if a := h.API("HEAD", ojs.Deliveries, ""); a.Status != 200 {
		t.Errorf("HEAD: %d", a.Status)
	}
}

// TestAnAttemptThatNamedNoDeliveryIsNotListed holds it of one that a stop cut off before its events were read: the log
// has it under its wake, and no request for a delivery would find that.
func TestAnAttemptThatNamedNoDeliveryIsNotListed(t *testing.T) {
	h := newOJS(t, logging(fsm.LogAll))
	sub := h.ojsSub()
	h.attempted(sub, 1, 500)
	h.Store.DB.PutLogged(sub, fsm.LoggedAttemptOf(fsm.Attempt{
		Delivery: fsm.Delivery{
			Consumer: fsm.ConsumerID(sub.ID, "/jobs/a"), Primary: "/jobs/a", WakeID: "w_2", Epoch: 2, Attempt: 1,
		},
		Began: h.Clock(), Result: fsm.AttemptAbandoned,
	}, fsm.LogOff))
	for _, query := range []string{"", "?status=failed"} {
		rows := ports.RowsOf(h.API("GET", ojs.Deliveries+query, ""), "deliveries")
		if len(rows) != 1 || rows[0]["id"] != evt(1) {
			t.Errorf("%s: listed are %v", query, rows)
		}
	}
}

// TestAnOJSDeliveryIsShownAndRetried holds what is known of a delivery in each state, and what a retry of it does.
func TestAnOJSDeliveryIsShownAndRetried(t *testing.T) {
	main := func(sub fsm.Subscription) string { return fsm.ConsumerID(sub.ID, "/jobs/a") }
	aside := func(sub fsm.Subscription) string { return fsm.AsideID(main(sub), 7) }
	for _, tc := range []struct {
		name     string
		mode     fsm.DeliveryLog
		statuses []int
		// letter and at say what it has left, and who is at it; change changes that one.
		letter bool
		at     func(fsm.Subscription) string
		change func(*fsm.Consumer)
		paused bool
		// away is true if the stream server does not have its stream.
		away  bool
		shown []string
		// refused is why it is not retried; empty if it is.
		refused string
	}{
		{
			name: "it was taken", statuses: []int{500, 200}, refused: "it was taken",
			shown: []string{
				`"status":"success"`, `"attempts":2`, `"status_code":200`, `"history":[{"attempt":1,` +
					`"at":"2026-01-02T03:04:04Z","status":"failed","status_code":500,"response_time_ms":145,` +
					`"error":"status 500"},{"attempt":2,"at":"2026-01-02T03:04:05Z","status":"success",` +
					`"status_code":200,"response_time_ms":145}]`,
			},
		},
		{
			name: "it has stepped aside", statuses: []int{500}, at: aside,
			shown: []string{`"status":"failed"`, `"next_attempt_at":"2026-01-02T03:05:05Z"`},
		},
		{name: "its consumer waits", statuses: []int{500}, at: main, shown: []string{`"next_attempt_at"`}},
		{
			name: "its replica has stopped", statuses: []int{0}, at: main,
			shown: []string{`"status":"failed"`, `"error":"Reveille stopped before there was an answer"`},
		},
		{
			name: "an attempt is out", statuses: []int{500}, at: aside, change: func(c *fsm.Consumer) { c.Sent = true },
			shown: []string{`"status":"failed"`, `"error":"status 500","history"`},
		},
		{
			name: "its consumer is at another", statuses: []int{500}, at: main, refused: "it is over",
			change: func(c *fsm.Consumer) { c.WakeID = "w_8" }, shown: []string{`"error":"status 500","history"`},
		},
		{
			name: "its endpoint has answered 410", statuses: []int{410}, at: main, refused: "answered 410",
			change: func(c *fsm.Consumer) { c.Retired, c.Deadline = true, time.Time{} },
			shown:  []string{`"status":"failed"`, `"error":"status 410","history"`},
		},
		{
			name: "its subscription is not active", statuses: []int{500}, at: aside, paused: true,
			refused: "not active", shown: []string{`"status":"failed"`},
		},
		{
			name: "its stream is away", statuses: []int{500}, at: main, refused: "does not have its stream",
			change: func(c *fsm.Consumer) { c.HiddenAt = c.Deadline }, shown: []string{`"status":"failed"`},
		},
		{
			name: "it has stepped aside, and its stream is away", statuses: []int{500}, at: aside, away: true,
			refused: "does not have its stream", shown: []string{`"status":"failed"`},
		},
		{
			name: "it is dead", statuses: []int{500, 400}, letter: true, shown: []string{
				`"status":"dead"`, `"response_body":"it <broke>"`, `"dead_at":"2026-01-02T03:04:05`, `"history":[`,
				`"last_attempt_at":"2026-01-02T03:04:05Z"`, `"response_time_ms":145`,
			},
		},
		{
			name: "the log has lost that it is dead", statuses: []int{500}, letter: true,
			shown: []string{`"status":"dead"`},
		},
		{
			name: "the log has lost all of it", letter: true,
			shown: []string{`"status":"dead","stream":"/jobs/a","attempts":2,"status_code":400,"response_body":`},
		},
		{
			name: "there is no log", mode: fsm.LogOff, letter: true,
			shown: []string{`"status":"dead"`, `"attempts":2`},
		},
		{
			name: "its letter was discarded", statuses: []int{400}, refused: "no dead letter",
			shown: []string{`"status":"dead"`},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.mode == "" {
				tc.mode = fsm.LogAll
			}
			h := newOJS(t, logging(tc.mode))
			other, sub := h.ojsSub(), h.ojsSub()
			h.attempted(other, 8, 500)
			h.dead(other, 8)
			sub.Paused = tc.paused
			h.Store.DB.PutSubscription(sub)
			h.attempted(sub, 7, tc.statuses...)
			if tc.letter {
				h.dead(sub, 7)
			}
			c := spec.NewConsumer(sub, "/jobs/a", "0009", 0)
			if tc.away { // which an aside does not show
				c.HiddenAt = h.Clock()
			}
			h.Store.DB.PutConsumer(c)
			if tc.at != nil {
				c = h.waits(sub, tc.at(sub), 7, tc.change)
			}
			path := ojs.Deliveries + "/" + evt(7)
			for _, query := range []string{"", "?subscription_id=" + sub.ID} {
				a := h.API("GET", path+query, "")
				for _, want := range append(tc.shown, `{"id":"`+evt(7)+`","subscription_id":"`+sub.ID+`"`) {
					if a.Status != 200 || !strings.Contains(a.Text, want) {
						t.Errorf("got %d %s, want %s", a.Status, a.Text, want)
					}
				}
			}
			h.Want(h.API("GET", path+"?subscription_id="+other.ID, ""), 404, fsm.CodeNotFound, "with this id")

			retried := h.API("POST", path+"/retry", "")
			if tc.refused != "" {
				h.Want(retried, 409, fsm.CodeRetryRefused, tc.refused)
			} else if retried.Status != http.StatusAccepted || strings.Contains(retried.Text, "history") ||
				!strings.Contains(retried.Text, `"id":"`+evt(7)+`"`) {
				t.Errorf("the retry: %d %s", retried.Status, retried.Text)
			}
			now, _ := h.Store.Lookup(c.ID)
			due := tc.at != nil && tc.refused == "" && !c.Sent
			if now.Deadline.Equal(h.Clock()) != due || !due && !now.Deadline.Equal(c.Deadline) {
				t.Errorf("after the retry the consumer is %+v, and was %+v", now, c)
			}
			if n := len(ports.RowsOf(h.Operator("GET", "/api/v1/replays", ""), "replays")); (n == 1) != tc.letter {
				t.Errorf("%d are replayed", n)
			}
		})
	}
}

// TestARetryOfWhatIsOutLeavesTheEndpointAlone holds that where no attempt waits, none of the other deliveries comes
// before the time that their endpoint has asked for.
func TestARetryOfWhatIsOutLeavesTheEndpointAlone(t *testing.T) {
	h := newOJS(t, logging(fsm.LogAll))
	sub := h.ojsSub()
	h.attempted(sub, 7, 500)
	h.waits(sub, fsm.ConsumerID(sub.ID, "/jobs/a"), 7, func(c *fsm.Consumer) { c.Sent = true })
	if _, err := h.Store.FailEndpoint(t.Context(), sub, fsm.EndpointFailure{RetryAfter: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if a := h.API("POST", ojs.Deliveries+"/"+evt(7)+"/retry", ""); a.Status != http.StatusAccepted {
		t.Errorf("the retry: %d %s", a.Status, a.Text)
	}
	if e, now, _ := h.Store.Endpoints().Get(sub.Generation); !e.AskedToWait(now) {
		t.Errorf("the endpoint is %+v", e)
	}
}

// TestWhatNobodyKnowsOfOJSDeliveries holds the refusals, and that they say what the delivery log does not have.
func TestWhatNobodyKnowsOfOJSDeliveries(t *testing.T) {
	h := newOJS(t, logging(fsm.LogAll))
	sub := h.ojsSub()
	h.attempted(sub, 1, 500)
	for _, id := range []string{evt(2), "del_1", "evt_", "%65vt_0f9a5c1b7d3e2a4c6b80_1", sub.ID} {
		h.Want(h.API("GET", ojs.Deliveries+"/"+id, ""), 404, fsm.CodeNotFound, "no delivery with this id")
		h.Want(h.API("POST", ojs.Deliveries+"/"+id+"/retry", ""), 404, fsm.CodeNotFound, "no delivery with this id")
	}
	for query, says := range map[string]string{
		"status=good": "status must be success, failed or dead", "state=failed": `"state" is not a parameter`,
		"limit=0": "limit must be", "cursor=nope": "cursor must be",
		"cursor=" + paging.Place{After: "(+"}.String():              "cursor must be",
		"status=dead&cursor=" + paging.Place{After: "1-0"}.String(): "cursor must be",
	} {
		h.Want(h.API("GET", ojs.Deliveries+"?"+query, ""), 400, fsm.CodeInvalidRequest, says)
	}
	h.Want(h.API("GET", ojs.Deliveries+"/"+evt(1)+"?status=dead", ""), 400, fsm.CodeInvalidRequest, "not a parameter")
	h.Want(h.API("POST", ojs.Deliveries+"/"+evt(1)+"/retry", `{"now":true}`), 400, fsm.CodeInvalidRequest, `"now"`)
	h.Want(h.API("POST", ojs.Deliveries+"/"+evt(1)+"/retry", "", "Origin", app), 403, fsm.CodeForbidden, "")
	h.Want(h.API("DELETE", ojs.Deliveries+"/"+evt(1), ""), 405, fsm.CodeMethodNotAllowed, "")
	for _, path := range []string{"", "/" + evt(1)} {
		h.Want(h.API("GET", ojs.Deliveries+path+"?subscription_id=sub_1", ""), 404, fsm.CodeSubscriptionNotFound, "")
	}
	h.Store.Fail(fsm.ErrUnavailable)
	for _, path := range []string{"", "/" + evt(1)} {
		h.Want(h.API("GET", ojs.Deliveries+path, ""), 503, fsm.CodeUnavailable, "")
	}

	for mode, says := range map[fsm.DeliveryLog]map[string]string{
		fsm.LogOff:      {"": "is off", "status=success": "is off", "status=failed": "is off", "status=dead": ""},
		fsm.LogFailures: {"": "", "status=success": "is failures", "status=failed": "", "status=dead": ""},
	} {
		h := newOJS(t, logging(mode))
		for query, says := range says {
			a := h.API("GET", ojs.Deliveries+"?"+query, "")
			if says != "" {
				h.Want(a, 404, fsm.CodeNotFound, says)
			} else if a.Text != `{"deliveries":[]}`+"\n" {
				t.Errorf("with the log %s, ?%s: %d %s", mode, query, a.Status, a.Text)
			}
		}
		if mode == fsm.LogOff {
			h.Want(h.API("GET", ojs.Deliveries+"/"+evt(1), ""), 404, fsm.CodeNotFound, "REVEILLE_DELIVERY_LOG is off")
		}
	}
}

// TestARequestForOJSDeliveriesIsBounded holds that a request looks at no more than the latest attempts of all: one that
// is not among these is not said to be none, and of too many subscriptions one must be named.
func TestARequestForOJSDeliveriesIsBounded(t *testing.T) {
	h := newOJS(t, logging(fsm.LogAll))
	first := h.ojsSub()
	attempts := make([]fsm.LoggedAttempt, ojs.MaxLooks+15)
	for i := range attempts {
		attempts[i] = fsm.LoggedAttempt{
			At: h.Clock(), Stream: "/jobs/a", Consumer: fsm.ConsumerID(first.ID, "/jobs/a"), DeliveryID: evt(i / 11),
			Attempt: i%11 + 1, Result: "done", Status: 200,
		}
	}
	h.Store.DB.PutLogged(first, attempts...)
	more := first
	for i := range ojs.MaxSubscriptions {
		if i == ojs.MaxSubscriptions-1 {
			a := h.API("GET", ojs.Deliveries+"?limit=1000", "")
			if n := len(ports.RowsOf(a, "deliveries")); n != 910 || /* evt(1) to evt(910) */ a.Body["next"] != nil {
				t.Errorf("of %d subscriptions %d deliveries are listed: %s", ojs.MaxSubscriptions, n, a.Text)
			}
			h.Want(h.API("GET", ojs.Deliveries+"/"+evt(0), ""), 404, fsm.CodeNotFound, "?subscription_id=")
		}
		more.ID = fmt.Sprintf("sub_00000000-0000-7000-8000-%012d", i)
		more.Generation = more.ID
		h.Store.DB.PutSubscription(more)
	}
	h.Want(h.API("GET", ojs.Deliveries, ""), 400, fsm.CodeInvalidRequest, "?subscription_id=")
	h.Want(h.API("GET", ojs.Deliveries+"/"+evt(1), ""), 400, fsm.CodeInvalidRequest, "?subscription_id=")
	if a := h.API("GET", ojs.Deliveries+"/"+evt(1)+"?subscription_id="+first.ID, ""); a.Status != 200 {
		t.Errorf("of the one that is named: %d %s", a.Status, a.Text)
	}
}
