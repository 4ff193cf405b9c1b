package spec

import (
	"testing"
	"time"

	"reveille/fsm"
)

// TestARewoundConsumerReadsAgain holds that it is woken with the offset, whatever it was at, and that a worker of an
// earlier wake acks nothing of that stream any more.
func TestARewoundConsumerReadsAgain(t *testing.T) {
	for name, is := range map[string]func(*fsm.Consumer){
		"at work":  func(*fsm.Consumer) {},
		"asleep":   func(c *fsm.Consumer) { c.State, c.Links["/b"] = fsm.Idle, fsm.Link{Acked: "5", Tail: "5"} },
		"waking":   func(c *fsm.Consumer) { c.State, c.Sent, c.Attempt = fsm.Waking, true, 3 },
		"given up": func(c *fsm.Consumer) { c.State = fsm.GivenUp },
		"stalled":  func(c *fsm.Consumer) { c.State, c.Stalled = fsm.Waking, fsm.StallLimit },
	} {
		t.Run(name, func(t *testing.T) {
			was := linked()
			is(&was)
			c, e, ok := Rewind(was, at(time.Second), "/b", "2")
			if !ok || c.State != fsm.Waking || c.Epoch != 8 || e.Delivery == nil || e.Delivery.At("/b") != "2" {
				t.Fatalf("it is %+v, and asks for %+v", c, e)
			}
			if over := was.State == fsm.Live || was.State == fsm.Waking; (e.Ended != nil) != over ||
				over && e.Ended.Cause != fsm.EndRewound {
				t.Errorf("its wake ended with %+v", e.Ended)
			}
			late, _ := Finish(c, at(2*time.Second), ref(was), deliveryNow(was).Streams)
			if late.Links["/b"].Acked != "2" {
				t.Errorf("the worker that was fenced off acked %+v", late.Links)
			}
			if c, _ = Finish(c, at(2*time.Second), ref(c), deliveryNow(c).Streams); c.Links["/b"].Acked != "5" {
				t.Errorf("the next wake acked %+v", c.Links)
			}
		})
	}
	t.Run("hidden, it acks nothing until it is woken", func(t *testing.T) {
		was := linked()
		c, _ := Hide(was, at(0), fsm.Missing)
		c, e, ok := Rewind(c, at(time.Second), "/b", "2")
		if !ok || e.Delivery != nil || c.State != fsm.Idle {
			t.Fatalf("it is %+v, and asks for %+v", c, e)
		}
		if c, _ = Finish(c, at(2*time.Second), ref(was), deliveryNow(was).Streams); c.Links["/b"].Acked != "2" {
			t.Errorf("acked %+v", c.Links)
		}
	})
	for what, to := range map[string]struct {
		path string
		to   fsm.Offset
	}{"forward": {"/b", "4"}, "nowhere": {"/b", "3"}, "in a stream that it has not": {"/z", "-1"}} {
		if c, e, ok := Rewind(linked(), at(0), to.path, to.to); ok || c.State != fsm.Live || e != (Effects{}) {
			t.Errorf("%s: %+v, %+v", what, c, e)
		}
	}
}
