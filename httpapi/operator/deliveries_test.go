package operator_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/httpapi/control"
	"reveille/httpapi/paging"
	"reveille/test/ports"
)

// logged puts n attempts in the delivery log of a subscription, a minute after each other, up to now. Every third one
// has failed, and of five that follow each other each is of another stream.
func (h *harness) logged(sub fsm.Subscription, n int) {
	for i := range n {
		a := fsm.LoggedAttempt{
			At: h.Clock().Add(time.Duration(i-n+1) * time.Minute), Took: 1234567 * time.Nanosecond,
			Stream: fmt.Sprintf("/%s/%d", sub.ID, i%5), WakeID: fmt.Sprint("w_", i), DeliveryID: fmt.Sprint("evt_", i),
			Attempt: i%3 + 1, MaxAttempts: 9, Result: "done",
			Status: 204, Events: 1, Bytes: 99, From: fsm.Start.At(2, "0009"),
		}
		a.Consumer = fsm.ConsumerID(sub.ID, a.Stream)
		if i%3 == 2 {
			a.Result, a.Status, a.Class, a.Reason = "failed", 503, "unavailable", "status 503"
			a.Waited, a.Exchanged, a.Answer = 34*time.Microsecond, 1200*time.Microsecond, "over capacity"
			a.Remote, a.HTTP, a.TLS = "192.0.2.7:443", "1.1", "1.3"
		}
		h.Store.DB.PutLogged(sub, a)
	}
}

func TestOperatorListsDeliveries(t *testing.T) {
	h := newHarness(t, nil)
	sub := h.Subscribe("s", 1)
	h.logged(h.Subscribe("other", 1), 3)
	n := 3*control.AttemptsAtATime + 5 // more than the store returns at a time
	h.logged(sub, n)
	const list = "/api/v1/subscriptions/s/deliveries"
	var want, failed []string
	for i := range n {
		id := fmt.Sprint("evt_", n-1-i)
		want = append(want, id)
		if (n-1-i)%3 == 2 {
			failed = append(failed, id)
		}
	}
	for query, want := range map[string][]string{
		"": want, "result=failed,retired,dead": failed, "result=retired": nil, "result=done,failed": want,
		"stream=/s/0":         slices.DeleteFunc(slices.Clone(want), notOf(0)),
		"since=" + h.ago(4):   want[:5],
		"until=" + h.ago(n-4): want[n-3:],
		"status=503":          failed, "status=5xx": failed, "status=500": nil, "status=4xx": nil,
		"class=unavailable": failed, "class=timeout": nil, "class=unavailable&status=2xx": nil,
		"id=evt_7": {"evt_7"}, "id=w_7": {"evt_7"}, "id=evt_7&status=503": nil, "id=evt": nil,
		"since=" + h.ago(4) + "&stream=/s/0": slices.DeleteFunc(slices.Clone(want[:5]), notOf(0)),
	} {
		for _, limit := range []int{7, 100, 1000} {
			got, lengths := h.Pages(fmt.Sprintf("%s?limit=%d&%s", list, limit, query), "deliveries", "delivery_id")
			if !slices.Equal(got, want) || slices.Max(lengths) > limit {
				t.Errorf("?%s, %d at a time: pages of %v, with %q", query, limit, lengths, got)
			}
			if last := lengths[len(lengths)-1]; last == 0 && len(lengths) > 1 {
				t.Errorf("?%s, %d at a time: there is a page that is empty", query, limit)
			}
		}
	}
	last := n - n%3 - 1 // that has failed
	row := ports.RowsOf(h.Operator("GET", list+"?limit=1&result=failed", ""), "deliveries")[0]
	delete(row, "id")
	if !maps.Equal(row, map[string]any{
		"at":     h.Clock().Add(-time.Duration(n-1-last) * time.Minute).Format(time.RFC3339),
		"stream": fmt.Sprintf("/s/%d", last%5), "consumer_id": fmt.Sprintf("s:%%2Fs%%2F%d", last%5),
		"subscription_id": "s", "wake_id": fmt.Sprint("w_", last), "delivery_id": fmt.Sprint("evt_", last),
		"attempt": 3.0, "max_attempts": 9.0,
		"result": "failed", "status_code": 503.0, "class": "unavailable", "reason": "status 503", "took_ms": 1.234,
		"events": 1.0, "bytes": 99.0, "from": "-1", "skip": 2.0, "waited_ms": 0.034, "exchange_ms": 1.2,
		"remote_address": "192.0.2.7:443", "http_version": "1.1", "tls_version": "1.3",
		"response_body": "over capacity",
	}) {
		t.Errorf("one is shown as %v", row)
	}
	wakes := h.Subscribe("wakes", 1)
	h.Store.DB.PutLogged(wakes, fsm.LoggedAttempt{At: h.Clock(), WakeID: "w_1", DeliveryID: "w_1", Result: "accepted"})
	row = ports.RowsOf(h.Operator("GET", "/api/v1/subscriptions/wakes/deliveries", ""), "deliveries")[0]
	if row["wake_id"] != "w_1" || row["delivery_id"] != nil || row["events"] != nil || row["from"] != nil {
		t.Errorf("one of a wake is shown as %v", row)
	}
}

