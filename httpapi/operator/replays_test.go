package operator_test

import (
	"fmt"
	"slices"
	"testing"

	"reveille/fsm"
	"reveille/fsm/spec"
	"reveille/test/ports"
)

// pushed makes a push subscription with consumers of n streams, /s/0 and so on, which end at 0009.
func (h *harness) pushed(id string, n int) {
	sub := fsm.Subscription{
		ID: id, Generation: "g-" + id, Pattern: "/" + id + "/*", Webhook: "https://user.example.com/hook",
		Secret: h.Secret("whsec_" + id), Mode: fsm.ModePush, CreatedAt: h.Clock(),
	}.WithDefaults()
	h.Store.DB.PutSubscription(sub)
	for i := range n {
		path := fmt.Sprintf("/%s/%d", id, i)
		h.Up.Streams[path] = fsm.StreamInfo{Exists: true, Tail: "0009"}
		c := spec.NewConsumer(sub, path, "0009", 0)
		c.Links[path] = fsm.Link{Acked: "0009", Tail: "0009"}
		h.Store.DB.PutConsumer(c)
	}
}

// TestOperatorReplaysSpans holds what a span is asked for by, how it is shown, and that it is cancelled.
func TestOperatorReplaysSpans(t *testing.T) {
	h := newHarness(t, nil)
	h.pushed("s", 3)
	h.Up.Streams["/s/2"] = fsm.StreamInfo{Exists: true, Tail: "0007"} // it has fewer events than it had
	h.Subscribe("wakes", 1)
	const path = "/api/v1/subscriptions/s/replay"
	for body, says := range map[string]string{
		`{"from":"-1"}`:                               "stream",
		`{"stream":"/s/0"}`:                           "from",
		`{"stream":"/s/0","from":"a b"}`:              "from",
		`{"stream":"/s/0","from":"-1","to":""}`:       "to is empty",
		`{"stream":"/s/0","from":"-1","to":"now"}`:    "to",
		`{"stream":"/s/0","from":"0009"}`:             "no event lies between",
		`{"stream":"/s/0","from":"0005","to":"0003"}`: "no event lies between",
		`{"stream":"/s/0","from":"0005","to":"0010"}`: `to: it lies behind the end of the stream, which is "0009"`,
		`{"stream":"/s/2","from":"0005","to":"0008"}`: "from and to: not an offset: it lies behind the end",
		`{"stream":"/s/0","from":"-1","upto":"0003"}`: "upto",
	} {
		h.Want(h.Operator("POST", path, body), 400, fsm.CodeInvalidRequest, says)
	}
	all := `{"stream":"/s/0","from":"-1"}`
	h.Want(h.Operator("POST", "/api/v1/subscriptions/none/replay", all), 404, fsm.CodeSubscriptionNotFound, "")
	h.Want(h.Operator("POST", path, `{"stream":"/s/7","from":"-1"}`), 404, fsm.CodeNotFound, "no consumer")
	h.Want(h.Operator("POST", "/api/v1/subscriptions/wakes/replay", `{"stream":"/wakes/0","from":"-1"}`), 409,
		fsm.CodeReplayRefused, "workers")

	first := h.Operator("POST", path, all)
	if first.Status != 202 || first.Body["to"] != "0009" || first.Body["from"] != "-1" {
		t.Fatalf("the whole stream: %d %s", first.Status, first.Text)
	}
	if again := h.Operator("POST", path, all); again.Body["replay_id"] != first.Body["replay_id"] {
		t.Errorf("the same once more: %s, and was %s", again.Text, first.Text)
	}
	h.Operator("POST", path, `{"stream":"/s/0","from":"0003","to":"0005"}`)
	h.Operator("POST", path, `{"stream":"/s/1","from":"0003","to":"0005"}`)
	got, lengths := h.Pages("/api/v1/replays?subscription=s&limit=1", "replays", "stream")
	if slices.Sort(got); !slices.Equal(got, []string{"/s/0", "/s/1"}) || slices.Max(lengths) > 1 {
		t.Errorf("listed are %q in pages of %v", got, lengths)
	}
	row := ports.RowsOf(h.Operator("GET", "/api/v1/replays?stream=/s/0", ""), "replays")[0]
	for field, want := range map[string]any{
		"subscription_id": "s", "stream": "/s/0", "consumer_id": "s:%2Fs%2F0", "waiting": 2.0, "done": 0.0,
		"under_way": first.Body["replay_id"], "at": "-1", "to": "-1", "to_skip": 9.0,
		"attempt": 1.0,
	} {
		if row[field] != want {
			t.Errorf("%s is %v, want %v", field, row[field], want)
		}
	}
	h.Want(h.Operator("POST", "/api/v1/replays/cancel", `{}`), 400, fsm.CodeInvalidRequest, "subscription")
	h.Want(h.Operator("POST", "/api/v1/replays/cancel", `{"subscription":"none"}`), 404,
		fsm.CodeSubscriptionNotFound, "")
	for body, want := range map[string]float64{`{"subscription":"s","stream":"/s/0"}`: 2} {
		if a := h.Operator("POST", "/api/v1/replays/cancel", body); a.Status != 200 || a.Body["cancelled"] != want {
			t.Errorf("cancel %s: %d %s", body, a.Status, a.Text)
		}
	}
	left := ports.RowsOf(h.Operator("GET", "/api/v1/replays", ""), "replays")
	if len(left) != 1 || left[0]["stream"] != "/s/1" {
		t.Errorf("after one stream is cancelled, %v is left", left)
	}
}

// TestOperatorAsksForTooManySpans holds the bound of those that wait.
func TestOperatorAsksForTooManySpans(t *testing.T) {
	h := newHarness(t, nil)
	h.pushed("s", 1)
	ask := func(i int) ports.Answer {
		return h.Operator("POST", "/api/v1/subscriptions/s/replay",
			fmt.Sprintf(`{"stream":"/s/0","from":"000%03d"}`, i))
	}
	for i := range fsm.MaxReplaySpans {
		if a := ask(i); a.Status != 202 {
			t.Fatalf("span %d: %d %s", i, a.Status, a.Text)
		}
	}
	h.Want(ask(fsm.MaxReplaySpans), 429, fsm.CodeTooManyRequests, "100 spans")
}
