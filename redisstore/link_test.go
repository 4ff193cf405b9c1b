package redisstore_test

import (
	"context"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec/memstore"
	"reveille/redisstore"
)

// Link links a stream to one subscription.
func (w *world) Link(
	ctx context.Context, sub fsm.Subscription, path string, acked, tail fsm.Offset,
) (fsm.Outcome, error) {
	return memstore.Link(ctx, w.Store, sub, path, acked, tail)
}

// note puts a stream on record, or on the way to.
func (w *world) note(ctx context.Context, path string, awaited bool) error {
	tail := fsm.Offset("1")
	if awaited {
		tail = ""
	}
	s, err := w.Stream(ctx, path)
	if err != nil {
		return err
	}
	n := fsm.NewStream(path, tail)
	n.Stamp = s.Stamp
	_, _, err = w.NoteStream(ctx, n, time.Minute)
	return err
}

// What lies beyond the end of a closed stream is of another one: nobody is to have seen it.
func TestNobodyIsLinkedBeyondTheEndAtWhichAStreamWasClosed(t *testing.T) {
	t.Parallel()
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	ctx := t.Context()
	for _, id := range []string{"before", "after"} {
		sub, _, err := w.CreateSubscription(ctx, subscription(id))
		if err != nil {
			t.Fatal(err)
		}
		acked := fsm.Offset("1")
		if id == "after" {
			must[fsm.Observation](t)(w.Observe(ctx, 0, "/a", "1", true))
			acked = "5"
		}
		must[fsm.Outcome](t)(w.Link(ctx, sub, "/a", acked, acked))
		c := must[fsm.Consumer](t)(w.Consumer(ctx, fsm.RefOf(id, "/a")))
		if got := c.Links["/a"].Acked; got != "1" {
			t.Errorf("%s is acked up to %q", c.ID, got)
		}
	}
}

// TestNothingIsAckedBeyondTheEndAtWhichAStreamWasClosed holds it of a callback that shows the tail of the other stream.
func TestNothingIsAckedBeyondTheEndAtWhichAStreamWasClosed(t *testing.T) {
	t.Parallel()
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	ctx := t.Context()
	sub, _, err := w.CreateSubscription(ctx, subscription("s"))
	if err != nil {
		t.Fatal(err)
	}
	must[fsm.Outcome](t)(w.Link(ctx, sub, "/a", "1", "1"))
	cb := of(must[fsm.Observation](t)(w.Observe(ctx, 0, "/a", "2", true)).Deliveries[0])
	cb.Tails, cb.Acks = map[string]fsm.Offset{"/a": "5"}, []fsm.Ack{{Path: "/a", Offset: "5"}}
	if r := must[fsm.CallbackReply](t)(w.Callback(ctx, cb)); r.Code != fsm.CodeInvalidOffset {
		t.Errorf("an ack beyond the end: %q", r.Code)
	}
	cb.Acks, cb.Done = []fsm.Ack{{Path: "/a", Offset: "2"}}, true
	if r := must[fsm.CallbackReply](t)(w.Callback(ctx, cb)); r.Code != "" || len(r.Deliveries) > 0 {
		t.Errorf("an ack of the end: %+v", r)
	}
}
