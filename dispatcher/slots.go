package dispatcher

import (
	"container/list"
	"time"

	"reveille/fsm"
)

const (
	// slowAfter is how long an attempt may be in flight before it counts as hanging.
	slowAfter = 5 * time.Second
	// newShare is how many slots a subscription may hold without earning them by answers, once slots are scarce.
	newShare = 2
	// earnedFor is how long a subscription that holds no slot keeps what it has earned.
	earnedFor = time.Second / 2
	// sweepEvery is the time between two sweeps over all subscriptions.
	sweepEvery = time.Second
)

// slots hands out the right to have a request in flight, and keeps the wakes that wait for it. It does no I/O. Its
// owner's mutex guards it.
//
// A subscription that hangs or fails must take nothing from the others. Five rules give the slots:
//
//  1. In all, there are at most total slots. No subscription holds more than its window. The window is perLane at first
//     and at most. It shrinks by one with each attempt that hangs (slowAfter), down to one. It grows by one with each
//     answer, by two with a slow answer. So a subscription that is slow but answers keeps its window.
//  2. While less than half of all slots are in use, only rules 1 and 5 limit a subscription. Beyond that, slots are
//     scarce.
//  3. Scarce slots are earned by answers, like the congestion window of a connection. A subscription that held no slot
//     may hold newShare. Each success earns one more, as long as the subscription uses half of them. A subscription
//     that fails or hangs holds no more than its share of the free slots, and at least one.
//  4. A subscription that fails or hangs leaves the last quarter free. An unknown one has had no result yet: it leaves
//     the last eighth free, but only 1/64 before its first slot. All unknown ones together leave 1/32 free. A proven
//     one leaves the last 1/32 for the first slots of others. So many that hang leave the others what they need.
//  5. What is in flight takes at most maxBytes. Rules 2 and 4 apply to these bytes, too. The last quarter of them is
//     for deliveries without events, which are small. A push reserves what it may bring, until it is known what it
//     brings.
//
// Wakes without a slot are queued: first in, first out within a subscription. Subscriptions take turns. Replays have a
// queue of their own, which gets one of four turns while new events wait.
type slots struct {
	total    int
	perLane  int
	maxQueue int
	maxBytes int

	inFlight int
	// bytes is the sum of the sizes in flight.
	bytes int
	// active counts the lanes that hold slots, news the slots of lanes with unknown standing.
	active, news int
	lanes        map[laneKey]*lane
	// swept is when the last sweep over all lanes was, seen the latest time that is known.
	swept, seen time.Time
	// waiting has the lanes with a queue, by their standing, in the order of their turns. The standings take turns as
	// well, so that many failing lanes do not keep a new one waiting for long.
	waiting [standings]list.List
	// first is the standing whose turn it is.
	first  standing
	queued map[deliveryKey]*item
	// aside counts the wakes that wait elsewhere, until they come back.
	aside int

	metrics *metrics
}

// laneKey is one generation of a subscription. A subscription that is deleted and created again starts afresh.
type laneKey struct{ id, generation string }

// lane is what slots knows of one subscription.
type lane struct {
	key laneKey
	// started has the times at which the attempts that hold slots began, the oldest first. The first of them that is
	// not known to hang is quick.
	started list.List
	quick   *list.Element
	// window is how many slots the lane may hold, earned how many of them once slots are scarce.
	window, earned int
	// most is the largest number of slots that the lane held since the last sweep.
	most int
	// idle is when the lane last gave a slot back.
	idle     time.Time
	standing standing
	// line has the wakes that wait.
	line
	// turn is the lane's place in waiting; nil without a queue.
	turn    *list.Element
	metrics *laneMetrics
	// size is about how much memory each delivery needs on top of its wake, in bytes (kind).
	size int
}

// standing is how a lane's last attempt ended.
type standing int

const (
	unknown standing = iota // no result yet
	failing
	proven
	standings
)

// slot is one right to a request in flight.
type slot struct {
	lane *lane
	at   *list.Element
	// bytes is the slot's part of slots.bytes.
	bytes int
}

// sizeOf is about how much memory a wake needs while its request is in flight, in bytes: for itself and its payload.
func sizeOf(w fsm.Delivery) int {
	size := 2 << 10
	for _, s := range w.Streams {
		size += 2*(len(s.Path)+len(s.Acked)) + len(s.Tail) + 100
	}
	return size
}

func newSlots(total, perLane, maxQueue, maxBytes int, m *metrics) *slots {
	return &slots{
		total: total, perLane: perLane, maxQueue: maxQueue, maxBytes: maxBytes, metrics: m,
		lanes: map[laneKey]*lane{}, queued: map[deliveryKey]*item{},
	}
}

func (s *slots) lane(k laneKey, size int) *lane {
	l := s.lanes[k]
	if l == nil {
		l = &lane{key: k, size: size, window: s.perLane, earned: newShare, metrics: s.metrics.of(k.id)}
		s.lanes[k] = l
	}
	return l
}

