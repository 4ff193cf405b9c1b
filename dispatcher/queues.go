package dispatcher

import (
	"container/list"
	"time"

	"reveille/fsm"
)

// item is a wake that waits for a slot, in a queue of its lane. Type slots says who gets the next slot.
type item struct {
	key  deliveryKey
	lane *lane
	ref  fsm.DeliveryRef
	size int
	// wake is nil if it is too large to be kept, and once the store was told, or may have been, that the attempt waits.
	// Until then, the wake can go out as it is. Afterwards, the store is asked what there is to deliver, in the name of
	// by.
	delivery *fsm.Delivery
	by       string
	// parking is true while the store is being told; again is true if it must be told once more after that.
	parking, again bool
	// turn is nil unless the wake has waited for its rate.
	turn *turn
	// seen is the Seen of the wake.
	seen fsm.Sighting
	// since is when this process got the attempt. At parkAt, the store is told that the attempt waits. At askAt, the
	// store is asked again what there is to deliver.
	since, parkAt, askAt time.Time
	place                *list.Element // in queue
	queue                *list.List    // of the lane
	park                 *list.Element // in toParkNow or toPark; nil if in neither
}

// keptDelivery is the size in bytes beyond which a waiting wake is not kept in memory: the store has it.
const keptDelivery = 4 << 10

// deliveryKey names a delivery, whichever attempt of it.
type deliveryKey struct {
	consumer string
	epoch    int64
	wakeID   string
}

func keyOf(w fsm.Delivery) deliveryKey { return deliveryKey{w.Consumer, w.Epoch, w.WakeID} }

// enqueue puts a wake into its lane's queue, or renews the item that is there already. It returns nil if the queue is
// full.
func (s *slots) enqueue(l *lane, w fsm.Delivery) *item {
	it := s.queued[keyOf(w)]
	if it == nil {
		// A subscription's queue is no longer than the space that it leaves to others.
		if free := s.maxQueue - len(s.queued) - s.aside; free <= 0 || l.waiting() > free {
			return nil
		}
		it = &item{key: keyOf(w), lane: l, queue: l.queueOf(w.Replay)}
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
	if it.delivery = &w; it.size > keptDelivery {
		it.delivery = nil
	}
	return it
}

// setAside keeps an item in a list, after its turn.
func (s *slots) setAside(in *list.List, it *item) {
	in.PushBack(it)
	s.aside++
}

// comeBack takes an item from a list and queues it at the end of its lane. The store may still not answer for it, but
// may answer for others. If the wake was queued anew meanwhile, comeBack only drops the item.
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

// replayTurns is how many turns new events have before waiting replays have one.
const replayTurns = 3

// line is who waits: in queue for new events, in replays for replays. The field passed counts the turns of queue
// since the last turn of replays.
type line struct {
	queue, replays list.List
	passed         int
}

func (l *line) waiting() int { return l.queue.Len() + l.replays.Len() }

func (l *line) queueOf(replay bool) *list.List {
	if replay {
		return &l.replays
	}
	return &l.queue
}

// isBehind says whether another wake that waits comes before w.
func (l *line) isBehind(w fsm.Delivery) bool {
	return l.queue.Len() > 0 || w.Replay && l.replays.Len() > 0
}

// next returns the queue whose turn it is. It has an item.
func (l *line) next() *list.List {
	if l.queue.Len() == 0 || l.replays.Len() > 0 && l.passed >= replayTurns {
		return &l.replays
	}
	return &l.queue
}

// remove takes an item out of its queue.
func (l *line) remove(queue *list.List, place *list.Element) {
	queue.Remove(place)
	switch {
	case queue == &l.replays:
		l.passed = 0
	case l.replays.Len() > 0:
		l.passed++
	}
}

// clear empties the lanes and returns the wakes that waited.
func (s *slots) clear() (waiting []fsm.DeliveryRef) {
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
