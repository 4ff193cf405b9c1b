package operator_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec"
	"reveille/fsm/spec/memstore"
	"reveille/httpapi"
	"reveille/httpapi/operator"
	"reveille/httpapi/web"
	"reveille/test/ports"
)

func TestHealthAndReadiness(t *testing.T) {
	h := newHarness(t, func(c *httpapi.Config) { c.Version = "1.2.3" })
	h.Store.Fail(fsm.ErrUnavailable)
	if a := h.Operator("GET", "/healthz", ""); a.Status != 200 {
		t.Fatal(a.Text)
	}
	h.Want(h.Operator("GET", "/readyz", ""), 503, fsm.CodeUnavailable, "not ready: redis: redis is not available")
	h.Store.Fail(nil)
	if a := h.Operator("GET", "/readyz", ""); a.Status != 200 {
		t.Fatal(a.Text)
	}
	if a := h.Operator("GET", "/api/v1/version", ""); strings.TrimSpace(a.Text) != `{"version":"1.2.3"}` {
		t.Fatal(a.Text)
	}
	h.Want(h.Operator("GET", "/nothing", ""), 404, fsm.CodeNotFound, "")
	h.Want(h.Operator("PATCH", "/api/v1/streams", ""), 405, fsm.CodeMethodNotAllowed, "")
}

func TestOperatorNamesStreams(t *testing.T) {
	many := func(n int) string {
		paths := make([]string, n)
		for i := range paths {
			paths[i] = fmt.Sprintf("/s/%d", i)
		}
		list, _ := json.Marshal(paths)
		return `{"streams":` + string(list) + `}`
	}
	for _, method := range []string{"POST", "DELETE"} {
		h := newHarness(t, nil)
		for body, says := range map[string]string{
			``: "not JSON", `[]`: "not a JSON object", `{}`: "streams is missing", `{"streams":"/a"}`: "streams must",
			`{"streams":["/a"],"stream":[],"x":1}`: `unknown field "stream", "x"; known are streams`,
			`{"streams":["/a",1]}`:                 "streams[1] must",
			`{"streams":["/a","b"]}`:               "streams[1]: not a stream path",
			`{"streams":["/a","/b?c"]}`:            "streams[1]", many(operator.MaxNamed + 1): "at most 10000",
		} {
			h.Want(h.Operator(method, "/api/v1/streams", body), 400, fsm.CodeInvalidRequest, says)
		}
		h.Want(h.Operator(method, "/api/v1/streams", strings.Repeat(" ", web.MaxBody+1)), 413, fsm.CodeBodyTooLarge, "")
		h.WantCalls()
		if a := h.Operator(
			method, "/api/v1/streams", `{"streams":["/a","/b c","/b%20c"]}`,
		); strings.TrimSpace(a.Text) != `{"streams":2}` {
			t.Fatal(a.Text)
		}
		h.WantCalls(map[string]string{"POST": "name [/a /b%20c]", "DELETE": "forget [/a /b%20c]"}[method])
		if a := h.Operator(method, "/api/v1/streams", many(operator.MaxNamed)); a.Status != 200 {
			t.Fatal(a.Text)
		}
		h.Rec.Err = fmt.Errorf("name: %w", fsm.ErrUnavailable)
		h.Want(h.Operator(method, "/api/v1/streams", `{"streams":["/a"]}`), 503, fsm.CodeUnavailable, "")
	}
}

func TestOperatorNamesAndForgetsOnlyStreams(t *testing.T) {
	h := newHarness(t, nil)
	for path, says := range map[string]string{
		"/..%2fx": "stream root", "/a/../../x": "stream root", "//x": "empty segment", "/a/__ds/b": "reserved",
		"/a/*": "wildcard", "/a#b": "\"#\"",
	} {
		for _, method := range []string{"POST", "DELETE"} {
			h.Want(h.Operator(method, "/api/v1/streams", `{"streams":["/a","`+path+`"]}`), 400, fsm.CodeInvalidRequest,
				"streams[1]: not a stream path: ")
			h.Want(h.Operator(method, "/api/v1/streams", `{"streams":["`+path+`"]}`), 400, fsm.CodeInvalidRequest, says)
		}
	}
	h.WantCalls()
}

