package dispatcher

import (
	"fmt"
	"testing"
	"time"

	"reveille/fsm"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func named(s *slots, id string) *lane { return s.lane(laneKey{id: id}, 0) }

// fill takes slots for a subscription until it gets no more.
func fill(s *slots, l *lane, now time.Time) (taken []slot) {
	for s.mayStart(l, 0, now) {
		taken = append(taken, s.take(l, 0, now))
	}
	return taken
}

// endOne ends an attempt of a subscription.
func endOne(s *slots, l *lane, ok bool) {
	sl := s.take(l, 0, noon)
	s.ended(sl, ending{answered: true, ok: ok}, noon)
	s.release(sl)
}

// earn makes a subscription earn slots by answers.
func earn(s *slots, l *lane, n int) {
	var held []slot
	for range n {
		held = append(held, s.take(l, 0, noon))
	}
	for range 2 {
		for _, sl := range held {
			s.ended(sl, ending{answered: true, ok: true}, noon)
		}
	}
	for _, sl := range held {
		s.release(sl)
	}
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
		{"beyond half one that nothing is known of gets few", func(s *slots) {
			fill(s, named(s, "a"), noon)
			fill(s, named(s, "b"), noon)
		}, newShare},
		{"beyond half one that works gets what it has earned", func(s *slots) {
			earn(s, named(s, "it"), 16)
			fill(s, named(s, "a"), noon)
			fill(s, named(s, "b"), noon)
		}, 16},
		{"what was earned is for a moment", func(s *slots) {
			earn(s, named(s, "it"), 16)
			named(s, "it").idle = noon.Add(-earnedFor - 1)
			fill(s, named(s, "a"), noon)
			fill(s, named(s, "b"), noon)
		}, newShare},
		{"hanging subscriptions, however many, leave something for one that works", func(s *slots) {
			for i := range 100 {
				fill(s, named(s, fmt.Sprint(i)), noon)
			}
			endOne(s, named(s, "it"), true)
		}, 1},
		{"hanging subscriptions leave something for a new one", func(s *slots) {
			for i := range 12 {
				fill(s, named(s, fmt.Sprint(i)), noon)
			}
		}, newShare},
		{"the last quarter is not for one that failed", func(s *slots) {
			for i := range 100 {
				fill(s, named(s, fmt.Sprint(i)), noon)
			}
			endOne(s, named(s, "it"), false)
		}, 0},
		{"the last of all is not for one that nothing is known of", func(s *slots) {
			for i := range 100 {
				fill(s, named(s, fmt.Sprint(i)), noon)
			}
		}, 0},
		{"before the last quarter one that failed gets few", func(s *slots) {
			fill(s, named(s, "a"), noon)
			fill(s, named(s, "b"), noon)
			endOne(s, named(s, "it"), false)
		}, newShare},
		{"the last quarter is not for one that hangs", func(s *slots) {
			s.take(named(s, "it"), 0, noon.Add(-slowAfter-time.Second))
			endOne(s, named(s, "it"), true)
			for i := range 100 {
				fill(s, named(s, fmt.Sprint(i)), noon)
			}
		}, 0},
		{"a subscription gets one although others use more than their share", func(s *slots) {
			for i := range 63 {
				s.take(named(s, fmt.Sprint(i)), 0, noon)
			}
			endOne(s, named(s, "it"), true)
		}, 1},
		{"in all there are no more than the limit", func(s *slots) {
			for i := range 64 {
				s.take(named(s, fmt.Sprint(i)), 0, noon)
			}
		}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSlots(64, 16, 10, 1<<20, newMetrics(nil, 10))
			tc.before(s)
			if got := len(fill(s, named(s, "it"), noon)); got != tc.want {
				t.Errorf("got %d slots, want %d", got, tc.want)
			}
		})
	}
}

func TestSlotsComeBack(t *testing.T) {
	s := newSlots(8, 4, 10, 1<<20, newMetrics(nil, 10))
	for range 3 {
		for _, sl := range fill(s, named(s, "a"), noon) {
			s.release(sl)
		}
	}
	if s.inFlight != 0 || s.active != 0 || len(fill(s, named(s, "a"), noon)) != 4 {
		t.Errorf("in flight %d, active %d", s.inFlight, s.active)
	}
}

