package operator_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/fsm/spec"
	"reveille/httpapi"
	"reveille/httpapi/operator"
	"reveille/httpapi/paging"
	"reveille/test/ports"
)

func TestOperatorListsConsumersPageByPage(t *testing.T) {
	h := newHarness(t, nil)
	var want []string
	for id, n := range map[string]int{"a": 25, "b": 0, "c": 13} {
		h.Subscribe(id, n)
		for i := range n {
			want = append(want, fsm.ConsumerID(id, fmt.Sprintf("/%s/%d", id, i)))
		}
	}
	// One of an earlier subscription of the same ID is nobody's any more.
	h.Store.DB.PutConsumer(spec.NewConsumer(fsm.Subscription{ID: "a", Generation: "old"}, "/old", fsm.Start, 0))
	slices.Sort(want)
	for _, limit := range []int{1, 2, 7, 38, 1000} {
		got, lengths := h.Pages(fmt.Sprintf("/api/v1/consumers?limit=%d", limit), "consumers", "consumer_id")
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("limit %d: got %q, want %q", limit, got, want)
		}
		if slices.Max(lengths) > limit {
			t.Errorf("limit %d: pages of %v", limit, lengths)
		}
	}
	got, _ := h.Pages("/api/v1/consumers?limit=5&subscription=c", "consumers", "subscription_id")
	if len(got) != 13 || slices.ContainsFunc(got, func(s string) bool { return s != "c" }) {
		t.Errorf("those of one subscription: %q", got)
	}
}

func TestAPageOfConsumersThatFindsNothingIsBounded(t *testing.T) {
	h := newHarness(t, nil)
	h.Store.DB.SetBatch(operator.ScanBatch)
	h.Subscribe("a", paging.MaxCost+paging.MaxCost/5)
	a := h.Operator("GET", "/api/v1/consumers?state=live", "")
	most := paging.MaxCost/operator.ScanBatch + ports.Partitions
	if h.Store.DB.Calls("ScanConsumers") > most || a.Body["next"] == nil ||
		len(ports.RowsOf(a, "consumers")) != 0 {
		t.Errorf("%d calls of the store, and the answer is %s", h.Store.DB.Calls("ScanConsumers"), a.Text)
	}
	if got, _ := h.Pages("/api/v1/consumers?state=live", "consumers", "consumer_id"); len(got) != 0 {
		t.Errorf("got %q", got)
	}
}

// states sets up one consumer of each kind.
func (h *harness) states() {
	sub := h.Subscribe("a", 6)
	now, timing := h.Clock(), fsm.Timing{
		Waking: 10 * time.Second, Liveness: 45 * time.Second,
		GoneGrace: 30 * time.Second, GCAfter: 72 * time.Hour,
	}
	env := spec.Env{Now: now, WakeID: "w_1", Timing: timing}
	wake := func(i int) (fsm.Consumer, fsm.DeliveryRef) {
		id := fsm.ConsumerID(sub.ID, fmt.Sprintf("/a/%d", i))
		c, _ := h.Store.Lookup(id)
		c, e := spec.Observe(c, env, fmt.Sprintf("/a/%d", i), "0007")
		return c, e.Delivery.Ref()
	}
	c, _ := wake(1)
	h.Store.DB.PutConsumer(c)
	c, r := wake(2)
	c, _ = spec.Accept(c, env, r)
	h.Store.DB.PutConsumer(c)
	c, r = wake(3)
	c, _ = spec.Fail(c, env, r, fsm.Failure{Reason: "status 503"})
	h.Store.DB.PutConsumer(c)
	c, r = wake(4)
	c, _ = spec.Fail(c, env, r, fsm.Failure{Reason: "status 410", Retired: true})
	h.Store.DB.PutConsumer(c)
	h.Change("a:%2Fa%2F5", func(c *fsm.Consumer) { *c, _ = spec.Hide(*c, env, fsm.MissingAnew) })
}