func TestOperatorResumesASubscription(t *testing.T) {
	h := newHarness(t, nil)
	h.Want(h.Operator("POST", "/api/v1/subscriptions/a/resume", ""), 404, fsm.CodeSubscriptionNotFound, "")
	h.Want(h.Operator("POST", "/api/v1/subscriptions/a:b/resume", ""), 400, fsm.CodeInvalidSubscriptionID, "':'")
	sub := fsm.Subscription{ID: "a", Pattern: "/*"}
	h.Store.DB.PutSubscription(sub)
	for i := range 3 {
		c := spec.NewConsumer(sub, fmt.Sprint("/", i), fsm.Start, 0)
		c.Retired = i < 2
		h.Store.DB.PutConsumer(c)
	}
	for _, want := range []string{
		`{"subscription_id":"a","consumers":2}`, `{"subscription_id":"a","consumers":0}`,
	} {
		if a := h.Operator("POST", "/api/v1/subscriptions/a/resume", ""); a.Status != 200 ||
			strings.TrimSpace(a.Text) != want {
			t.Errorf("%d %s, want %s", a.Status, a.Text, want)
		}
	}
	h.Store.Fail(fsm.ErrUnavailable)
	h.Want(h.Operator("POST", "/api/v1/subscriptions/a/resume", ""), 503, fsm.CodeUnavailable, "")
}