// TestTheDeliveriesOfManySubscriptionsAreAllListed holds that the pages of a list leave out no attempt, and show none
// twice, however many subscriptions there are, how quiet they are, and what comes meanwhile. No page looks at more logs
// than it may. The first attempts are the latest of all.
func TestTheDeliveriesOfManySubscriptionsAreAllListed(t *testing.T) {
	for name, some := range map[string]int{
		"few": 3, "as many as one page looks at": control.LogsAtATime, "one more": control.LogsAtATime + 1,
		"many": 2*control.LogsAtATime + 500,
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, nil)
			subs := make([]fsm.Subscription, some)
			for i := range subs {
				subs[i] = h.Subscribe(fmt.Sprintf("s%04d", i), 0)
			}
			drawn := rand.New(rand.NewPCG(1, uint64(some)))
			number := 0
			var all []fsm.LoggedAttempt
			log := func(sub fsm.Subscription) {
				if drawn.IntN(4) > 0 {
					h.Pass(time.Millisecond)
				}
				a := fsm.LoggedAttempt{
					At: h.Clock(), Stream: "/a", DeliveryID: fmt.Sprint("evt_", number),
					Result: []string{"done", "failed"}[drawn.IntN(20)/19], Subscription: sub.ID,
				}
				number++
				all = append(all, a)
				h.Store.DB.PutLogged(sub, a)
			}
			for range 2 * some {
				log(subs[drawn.IntN(some)])
			}
			middle := h.Clock()
			for range some {
				log(subs[some/2+drawn.IntN(some-some/2)]) // the others stay quiet
			}
			for query, takes := range map[string]func(fsm.LoggedAttempt) bool{
				"":              func(fsm.LoggedAttempt) bool { return true },
				"result=failed": func(a fsm.LoggedAttempt) bool { return a.Result == "failed" },
				"stored_since=" + middle.Format(time.RFC3339Nano): func(a fsm.LoggedAttempt) bool {
					return !a.At.Before(middle)
				},
			} {
				for _, busy := range []bool{false, true} {
					if !busy && (query != "" || some <= control.LogsAtATime+1) {
						continue
					}
					there, shown := len(all), map[string]int{}
					for next, pages := "", 0; pages == 0 || next != ""; pages++ {
						before := h.Store.DB.Calls("LoggedAttempts")
						a := h.Operator("GET", "/api/v1/deliveries?limit=600&"+query+"&cursor="+next, "")
						rows := ports.RowsOf(a, "deliveries")
						for i, row := range rows {
							shown[row["delivery_id"].(string)]++
							at, _ := time.Parse(time.RFC3339Nano, row["at"].(string))
							if pages == 0 && i == 0 && query == "" && !at.Equal(all[there-1].At) {
								t.Errorf("the first is %v, not of %s", row, all[there-1].At)
							}
						}
						// Few logs are read again.
						if calls := h.Store.DB.Calls("LoggedAttempts") - before; calls > 2+len(rows) {
							t.Errorf("a page with %d attempts takes %d calls", len(rows), calls)
						}
						next = ports.Next(a)
						if busy {
							for range max(3, some/2-200*pages) { // many logs get other places in the index at first
								log(subs[drawn.IntN(some)])
							}
						}
						if a.Status != 200 || pages > 1000 {
							t.Fatalf("page %d: %s", pages, a.Text)
						}
					}
					for _, a := range all[:there] {
						if n, want := shown[a.DeliveryID], takes(a); n > 1 || (n == 1) != want {
							t.Fatalf("?%s, busy %t: %+v is shown %d times", query, busy, a, n)
						}
					}
				}
			}
		})
	}
}

