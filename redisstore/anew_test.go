package redisstore_test

import (
	"fmt"
	"testing"

	"reveille/fsm"
	"reveille/redisstore"
)

// reading is a live consumer of /a that is linked to /b as well and is at work on it, up to its tail 5.
func reading(t *testing.T, w *world, sub fsm.Subscription) fsm.Delivery {
	t.Helper()
	ctx := t.Context()
	wake := must[fsm.Outcome](t)(w.Link(ctx, sub, "/a", fsm.Start, "1")).Deliveries[0]
	cb := of(wake)
	cb.Acks = []fsm.Ack{{Path: "/a", Offset: "1"}}
	cb.Subscribe, cb.Tails = []fsm.Subscribe{{Path: "/b", From: "3"}}, map[string]fsm.Offset{"/b": "5"}
	cb.Done = true
	next := must[fsm.CallbackReply](t)(w.Callback(ctx, cb)).Deliveries[0]
	if claimed := must[fsm.CallbackReply](t)(w.Callback(ctx, of(next))); claimed.Code != "" {
		t.Fatalf("the claim was refused: %s", claimed.Code)
	}
	return next
}

// of is a callback of a wake that claims it.
func of(wake fsm.Delivery) fsm.Callback {
	return fsm.Callback{
		Consumer: wake.Ref().Consumer, Primary: wake.Primary, Generation: wake.Generation, Epoch: wake.Epoch,
		TokenEpoch: wake.Epoch, WakeID: wake.WakeID, MaxStreams: 10,
	}
}

// TestAWakeAcksNothingOfAStreamThatWasMadeAnewSinceItBegan holds that no event of a stream made anew is taken for seen,
// whatever is known of it when the ack comes. One script cannot see to all consumers of the deleted stream.
func TestAWakeAcksNothingOfAStreamThatWasMadeAnewSinceItBegan(t *testing.T) {
	t.Parallel()
	const others = 60
	for name, late := range map[string]func(*testing.T, *world, fsm.Delivery) fsm.Outcome{
		"a synchronous done": func(t *testing.T, w *world, wake fsm.Delivery) fsm.Outcome {
			return must[fsm.Outcome](t)(w.Finish(t.Context(), wake.Ref(), wake.Streams))
		},
		"a callback that is done": func(t *testing.T, w *world, wake fsm.Delivery) fsm.Outcome {
			cb := of(wake)
			cb.Done, cb.Acks = true, []fsm.Ack{{Path: "/b", Offset: "5"}}
			return must[fsm.CallbackReply](t)(w.Callback(t.Context(), cb)).Outcome
		},
		"a callback after another look at the stream": func(t *testing.T, w *world, wake fsm.Delivery) fsm.Outcome {
			cb := of(wake)
			cb.Done, cb.Acks = true, []fsm.Ack{{Path: "/b", Offset: "5"}}
			cb.Tails = map[string]fsm.Offset{"/b": "7"}
			return must[fsm.CallbackReply](t)(w.Callback(t.Context(), cb)).Outcome
		},
	} {
		for _, tail := range []fsm.Offset{"5", "7"} {
			t.Run(fmt.Sprintf("%s, the new tail is %s", name, tail), func(t *testing.T) {
				w := open(t, redisstore.EmptyRedis(t).URL, 1)
				ctx := t.Context()
				wake := reading(t, w, subscription("s"))
				for i := range others {
					must[fsm.Outcome](t)(w.Link(ctx, subscription(fmt.Sprint("other", i)), "/b", "5", "5"))
				}
				must[fsm.Outcome](t)(w.Deleted(ctx, 0, "/b", fsm.Deletion{}))
				o := must[fsm.Observation](t)(w.Observe(ctx, 0, "/b", tail, false)).Outcome
				o.Add(late(t, w, wake))
				if len(o.Deliveries) != 1 || o.Deliveries[0].Epoch != wake.Epoch+1 ||
					o.Deliveries[0].Streams[1].Acked != fsm.Start {
					t.Fatalf("the events of the new stream woke nobody: %+v", o.Deliveries)
				}
				next := o.Deliveries[0]
				must[fsm.Outcome](t)(w.Finish(ctx, next.Ref(), next.Streams))
				c := must[fsm.Consumer](t)(w.Consumer(ctx, wake.Ref().Consumer))
				if c.State != fsm.Idle || c.Links["/b"].Acked != next.Streams[1].Tail {
					t.Errorf("after the next wake: %+v", c)
				}
			})
		}
	}
}
