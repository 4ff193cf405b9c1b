package fsm

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

func TestCallbackOrder(t *testing.T) {
	c := live("10", "12")
	for _, tt := range []struct {
		name   string
		exists bool
		twist  func(*Callback)
		want   Code
	}{
		{
			"a consumer that is gone, before an expired token", false, func(cb *Callback) { cb.TokenExpired = true },
			CodeConsumerGone,
		},
		{
			"another generation's token is a consumer that is gone", true, func(cb *Callback) { cb.Generation = "old" },
			CodeConsumerGone,
		},
		{
			"an expired token, before a stale epoch", true, func(cb *Callback) { cb.TokenExpired = true; cb.Epoch-- },
			CodeTokenExpired,
		},
		{
			"a stale epoch, before another wake_id", true, func(cb *Callback) { cb.Epoch--; cb.WakeID = "w_x" },
			CodeStaleEpoch,
		},
		{"an epoch from the future", true, func(cb *Callback) { cb.Epoch++ }, CodeStaleEpoch},
		{"an old token with the new epoch", true, func(cb *Callback) { cb.TokenEpoch-- }, CodeStaleEpoch},
		{
			"another wake_id, before an offset beyond the tail", true,
			func(cb *Callback) { cb.WakeID = "w_x"; cb.Acks = []Ack{{"/a", "99"}} }, CodeAlreadyClaimed,
		},
		{"an offset beyond the tail, before too many streams", true, func(cb *Callback) {
			cb.Acks, cb.Subscribe, cb.MaxStreams = []Ack{{"/a", "99"}}, []Subscribe{{"/b", Start}}, 1
		}, CodeInvalidOffset},
		{
			"too many streams", true,
			func(cb *Callback) { cb.Subscribe, cb.MaxStreams = []Subscribe{{"/b", Start}}, 1 }, CodeInvalidRequest,
		},
		{"one good and one bad ack, with all that a callback can ask for", true, func(cb *Callback) {
			cb.WakeID, cb.Acks, cb.Done = "w_7", []Ack{{"/a", "11"}, {"/a", "99"}}, true
			cb.Subscribe, cb.Unsubscribe = []Subscribe{{"/b", Start}}, []string{"/a"}
		}, CodeInvalidOffset},
		{"an epoch before all", true, func(cb *Callback) { cb.Epoch = -1 }, CodeStaleEpoch},
	} {
		t.Run(tt.name, func(t *testing.T) {
			after, r := c.Callback(at(time.Second), tt.exists, callback(c, tt.twist))
			if r.Code != tt.want {
				t.Errorf("answered %q, want %q", r.Code, tt.want)
			}
			if !reflect.DeepEqual(after, c) || r.Wake != nil || r.Removal != nil {
				t.Errorf("a refused callback changed the consumer: %+v", after)
			}
		})
	}
	t.Run("a callback of an earlier consumer of the same id and epoch is one "+
		"of a consumer that is gone", func(t *testing.T) {
		sub := Subscription{ID: c.Subscription, Generation: c.Generation}
		anew := NewConsumer(sub, "/a", "12", c.Epoch)
		after, r := anew.Callback(at(0), true, callback(c, func(cb *Callback) { cb.Unsubscribe = []string{"/a"} }))
		if r.Code != CodeConsumerGone || r.Removal != nil || len(after.Links) != 1 {
			t.Errorf("%q, %+v", r.Code, after)
		}
	})
	t.Run("acks below the recorded offset and for other streams are ignored", func(t *testing.T) {
		after, r := c.Callback(at(0), true,
			callback(c, func(cb *Callback) { cb.Acks = []Ack{{"/a", "09"}, {"/z", "99"}} }))
		if r.Code != "" || after.Links["/a"].Acked != "10" {
			t.Errorf("%q, acked %s", r.Code, after.Links["/a"].Acked)
		}
	})
	t.Run("a final callback can be repeated", func(t *testing.T) {
		final := callback(c, func(cb *Callback) { cb.WakeID, cb.Done, cb.Acks = "w_7", true, []Ack{{"/a", "12"}} })
		once, _ := c.Callback(at(0), true, final)
		twice, r := once.Callback(at(time.Second), true, final)
		if r.Code != "" || r.Wake != nil || twice.State != Idle || twice.Epoch != 7 {
			t.Errorf("%q, %+v", r.Code, twice)
		}
	})
}