func TestOperatorSeesTheFormatOfAPush(t *testing.T) {
	h := newHarness(t, nil)
	h.Subscribe("wakes", 0)
	a := h.API("PUT", "/a/*?subscription=pushes",
		`{"webhook":"https://w.example/hook","mode":"push","format":"cloudevents"}`)
	h.Secret(a.Body["webhook_secret"].(string))
	for id, want := range map[string]any{"wakes": nil, "pushes": "cloudevents"} {
		if a := h.Operator("GET", "/api/v1/subscriptions/"+id, ""); a.Status != 200 || a.Body["format"] != want {
			t.Errorf("%s is shown as %s", id, a.Text)
		}
	}
}

func TestOperatorSeesWhatStepsAside(t *testing.T) {
	h := newHarness(t, nil)
	sub := h.Subscribe("a", 1)
	env := spec.Env{Now: h.Clock(), WakeID: "w_1", AsideWakeID: "w_2", Timing: fsm.Timing{Waking: time.Minute}}
	c, _ := h.Store.Lookup(fsm.ConsumerID(sub.ID, "/a/0"))
	c, e := spec.Observe(c, env, "/a/0", "0007")
	c, e = spec.Fail(c, env, e.Delivery.Ref(), fsm.Failure{
		Reason: "status 503", To: "0007", Within: "0006", Tail: "0007",
		Profile: fsm.Subscription{Mode: fsm.ModePush, Ordering: fsm.OrderingNone}.WithDefaults().Profile(),
	})
	h.Store.DB.PutConsumer(c)
	h.Store.DB.PutConsumer(*e.Aside)
	const id = "a:%2Fa%2F0"
	if a := h.Operator("GET", "/api/v1/consumers/"+id, ""); a.Body["asides"] != 1.0 || a.Body["aside_of"] != nil {
		t.Errorf("its consumer is shown as %s", a.Text)
	}
	a := h.Operator("GET", "/api/v1/consumers/"+e.Aside.ID, "")
	if s := ports.RowsOf(a, "streams"); a.Body["aside_of"] != id || a.Body["condition"] != "failing" || len(s) != 1 ||
		s[0]["tail"] != "0006" {
		t.Errorf("it is shown as %s", a.Text)
	}
	found := 0
	for _, row := range ports.RowsOf(h.Operator("GET", "/api/v1/consumers?state=failing", ""), "consumers") {
		if found++; row["consumer_id"] != e.Aside.ID || row["aside_of"] != id {
			t.Errorf("the list has %v", row)
		}
	}
	if found != 1 {
		t.Errorf("the list has %d", found)
	}
	for _, bad := range []string{id + ":", id + ":x", id + ":01"} {
		h.Want(h.Operator("GET", "/api/v1/consumers/"+bad, ""), 400, fsm.CodeInvalidRequest, "consumer id")
	}
	h.Want(h.Operator("GET", "/api/v1/consumers/"+id+":77", ""), 404, fsm.CodeNotFound, "no consumer")
}

