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
// A subscription that hangs or fails must take nothing from the others, so a slot is given by five rules:
//
//  1. in all there are no more than total, and no subscription holds more than perLane;
//  2. while less than half of all slots are in use, nothing else is asked;
//  3. from then on a subscription may hold at most its share of what is free: free slots divided by the subscriptions
//     that hold any, itself included, and at least one. Each one that hangs leaves less for the next;
//  4. the last eighth is only for subscriptions whose last attempt did not fail and that have none out for longer than
//     slowAfter, and the last quarter of that only for those whose last attempt succeeded: new ones that hang, however
//     many at once, cannot take it;
//  5. what is in flight has no more than maxBytes, and the last parts of those are kept in the same way; the last
//     quarter for deliveries that bring no events, which are small.
//
// Wakes that get none are queued, first in first out within a subscription, and subscriptions take turns. What is
// replayed has a queue of its own, which gets one of four turns while new events wait.
type slots struct {
	total    int
	perLane  int
	maxQueue int
	maxBytes int

	inFlight int
	// bytes is the sum of the sizes of what is in flight.
	bytes int
	// active counts the lanes that hold slots.
	active int
	lanes  map[laneKey]*lane
	// waiting are the lanes with a queue, by their standing, in the order of their turns. The standings take turns as
	// well, so that many that fail do not keep a new one waiting for long.
	waiting [standings]list.List
	// first is the standing whose turn it is.
	first  standing
	queued map[wakeKey]*item
	// aside counts the wakes that wait elsewhere, until they come back.
	aside int

	metrics *metrics
}

// laneKey is a subscription of one generation: one that was deleted and made anew starts afresh.
type laneKey struct{ id, generation string }

// lane is what slots knows of one subscription.
type lane struct {
	key laneKey
	// started are the times at which the attempts that hold slots began, the oldest first.
	started  list.List
	standing standing
	// queue has what waits, replays what is replayed of it. passed counts how often replays were passed over.
	queue, replays list.List
	passed         int
	// turn is the lane's place in waiting; nil without a queue.
	turn    *list.Element
	metrics *laneMetrics
	// size is about what each of its deliveries costs in memory on top of its wake, in bytes (kind).
	size int
}

// standing is how a lane's last attempt ended.
type standing int

const (
	unknown standing = iota // none has
	failing
	proven
	standings
)

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
	size int
	// wake is set until the store was told that the attempt waits, or may have been: such a wake can go out as it is.
	// Afterwards the store is asked for what there is to deliver, in the name of by.
	wake *fsm.Wake
	by   string
	// parking is true while the store is being told; again is true if it must be told once more after that.
	parking, again bool
	// seen is that of the wake.
	seen fsm.Sighting
	// since is when the attempt was handed to this process; parkAt is when the store is to be told that it waits, askAt
	// when it is to be asked again for what there is to deliver.
	since, parkAt, askAt time.Time
	place                *list.Element // in queue
	queue                *list.List    // of the lane
	park                 *list.Element // in one of the lists of those to be parked; nil if in none
}

// slot is one right to a request in flight.
type slot struct {
	lane *lane
	at   *list.Element
	// bytes is what it counts for of those in flight.
	bytes int
}

// keptWake is the size, in bytes, beyond which a wake that waits is not kept in memory: the store has it.
const keptWake = 4 << 10

// sizeOf is about what a wake costs in memory while its request is in flight, in bytes: itself and its payload.
func sizeOf(w fsm.Wake) int {
	size := 2 << 10
	for _, s := range w.Streams {
		size += 2*(len(s.Path)+len(s.Acked)) + len(s.Tail) + 100
	}
	return size
}

func newSlots(total, perLane, maxQueue, maxBytes int, m *metrics) *slots {
	return &slots{
		total: total, perLane: perLane, maxQueue: maxQueue, maxBytes: maxBytes, metrics: m,
		lanes: map[laneKey]*lane{}, queued: map[wakeKey]*item{},
	}
}

func (s *slots) lane(k laneKey, size int) *lane {
	l := s.lanes[k]
	if l == nil {
		l = &lane{key: k, size: size, metrics: s.metrics.of(k.id)}
		s.lanes[k] = l
	}
	return l
}

// mayStart applies the rules above to an attempt of a size.
func (s *slots) mayStart(l *lane, size int, now time.Time) bool {
	held, free := l.started.Len(), s.total-s.inFlight
	bytes := s.maxBytes - s.bytes - s.counted(size+l.size)
	standing := l.standing
	if l.hangs(now) {
		standing = failing
	}
	spare := standing.kept(s.maxBytes)
	if l.size > 0 {
		theirs := s.maxBytes - s.maxBytes/4
		spare = s.maxBytes/4 + standing.kept(theirs)
	}
	switch {
	case free <= 0 || held >= s.perLane || bytes < spare:
		return false
	case 2*s.inFlight < s.total:
		return true
	case free <= standing.kept(s.total):
		return false
	}
	active := s.active
	if held == 0 {
		active++
	}
	return held < max(1, free/active)
}

// kept returns how much of a whole is kept for lanes of a better standing.
func (s standing) kept(whole int) int {
	switch s {
	case failing:
		return whole / 8
	case unknown:
		return whole / 32
	default:
		return 0
	}
}

// hangs says whether a lane has had an attempt out for long.
func (l *lane) hangs(now time.Time) bool {
	oldest := l.started.Front()
	return oldest != nil && now.Sub(oldest.Value.(time.Time)) > slowAfter
}

// counted returns what a size counts for: settings may allow wakes that would never fit otherwise.
func (s *slots) counted(size int) int { return min(size, s.maxBytes/16) }

