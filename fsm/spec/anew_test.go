package spec

import (
	"testing"
	"time"

	"reveille/fsm"
)

// linked is a live consumer in epoch 7 that is linked to /b as well, whose tail its worker has read up to.
func linked() fsm.Consumer {
	c := live("10", "12")
	c.Links["/b"] = fsm.Link{Acked: "3", Tail: "5"}
	return c
}

// TestAWakeAcksNothingOfAStreamThatWasMadeAnewSinceItBegan holds that what a worker read of a stream that was deleted
// counts for none that is made anew under its name, whatever is known of that by then and however the ack comes.
func TestAWakeAcksNothingOfAStreamThatWasMadeAnewSinceItBegan(t *testing.T) {
	acks := []fsm.Ack{{Path: "/a", Offset: "12"}, {Path: "/b", Offset: "5"}}
	for name, late := range map[string]func(fsm.Consumer, []fsm.StreamTail) fsm.Consumer{
		"a synchronous done": func(c fsm.Consumer, seen []fsm.StreamTail) fsm.Consumer {
			c, _ = Finish(c, at(3*time.Second), ref(c), seen)
			return c
		},
		"a callback": func(c fsm.Consumer, _ []fsm.StreamTail) fsm.Consumer {
			c, r := Callback(c, at(3*time.Second), true, callback(c, func(cb *fsm.Callback) { cb.Acks = acks }))
			if r.Code != "" && c.Links["/b"].Tail.After("5") {
				t.Errorf("the callback was refused: %s", r.Code)
			}
			return c
		},
		"a callback after another look at the stream": func(c fsm.Consumer, _ []fsm.StreamTail) fsm.Consumer {
			c, _ = Callback(c, at(3*time.Second), true, callback(c, func(cb *fsm.Callback) {
				cb.Acks, cb.Tails = acks, map[string]fsm.Offset{"/b": "7"}
			}))
			return c
		},
		"a callback of an idle consumer": func(c fsm.Consumer, _ []fsm.StreamTail) fsm.Consumer {
			c.State = fsm.Idle
			c, _ = Callback(c, at(3*time.Second), true, callback(c, func(cb *fsm.Callback) { cb.Acks = acks }))
			return c
		},
	} {
		for _, tail := range []fsm.Offset{"", "1", "5", "7"} {
			t.Run(name+", the new tail is "+string(tail), func(t *testing.T) {
				c := linked()
				seen := deliveryNow(c).Streams
				c, _ = Restart(c, at(time.Second), "/b", "")
				c, _ = Observe(c, at(2*time.Second), "/b", tail)
				c = late(c, seen)
				if c.Links["/b"].Acked != fsm.Start {
					t.Fatalf("acked %+v", c.Links)
				}
				if c.State == fsm.Live {
					c, _ = Callback(c, at(4*time.Second), true, callback(c, func(cb *fsm.Callback) { cb.Done = true }))
				}
				if c, _ = Observe(c, at(time.Minute), "/b", "7"); c.State != fsm.Waking || c.Epoch != 8 {
					t.Fatalf("the new stream's events woke nobody: %+v", c)
				}
				if c, _ = Finish(c, at(time.Minute), ref(c), deliveryNow(c).Streams); c.Links["/b"].Acked != "7" {
					t.Errorf("the next wake acked %+v", c.Links)
				}
			})
		}
	}
	t.Run("nor one that is hidden and so not woken for the new stream at once", func(t *testing.T) {
		c := linked()
		seen := deliveryNow(c).Streams
		c, _ = Hide(c, at(0), fsm.Missing)
		c, _ = Restart(c, at(time.Second), "/b", "7")
		if c, _ = Finish(c, at(2*time.Second), ref(c), seen); c.Links["/b"].Acked != fsm.Start {
			t.Errorf("acked %+v", c.Links)
		}
	})
	t.Run("it acks its other streams", func(t *testing.T) {
		c, _ := Restart(linked(), at(time.Second), "/b", "")
		if c, _ = Finish(c, at(2*time.Second), ref(c), deliveryNow(linked()).Streams); c.Links["/a"].Acked != "12" {
			t.Errorf("acked %+v", c.Links)
		}
	})
	t.Run("a worker that subscribes to the new stream acks what it reads of it", func(t *testing.T) {
		c, _ := Restart(linked(), at(time.Second), "/b", "")
		c, _ = Callback(c, at(2*time.Second), true, callback(c, func(cb *fsm.Callback) {
			cb.Unsubscribe = []string{"/b"}
		}))
		c, _ = Callback(c, at(3*time.Second), true, callback(c, func(cb *fsm.Callback) {
			cb.Subscribe, cb.Tails = []fsm.Subscribe{{Path: "/b", From: "1"}}, map[string]fsm.Offset{"/b": "1"}
		}))
		c, _ = Observe(c, at(4*time.Second), "/b", "2")
		c, _ = Callback(c, at(5*time.Second), true, callback(c, func(cb *fsm.Callback) {
			cb.Acks = []fsm.Ack{{Path: "/b", Offset: "2"}}
		}))
		if c.Links["/b"].Acked != "2" {
			t.Errorf("acked %+v", c.Links)
		}
	})
}

func TestNothingOfAnOldIncarnationMovesALink(t *testing.T) {
	old, later := fsm.IncarnateOffset("x", "13", "13::x"), fsm.IncarnateOffset("x", "14", "14::x")
	anew := fsm.IncarnateOffset("y", "05", "5::y")
	c := fsm.Consumer{Links: map[string]fsm.Link{"/a": {Acked: fsm.Start, Tail: anew}}, Lease: fsm.Lease{Epoch: 1}}
	if note(&c, "/a", later); c.Links["/a"].Tail != anew {
		t.Error("a late answer of the old incarnation moves the tail")
	}
	if ack(&c, "/a", later); c.Links["/a"].Acked != fsm.Start {
		t.Error("a late ack of the old incarnation moves what was acked")
	}
	c.Links["/a"] = fsm.Link{Acked: old, Tail: anew}
	if ack(&c, "/a", anew); c.Links["/a"].Acked != anew {
		t.Error("an ack of the new incarnation does not take the place of one of the old")
	}
}