func TestOperatorSeesWhatConsumersAreLike(t *testing.T) {
	h := newHarness(t, nil)
	h.states()
	at := func(d time.Duration) string { return h.Clock().Add(d).Format(time.RFC3339) }
	for _, c := range []struct {
		n    int
		want map[string]any
	}{
		{0, map[string]any{"state": "idle", "condition": "ok", "wake_id": nil, "deadline": nil, "waits_for": nil}},
		{1, map[string]any{
			"state": "waking", "condition": "ok", "epoch": 1.0, "wake_id": "w_1", "attempt": 1.0,
			"deadline": at(10 * time.Second), "waits_for": "answer",
		}},
		{2, map[string]any{
			"state": "live", "condition": "ok", "deadline": at(45 * time.Second),
			"waits_for": "callback",
		}},
		{3, map[string]any{
			"state": "waking", "condition": "failing", "last_error": "status 503",
			"failing_since": at(0), "waits_for": "attempt",
		}},
		{4, map[string]any{
			"state": "waking", "condition": "retired", "last_error": "status 410", "deadline": nil,
			"waits_for": nil,
		}},
		{5, map[string]any{
			"state": "idle", "condition": "hidden", "hidden_since": at(0), "waits_for": "stream",
			"deadline": at(30 * time.Second),
		}},
	} {
		a := h.Operator("GET", fmt.Sprintf("/api/v1/consumers/a:%%2Fa%%2F%d", c.n), "")
		c.want["consumer_id"], c.want["primary_stream"], c.want["subscription_id"] = fmt.Sprintf("a:%%2Fa%%2F%d", c.n),
			fmt.Sprintf("/a/%d", c.n), "a"
		c.want["as_of"] = at(0)
		for field, want := range c.want {
			if a.Body[field] != want {
				t.Errorf("consumer %d: %s is %v, want %v: %s", c.n, field, a.Body[field], want, a.Text)
			}
		}
		pending := c.n != 0 && c.n != 5
		s := ports.RowsOf(a, "streams")
		if len(s) != 1 || s[0]["path"] != fmt.Sprintf("/a/%d", c.n) || s[0]["acked"] != "-1" ||
			s[0]["pending"] != pending {
			t.Errorf("consumer %d: streams %v", c.n, s)
		}
	}
	for state, want := range map[string]string{
		"idle": "05", "waking": "134", "live": "2", "failing": "3",
		"retired": "4", "hidden": "5",
	} {
		got := ""
		for _, row := range ports.RowsOf(h.Operator("GET", "/api/v1/consumers?state="+state, ""), "consumers") {
			path, _ := row["primary_stream"].(string)
			got += strings.TrimPrefix(path, "/a/")
		}
		chars := []rune(got)
		slices.Sort(chars)
		if string(chars) != want {
			t.Errorf("%s: got the consumers %s, want %s", state, string(chars), want)
		}
	}
}

