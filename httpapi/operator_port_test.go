package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/fsm/memstore"
	"reveille/httpapi/web"
)

func TestHealthAndReadiness(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.Version = "1.2.3" })
	h.store.fail(fsm.ErrUnavailable)
	if a := h.operator("GET", "/healthz", ""); a.status != 200 {
		t.Fatal(a.text)
	}
	h.want(h.operator("GET", "/readyz", ""), 503, fsm.CodeUnavailable, "not ready: redis: redis is not available")
	h.store.fail(nil)
	if a := h.operator("GET", "/readyz", ""); a.status != 200 {
		t.Fatal(a.text)
	}
	if a := h.operator("GET", "/api/v1/version", ""); strings.TrimSpace(a.text) != `{"version":"1.2.3"}` {
		t.Fatal(a.text)
	}
	h.want(h.operator("GET", "/nothing", ""), 404, fsm.CodeNotFound, "")
	h.want(h.operator("PATCH", "/api/v1/streams", ""), 405, fsm.CodeMethodNotAllowed, "")
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
			`{"streams":["/a","/b?c"]}`:            "streams[1]", many(MaxNamed + 1): "at most 10000",
		} {
			h.want(h.operator(method, "/api/v1/streams", body), 400, fsm.CodeInvalidRequest, says)
		}
		h.want(h.operator(method, "/api/v1/streams", strings.Repeat(" ", web.MaxBody+1)), 413, fsm.CodeBodyTooLarge, "")
		h.wantCalls()
		if a := h.operator(
			method, "/api/v1/streams", `{"streams":["/a","/b c","/b%20c"]}`,
		); strings.TrimSpace(a.text) != `{"streams":2}` {
			t.Fatal(a.text)
		}
		h.wantCalls(map[string]string{"POST": "name [/a /b%20c]", "DELETE": "forget [/a /b%20c]"}[method])
		if a := h.operator(method, "/api/v1/streams", many(MaxNamed)); a.status != 200 {
			t.Fatal(a.text)
		}
		h.rec.err = fmt.Errorf("name: %w", fsm.ErrUnavailable)
		h.want(h.operator(method, "/api/v1/streams", `{"streams":["/a"]}`), 503, fsm.CodeUnavailable, "")
	}
}

func TestOperatorNamesAndForgetsOnlyStreams(t *testing.T) {
	h := newHarness(t, nil)
	for path, says := range map[string]string{
		"/..%2fx": "stream root", "/a/../../x": "stream root", "//x": "empty segment", "/a/__ds/b": "reserved",
		"/a/*": "wildcard", "/a#b": "\"#\"",
	} {
		for _, method := range []string{"POST", "DELETE"} {
			h.want(h.operator(method, "/api/v1/streams", `{"streams":["/a","`+path+`"]}`), 400, fsm.CodeInvalidRequest,
				"streams[1]: not a stream path: ")
			h.want(h.operator(method, "/api/v1/streams", `{"streams":["`+path+`"]}`), 400, fsm.CodeInvalidRequest, says)
		}
	}
	h.wantCalls()
}

func TestOperatorResumesASubscription(t *testing.T) {
	h := newHarness(t, nil)
	h.want(h.operator("POST", "/api/v1/subscriptions/a/resume", ""), 404, fsm.CodeSubscriptionNotFound, "")
	h.want(h.operator("POST", "/api/v1/subscriptions/a:b/resume", ""), 400, fsm.CodeInvalidSubscriptionID, "':'")
	sub := fsm.Subscription{ID: "a", Pattern: "/*"}
	h.store.db.PutSubscription(sub)
	for i := range 3 {
		c := fsm.NewConsumer(sub, fmt.Sprint("/", i), fsm.Start, 0)
		c.Retired = i < 2
		h.store.db.PutConsumer(c)
	}
	for _, want := range []string{
		`{"subscription_id":"a","consumers":2}`, `{"subscription_id":"a","consumers":0}`,
	} {
		if a := h.operator("POST", "/api/v1/subscriptions/a/resume", ""); a.status != 200 ||
			strings.TrimSpace(a.text) != want {
			t.Errorf("%d %s, want %s", a.status, a.text, want)
		}
	}
	h.store.fail(fsm.ErrUnavailable)
	h.want(h.operator("POST", "/api/v1/subscriptions/a/resume", ""), 503, fsm.CodeUnavailable, "")
}

