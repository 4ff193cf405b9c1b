package dispatcher

import (
	"container/list"
	"time"

	"reveille/fsm"
)

// slowAfter is how long an attempt may be out before its subscription counts as one that hangs.
const slowAfter = 5 * time.Second

// slots hands out the right to have a request in flight, and keeps the wakes that wait for it. It does no I/O and is
// guarded by its owner's mutex.
//
// A subscription that hangs or fails must take nothing from the others, so a slot is given by four rules:
//
//  1. in all there are no more than total, and no subscription holds more than perLane;
//  2. while less than half of all slots are in use, nothing else is asked;
//  3. from then on a subscription may hold at most its share of what is free: free slots divided by the subscriptions
//     that hold any, itself included, and at least one. What hanging subscriptions can take so gets less with each;
//  4. the last eighth is only for subscriptions whose last attempt did not fail and that have none out for longer than
//     slowAfter.
//
// Wakes that get none wait in line, first in first out within a subscription, and subscriptions take turns.
type slots struct {
	total    int
	perLane  int
	maxQueue int

	inFlight int
	// active counts the lanes that hold slots.
	active int
	lanes  map[laneKey]*lane
	// waiting are the lanes with a queue, in the order of their turns.
	waiting list.List
	queued  map[wakeKey]*item
}

// laneKey is a subscription of one generation: one that was deleted and made anew starts afresh.
type laneKey struct{ id, generation string }

// lane is what slots knows of one subscription.
type lane struct {
	key laneKey
	// started are the times at which the attempts that hold slots began, the oldest first.
	started list.List
	// failing is true if the last attempt that ended failed.
	failing bool
	queue   list.List
	// turn is the lane's place in waiting; nil without a queue.
	turn *list.Element
	// trouble is what was logged of the endpoint.
	trouble trouble
}

// wakeKey is a wake cycle, whichever attempt of it.
type wakeKey struct {
	consumer string
	epoch    int64
	wakeID   string
}

func keyOf(w fsm.Wake) wakeKey { return wakeKey{w.Consumer, w.Epoch, w.WakeID} }

// item is a wake that waits for a slot.
type item struct {
	key  wakeKey
	lane *lane
	ref  fsm.WakeRef
	// wake is set until the store was told that the attempt waits: such a one can go out as it is. Afterwards the store
	// is asked for what there is to deliver.
	wake *fsm.Wake
	// parking is true while the store is being told; again is true if it must be told once more after that.
	parking, again bool
	place          *list.Element // in lane.queue
	park           *list.Element // in the list of those to be parked; nil if not in it
}

// slot is one right to a request in flight.
type slot struct {
	lane *lane
	at   *list.Element
}

func newSlots(total, perLane, maxQueue int) *slots {
	return &slots{
		total: total, perLane: perLane, maxQueue: maxQueue,
		lanes: map[laneKey]*lane{}, queued: map[wakeKey]*item{},
	}
}

func (s *slots) lane(k laneKey) *lane {
	l := s.lanes[k]
	if l == nil {
		l = &lane{key: k}
		s.lanes[k] = l
	}
	return l
}

// mayStart applies the rules above.
func (s *slots) mayStart(l *lane, now time.Time) bool {
	held, free := l.started.Len(), s.total-s.inFlight
	switch {
	case free <= 0 || held >= s.perLane:
		return false
	case 2*s.inFlight < s.total:
		return true
	case free <= s.total/8 && l.suspect(now):
		return false
	}
	active := s.active
	if held == 0 {
		active++
	}
	return held < max(1, free/active)
}

func (l *lane) suspect(now time.Time) bool {
	if l.failing {
		return true
	}
	oldest := l.started.Front()
	return oldest != nil && now.Sub(oldest.Value.(time.Time)) > slowAfter
}

func (s *slots) take(l *lane, now time.Time) slot {
	if l.started.Len() == 0 {
		s.active++
	}
	s.inFlight++
	return slot{lane: l, at: l.started.PushBack(now)}
}

func (s *slots) release(sl slot) {
	sl.lane.started.Remove(sl.at)
	s.inFlight--
	if sl.lane.started.Len() == 0 {
		s.active--
	}
}

// enqueue puts a wake in its lane's line, or renews what is there of it already. It returns nil if the line is full.
func (s *slots) enqueue(l *lane, w fsm.Wake) *item {
	it := s.queued[keyOf(w)]
	if it == nil {
		if len(s.queued) >= s.maxQueue {
			return nil
		}
		it = &item{key: keyOf(w), lane: l}
		s.queued[it.key] = it
		it.place = l.queue.PushBack(it)
		if l.turn == nil {
			l.turn = s.waiting.PushBack(l)
		}
	}
	it.ref, it.wake = w.Ref(), &w
	return it
}

// next takes the wake whose turn it is, and a slot for it. ok is false if no waiting subscription may have one now.
func (s *slots) next(now time.Time) (it *item, sl slot, ok bool) {
	for range s.waiting.Len() {
		if s.inFlight >= s.total {
			break
		}
		turn := s.waiting.Front()
		l := turn.Value.(*lane)
		s.waiting.MoveToBack(turn)
		it := l.queue.Front().Value.(*item)
		if it.parking || !s.mayStart(l, now) {
			continue
		}
		l.queue.Remove(it.place)
		delete(s.queued, it.key)
		if l.queue.Len() == 0 {
			s.waiting.Remove(turn)
			l.turn = nil
		}
		return it, s.take(l, now), true
	}
	return nil, slot{}, false
}

// forget drops what is known of the lanes that hold nothing and that keep says no to.
func (s *slots) forget(keep func(laneKey) bool) {
	for k, l := range s.lanes {
		if l.started.Len() == 0 && l.queue.Len() == 0 && !keep(k) {
			delete(s.lanes, k)
		}
	}
}

// clear empties the lanes and returns what was in them.
func (s *slots) clear() (waiting []fsm.WakeRef) {
	for e := s.waiting.Front(); e != nil; e = e.Next() {
		l := e.Value.(*lane)
		for q := l.queue.Front(); q != nil; q = q.Next() {
			waiting = append(waiting, q.Value.(*item).ref)
		}
		l.queue.Init()
		l.turn = nil
	}
	s.waiting.Init()
	clear(s.queued)
	return waiting
}