func (s *slots) take(l *lane, size int, now time.Time) slot {
	if l.started.Len() == 0 {
		s.active++
	}
	s.inFlight++
	counted := s.counted(size + l.size)
	s.bytes += counted
	return slot{lane: l, at: l.started.PushBack(now), bytes: counted}
}

func (s *slots) release(sl slot) {
	sl.lane.started.Remove(sl.at)
	s.inFlight--
	s.bytes -= sl.bytes
	if sl.lane.started.Len() == 0 {
		s.active--
	}
}

// ended notes how an attempt of a lane went.
func (s *slots) ended(l *lane, ok bool) {
	now := failing
	if ok {
		now = proven
	}
	if l.standing == now {
		return
	}
	if l.turn != nil {
		s.waiting[l.standing].Remove(l.turn)
		l.turn = s.waiting[now].PushBack(l)
	}
	l.standing = now
}

// enqueue puts a wake in its lane's queue, or renews what is there of it already. It returns nil if the queue is full.
func (s *slots) enqueue(l *lane, w fsm.Wake) *item {
	it := s.queued[keyOf(w)]
	if it == nil {
		// One subscription's queue is no longer than what it leaves to others.
		if free := s.maxQueue - len(s.queued) - s.aside; free <= 0 || l.waiting() > free {
			return nil
		}
		it = &item{key: keyOf(w), lane: l, queue: l.queueOf(w)}
		s.queued[it.key] = it
		it.place = it.queue.PushBack(it)
		if l.turn == nil {
			l.turn = s.waiting[l.standing].PushBack(l)
		}
	}
	it.ref, it.size = w.Ref(), sizeOf(w)
	if !w.Seen.At.IsZero() {
		it.seen = w.Seen
	}
	if it.wake = &w; it.size > keptWake {
		it.wake = nil
	}
	return it
}

// setAside keeps an item that had its turn in a list.
func (s *slots) setAside(in *list.List, it *item) {
	in.PushBack(it)
	s.aside++
}

// comeBack queues an item of a list that was set aside, as the last of its lane: the store may still not answer for it,
// but does for others. It does nothing if the wake was queued anew meanwhile.
func (s *slots) comeBack(in *list.List, e *list.Element) {
	it := in.Remove(e).(*item)
	s.aside--
	if s.queued[it.key] != nil {
		return
	}
	l := s.lane(it.lane.key, it.lane.size)
	if it.queue == &it.lane.replays {
		it.queue = &l.replays
	} else {
		it.queue = &l.queue
	}
	it.lane = l
	s.queued[it.key] = it
	it.place = it.queue.PushBack(it)
	if l.turn == nil {
		l.turn = s.waiting[l.standing].PushBack(l)
	}
}

// next takes the wake whose turn it is, and a slot for it. ok is false if no waiting subscription may have one now.
func (s *slots) next(now time.Time) (it *item, sl slot, ok bool) {
	s.first = (s.first + 1) % standings
	for i := range standings {
		standing := (s.first + i) % standings
		ring := &s.waiting[standing]
		for range ring.Len() {
			// If lanes of this standing may have no slot, they are not looked through: there can be very many.
			if free := s.total - s.inFlight; free <= 0 || 2*s.inFlight >= s.total && free <= standing.kept(s.total) {
				break
			}
			turn := ring.Front()
			l := turn.Value.(*lane)
			ring.MoveToBack(turn)
			it := l.next()
			if !s.mayStart(l, it.size, now) {
				continue
			}
			l.remove(it)
			delete(s.queued, it.key)
			if l.waiting() == 0 {
				ring.Remove(turn)
				l.turn = nil
			}
			return it, s.take(l, it.size, now), true
		}
	}
	return nil, slot{}, false
}

// replayTurns is how many turns new events have while replays wait, before one of these has its own.
const replayTurns = 3

func (l *lane) waiting() int { return l.queue.Len() + l.replays.Len() }

func (l *lane) queueOf(w fsm.Wake) *list.List {
	if w.Replay {
		return &l.replays
	}
	return &l.queue
}

// isBehind says whether something waits that comes before a wake.
func (l *lane) isBehind(w fsm.Wake) bool { return l.queue.Len() > 0 || w.Replay && l.replays.Len() > 0 }

// next returns the item whose turn it is.
func (l *lane) next() *item {
	queue := &l.queue
	if queue.Len() == 0 || l.replays.Len() > 0 && l.passed >= replayTurns {
		queue = &l.replays
	}
	return queue.Front().Value.(*item)
}

// remove takes an item out of its queue.
func (l *lane) remove(it *item) {
	it.queue.Remove(it.place)
	switch {
	case it.queue == &l.replays:
		l.passed = 0
	case l.replays.Len() > 0:
		l.passed++
	}
}

// forget drops what is known of the lanes that hold nothing and for which keep returns false.
func (s *slots) forget(keep func(laneKey) bool) {
	for k, l := range s.lanes {
		if l.started.Len() == 0 && l.waiting() == 0 && !keep(k) {
			delete(s.lanes, k)
			s.metrics.forget(l.metrics)
		}
	}
}

// clear empties the lanes and returns what was in them.
func (s *slots) clear() (waiting []fsm.WakeRef) {
	for i := range s.waiting {
		for e := s.waiting[i].Front(); e != nil; e = e.Next() {
			l := e.Value.(*lane)
			for _, queue := range []*list.List{&l.queue, &l.replays} {
				for q := queue.Front(); q != nil; q = q.Next() {
					waiting = append(waiting, q.Value.(*item).ref)
				}
				queue.Init()
			}
			l.turn = nil
		}
		s.waiting[i].Init()
	}
	clear(s.queued)
	return waiting
}
