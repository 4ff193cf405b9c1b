package fsm

import (
	"testing"
	"time"
)

// linked is a live consumer in epoch 7 that is linked to /b as well, whose tail its worker has read up to.
func linked() Consumer {
	c := live("10", "12")
	c.Links["/b"] = Link{Acked: "3", Tail: "5"}
	return c
}

// TestAWakeAcksNothingOfAStreamThatWasMadeAnewSinceItBegan holds that what a worker read of a stream that was deleted
// counts for none that is made anew under its name, whatever is known of that by then and however the ack comes.
func TestAWakeAcksNothingOfAStreamThatWasMadeAnewSinceItBegan(t *testing.T) {
	acks := []Ack{{"/a", "12"}, {"/b", "5"}}
	for name, late := range map[string]func(Consumer, []StreamTail) Consumer{
		"a synchronous done": func(c Consumer, seen []StreamTail) Consumer {
			c, _ = c.Finish(at(3*time.Second), ref(c), seen)
			return c
		},
		"a callback": func(c Consumer, _ []StreamTail) Consumer {
			c, r := c.Callback(at(3*time.Second), true, callback(c, func(cb *Callback) { cb.Acks = acks }))
			if r.Code != "" && c.Links["/b"].Tail.After("5") {
				t.Errorf("the callback was refused: %s", r.Code)
			}
			return c
		},
		"a callback after another look at the stream": func(c Consumer, _ []StreamTail) Consumer {
			c, _ = c.Callback(at(3*time.Second), true, callback(c, func(cb *Callback) {
				cb.Acks, cb.Tails = acks, map[string]Offset{"/b": "7"}
			}))
			return c
		},
		"a callback of an idle consumer": func(c Consumer, _ []StreamTail) Consumer {
			c.State = Idle
			c, _ = c.Callback(at(3*time.Second), true, callback(c, func(cb *Callback) { cb.Acks = acks }))
			return c
		},
	} {
		for _, tail := range []Offset{"", "1", "5", "7"} {
			t.Run(name+", the new tail is "+string(tail), func(t *testing.T) {
				c := linked()
				seen := c.wakeNow().Streams
				c, _ = c.Restart(at(time.Second), "/b", "")
				c, _ = c.Observe(at(2*time.Second), "/b", tail)
				c = late(c, seen)
				if c.Links["/b"].Acked != Start {
					t.Fatalf("acked %+v", c.Links)
				}
				if c.State == Live {
					c, _ = c.Callback(at(4*time.Second), true, callback(c, func(cb *Callback) { cb.Done = true }))
				}
				if c, _ = c.Observe(at(time.Minute), "/b", "7"); c.State != Waking || c.Epoch != 8 {
					t.Fatalf("the new stream's events woke nobody: %+v", c)
				}
				if c, _ = c.Finish(at(time.Minute), ref(c), c.wakeNow().Streams); c.Links["/b"].Acked != "7" {
					t.Errorf("the next wake acked %+v", c.Links)
				}
			})
		}
	}
	t.Run("nor one that is hidden and so not woken for the new stream at once", func(t *testing.T) {
		c := linked()
		seen := c.wakeNow().Streams
		c, _ = c.Hide(at(0), Missing)
		c, _ = c.Restart(at(time.Second), "/b", "7")
		if c, _ = c.Finish(at(2*time.Second), ref(c), seen); c.Links["/b"].Acked != Start {
			t.Errorf("acked %+v", c.Links)
		}
	})
	t.Run("it acks its other streams", func(t *testing.T) {
		c, _ := linked().Restart(at(time.Second), "/b", "")
		if c, _ = c.Finish(at(2*time.Second), ref(c), linked().wakeNow().Streams); c.Links["/a"].Acked != "12" {
			t.Errorf("acked %+v", c.Links)
		}
	})
	t.Run("a worker that subscribes to the new stream acks what it reads of it", func(t *testing.T) {
		c, _ := linked().Restart(at(time.Second), "/b", "")
		c, _ = c.Callback(at(2*time.Second), true, callback(c, func(cb *Callback) { cb.Unsubscribe = []string{"/b"} }))
		c, _ = c.Callback(at(3*time.Second), true, callback(c, func(cb *Callback) {
			cb.Subscribe, cb.Tails = []Subscribe{{"/b", "1"}}, map[string]Offset{"/b": "1"}
		}))
		c, _ = c.Observe(at(4*time.Second), "/b", "2")
		c, _ = c.Callback(at(5*time.Second), true, callback(c, func(cb *Callback) { cb.Acks = []Ack{{"/b", "2"}} }))
		if c.Links["/b"].Acked != "2" {
			t.Errorf("acked %+v", c.Links)
		}
	})
}
