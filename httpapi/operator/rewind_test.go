package operator_test

import (
	"testing"

	"reveille/fsm"
)

// TestOperatorRewindsConsumers holds what a rewind is asked for by, what is refused, and that it fences workers off.
func TestOperatorRewindsConsumers(t *testing.T) {
	h := newHarness(t, nil)
	h.Subscribe("w", 2)
	h.pushed("p", 1)
	links := map[string]fsm.Link{
		"/w/0": {Acked: "0009", Tail: "0009"}, "/b": {Acked: "0003", Tail: "0005"},
		"/gone": {Acked: "0003", Tail: "0005"},
	}
	h.Up.Streams["/w/0"] = fsm.StreamInfo{Exists: true, Tail: "0009"}
	h.Up.Streams["/b"] = fsm.StreamInfo{Exists: true, Tail: "0005"}
	h.Change("w:%2Fw%2F0", func(c *fsm.Consumer) { c.Links, c.State, c.Epoch, c.WakeID = links, fsm.Live, 4, "w_4" })
	const path = "/api/v1/subscriptions/w/rewind"
	for body, says := range map[string]string{
		`{"to":"-1"}`:                   "stream is missing",
		`{"stream":"/w/0"}`:             "to is missing",
		`{"stream":"/w/0","to":"now"}`:  "to: ",
		`{"stream":"/w/0","to":7}`:      "to must be a text",
		`{"stream":"/w/0","to":"0009"}`: `only goes back, and this one has acknowledged the stream up to 0009`,
		`{"stream":"/w/0","upto":"-1"}`: "upto",
		`{"stream":"/w/1","to":"-1"}`:   "only goes back",
		`{"stream":"/w/0","to":"0010"}`: "only goes back",
		`{"stream":"/w/0","to":"0 0"}`:  "to: ",
	} {
		h.Want(h.Operator("POST", path, body), 400, fsm.CodeInvalidRequest, says)
	}
	h.Want(h.Operator("POST", path, `{"stream":"a b","to":"-1"}`), 400, fsm.CodeInvalidPath, "stream: ")
	h.Want(h.Operator("POST", path, `{"stream":"/w/7","to":"-1"}`), 404, fsm.CodeNotFound, "no consumer")
	h.Want(h.Operator("POST", path, `{"stream":"/c","consumer_of":"/w/0","to":"-1"}`), 404, fsm.CodeNotFound,
		"not subscribed")
	h.Want(h.Operator("POST", path, `{"stream":"/gone","consumer_of":"/w/0","to":"-1"}`), 409, fsm.CodeReplayRefused,
		"no such stream")
	h.Want(h.Operator("POST", "/api/v1/subscriptions/none/rewind", `{"stream":"/w/0","to":"-1"}`), 404,
		fsm.CodeSubscriptionNotFound, "")
	h.Want(h.Operator("POST", "/api/v1/subscriptions/p/rewind", `{"stream":"/p/0","to":"-1"}`), 409,
		fsm.CodeReplayRefused, "replay them")
	if c, _ := h.Store.Lookup("w:%2Fw%2F0"); c.Epoch != 4 || c.State != fsm.Live {
		t.Fatalf("what was refused has changed something: %+v", c)
	}

	a := h.Operator("POST", path, `{"stream":"/w/0","to":"0007"}`)
	if a.Status != 200 || a.Body["from"] != "0009" || a.Body["to"] != "0007" || a.Body["consumer_id"] != "w:%2Fw%2F0" {
		t.Errorf("the consumer's own stream: %d %s", a.Status, a.Text)
	}
	c, _ := h.Store.Lookup("w:%2Fw%2F0")
	if c.State != fsm.Waking || c.Epoch != 5 || c.Links["/w/0"].Acked != "0007" || c.Links["/b"].Acked != "0003" {
		t.Errorf("it is %+v", c)
	}
	if a := h.Operator("POST", path, `{"stream":"/b","consumer_of":"/w/0","to":"-1"}`); a.Status != 200 ||
		a.Body["stream"] != "/b" || a.Body["from"] != "0003" {
		t.Errorf("another stream of it: %d %s", a.Status, a.Text)
	}
	if c, _ := h.Store.Lookup("w:%2Fw%2F0"); c.Epoch != 6 || c.Links["/b"].Acked != fsm.Start {
		t.Errorf("it is %+v", c)
	}
}