// TestOperatorListsTheDeliveriesOfAll holds that the attempts of all subscriptions are in one list, the latest first. A
// page begins behind the one before, whatever has come since.
func TestOperatorListsTheDeliveriesOfAll(t *testing.T) {
	h := newHarness(t, nil)
	var subs []fsm.Subscription
	for i := range 7 {
		subs = append(subs, h.Subscribe(fmt.Sprint("s", i), 1))
	}
	var want []string
	of := map[string][]string{}
	for i := range 3 * control.AttemptsAtATime {
		if i%9 == 0 { // several logs have an entry with the same ID
			h.Pass(time.Second)
		}
		sub := subs[i*i%7]
		id := fmt.Sprint("evt_", i)
		h.Store.DB.PutLogged(sub, fsm.LoggedAttempt{At: h.Clock(), Stream: "/a", DeliveryID: id, Result: "done"})
		of[sub.ID] = append([]string{id}, of[sub.ID]...)
	}
	const list = "/api/v1/deliveries"
	rows := ports.RowsOf(h.Operator("GET", list+"?limit=1000", ""), "deliveries")
	for i, row := range rows {
		want = append(want, row["delivery_id"].(string))
		if i > 0 {
			before := rows[i-1]
			if c := fsm.CompareLogIDs(before["id"].(string), row["id"].(string)); c < 0 ||
				c == 0 && before["subscription_id"].(string) >= row["subscription_id"].(string) {
				t.Errorf("%v comes before %v", before, row)
			}
		}
	}
	if len(want) != 3*control.AttemptsAtATime {
		t.Errorf("%d are listed", len(want))
	}
	for _, limit := range []int{7, 60, 250} {
		got, _ := h.Pages(fmt.Sprintf("%s?limit=%d&", list, limit), "deliveries", "delivery_id")
		if !slices.Equal(got, want) {
			t.Errorf("%d at a time: %q", limit, got)
		}
	}
	one, _ := h.Pages(list+"?limit=100&subscription=s1", "deliveries", "delivery_id")
	if !slices.Equal(one, of["s1"]) || len(one) == 0 {
		t.Errorf("of one: %q, want %q", one, of["s1"])
	}
	at, _ := time.Parse(time.RFC3339, rows[20]["at"].(string))
	since, _ := h.Pages(list+"?limit=100&stored_since="+at.UTC().Format(time.RFC3339), "deliveries", "delivery_id")
	if len(since) <= 20 || len(since) > 30 || !slices.Equal(since, want[:len(since)]) {
		t.Errorf("stored since %s are %q", at, since)
	}
	ofStream, _ := h.Pages(list+"?limit=1000&stream=/a", "deliveries", "delivery_id")
	if len(ofStream) != 0 { // which no pattern matches
		t.Errorf("of the stream: %q", ofStream)
	}
	first := h.Operator("GET", list+"?limit=2", "")
	h.Pass(time.Second)
	h.Store.DB.PutLogged(subs[3], fsm.LoggedAttempt{At: h.Clock(), DeliveryID: "evt_new", Result: "done"})
	next := ports.RowsOf(h.Operator("GET", list+"?limit=1&cursor="+first.Body["next"].(string), ""), "deliveries")
	if len(next) != 1 || next[0]["delivery_id"] != want[2] {
		t.Errorf("behind the first page is %v, want %s", next, want[2])
	}
	h.Want(h.Operator("GET", list+"?subscription=nobody", ""), 404, fsm.CodeSubscriptionNotFound, "")
}

// TestALongListOfDeliveriesComesInParts holds that a filter that nothing matches costs no request too much.
func TestALongListOfDeliveriesComesInParts(t *testing.T) {
	h := newHarness(t, nil)
	entries := make([]fsm.LoggedAttempt, paging.MaxCost+1)
	for i := range entries {
		entries[i] = fsm.LoggedAttempt{At: h.Clock(), DeliveryID: fmt.Sprint("evt_", i), Result: "done"}
	}
	h.Store.DB.PutLogged(h.Subscribe("s", 1), entries...)
	got, lengths := h.Pages("/api/v1/deliveries?id=evt_0", "deliveries", "delivery_id")
	if !slices.Equal(got, []string{"evt_0"}) || !slices.Equal(lengths, []int{0, 1}) {
		t.Errorf("pages of %v, with %q", lengths, got)
	}
}

// notOf says which deliveries are not of a stream.
func notOf(stream int) func(string) bool {
	return func(id string) bool {
		var n int
		_, _ = fmt.Sscanf(id, "evt_%d", &n)
		return n%5 != stream
	}
}

// ago is a time so many minutes ago, as a parameter.
func (h *harness) ago(minutes int) string {
	return url.QueryEscape(h.Clock().Add(-time.Duration(minutes) * time.Minute).Format(time.RFC3339))
}

func TestOperatorsRequestsForDeliveriesThatMeanNothingAreRefused(t *testing.T) {
	h := newHarness(t, nil)
	h.Subscribe("s", 1)
	for query, want := range map[string]string{
		"result=good": "result must be one or more, separated by commas, of abandoned, accepted, dead, done, failed, " +
			"retired",
		"result=done,":    "result must be",
		"result=held":     "result must be",
		"stream=s":        "stream:",
		"since=1h":        "since must be a time",
		"stored_since=1h": "stored_since must be a time",
		"until=today":     "until must be a time",
		"status=failed":   "status must be that of an answer",
		"status=50":       "status must be that of an answer",
		"kind=failed":     `"kind" is not a parameter`,
		"cursor=nope":     "cursor must be the next of an earlier answer",
		"cursor=" + paging.Place{After: "(+"}.String(): "cursor must be the next of an earlier answer",
	} {
		a := h.Operator("GET", "/api/v1/subscriptions/s/deliveries?"+query, "")
		code := fsm.CodeInvalidRequest
		if query == "stream=s" {
			code = fsm.CodeInvalidPath
		}
		h.Want(a, 400, code, want)
	}
	h.Want(h.Operator("GET", "/api/v1/subscriptions/nobody/deliveries", ""), 404, fsm.CodeSubscriptionNotFound, "")
	h.Store.Fail(fsm.ErrUnavailable)
	h.Want(h.Operator("GET", "/api/v1/subscriptions/s/deliveries", ""), 503, fsm.CodeUnavailable, "")
}
