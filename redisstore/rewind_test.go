package redisstore_test

import (
	"fmt"
	"testing"

	"reveille/fsm"
	"reveille/redisstore"
)

// TestARewindThatFindsAStreamMadeAnewBeginsEachWakeUnderItsOwnID rewinds a consumer that no call has come to yet, since
// another of its streams was made anew (S2).
func TestARewindThatFindsAStreamMadeAnewBeginsEachWakeUnderItsOwnID(t *testing.T) {
	t.Parallel()
	const consumers = 200
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	ctx := t.Context()
	wakes, o := w.cutShort(t, consumers)
	for _, wake := range o.Deliveries {
		delete(wakes, wake.Consumer)
	}
	for i := range consumers {
		sub := subscription(fmt.Sprint("s", i))
		was, unvisited := wakes[fsm.ConsumerID(sub.ID, "/agent")]
		if !unvisited {
			continue
		}
		from, o, err := w.Rewind(ctx, sub, was.Ref().Consumer, "/agent", fsm.Start)
		if err != nil || from != "0" || len(o.Deliveries) != 2 || o.Deliveries[0].WakeID == o.Deliveries[1].WakeID {
			t.Fatalf("from %q: %+v, %v", from, o, err)
		}
		if wake := o.Deliveries[1]; wake.Epoch != was.Epoch+2 || wake.At("/agent") != fsm.Start {
			t.Errorf("the wake that goes on is %+v", wake)
		}
		return
	}
	t.Fatal("all were visited")
}
