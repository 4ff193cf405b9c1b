package redisstore_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/fsm/router"
	"reveille/redisstore"
)

func TestEachConsumerThatIsGoneIsToldOfWithItsCauseAndWhereItStood(t *testing.T) {
	t.Parallel()
	var told fsm.Outcome
	w := openWith(t, redisstore.EmptyRedis(t).URL, nil, redisstore.Options{
		Partitions: 1,
		Outcomes: router.New(router.Observer{
			Transition: func(o fsm.Outcome, _ fsm.Sighting) { told.Add(o) },
		}),
	})
	ctx := t.Context()
	sub, _, err := w.CreateSubscription(ctx, subscription("s"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	link := func() fsm.Delivery {
		t.Helper()
		n++
		return must[fsm.Outcome](t)(w.Link(ctx, sub, fmt.Sprint("/", n), "3", "5")).Deliveries[0]
	}
	told.Add(must[fsm.Outcome](t)(w.Deleted(ctx, 0, link().Primary, fsm.Deletion{})))
	anew := must[fsm.Outcome](t)(w.Restart(ctx, 0, link().Primary, "5", "2"))
	told.Add(anew)
	must[fsm.Outcome](t)(w.Finish(ctx, anew.Deliveries[0].Ref(), anew.Deliveries[0].Streams))
	away := link().Primary
	for _, a := range []fsm.Absence{fsm.MissingAnew, fsm.MissingStill} {
		told.Add(must[fsm.Outcome](t)(w.Hide(ctx, away, a)))
		w.later(timing.GoneGrace)
	}
	left := link()
	reply := must[fsm.CallbackReply](t)(w.Callback(ctx, fsm.Callback{
		Consumer: left.Ref().Consumer, Primary: left.Primary, Generation: sub.Generation, Epoch: left.Epoch,
		TokenEpoch: left.Epoch,
		WakeID:     left.WakeID, Unsubscribe: []string{left.Primary}, MaxStreams: 10,
	}))
	told.Add(reply.Outcome)
	for range 2 {
		failing := []fsm.Delivery{link()}
		for len(failing) > 0 { // until it is given up
			told.Add(must[fsm.Outcome](t)(w.Fail(ctx, failing[0].Ref(), fsm.Failure{RetryAfter: time.Hour})))
			w.later(time.Hour)
			due, _, err := w.Due(ctx, 0, 100)
			if err != nil {
				t.Fatal(err)
			}
			failing = due.Deliveries
		}
	}
	link()
	if err := w.DeleteSubscription(ctx, "s"); err != nil {
		t.Fatal(err)
	}
	want := map[fsm.RemovalCause]int{
		fsm.RemovedStreamDeleted: 1, fsm.RemovedStreamRecreated: 1, fsm.RemovedStreamGone: 1,
		fsm.RemovedUnsubscribed:        1,
		fsm.RemovedGivenUp:             2,
		fsm.RemovedSubscriptionDeleted: 2, // the one that took the place of the recreated, and the last
	}
	got := map[fsm.RemovalCause]int{}
	for _, g := range told.Removed {
		got[g.Cause]++
		acked := fsm.Offset("3")
		switch {
		case g.Cause == fsm.RemovedUnsubscribed:
			acked = ""
		case g.Cause == fsm.RemovedSubscriptionDeleted && g.Primary == "/2":
			acked = "2"
		}
		id := fsm.ConsumerID("s", g.Primary)
		if g.Subscription != "s" || g.Generation != sub.Generation || g.Consumer != id || g.Acked != acked {
			t.Errorf("it is told of as %+v, acked is to be %q", g, acked)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("gone are %v, want %v", got, want)
	}
}
