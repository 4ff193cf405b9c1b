package dispatcher

import (
	"fmt"
	"slices"
	"testing"

	"reveille/fsm"
)

func TestSubscriptionsTakeTurnsAndAWakeIsQueuedOnce(t *testing.T) {
	s := newSlots(2, 1, 5, 1<<20, newMetrics(nil, 10))
	wake := func(id string, n int) fsm.Delivery {
		return fsm.Delivery{Consumer: fmt.Sprintf("%s:%d", id, n), Epoch: 1, WakeID: "w"}
	}
	x, y := s.take(named(s, "x"), 0, noon), s.take(named(s, "y"), 0, noon)
	for n := range 3 {
		s.enqueue(named(s, "a"), wake("a", n))
	}
	s.enqueue(named(s, "b"), wake("b", 0))
	if again := s.enqueue(named(s, "a"), wake("a", 1)); again == nil || len(s.queued) != 4 {
		t.Error("a wake that waits was queued twice")
	}
	s.enqueue(named(s, "b"), wake("b", 1))
	if s.enqueue(named(s, "c"), wake("c", 0)) != nil {
		t.Error("the queue is longer than its limit")
	}
	if s.enqueue(named(s, "a"), wake("a", 2)) == nil {
		t.Error("a full queue refuses a wake that is in it")
	}
	if _, _, ok := s.next(noon); ok {
		t.Error("somebody got a slot while none is free")
	}
	s.release(x)
	s.release(y)
	var order []string
	for {
		it, sl, ok := s.next(noon)
		if !ok {
			break
		}
		order = append(order, it.key.consumer)
		s.release(sl)
	}
	// First in first out within a subscription, and subscriptions take turns.
	if want := "[a:0 b:0 a:1 b:1 a:2]"; fmt.Sprint(order) != want {
		t.Errorf("got %v, want %s", order, want)
	}
	if len(s.queued) != 0 || s.waiting[unknown].Len() != 0 {
		t.Errorf("%d are left queued, %d lanes have turns", len(s.queued), s.waiting[unknown].Len())
	}
	s.forget(func(k laneKey) bool { return k.id == "a" })
	if len(s.lanes) != 1 {
		t.Errorf("lanes of deleted subscriptions are kept: %d", len(s.lanes))
	}
}

func TestALargeWakeThatWaitsIsNotKeptInMemory(t *testing.T) {
	s := newSlots(2, 1, 5, 1<<20, newMetrics(nil, 10))
	w := fsm.Delivery{Consumer: "a:1", Epoch: 1, WakeID: "w"}
	if it := s.enqueue(named(s, "a"), w); it.delivery == nil {
		t.Error("a small one is not kept")
	}
	for i := range 1000 {
		w.Streams = append(w.Streams, fsm.StreamTail{Path: fmt.Sprintf("/a/%d", i), Acked: "1", Tail: "2"})
	}
	if it := s.enqueue(named(s, "a"), w); it.delivery != nil {
		t.Error("a large one is kept")
	}
}

func TestALongQueueLeavesOtherSubscriptionsTheirShare(t *testing.T) {
	s := newSlots(2, 1, 1000, 1<<20, newMetrics(nil, 10))
	queued := map[string]int{}
	for _, id := range []string{"a", "b", "c"} {
		for n := range 2000 {
			if s.enqueue(named(s, id), fsm.Delivery{Consumer: fmt.Sprintf("%s:%d", id, n)}) != nil {
				queued[id]++
			}
		}
	}
	if queued["a"] < 490 || queued["a"] > 510 || queued["b"] < 200 || queued["c"] < 100 {
		t.Errorf("the queues are %v", queued)
	}
	if s.enqueue(named(s, "d"), fsm.Delivery{Consumer: "d:0"}) == nil {
		t.Error("the queue is full before a fourth")
	}
}

// TestReplaysLeaveNewEventsTheirTurns holds that new events get three of four turns, and that no turn is left unused.
func TestReplaysLeaveNewEventsTheirTurns(t *testing.T) {
	s := newSlots(1, 1, 100, 1<<20, newMetrics(nil, 10))
	l := named(s, "s")
	busy := s.take(l, 0, noon)
	put := func(kind string, n int) {
		for i := range n {
			w := fsm.Delivery{Consumer: fmt.Sprint(kind, i), Replay: kind == "r"}
			if s.enqueue(l, w) == nil {
				t.Fatal("the queue is full")
			}
		}
	}
	put("r", 4)
	put("n", 5)
	s.release(busy)
	var got []string
	for {
		it, sl, ok := s.next(noon)
		if !ok {
			break
		}
		got = append(got, it.key.consumer)
		s.release(sl)
	}
	want := []string{"n0", "n1", "n2", "r0", "n3", "n4", "r1", "r2", "r3"}
	if !slices.Equal(got, want) {
		t.Errorf("they had their turns as %q, want %q", got, want)
	}
}