// mayStart applies the rules above to an attempt of a size.
func (s *slots) mayStart(l *lane, size int, now time.Time) bool {
	s.seen = now
	s.noteSlow(l, now)
	held, free := l.started.Len(), s.total-s.inFlight
	if held == 0 && now.Sub(l.idle) > earnedFor {
		l.earned = newShare
	}
	bytes := s.maxBytes - s.bytes - s.counted(size+l.size)
	standing := l.standing
	if l.hangs() {
		standing = failing
	}
	spare, theirs := 0, s.maxBytes
	if l.size > 0 {
		spare = s.maxBytes / 4
		theirs -= spare
	}
	scarce := 2*s.inFlight >= s.total || l.size > 0 && 2*(s.bytes+s.counted(size+l.size)) > theirs
	switch {
	case free <= 0 || held >= l.window || bytes < spare+standing.kept(theirs, held):
		return false
	case !scarce:
		return true
	case free <= standing.kept(s.total, held), l.standing == unknown && s.news >= s.total-s.total/32:
		return false
	}
	if held >= l.earned {
		return false
	}
	if standing != failing {
		return true
	}
	lanes := s.active
	if held == 0 {
		lanes++
	}
	return held < max(1, free/lanes)
}

// kept returns how much of a whole a lane that holds so many slots must leave to other lanes.
func (s standing) kept(whole, held int) int {
	switch {
	case s == failing:
		return whole / 4
	case s == unknown && held > 0:
		return whole / 8
	case s == unknown:
		return whole / 64
	case held > 0:
		return whole / 32
	default:
		return 0
	}
}

// hangs says whether an attempt of the lane is known to hang.
func (l *lane) hangs() bool { return l.started.Len() > 0 && l.started.Front() != l.quick }

// noteSlow shrinks the window of a lane by one for each attempt that has begun to hang.
func (s *slots) noteSlow(l *lane, now time.Time) {
	for l.quick != nil && now.Sub(l.quick.Value.(time.Time)) > slowAfter {
		l.quick = l.quick.Next()
		l.window = max(1, l.window-1)
	}
}

// sweep looks for attempts that have begun to hang, once per sweepEvery. It also takes back earned slots without use.
func (s *slots) sweep(now time.Time) {
	if now.Sub(s.swept) < sweepEvery {
		return
	}
	s.swept = now
	for _, l := range s.lanes {
		s.noteSlow(l, now)
		l.earned, l.most = max(newShare, min(l.earned, 2*l.most)), l.started.Len()
	}
}

// counted returns what a size counts for. It has a limit: settings may allow wakes that would never fit otherwise.
func (s *slots) counted(size int) int { return min(size, s.maxBytes/16) }

func (s *slots) take(l *lane, size int, now time.Time) slot {
	if l.started.Len() == 0 {
		s.active++
	}
	s.inFlight++
	counted := s.counted(size + l.size)
	s.bytes += counted
	sl := slot{lane: l, at: l.started.PushBack(now), bytes: counted}
	if l.quick == nil {
		l.quick = sl.at
	}
	l.most = max(l.most, l.started.Len())
	if l.standing == unknown {
		s.news++
	}
	return sl
}

// resize counts a slot at the size that its attempt really has.
func (s *slots) resize(sl *slot, size int) {
	s.bytes -= sl.bytes
	sl.bytes = s.counted(size)
	s.bytes += sl.bytes
}

func (s *slots) release(sl slot) {
	l := sl.lane
	if l.quick == sl.at {
		l.quick = sl.at.Next()
	}
	l.started.Remove(sl.at)
	l.idle = s.seen
	if l.standing == unknown {
		s.news--
	}
	s.inFlight--
	s.bytes -= sl.bytes
	if l.started.Len() == 0 {
		s.active--
	}
}

// ended notes how the attempt of a slot ended.
func (s *slots) ended(sl slot, end ending, now time.Time) {
	l := sl.lane
	s.seen = now
	s.noteSlow(l, now)
	standing := failing
	if end.ok {
		standing = proven
	}
	if end.answered {
		l.window++
		if now.Sub(sl.at.Value.(time.Time)) > slowAfter {
			l.window++
		}
		l.window = min(l.window, s.perLane)
	}
	if end.ok {
		l.earned = min(max(l.earned, l.started.Len())+1, s.perLane)
	}
	if l.standing != standing && l.turn != nil {
		s.waiting[l.standing].Remove(l.turn)
		l.turn = s.waiting[standing].PushBack(l)
	}
	if l.standing == unknown {
		s.news -= l.started.Len()
	}
	l.standing = standing
}

// ending is how an attempt ended: whether it had an answer, and whether it was a success.
type ending struct{ answered, ok bool }

// next takes the wake whose turn it is, and a slot for it. It returns false if no waiting subscription may have a slot
// now.
func (s *slots) next(now time.Time) (it *item, sl slot, ok bool) {
	s.sweep(now)
	s.first = (s.first + 1) % standings
	for i := range standings {
		standing := (s.first + i) % standings
		ring := &s.waiting[standing]
		for range ring.Len() {
			// Lanes of a standing that may have no slot are not looked through: there can be very many.
			if free := s.total - s.inFlight; free <= 0 || 2*s.inFlight >= s.total && free <= standing.kept(s.total, 0) {
				break
			}
			turn := ring.Front()
			l := turn.Value.(*lane)
			ring.MoveToBack(turn)
			it := l.next().Front().Value.(*item)
			if !s.mayStart(l, it.size, now) {
				continue
			}
			l.remove(it.queue, it.place)
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

// forget drops the lanes that hold nothing and for which keep returns false.
func (s *slots) forget(keep func(laneKey) bool) {
	for k, l := range s.lanes {
		if l.started.Len() == 0 && l.waiting() == 0 && !keep(k) {
			delete(s.lanes, k)
			s.metrics.forget(l.metrics)
		}
	}
}
