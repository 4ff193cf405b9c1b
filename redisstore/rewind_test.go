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
	for name, lost := range map[string]bool{"answered": false, "replies are lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const consumers = 200
			w := open(t, redisstore.EmptyRedis(t).URL, 1)
			d := &deaf{}
			w.rdb.AddHook(d)
			wakes, o := w.cutShort(t, consumers)
			for _, wake := range o.Deliveries {
				delete(wakes, wake.Consumer)
			}
			d.on = lost
			for i := range consumers {
				sub := subscription(fmt.Sprint("s", i))
				was, unvisited := wakes[fsm.ConsumerID(sub.ID, "/agent")]
				if !unvisited {
					continue
				}
				from, o, err := w.Rewind(t.Context(), sub, was.Ref().Consumer, "/agent", fsm.Start)
				if err != nil || len(o.Deliveries) != 2 || o.Deliveries[0].WakeID == o.Deliveries[1].WakeID {
					t.Fatalf("from %q: %+v, %v", from, o, err)
				}
				if !lost && from != "0" {
					t.Errorf("it went back from %q", from)
				}
				if wake := o.Deliveries[1]; wake.Epoch != was.Epoch+2 || wake.At("/agent") != fsm.Start {
					t.Errorf("the wake that goes on is %+v", wake)
				}
				return
			}
			t.Fatal("all were visited")
		})
	}
}