func TestOperatorRetriesASubscription(t *testing.T) {
	h := newHarness(t, nil)
	h.want(h.operator("POST", "/api/v1/subscriptions/a/retry", ""), 404, fsm.CodeSubscriptionNotFound, "")
	h.want(h.operator("POST", "/api/v1/subscriptions/a:b/retry", ""), 400, fsm.CodeInvalidSubscriptionID, "':'")
	h.want(h.operator("POST", "/api/v1/subscriptions/a/retry", `{"all":true}`), 400, fsm.CodeInvalidRequest, "all")
	sub := fsm.Subscription{ID: "a", Generation: "g", Pattern: "/*"}
	h.store.db.PutSubscription(sub)
	store := h.store.db.Replica("other")
	for i, path := range []string{"/a", "/b", "/c"} {
		out, err := memstore.Link(t.Context(), store, sub, path, fsm.Start, "5")
		if err != nil || len(out.Wakes) != 1 {
			t.Fatal(out, err)
		}
		if i > 0 { // the first is out
			if _, err := store.Fail(t.Context(), out.Wakes[0].Ref(), fsm.Failure{RetryAfter: time.Hour}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, want := range []string{
		`{"subscription_id":"a","consumers":2}`, `{"subscription_id":"a","consumers":0}`,
	} {
		if a := h.operator("POST", "/api/v1/subscriptions/a/retry", ""); a.status != 200 ||
			strings.TrimSpace(a.text) != want {
			t.Errorf("%d %s, want %s", a.status, a.text, want)
		}
	}
	h.store.fail(fsm.ErrUnavailable)
	h.want(h.operator("POST", "/api/v1/subscriptions/a/retry", ""), 503, fsm.CodeUnavailable, "")
}

// TestOperatorPausesASubscription holds what a pause is answered and where it shows, and that neither a PATCH nor the
// same PUT ends it.
func TestOperatorPausesASubscription(t *testing.T) {
	h := newHarness(t, nil)
	const target, pause = "/a/*?subscription=a", "/api/v1/subscriptions/a/pause"
	h.want(h.operator("POST", pause, ""), 404, fsm.CodeSubscriptionNotFound, "")
	h.want(h.operator("POST", "/api/v1/subscriptions/a:b/pause", ""), 400, fsm.CodeInvalidSubscriptionID, "':'")
	h.secret(fmt.Sprint(h.api("PUT", target, hook).body["webhook_secret"]))
	h.want(h.operator("POST", pause, `{"all":true}`), 400, fsm.CodeInvalidRequest, "all")
	sub := h.store.db.Subscriptions()["a"]
	for i := range 3 {
		h.store.db.PutConsumer(fsm.NewConsumer(sub, fmt.Sprint("/a/", i), fsm.Start, 0))
	}
	waiting := fsm.ConsumerID("a", "/a/0")
	h.change(waiting, func(c *fsm.Consumer) { c.State, c.Deadline = fsm.Waking, h.clock().Add(time.Minute) })
	shows := func(when string, paused any, waitsFor string) {
		t.Helper()
		for _, a := range []answer{
			h.api("GET", target, ""), h.api("PUT", target, hook), h.api("PATCH", target, `{"description":"d"}`),
			h.operator("GET", "/api/v1/subscriptions/a", ""),
		} {
			if a.status != 200 || a.body["paused"] != paused {
				t.Errorf("%s: %d %s", when, a.status, a.text)
			}
		}
		rows := rowsOf(h.operator("GET", "/api/v1/subscriptions", ""), "subscriptions")
		if rows[0]["paused"] != paused {
			t.Errorf("%s it is listed as %v", when, rows[0])
		} else if since := rows[0]["paused_since"]; (since != nil) != (paused != nil) {
			t.Errorf("%s it is paused since %v", when, since)
		}
		if a := h.operator("GET", "/api/v1/consumers/"+waiting, ""); a.body["waits_for"] != waitsFor {
			t.Errorf("%s a consumer is %s", when, a.text)
		}
	}
	shows("before", nil, "attempt")
	for _, again := range []string{"", "{}"} {
		if a := h.operator("POST", pause, again); a.status != 200 || a.body["subscription_id"] != "a" ||
			a.body["consumers"] != 3.0 {
			t.Errorf("paused: %d %s", a.status, a.text)
		}
		shows("paused", true, "resumption")
	}
	if a := h.operator("POST", "/api/v1/subscriptions/a/resume", ""); a.status != 200 {
		t.Errorf("resumed: %d %s", a.status, a.text)
	}
	shows("resumed", nil, "attempt")
	h.store.fail(fsm.ErrUnavailable)
	h.want(h.operator("POST", pause, ""), 503, fsm.CodeUnavailable, "")
}

func TestConfigIsChecked(t *testing.T) {
	whole := newHarness(t, nil).svc.cfg
	for field, spoil := range map[string]func(*Config){
		"Store": func(c *Config) { c.Store = nil }, "Upstream": func(c *Config) { c.Upstream = nil },
		"Streams": func(c *Config) { c.Streams = nil }, "Outcomes": func(c *Config) { c.Outcomes = nil },
		"Targets": func(c *Config) { c.Targets = nil }, "Tester": func(c *Config) { c.Tester = nil },
		"Tokens": func(c *Config) { c.Tokens = nil },
		"Ready":  func(c *Config) { c.Ready = nil }, "Logger": func(c *Config) { c.Logger = nil },
		"UpstreamURL": func(c *Config) { c.Gateway = true }, "BodyTimeout": func(c *Config) { c.BodyTimeout = -1 },
	} {
		cfg := whole
		spoil(&cfg)
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), field) {
			t.Fatalf("%s: %v", field, err)
		}
	}
}

func TestErrorsAreAnswered(t *testing.T) {
	h := newHarness(t, nil)
	for want, err := range map[fsm.Code]error{
		fsm.CodeUnavailable: context.DeadlineExceeded, fsm.CodeSubscriptionConflict: &fsm.ConflictError{},
		fsm.CodeInternal: errors.New("boom"),
	} {
		if got := h.svc.refusalFor(err).Code; got != want {
			t.Fatalf("%v: got %s, want %s", err, got, want)
		}
	}
}
