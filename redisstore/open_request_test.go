package redisstore_test

import (
	"testing"
	"time"

	"reveille/fsm"
	"reveille/redisstore"
)

// TestTheRestBeforeTheRequestMustHaveEndedDoesNotCountTwice holds what histories seldom come upon: a consumer comes to
// rest while a request of its wake may be open, and is woken again later. Nothing is shown to fail in between.
func TestTheRestBeforeTheRequestMustHaveEndedDoesNotCountTwice(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	sub := subscription("s")
	wake := must[fsm.Outcome](t)(w.Link(ctx, sub, "/a", tail(1), tail(2))).Deliveries[0]
	began := w.now
	w.later(timing.Waking)
	if _, n, err := w.Due(ctx, 0, 10); n != 1 || err != nil {
		t.Fatalf("%d were due: %v", n, err)
	}
	w.later(10 * time.Second)
	done := of(wake)
	done.WakeID, done.Done, done.Acks = "", true, []fsm.Ack{{Path: "/a", Offset: tail(2)}}
	if r := must[fsm.CallbackReply](t)(w.Callback(ctx, done)); r.Code != "" {
		t.Fatalf("the callback is refused: %s", r.Code)
	}
	got := must[[]fsm.Tally](t)(w.TallyConsumers(ctx, []fsm.Subscription{sub}))[0]
	if got.Failing > 0 || got.Idle != 1 {
		t.Errorf("at rest it is counted as %+v", got)
	}
	w.later(30 * time.Second)
	must[fsm.Observation](t)(w.Observe(ctx, 0, "/a", tail(3), false))
	c := must[fsm.Consumer](t)(w.Consumer(ctx, wake.Ref().Consumer))
	if ends := began.Add(timing.Open()); !c.FirstFailure.Equal(ends) || c.Uncounted != w.now.Sub(ends) {
		t.Errorf("it fails since %s, and %s do not count: %+v", c.FirstFailure, c.Uncounted, c)
	}
	if got := must[[]fsm.Tally](t)(w.TallyConsumers(ctx, []fsm.Subscription{sub}))[0]; got.Failing != 1 {
		t.Errorf("woken again it is counted as %+v", got)
	}
}
