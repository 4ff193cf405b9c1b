package dispatcher

import (
	"fmt"
	"testing"
	"time"

	"reveille/fsm"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func named(s *slots, id string) *lane { return s.lane(laneKey{id: id}) }

// fill takes slots for a subscription until it gets no more.
func fill(s *slots, l *lane, now time.Time) (taken []slot) {
	for s.mayStart(l, now) {
		taken = append(taken, s.take(l, now))
	}
	return taken
}

func TestSlots(t *testing.T) {
	for _, tc := range []struct {
		name string
		// before brings the slots (64 in all, 16 a subscription) to where "it" asks; want is how many it gets then.
		before func(s *slots)
		want   int
	}{
		{"a subscription alone gets its limit", func(*slots) {}, 16},
		{"while half is free every subscription gets its limit", func(s *slots) { fill(s, named(s, "a"), noon) }, 16},
		{"beyond half it gets its share of what is free", func(s *slots) {
			fill(s, named(s, "a"), noon)
			fill(s, named(s, "b"), noon)
		}, 8},
		{"hanging subscriptions, however many, leave something", func(s *slots) {
			for i := range 12 {
				fill(s, named(s, fmt.Sprint(i)), noon)
			}
		}, 1},
		{"the last eighth is not for one that failed", func(s *slots) {
			for i := range 12 {
				fill(s, named(s, fmt.Sprint(i)), noon)
			}
			named(s, "it").failing = true
		}, 0},
		{"before the last eighth one that failed has its share", func(s *slots) {
			fill(s, named(s, "a"), noon)
			fill(s, named(s, "b"), noon)
			named(s, "it").failing = true
		}, 8},
		{"the last eighth is not for one that hangs", func(s *slots) {
			s.take(named(s, "it"), noon.Add(-slowAfter-time.Second))
			for i := range 12 {
				fill(s, named(s, fmt.Sprint(i)), noon)
			}
		}, 0},
		{"a subscription gets one although others use more than their share", func(s *slots) {
			for i := range 63 {
				s.take(named(s, fmt.Sprint(i)), noon)
			}
		}, 1},
		{"in all there are no more than the limit", func(s *slots) {
			for i := range 64 {
				s.take(named(s, fmt.Sprint(i)), noon)
			}
		}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSlots(64, 16, 10)
			tc.before(s)
			if got := len(fill(s, named(s, "it"), noon)); got != tc.want {
				t.Errorf("got %d slots, want %d", got, tc.want)
			}
		})
	}
}

func TestSlotsComeBack(t *testing.T) {
	s := newSlots(8, 4, 10)
	for range 3 {
		for _, sl := range fill(s, named(s, "a"), noon) {
			s.release(sl)
		}
	}
	if s.inFlight != 0 || s.active != 0 || len(fill(s, named(s, "a"), noon)) != 4 {
		t.Errorf("in flight %d, active %d", s.inFlight, s.active)
	}
}

func TestLine(t *testing.T) {
	s := newSlots(2, 1, 5)
	wake := func(id string, n int) fsm.Wake {
		return fsm.Wake{Consumer: fmt.Sprintf("%s:%d", id, n), Epoch: 1, WakeID: "w"}
	}
	x, y := s.take(named(s, "x"), noon), s.take(named(s, "y"), noon)
	for n := range 3 {
		s.enqueue(named(s, "a"), wake("a", n))
	}
	s.enqueue(named(s, "b"), wake("b", 0))
	if again := s.enqueue(named(s, "a"), wake("a", 1)); again == nil || len(s.queued) != 4 {
		t.Error("a wake that waits was put in line twice")
	}
	s.enqueue(named(s, "b"), wake("b", 1))
	if s.enqueue(named(s, "c"), wake("c", 0)) != nil {
		t.Error("the line is longer than its limit")
	}
	if s.enqueue(named(s, "a"), wake("a", 2)) == nil {
		t.Error("a full line refuses a wake that is in it")
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
	if len(s.queued) != 0 || s.waiting.Len() != 0 {
		t.Errorf("%d are left in line, %d lanes have turns", len(s.queued), s.waiting.Len())
	}
	s.forget(func(k laneKey) bool { return k.id == "a" })
	if len(s.lanes) != 1 {
		t.Errorf("lanes of deleted subscriptions are kept: %d", len(s.lanes))
	}
}
