package spec

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"reveille/fsm"
)

func TestCallbackOrder(t *testing.T) {
	c := live("10", "12")
	for _, tt := range []struct {
		name   string
		exists bool
		twist  func(*fsm.Callback)
		want   fsm.Code
	}{
		{
			"a consumer that is gone, before an expired token", false,
			func(cb *fsm.Callback) { cb.TokenExpired = true },
			fsm.CodeConsumerGone,
		},
		{
			"another generation's token is a consumer that is gone", true,
			func(cb *fsm.Callback) { cb.Generation = "old" },
			fsm.CodeConsumerGone,
		},
		{
			"an expired token, before a stale epoch", true,
			func(cb *fsm.Callback) { cb.TokenExpired = true; cb.Epoch-- },
			fsm.CodeTokenExpired,
		},
		{
			"a stale epoch, before another wake_id", true, func(cb *fsm.Callback) { cb.Epoch--; cb.WakeID = "w_x" },
			fsm.CodeStaleEpoch,
		},
		{"an epoch from the future", true, func(cb *fsm.Callback) { cb.Epoch++ }, fsm.CodeStaleEpoch},
		{"an old token with the new epoch", true, func(cb *fsm.Callback) { cb.TokenEpoch-- }, fsm.CodeStaleEpoch},
		{
			"another wake_id, before an offset beyond the tail", true,
			func(cb *fsm.Callback) { cb.WakeID = "w_x"; cb.Acks = []fsm.Ack{{Path: "/a", Offset: "99"}} },
			fsm.CodeAlreadyClaimed,
		},
		{"an offset beyond the tail, before too many streams", true, func(cb *fsm.Callback) {
			cb.Acks, cb.MaxStreams = []fsm.Ack{{Path: "/a", Offset: "99"}}, 1
			cb.Subscribe = []fsm.Subscribe{{Path: "/b", From: fsm.Start}}
		}, fsm.CodeInvalidOffset},
		{
			"too many streams", true,
			func(cb *fsm.Callback) {
				cb.Subscribe, cb.MaxStreams = []fsm.Subscribe{{Path: "/b", From: fsm.Start}}, 1
			}, fsm.CodeInvalidRequest,
		},
		{"one good and one bad ack, with all that a callback can ask for", true, func(cb *fsm.Callback) {
			cb.WakeID, cb.Acks, cb.Done = "w_7", []fsm.Ack{{Path: "/a", Offset: "11"}, {Path: "/a", Offset: "99"}}, true
			cb.Subscribe, cb.Unsubscribe = []fsm.Subscribe{{Path: "/b", From: fsm.Start}}, []string{"/a"}
		}, fsm.CodeInvalidOffset},
		{"an epoch before all", true, func(cb *fsm.Callback) { cb.Epoch = -1 }, fsm.CodeStaleEpoch},
	} {
		t.Run(tt.name, func(t *testing.T) {
			after, r := Callback(c, at(time.Second), tt.exists, callback(c, tt.twist))
			if r.Code != tt.want {
				t.Errorf("answered %q, want %q", r.Code, tt.want)
			}
			if !reflect.DeepEqual(after, c) || r.Delivery != nil || r.Removal != nil {
				t.Errorf("a refused callback changed the consumer: %+v", after)
			}
		})
	}
	t.Run("a callback of an earlier consumer of the same id and epoch is one "+
		"of a consumer that is gone", func(t *testing.T) {
		sub := fsm.Subscription{ID: c.Subscription, Generation: c.Generation}
		anew := NewConsumer(sub, "/a", "12", c.Epoch)
		after, r := Callback(anew, at(0), true, callback(c, func(cb *fsm.Callback) { cb.Unsubscribe = []string{"/a"} }))
		if r.Code != fsm.CodeConsumerGone || r.Removal != nil || len(after.Links) != 1 {
			t.Errorf("%q, %+v", r.Code, after)
		}
	})
	t.Run("acks below the stored offset and for other streams are ignored", func(t *testing.T) {
		after, r := Callback(c, at(0), true,
			callback(c, func(cb *fsm.Callback) {
				cb.Acks = []fsm.Ack{{Path: "/a", Offset: "09"}, {Path: "/z", Offset: "99"}}
			}))
		if r.Code != "" || after.Links["/a"].Acked != "10" {
			t.Errorf("%q, acked %s", r.Code, after.Links["/a"].Acked)
		}
	})
	t.Run("a final callback can be repeated", func(t *testing.T) {
		final := callback(c, func(cb *fsm.Callback) {
			cb.WakeID, cb.Done, cb.Acks = "w_7", true, []fsm.Ack{{Path: "/a", Offset: "12"}}
		})
		once, _ := Callback(c, at(0), true, final)
		twice, r := Callback(once, at(time.Second), true, final)
		if r.Code != "" || r.Delivery != nil || twice.State != fsm.Idle || twice.Epoch != 7 {
			t.Errorf("%q, %+v", r.Code, twice)
		}
	})
}

