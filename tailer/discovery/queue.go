package discovery

import (
	"container/heap"
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"reveille/fsm"
	"reveille/tailer/upstream"
)

const (
	// queueMax bounds the paths that wait. What does not fit is on record, and found by the scan.
	queueMax = 100_000
	// urgentWorkers reconcile what somebody waits for, which mostly needs no look; workers all the rest.
	urgentWorkers, workers = 64, 32
)

var (
	errQueueFull  = errors.New("too many streams wait to be looked at")
	errQueueEnded = errors.New("discovery has ended")
)

// Evidence is what a source saw of a stream. The zero Evidence says that there is reason to look.
type Evidence struct {
	// Tail is where a write through the gateway ended that upstream has accepted, First is that of the record before
	// the write, and Seen is how the event became known.
	Tail  fsm.Offset
	First time.Time
	Seen  fsm.Sighting
	// Await puts the stream on record for so long if upstream does not have it yet.
	Await time.Duration

	// confirm says that there is nothing to do if the stream is on record and linked, known that it was: that upstream
	// does not have it is not believed at once.
	confirm, known bool
	// before has the tails that were seen before the creators of subscriptions were told of them, by their versions.
	before map[int64]seen
	// urgent is true if somebody waits for it.
	urgent bool
}

// seen is a tail that was seen of a stream whose record has First.
type seen struct {
	tail  fsm.Offset
	first time.Time
}

// Merge returns the evidence with what another source saw.
func (e Evidence) Merge(o Evidence) Evidence {
	e.merge(o)
	return e
}

func (e *Evidence) merge(o Evidence) {
	if o.Tail != "" && (e.Tail == "" || o.First.After(e.First) || o.First.Equal(e.First) && o.Tail.After(e.Tail)) {
		earliest := e.Seen.At
		e.Tail, e.First, e.Seen = o.Tail, o.First, o.Seen
		if !earliest.IsZero() {
			e.Seen.At = earliest
		}
	}
	e.confirm, e.known = e.confirm && o.confirm, e.known || o.known
	e.Await, e.urgent = max(e.Await, o.Await), e.urgent || o.urgent
	if len(o.before) == 0 {
		return
	}
	e.before = maps.Clone(e.before)
	for version, s := range o.before {
		if e.before == nil {
			e.before = map[int64]seen{}
		}
		if was := e.before[version]; s.first.After(was.first) || s.first.Equal(was.first) && s.tail.After(was.tail) {
			e.before[version] = s
		}
	}
}

// item is a path in the queue. Only the worker that has it touches the first fields.
type item struct {
	path   string
	absent absence
	// failures delays what could not be dealt with, waits the next look at what is not there yet.
	failures, waits upstream.Backoff
	// changed counts the tries in a row before which the record had changed.
	changed int

	// The rest is guarded by the queue's lock.
	evidence Evidence
	due      time.Time
	waiters  []chan error
	// at is the place in the heap of its lane; -1 while a worker has it.
	at int
	// again is true if evidence came while a worker had it, cancel ends that worker's look.
	again  bool
	cancel context.CancelFunc
}

// queue holds the paths that are to be reconciled, each once, with all that was seen of it. Equal paths merge, one
// worker a path at a time.
type queue struct {
	mu    sync.Mutex
	max   int
	ended bool
	items map[string]*item
	// urgent is the lane of what somebody waits for, so that a backfill of thousands of streams holds up no write.
	urgent, other lane
}

// lane is a heap of items by due time. wake tells its feeder that the first one has changed.
type lane struct {
	items []*item
	wake  chan struct{}
}

func newQueue(n int) *queue {
	return &queue{
		max: n, items: map[string]*item{},
		urgent: lane{wake: make(chan struct{}, 1)}, other: lane{wake: make(chan struct{}, 1)},
	}
}

func (l *lane) Len() int           { return len(l.items) }
func (l *lane) Less(i, j int) bool { return l.items[i].due.Before(l.items[j].due) }
func (l *lane) Swap(i, j int) {
	l.items[i], l.items[j] = l.items[j], l.items[i]
	l.items[i].at, l.items[j].at = i, j
}

// Push implements heap.Interface.
func (l *lane) Push(x any) {
	it := x.(*item)
	it.at = len(l.items)
	l.items = append(l.items, it)
}

// Pop implements heap.Interface.
func (l *lane) Pop() any {
	n := len(l.items) - 1
	it := l.items[n]
	l.items[n], l.items = nil, l.items[:n]
	it.at = -1
	return it
}

// laneOf is where an item waits. q.mu is held.
func (q *queue) laneOf(e Evidence) *lane {
	if e.urgent {
		return &q.urgent
	}
	return &q.other
}