func TestCallbackEffects(t *testing.T) {
	accepted := func(c Consumer, f func(*Callback)) (Consumer, CallbackResult) {
		t.Helper()
		c, r := c.Callback(at(time.Second), true, callback(c, f))
		if r.Code != "" {
			t.Fatalf("refused: %s", r.Code)
		}
		return c, r
	}
	t.Run("one callback is processed in the order claim, acks, subscribe, unsubscribe, done", func(t *testing.T) {
		c, r := accepted(waking("10", "11"), func(cb *Callback) {
			cb.WakeID, cb.Done = "w_7", true
			// The ack of a stream that is only subscribed to afterwards is ignored, whatever it says.
			cb.Acks, cb.Tails = []Ack{{"/a", "11"}, {"/b", "99"}}, map[string]Offset{"/b": "5", "/c": "1"}
			cb.Subscribe, cb.Unsubscribe = []Subscribe{{"/b", "5"}, {"/c", "1"}}, []string{"/c"}
		})
		want := map[string]Link{"/a": {Acked: "11", Tail: "11"}, "/b": {Acked: "5", Tail: "5"}}
		if !reflect.DeepEqual(c.Links, want) || c.State != Idle || c.Epoch != 7 || r.Wake != nil {
			t.Errorf("%+v, woken with %+v", c, r.Wake)
		}
	})
	t.Run("an event of a stream that is left is pending no more when done is judged", func(t *testing.T) {
		if c, r := accepted(linked(), func(cb *Callback) {
			cb.Acks, cb.Unsubscribe, cb.Done = []Ack{{"/b", "5"}}, []string{"/a"}, true
		}); c.State != Idle || r.Wake != nil {
			t.Errorf("%+v, woken with %+v", c, r.Wake)
		}
	})
	t.Run("an ack is judged though its stream is left", func(t *testing.T) {
		c := linked()
		if _, r := c.Callback(at(0), true, callback(c, func(cb *Callback) {
			cb.Acks, cb.Unsubscribe, cb.Done = []Ack{{"/a", "99"}}, []string{"/a"}, true
		})); r.Code != CodeInvalidOffset {
			t.Errorf("answered %q", r.Code)
		}
	})
	t.Run("a stream that is subscribed to again keeps its acked offset", func(t *testing.T) {
		if c, _ := accepted(linked(), func(cb *Callback) {
			cb.Subscribe, cb.Tails = []Subscribe{{"/b", "5"}}, map[string]Offset{"/b": "5"}
		}); c.Links["/b"].Acked != "3" {
			t.Errorf("acked %+v", c.Links)
		}
	})
	t.Run("any callback can be repeated and comes to the same", func(t *testing.T) {
		c := waking("10", "12")
		for _, step := range []func(*Callback){
			func(cb *Callback) { cb.WakeID = "w_7" },
			func(cb *Callback) { cb.Acks = []Ack{{"/a", "12"}} },
			func(cb *Callback) { cb.Subscribe, cb.Tails = []Subscribe{{"/b", "5"}}, map[string]Offset{"/b": "5"} },
			func(cb *Callback) { cb.Unsubscribe = []string{"/a"} },
			func(cb *Callback) { cb.Done = true },
		} {
			once, first := accepted(c, step)
			twice, again := accepted(once, step)
			if !reflect.DeepEqual(once, twice) || !slices.Equal(first.Streams, again.Streams) || again.Wake != nil {
				t.Errorf("once: %+v\ntwice: %+v, woken with %+v", once, twice, again.Wake)
			}
			c = once
		}
		if c.State != Idle || len(c.Links) != 1 {
			t.Errorf("in the end: %+v", c)
		}
	})
}