func TestOperatorRetriesASubscription(t *testing.T) {
	h := newHarness(t, nil)
	h.Want(h.Operator("POST", "/api/v1/subscriptions/a/retry", ""), 404, fsm.CodeSubscriptionNotFound, "")
	h.Want(h.Operator("POST", "/api/v1/subscriptions/a:b/retry", ""), 400, fsm.CodeInvalidSubscriptionID, "':'")
	h.Want(h.Operator("POST", "/api/v1/subscriptions/a/retry", `{"all":true}`), 400, fsm.CodeInvalidRequest, "all")
	sub := fsm.Subscription{ID: "a", Generation: "g", Pattern: "/*"}
	h.Store.DB.PutSubscription(sub)
	store := h.Store.DB.Replica("other")
	for i, path := range []string{"/a", "/b", "/c"} {
		out, err := memstore.Link(t.Context(), store, sub, path, fsm.Start, "5")
		if err != nil || len(out.Deliveries) != 1 {
			t.Fatal(out, err)
		}
		if i > 0 { // the first is out
			first := out.Deliveries[0].Ref()
			if _, err := store.Fail(t.Context(), first, fsm.Failure{RetryAfter: time.Hour}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, want := range []string{
		`{"subscription_id":"a","consumers":2}`, `{"subscription_id":"a","consumers":0}`,
	} {
		if a := h.Operator("POST", "/api/v1/subscriptions/a/retry", ""); a.Status != 200 ||
			strings.TrimSpace(a.Text) != want {
			t.Errorf("%d %s, want %s", a.Status, a.Text, want)
		}
	}
	h.Store.Fail(fsm.ErrUnavailable)
	h.Want(h.Operator("POST", "/api/v1/subscriptions/a/retry", ""), 503, fsm.CodeUnavailable, "")
}

// TestOperatorPausesASubscription holds what a pause is answered and where it shows, and that neither a PATCH nor the
// same PUT ends it.
func TestOperatorPausesASubscription(t *testing.T) {
	h := newHarness(t, nil)
	const target, pause = "/a/*?subscription=a", "/api/v1/subscriptions/a/pause"
	h.Want(h.Operator("POST", pause, ""), 404, fsm.CodeSubscriptionNotFound, "")
	h.Want(h.Operator("POST", "/api/v1/subscriptions/a:b/pause", ""), 400, fsm.CodeInvalidSubscriptionID, "':'")
	h.Secret(fmt.Sprint(h.API("PUT", target, hook).Body["webhook_secret"]))
	h.Want(h.Operator("POST", pause, `{"all":true}`), 400, fsm.CodeInvalidRequest, "all")
	sub := h.Store.DB.Subscriptions()["a"]
	for i := range 3 {
		h.Store.DB.PutConsumer(spec.NewConsumer(sub, fmt.Sprint("/a/", i), fsm.Start, 0))
	}
	waiting := fsm.ConsumerID("a", "/a/0")
	h.Change(waiting, func(c *fsm.Consumer) { c.State, c.Deadline = fsm.Waking, h.Clock().Add(time.Minute) })
	shows := func(when string, paused, waitsFor any, blocked string) {
		t.Helper()
		for _, a := range []ports.Answer{
			h.API("GET", target, ""), h.API("PUT", target, hook), h.API("PATCH", target, `{"description":"d"}`),
			h.Operator("GET", "/api/v1/subscriptions/a", ""),
		} {
			if a.Status != 200 || a.Body["paused"] != paused {
				t.Errorf("%s: %d %s", when, a.Status, a.Text)
			}
		}
		rows := ports.RowsOf(h.Operator("GET", "/api/v1/subscriptions", ""), "subscriptions")
		if rows[0]["paused"] != paused {
			t.Errorf("%s it is listed as %v", when, rows[0])
		} else if since := rows[0]["paused_since"]; (since != nil) != (paused != nil) {
			t.Errorf("%s it is paused since %v", when, since)
		}
		if a := h.Operator("GET", "/api/v1/consumers/"+waiting, ""); a.Body["waits_for"] != waitsFor ||
			!strings.Contains(fmt.Sprint(a.Body["blocked"]), blocked) {
			t.Errorf("%s a consumer is %s", when, a.Text)
		}
	}
	shows("before", nil, "attempt", "<nil>")
	for _, again := range []string{"", "{}"} {
		if a := h.Operator("POST", pause, again); a.Status != 200 || a.Body["subscription_id"] != "a" ||
			a.Body["consumers"] != 3.0 {
			t.Errorf("paused: %d %s", a.Status, a.Text)
		}
		shows("paused", true, nil, "map[by:operator reason:paused]")
	}
	if a := h.Operator("POST", "/api/v1/subscriptions/a/resume", ""); a.Status != 200 {
		t.Errorf("resumed: %d %s", a.Status, a.Text)
	}
	shows("resumed", nil, "attempt", "<nil>")
	h.Store.Fail(fsm.ErrUnavailable)
	h.Want(h.Operator("POST", pause, ""), 503, fsm.CodeUnavailable, "")
}

// TestOperatorSeesWhoHasPausedASubscription holds that the list, and the answer about one, tell a pause by an operator
// from one by Reveille.
func TestOperatorSeesWhoHasPausedASubscription(t *testing.T) {
	h := newHarness(t, nil)
	h.Subscribe("a", 0)
	for _, c := range []struct {
		by               string
		paused, disabled bool
		wants            [2]any
	}{
		{"nobody", false, false, [2]any{nil, nil}},
		{"an operator", true, false, [2]any{true, nil}},
		{"Reveille", true, true, [2]any{true, true}},
	} {
		if _, err := h.Store.ChangeSubscription(t.Context(), "a", func(s fsm.Subscription) (fsm.Subscription, error) {
			s.Paused, s.Disabled = c.paused, c.disabled
			return s, nil
		}); err != nil {
			t.Fatal(err)
		}
		for _, row := range append(ports.RowsOf(h.Operator("GET", "/api/v1/subscriptions", ""), "subscriptions"),
			h.Operator("GET", "/api/v1/subscriptions/a", "").Body) {
			if got := [2]any{row["paused"], row["disabled"]}; got != c.wants {
				t.Errorf("paused by %s, it is shown as %v", c.by, row)
			}
		}
	}
}