// push has an item wait. q.mu is held.
func (q *queue) push(it *item) {
	l := q.laneOf(it.evidence)
	heap.Push(l, it)
	if l.items[0] == it {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// add has a path reconciled once due has come, if there is room.
func (q *queue) add(path string, e Evidence, due time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.put(path, e, due)
}

// put is add; it returns nil if there was no room. q.mu is held.
func (q *queue) put(path string, e Evidence, due time.Time) *item {
	it := q.items[path]
	switch {
	case q.ended:
		return nil
	case it == nil && len(q.items) >= q.max:
		return nil
	case it == nil:
		it = &item{path: path, evidence: e, due: due}
		q.items[path] = it
		q.push(it)
	case it.at < 0:
		it.evidence.merge(e)
		it.again = true
		if it.cancel != nil && e.Tail != "" {
			it.cancel() // a write that upstream accepted needs no look
		}
	default:
		heap.Remove(q.laneOf(it.evidence), it.at)
		it.evidence.merge(e)
		if due.Before(it.due) {
			it.due = due
		}
		q.push(it)
	}
	return it
}

// do has a path reconciled at once and returns what came of the next try.
func (q *queue) do(ctx context.Context, path string, e Evidence) error {
	e.urgent = true
	done := make(chan error, 1)
	q.mu.Lock()
	it := q.put(path, e, time.Now())
	switch {
	case it != nil:
		it.waiters = append(it.waiters, done)
	case q.ended:
		done <- errQueueEnded
	default:
		done <- errQueueFull
	}
	q.mu.Unlock()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// expedite has the writes to some streams that wait taken in at once, and returns when they were.
func (q *queue) expedite(ctx context.Context, match func(path string) bool) {
	var waits []chan error
	q.mu.Lock()
	for path, it := range q.items {
		if it.at < 0 || it.evidence.Tail == "" || !match(path) {
			continue
		}
		done := make(chan error, 1)
		q.put(path, Evidence{urgent: true}, time.Now())
		it.waiters = append(it.waiters, done)
		waits = append(waits, done)
	}
	q.mu.Unlock()
	for _, done := range waits {
		select {
		case <-done: //nolint:errcheck // one that failed is tried again, for a subscription to find it then
		case <-ctx.Done():
			return
		}
	}
}

// feed gives the items of a lane to its workers when they are due.
func (q *queue) feed(ctx context.Context, l *lane, to chan<- *item) {
	defer close(to)
	for ctx.Err() == nil {
		q.mu.Lock()
		var it *item
		wait := time.Hour
		if len(l.items) > 0 {
			if wait = time.Until(l.items[0].due); wait <= 0 {
				it = heap.Pop(l).(*item)
			}
		}
		q.mu.Unlock()
		if it == nil {
			upstream.SleepOr(ctx, wait, l.wake)
			continue
		}
		select {
		case to <- it:
		case <-ctx.Done():
		}
	}
}

// take begins the work on an item: it returns what was seen of it, who waits for it, and the context of its look.
func (q *queue) take(ctx context.Context, it *item) (Evidence, []chan error, context.Context, context.CancelFunc) {
	look, cancel := context.WithCancel(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	e, waiters := it.evidence, it.waiters
	it.evidence, it.waiters, it.again, it.cancel = Evidence{}, nil, false, cancel
	return e, waiters, look, cancel
}

// done ends the work on an item. keep is what its next try needs of the evidence; again is when that is, 0 for never.
func (q *queue) done(it *item, keep Evidence, again time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it.cancel = nil
	switch {
	case q.ended:
		return
	case it.again:
		keep.urgent = false
		keep.merge(it.evidence)
		it.evidence, it.due = keep, time.Now()
	case again > 0:
		keep.urgent = false
		it.evidence, it.due = keep, time.Now().Add(again)
	default:
		delete(q.items, it.path)
		return
	}
	q.push(it)
}

// retry ends the work on an item that is to be done again after a moment, for the same reasons and the same waiters.
func (q *queue) retry(it *item, e Evidence, waiters []chan error, after time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it.cancel = nil
	e.merge(it.evidence)
	e.urgent = e.urgent || len(waiters) > 0
	it.evidence, it.waiters, it.due = e, append(waiters, it.waiters...), time.Now().Add(after)
	if q.ended {
		for _, w := range it.waiters {
			w <- errQueueEnded
		}
		return
	}
	q.push(it)
}

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}

// close lets nobody wait any longer.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	for _, it := range q.items {
		for _, w := range it.waiters {
			w <- errQueueEnded
		}
		it.waiters = nil
	}
	clear(q.items)
	q.urgent.items, q.other.items = nil, nil
}
