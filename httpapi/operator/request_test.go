package operator_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec"
	"reveille/test/ports"
)

// TestOperatorSeesTheRequestOfAnAttempt holds which attempt is built again, and how it is shown.
func TestOperatorSeesTheRequestOfAnAttempt(t *testing.T) {
	h := newHarness(t, nil)
	h.Subscribe("s", 1)
	if err := h.Store.RefreshCatalog(t.Context()); err != nil {
		t.Fatal(err)
	}
	sub, _ := h.Store.Catalog().Get("s")
	sub.Mode, sub.Format = fsm.ModePush, fsm.FormatJSON
	h.Store.DB.PutSubscription(sub)
	const stream = "/s/0"
	consumer := spec.NewConsumer(sub, stream, "0009", 0)
	consumer.Born = 77
	h.Store.DB.PutConsumer(consumer)
	extent := fsm.Extent{Shape: "0123abcd", At: "0007", Span: 2}
	entry := func(attempt int, consumer, stream string) fsm.LoggedAttempt {
		return fsm.LoggedAttempt{
			At: h.Clock().Add(time.Duration(attempt) * time.Second), Stream: stream, Consumer: consumer, WakeID: "w_1",
			DeliveryID: "evt_1", Attempt: attempt, Result: "failed", Bytes: 7, Extent: extent,
		}
	}
	h.Store.DB.PutLogged(sub, entry(1, consumer.ID, stream), entry(2, fsm.AsideID(consumer.ID, 9), stream),
		fsm.LoggedAttempt{
			At: h.Clock().Add(time.Minute), Stream: "/s/gone", Consumer: "s:%2Fs%2Fgone", WakeID: "w_2",
			DeliveryID: "evt_2", Bytes: 1, Result: "done",
		})
	rows := ports.RowsOf(h.Operator("GET", "/api/v1/subscriptions/s/deliveries?id=evt_1", ""), "deliveries")
	const path = "/api/v1/subscriptions/s/deliveries/evt_1/request"
	h.Rebuilder.Result = fsm.SentRequest{
		Method: "POST", URL: "https://w.example/[masked]", At: h.Clock(), Body: []byte(`{"a":"<b>"}`), Size: 11,
		Header: map[string][]string{"Webhook-Signature": {"[masked]"}, "Content-Type": {"text/plain", "x"}},
	}
	for query, want := range map[string]int{
		"": 2, "?attempt=" + rows[0]["id"].(string): 2, "?attempt=" + rows[1]["id"].(string): 1,
	} {
		h.Rebuilder.Rebuilt, h.Rebuilder.Born = nil, nil
		a := h.Operator("GET", path+query, "")
		if a.Status != 200 || a.Body["attempt"] != float64(want) || a.Body["body"] != `{"a":"<b>"}` ||
			a.Body["subscription_id"] != "s" || a.Body["delivery_id"] != "evt_1" || a.Body["url"] !=
			"https://w.example/[masked]" || a.Body["sent_at"] != h.Clock().Format(time.RFC3339) ||
			a.Body["method"] != "POST" || a.Body["bytes"] != 11.0 || a.Body["body_base64"] != nil {
			t.Errorf("%q: %d %s", query, a.Status, a.Text)
		}
		if headers, _ := json.Marshal(a.Body["headers"]); string(headers) != `[{"name":"Content-Type",`+
			`"value":"text/plain, x"},{"name":"Webhook-Signature","value":"[masked]"}]` {
			t.Errorf("the headers are %s", headers)
		}
		// An aside has the Born of its consumer.
		if r := h.Rebuilder; len(r.Rebuilt) != 1 || r.Rebuilt[0].Attempt != want || r.Rebuilt[0].Extent.Span != 2 ||
			r.Born[0] != 77 {
			t.Errorf("%q: built again is %+v, born %v", query, r.Rebuilt, r.Born)
		}
	}
	h.Rebuilder.Result.Body = []byte{0xff, 0}
	if a := h.Operator("GET", path, ""); a.Body["body"] != "" || a.Body["body_base64"] != "/wA=" {
		t.Errorf("bytes are shown as %s", a.Text)
	}
	const of = "/api/v1/subscriptions/"
	h.Want(h.Operator("GET", of+"none/deliveries/evt_1/request", ""), 404, fsm.CodeSubscriptionNotFound, "")
	h.Want(h.Operator("GET", of+"s/deliveries/evt_3/request", ""), 404, fsm.CodeNotFound, "(any more)")
	h.Want(h.Operator("GET", of+"s/deliveries/w_1/request", ""), 404, fsm.CodeNotFound, "(any more)")
	h.Want(h.Operator("GET", path+"?attempt=1-1", ""), 404, fsm.CodeNotFound, "(any more)")
	h.Want(h.Operator("GET", path+"?attempt=x", ""), 400, fsm.CodeInvalidRequest, "attempt must be")
	h.Want(h.Operator("GET", path+"?limit=1", ""), 400, fsm.CodeInvalidRequest, `"limit"`)
	h.Want(h.Operator("POST", path, ""), 405, fsm.CodeMethodNotAllowed, "")
	h.Want(h.Operator("GET", of+"s/deliveries/evt_2/request", ""), 410, fsm.CodeEventsGone, "no consumer")
	for code, status := range map[fsm.Code]int{
		fsm.CodeRequestUnknown: 409, fsm.CodeEventsGone: 410, fsm.CodeEventsChanged: 409,
		fsm.CodeSubscriptionChanged: 409, fsm.CodeUpstreamUnavailable: 502, fsm.CodeUnavailable: 503,
	} {
		h.Rebuilder.Err = &fsm.NotRebuiltError{Code: code, Why: "100 % why"}
		h.Want(h.Operator("GET", path, ""), status, code, "100 % why")
	}
	h.Rebuilder.Err = &fsm.NotRebuiltError{Code: fsm.CodeTooManyRequests, Why: "later"}
	if a := h.Operator("GET", path, ""); a.Status != http.StatusTooManyRequests ||
		a.Header.Get("Retry-After") != "1" || a.Code() != string(fsm.CodeTooManyRequests) {
		t.Errorf("while it is busy: %d, again after %q, %s", a.Status, a.Header.Get("Retry-After"), a.Text)
	}
	h.Store.Fail(fsm.ErrUnavailable)
	h.Want(h.Operator("GET", path, ""), 503, fsm.CodeUnavailable, "")
}