func TestOperatorSeesSubscriptionsWithoutTheirSecrets(t *testing.T) {
	h := newHarness(t, nil)
	h.states()
	h.Subscribe("b", 5)
	c := h.Subscribe("c", 0)
	c.Start = fsm.Start
	h.Store.DB.PutSubscription(c.WithDefaults())
	h.Subscribe("d", 2)
	h.Change("d:%2Fd%2F1", func(c *fsm.Consumer) { c.FirstFailure = h.Clock() })
	h.Subscribe("many", 1000)
	h.Change("many:%2Fmany%2F731", func(c *fsm.Consumer) { c.FirstFailure = h.Clock() })
	h.Store.DB.SetBackfill(fsm.Subscription{ID: "b"}, &fsm.Backfill{Done: 3, Total: 9})
	a := h.Operator("GET", "/api/v1/subscriptions", "")
	for _, secret := range []string{"whsec_", "key-of-the-webhook", "/hook", "g-a"} {
		if strings.Contains(a.Text, secret) {
			t.Errorf("the list shows %q", secret)
		}
	}
	var got []string
	for _, row := range ports.RowsOf(a, "subscriptions") {
		got = append(got, fmt.Sprintln(row["subscription_id"], row["pattern"], row["mode"], row["start"],
			row["webhook_host"], row["consumers"], row["pending"], row["condition"]))
	}
	want := []string{
		"a /a/* wake <nil> user.example.com:8443 6 3 retired\n", "b /b/* wake <nil> user.example.com:8443 5 0 ok\n",
		"c /c/* wake -1 user.example.com:8443 0 0 ok\n",
		"d /d/* wake <nil> user.example.com:8443 2 0 failing\n",
		"many /many/* wake <nil> user.example.com:8443 1000 0 failing\n",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if b, _ := ports.RowsOf(a, "subscriptions")[1]["backfill"].(map[string]any); b["done"] != 3.0 || b["total"] != 9.0 {
		t.Errorf("backfill %v", b)
	}
	if ids, lengths := h.Pages(
		"/api/v1/subscriptions?limit=2", "subscriptions", "subscription_id",
	); strings.Join(ids, " ") != "a b c d many" || fmt.Sprint(lengths) != "[2 2 1]" {
		t.Errorf("by pages: %q, %v", ids, lengths)
	}
	one := h.Operator("GET", "/api/v1/subscriptions/a", "")
	if states := fmt.Sprint(one.Body["states"]); states != "map[failing:1 hidden:1 idle:2 live:1 retired:1 waking:3]" ||
		one.Body["condition"] != "retired" || one.Body["failing_since"] != h.Clock().Format(time.RFC3339) ||
		one.Body["as_of"] != h.Clock().Format(time.RFC3339) {
		t.Errorf("one of them: %s", one.Text)
	}
	for i, row := range ports.RowsOf(a, "subscriptions") {
		one := h.Operator("GET", fmt.Sprint("/api/v1/subscriptions/", row["subscription_id"]), "")
		for field, value := range row {
			if fmt.Sprint(one.Body[field]) != fmt.Sprint(value) {
				t.Errorf("row %d: %s is %v, by itself %v", i, field, value, one.Body[field])
			}
		}
	}
}

// TestAFailureIsToldOfTheConsumerThatHasFailedForLongest holds which time and error a subscription shows.
func TestAFailureIsToldOfTheConsumerThatHasFailedForLongest(t *testing.T) {
	h := newHarness(t, nil)
	h.Subscribe("a", 40)
	for i, ago := range []time.Duration{time.Minute, time.Hour, time.Second} {
		h.Change(fmt.Sprintf("a:%%2Fa%%2F%d", 7*i), func(c *fsm.Consumer) {
			c.FirstFailure, c.LastError = h.Clock().Add(-ago), "failing for "+ago.String()
		})
	}
	h.Change("a:%2Fa%2F39", func(c *fsm.Consumer) { // which fails for longer, but is not delivered to
		c.FirstFailure, c.LastError, c.HiddenAt = h.Clock().Add(-2*time.Hour), "hidden", h.Clock()
	})
	row := ports.RowsOf(h.Operator("GET", "/api/v1/subscriptions", ""), "subscriptions")[0]
	if row["failing_since"] != h.Clock().Add(-time.Hour).Format(time.RFC3339) ||
		row["last_error"] != "failing for 1h0m0s" ||
		fmt.Sprint(row["states"]) != "map[failing:3 hidden:1 idle:40]" {
		t.Errorf("it is shown as %v", row)
	}
}

// TestOperatorSeesEndpointsInTrouble holds that a subscription shows what its endpoint is like, even if nothing is
// wrong with the consumers that were looked at.
func TestOperatorSeesEndpointsInTrouble(t *testing.T) {
	h := newHarness(t, nil)
	fails := func(sub fsm.Subscription, times int, f fsm.EndpointFailure) {
		for range times {
			if _, err := h.Store.FailEndpoint(t.Context(), sub, f); err != nil {
				t.Fatal(err)
			}
		}
	}
	fails(h.Subscribe("down", 1), fsm.DownAfter, fsm.EndpointFailure{})
	fails(h.Subscribe("failing", 1), fsm.DownAfter-1, fsm.EndpointFailure{})
	h.Change("failing:%2Ffailing%2F0", func(c *fsm.Consumer) { c.FirstFailure = h.Clock() })
	h.Subscribe("ok", 1)
	fails(h.Subscribe("refusing", 1), 1, fsm.EndpointFailure{Refused: true, Reason: "status 404"})
	fails(h.elsewhere("asked_to_wait"), 1, fsm.EndpointFailure{RetryAfter: time.Minute})
	fails(h.Subscribe("retired", 1), fsm.DownAfter, fsm.EndpointFailure{})
	h.Change("retired:%2Fretired%2F0", func(c *fsm.Consumer) { c.State, c.Retired = fsm.Waking, true })
	for _, row := range ports.RowsOf(h.Operator("GET", "/api/v1/subscriptions", ""), "subscriptions") {
		id := fmt.Sprint(row["subscription_id"])
		one := h.Operator("GET", "/api/v1/subscriptions/"+id, "")
		if row["condition"] != id || one.Body["condition"] != id {
			t.Errorf("%s is shown as %v in the list, and as %v by itself", id, row["condition"], one.Body["condition"])
		}
	}
	for query, want := range map[string]int{"": 6, "?failing=false": 6, "?failing=true": 5} {
		if n := len(ports.RowsOf(h.Operator("GET", "/api/v1/subscriptions"+query, ""), "subscriptions")); n != want {
			t.Errorf("%q lists %d, want %d", query, n, want)
		}
	}
	if a := h.Operator("GET", "/api/v1/subscriptions?failing=yes", ""); a.Status != 400 {
		t.Errorf("failing=yes: %d", a.Status)
	}
	fails(h.Subscribe("another", 1), 1, fsm.EndpointFailure{RetryAfter: time.Minute})
	for id, want := range map[string]string{"ok": "asked_to_wait", "down": "down"} {
		if one := h.Operator("GET", "/api/v1/subscriptions/"+id, ""); one.Body["condition"] != want {
			t.Errorf("of an origin that has asked to wait, %s is shown as %v", id, one.Body["condition"])
		}
	}
}

func TestOperatorListsStreams(t *testing.T) {
	h := newHarness(t, nil)
	sub := h.Subscribe("s", 0)
	var want []string
	for i := range 40 {
		k := fsm.NewStream(fmt.Sprintf("/s/%02d", i), "0001")
		if i == 7 {
			k.State = fsm.StreamAwaited
		}
		k.First = h.Clock()
		h.Store.DB.PutRecord(k)
		c := spec.NewConsumer(sub, k.Path, "0001", 0)
		c.Links[k.Path] = fsm.Link{Acked: "0001", Tail: "0001"}
		h.Store.DB.PutConsumer(c)
		want = append(want, k.Path)
	}
	for _, kind := range []string{"", "&watched=true"} {
		for _, limit := range []int{1, 5, 40} {
			got, lengths := h.Pages(fmt.Sprintf("/api/v1/streams?limit=%d%s", limit, kind), "streams", "path")
			slices.Sort(got)
			if !slices.Equal(got, want) || slices.Max(lengths) > limit {
				t.Errorf("limit %d%s: got %q in pages of %v", limit, kind, got, lengths)
			}
		}
	}
	a := h.Operator("GET", "/api/v1/streams", "")
	if n := strings.Count(a.Text, `"awaited":true`); n != 1 ||
		!strings.Contains(a.Text, `"known_since":"2026-01-02T03:04:05Z"`) {
		t.Errorf("%d are awaited: %s", n, a.Text)
	}
	if a := h.Operator("GET", "/api/v1/streams?watched=1&limit=1", ""); !strings.Contains(a.Text, `"tail":"0001"`) {
		t.Errorf("watched: %s", a.Text)
	}
}

func TestOperatorsBadRequestsAreRefused(t *testing.T) {
	h := newHarness(t, nil)
	h.Subscribe("a", 1)
	for _, c := range []struct {
		path   string
		status int
		code   fsm.Code
		says   string
	}{
		{"consumers?limit=0", 400, fsm.CodeInvalidRequest, "limit must be a number from 1 to 1000"},
		{"consumers?limit=1001", 400, fsm.CodeInvalidRequest, "limit"},
		{"streams?limit=x", 400, fsm.CodeInvalidRequest, "limit"},
		{"subscriptions?cursor=!", 400, fsm.CodeInvalidRequest, "cursor must be the next"},
		{"consumers?cursor=e30x", 400, fsm.CodeInvalidRequest, "cursor"},
		{"streams?cursor=" + paging.Place{Partition: ports.Partitions}.String(), 400, fsm.CodeInvalidRequest, "cursor"},
		{"streams?cursor=" + paging.Place{Partition: -1}.String(), 400, fsm.CodeInvalidRequest, "cursor"},
		{
			"consumers?state=asleep", 400, fsm.CodeInvalidRequest,
			"state must be one of idle, waking, live, given_up, quarantined, failing",
		},
		{"consumers?stat=live", 400, fsm.CodeInvalidRequest, `"stat" is not a parameter`},
		{"consumers?subscription=a:b", 400, fsm.CodeInvalidSubscriptionID, "':'"},
		{"consumers?subscription=b", 404, fsm.CodeSubscriptionNotFound, ""},
		{"streams?watched=maybe", 400, fsm.CodeInvalidRequest, "watched"},
		{"subscriptions/b", 404, fsm.CodeSubscriptionNotFound, ""},
		{"subscriptions/a:b", 400, fsm.CodeInvalidSubscriptionID, ""},
		{"consumers/a", 400, fsm.CodeInvalidRequest, "consumer id"},
		{"consumers/a:/a/0", 400, fsm.CodeInvalidRequest, "consumer id"},
		{"consumers/a:%2Fother", 404, fsm.CodeNotFound, "no consumer"},
	} {
		h.Want(h.Operator("GET", "/api/v1/"+c.path, ""), c.status, c.code, c.says)
	}
	h.Store.Fail(fmt.Errorf("%w: %w", fsm.ErrUnavailable, context.Canceled))
	h.Want(h.Operator("GET", "/api/v1/streams", ""), 503, fsm.CodeUnavailable, "")
	if n := h.Logs.FilterMessageSnippet("answered with 503").Len(); n != 0 {
		t.Error("a client that did not wait for its answer is logged as an outage")
	}
	h.Store.Fail(fsm.ErrUnavailable)
	for _, path := range []string{
		"consumers", "consumers/a:%2Fa%2F0", "subscriptions", "subscriptions/a", "streams",
		"streams?watched=true",
	} {
		h.Want(h.Operator("GET", "/api/v1/"+path, ""), 503, fsm.CodeUnavailable, "redis is not available")
	}
	if n := h.Logs.FilterMessageSnippet("answered with 503").Len(); n != 1 {
		t.Errorf("%d lines about the same outage, want one", n)
	}
}

func TestLogLevelChangesAtRunTime(t *testing.T) {
	level := zap.NewAtomicLevelAt(zap.WarnLevel)
	h := newHarness(t, func(c *httpapi.Config) { c.LogLevel = level })
	shows := func(want string) {
		t.Helper()
		if a := h.Operator("GET", "/api/v1/log-level", ""); strings.TrimSpace(a.Text) != `{"level":"`+want+`"}` ||
			level.String() != want {
			t.Errorf("the level is %s, shown as %s, want %s", level, a.Text, want)
		}
	}
	shows("warn")
	for _, to := range []string{"debug", "error", "info", "warn"} {
		if a := h.Operator("PUT", "/api/v1/log-level", `{"level":"`+to+`"}`); a.Status != 200 || a.Body["level"] != to {
			t.Errorf("to %s: %s", to, a.Text)
		}
		shows(to)
	}
	if n := h.Logs.FilterMessage("log level changed").Len(); n != 4 {
		t.Errorf("%d changes are logged, want 4", n)
	}
	for body, says := range map[string]string{
		``: "not JSON", `{}`: "level is missing", `{"level":3}`: "level must be",
		`{"level":"loud"}`:  "level must be debug, info, warn or error",
		`{"level":"panic"}`: "level must be", `{"level":""}`: "level must be",
	} {
		h.Want(h.Operator("PUT", "/api/v1/log-level", body), 400, fsm.CodeInvalidRequest, says)
	}
	shows("warn")
}