// TestTheWindowOfASubscriptionFollowsItsAnswers holds that a subscription that hangs loses its slots, even while others
// are free. It gets them back with the answers.
func TestTheWindowOfASubscriptionFollowsItsAnswers(t *testing.T) {
	s := newSlots(64, 16, 10, 1<<20, newMetrics(nil, 10))
	l := named(s, "it")
	out := fill(s, l, noon)
	later := noon.Add(slowAfter + 1)
	if got := len(out); got != 16 || s.mayStart(l, 0, later) || l.window != 1 || !l.hangs() {
		t.Fatalf("%d are out and hang, the window is %d", got, l.window)
	}
	for _, sl := range out[:12] {
		s.ended(sl, ending{}, later)
		s.release(sl)
	}
	if l.window != 1 || s.mayStart(l, 0, later) {
		t.Errorf("after twelve without an answer, with four out, the window is %d", l.window)
	}
	for _, sl := range out[12:] { // slow, but answered
		s.ended(sl, ending{answered: true, ok: true}, later)
		s.release(sl)
	}
	if got := fill(s, l, later); l.window != 9 || len(got) != 9 || l.hangs() {
		t.Errorf("after four answers %d are out, the window is %d", len(got), l.window)
	}
	if s.active != 1 || s.inFlight != 9 {
		t.Errorf("counted %d active, %d in flight", s.active, s.inFlight)
	}
}

// TestAPushCountsForWhatItHolds holds that a push gives back the memory reserved for its events once they are read.
func TestAPushCountsForWhatItHolds(t *testing.T) {
	s := newSlots(1024, 64, 10, 64<<20, newMetrics(nil, 10))
	l := s.lane(laneKey{id: "it"}, pushSize)
	sl := s.take(l, 2<<10, noon)
	s.resize(&sl, 5000)
	if s.bytes != 5000 {
		t.Errorf("%d bytes are counted, want what it holds", s.bytes)
	}
	if s.release(sl); s.bytes != 0 {
		t.Errorf("%d bytes are counted with nothing in flight", s.bytes)
	}
}

func TestTheSizeOfWhatIsInFlightIsBounded(t *testing.T) {
	const most = 64 << 10
	s := newSlots(1000, 500, 10, most, newMetrics(nil, 10))
	var taken []slot
	big := most / 32
	for s.mayStart(named(s, "a"), big, noon) {
		taken = append(taken, s.take(named(s, "a"), big, noon))
	}
	if len(taken) != 28 {
		t.Errorf("one that nothing is known of holds %d, want all but an eighth of 32", len(taken))
	}
	endOne(s, named(s, "b"), true)
	for s.mayStart(named(s, "b"), big, noon) {
		taken = append(taken, s.take(named(s, "b"), big, noon))
	}
	if len(taken) != 31 {
		t.Errorf("with one that works %d are in flight, want all but one of 32", len(taken))
	}
	endOne(s, named(s, "c"), true)
	if s.mayStart(named(s, "c"), big, noon) {
		taken = append(taken, s.take(named(s, "c"), big, noon))
	}
	if len(taken) != 32 || s.bytes != most {
		t.Errorf("%d are in flight with %d bytes, want 32 with %d", len(taken), s.bytes, most)
	}
	for _, sl := range taken {
		s.release(sl)
	}
	if s.bytes != 0 || !s.mayStart(named(s, "a"), 100*most, noon) {
		t.Errorf("%d bytes are counted with nothing in flight; one that is too large for any bound must go out all "+
			"the same",
			s.bytes)
	}
}

func TestStandingsTakeTurns(t *testing.T) {
	s := newSlots(64, 1, 1000, 1<<20, newMetrics(nil, 10))
	for n := range 500 {
		l := named(s, fmt.Sprint("failing-", n))
		s.enqueue(l, fsm.Delivery{Consumer: l.key.id})
		endOne(s, l, false)
	}
	s.enqueue(named(s, "new"), fsm.Delivery{Consumer: "new"})
	for n := range standings {
		if it, _, ok := s.next(noon); ok && it.key.consumer == "new" {
			return
		} else if !ok {
			t.Fatalf("nothing at turn %d", n)
		}
	}
	t.Error("a new subscription waits behind those that fail")
}