func TestCallbackEffects(t *testing.T) {
	accepted := func(c fsm.Consumer, f func(*fsm.Callback)) (fsm.Consumer, CallbackResult) {
		t.Helper()
		c, r := Callback(c, at(time.Second), true, callback(c, f))
		if r.Code != "" {
			t.Fatalf("refused: %s", r.Code)
		}
		return c, r
	}
	t.Run("one callback is processed in the order claim, acks, subscribe, unsubscribe, done", func(t *testing.T) {
		c, r := accepted(waking("10", "11"), func(cb *fsm.Callback) {
			cb.WakeID, cb.Done = "w_7", true
			// The ack of a stream that is only subscribed to afterwards is ignored, whatever it says.
			cb.Acks = []fsm.Ack{{Path: "/a", Offset: "11"}, {Path: "/b", Offset: "99"}}
			cb.Tails = map[string]fsm.Offset{"/b": "5", "/c": "1"}
			cb.Subscribe = []fsm.Subscribe{{Path: "/b", From: "5"}, {Path: "/c", From: "1"}}
			cb.Unsubscribe = []string{"/c"}
		})
		want := map[string]fsm.Link{"/a": {Acked: "11", Tail: "11"}, "/b": {Acked: "5", Tail: "5"}}
		if !reflect.DeepEqual(c.Links, want) || c.State != fsm.Idle || c.Epoch != 7 || r.Delivery != nil {
			t.Errorf("%+v, woken with %+v", c, r.Delivery)
		}
	})
	t.Run("an event of a stream that is left is pending no more when done is judged", func(t *testing.T) {
		if c, r := accepted(linked(), func(cb *fsm.Callback) {
			cb.Acks, cb.Unsubscribe, cb.Done = []fsm.Ack{{Path: "/b", Offset: "5"}}, []string{"/a"}, true
		}); c.State != fsm.Idle || r.Delivery != nil {
			t.Errorf("%+v, woken with %+v", c, r.Delivery)
		}
	})
	t.Run("an ack is judged though its stream is left", func(t *testing.T) {
		c := linked()
		if _, r := Callback(c, at(0), true, callback(c, func(cb *fsm.Callback) {
			cb.Acks, cb.Unsubscribe, cb.Done = []fsm.Ack{{Path: "/a", Offset: "99"}}, []string{"/a"}, true
		})); r.Code != fsm.CodeInvalidOffset {
			t.Errorf("answered %q", r.Code)
		}
	})
	t.Run("a stream that is subscribed to again keeps its acked offset", func(t *testing.T) {
		if c, _ := accepted(linked(), func(cb *fsm.Callback) {
			cb.Subscribe, cb.Tails = []fsm.Subscribe{{Path: "/b", From: "5"}}, map[string]fsm.Offset{"/b": "5"}
		}); c.Links["/b"].Acked != "3" {
			t.Errorf("acked %+v", c.Links)
		}
	})
	t.Run("any callback can be repeated and comes to the same", func(t *testing.T) {
		c := waking("10", "12")
		for _, step := range []func(*fsm.Callback){
			func(cb *fsm.Callback) { cb.WakeID = "w_7" },
			func(cb *fsm.Callback) { cb.Acks = []fsm.Ack{{Path: "/a", Offset: "12"}} },
			func(cb *fsm.Callback) {
				cb.Subscribe, cb.Tails = []fsm.Subscribe{{Path: "/b", From: "5"}}, map[string]fsm.Offset{"/b": "5"}
			},
			func(cb *fsm.Callback) { cb.Unsubscribe = []string{"/a"} },
			func(cb *fsm.Callback) { cb.Done = true },
		} {
			once, first := accepted(c, step)
			twice, again := accepted(once, step)
			if !reflect.DeepEqual(once, twice) || !slices.Equal(first.Streams, again.Streams) || again.Delivery != nil {
				t.Errorf("once: %+v\ntwice: %+v, woken with %+v", once, twice, again.Delivery)
			}
			c = once
		}
		if c.State != fsm.Idle || len(c.Links) != 1 {
			t.Errorf("in the end: %+v", c)
		}
	})
}
