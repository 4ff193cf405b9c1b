package operator_test

import (
	"fmt"
	"maps"
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
			Attempt: i%3 + 1, Result: "done", Status: 204, Events: 1, Bytes: 99, From: fsm.Start.At(2, "0009"),
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
		"wake_id": fmt.Sprint("w_", last), "delivery_id": fmt.Sprint("evt_", last), "attempt": 3.0,
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
		"result=done,":  "result must be",
		"result=held":   "result must be",
		"stream=s":      "stream:",
		"since=1h":      "since must be a time",
		"until=today":   "until must be a time",
		"status=failed": "status must be that of an answer",
		"status=50":     "status must be that of an answer",
		"kind=failed":   `"kind" is not a parameter`,
		"cursor=nope":   "cursor must be the next of an earlier answer",
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
