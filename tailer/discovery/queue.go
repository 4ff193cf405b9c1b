package discovery

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"time"

	"reveille/fsm/bell"
	"reveille/tailer/upstream"
)

const (
	// queueMax bounds the paths that wait. A path that does not fit is on record, and the scan finds it. Paths that
	// were written to have a sixth more room.
	queueMax = 100_000
	// urgentWorkers handle writes, and paths that callers wait for, mostly without a look. workers handle the others.
	urgentWorkers, workers = 64, 32
)

var errNotQueued = errors.New("too many streams wait to be looked at, or discovery has ended")

// item is a path in the queue. Only its worker touches the first fields.
type item struct {
	path   string
	absent absence
	// failures delays the next try after a failure, waits the next look at a stream that does not exist yet.
	failures, waits upstream.Backoff
	// record is when the tail of a stream without consumers is put on record; zero if that is not due.
	record time.Time

	// The queue's lock guards the rest. evidence and waiters are for the next try, which is at due. The time due is
	// zero while a worker has the item and nothing has come since.
	evidence Evidence
	waiters  []chan error
	due      time.Time
	// at is the place in the heap of its lane; -1 while a worker has it.
	at int
	// cancel ends the look of the item's worker. patient says that the look waits while upstream is down.
	cancel  context.CancelFunc
	patient bool
}

// want makes an item be tried once more, at due or before. The queue's lock is held.
func (it *item) want(e Evidence, due time.Time, waiters []chan error) {
	if it.due.IsZero() {
		it.evidence, it.due = e, due
	} else {
		it.evidence = it.evidence.Merge(e)
	}
	if due.Before(it.due) {
		it.due = due
	}
	it.waiters = append(it.waiters, waiters...)
}

// supersede ends the look under way, if what came since must not wait for it. A write that upstream accepted needs no
// look. A caller that waits here does not wait for an upstream that is down. The queue's lock is held.
func (it *item) supersede() {
	if it.cancel != nil && (it.evidence.Tail != "" || it.evidence.urgent && it.patient) {
		it.cancel()
	}
}

// queue holds the paths to handle, each once, with everything that was seen of it: a mailbox for each stream. Equal
// paths merge. One worker at a time has a path.
type queue struct {
	mu  sync.Mutex
	max int
	// items is nil once ended is closed.
	items map[string]*item
	ended chan struct{}
	// urgent is the lane of writes, and of paths that callers wait for. So a backfill of thousands of streams does not
	// delay a write.
	urgent, other lane
}

// lane is a heap of items by due time. wake rings when the first one has changed.
type lane struct {
	items []*item
	wake  bell.Bell
}

func newQueue(n int) *queue {
	return &queue{
		max: n, items: map[string]*item{}, ended: make(chan struct{}),
		urgent: lane{wake: bell.New()}, other: lane{wake: bell.New()},
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

// laneOf returns the lane where an item waits. q.mu is held.
func (q *queue) laneOf(it *item) *lane {
	if it.evidence.urgent {
		return &q.urgent
	}
	return &q.other
}

// push puts an item into its lane. q.mu is held.
func (q *queue) push(it *item) {
	l := q.laneOf(it)
	heap.Push(l, it)
	if it.at == 0 {
		l.wake.Ring()
	}
}

// add makes a worker handle a path once due has come, and tell the waiters the result. It says whether there was
// room.
func (q *queue) add(path string, e Evidence, due time.Time, waiters ...chan error) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	it, most := q.items[path], q.max
	if e.onlyWrites {
		most += q.max / 6
	}
	switch {
	case it == nil && (q.items == nil || len(q.items) >= most):
		return false
	case it == nil:
		it = &item{path: path}
		q.items[path] = it
	case it.at < 0:
		it.want(e, due, waiters)
		it.supersede()
		return true
	default:
		heap.Remove(q.laneOf(it), it.at)
	}
	it.want(e, due, waiters)
	q.push(it)
	return true
}

// do makes a worker handle a path at once, and returns the result of the next try.
func (q *queue) do(ctx context.Context, path string, e Evidence) error {
	done := make(chan error, 1)
	if !q.add(path, e, time.Now(), done) {
		return errNotQueued
	}
	select {
	case err := <-done:
		return err
	case <-q.ended:
		return errNotQueued
	case <-ctx.Done():
		return ctx.Err()
	}
}

// withTail returns the paths that wait with the tail of a write.
func (q *queue) withTail() (paths []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for path, it := range q.items {
		if it.evidence.Tail != "" {
			paths = append(paths, path)
		}
	}
	return paths
}

// work calls try for the items of a lane that are due, at most width at a time, until the context ends.
func (q *queue) work(ctx context.Context, l *lane, width int, try func(context.Context, *item)) {
	var wg sync.WaitGroup
	defer wg.Wait()
	waits := make(chan struct{}, 1) // one worker waits for the next item, the others for their turn
	for range width {
		wg.Go(func() {
			for {
				waits <- struct{}{}
				it := q.next(ctx, l)
				<-waits
				if it == nil {
					return
				}
				try(ctx, it)
			}
		})
	}
}

// next waits until an item of a lane is due and removes it. It returns nil if the context ends first.
func (q *queue) next(ctx context.Context, l *lane) *item {
	for wait := time.Duration(0); upstream.SleepOr(ctx, wait, l.wake); {
		q.mu.Lock()
		if wait = time.Hour; len(l.items) > 0 {
			wait = time.Until(l.items[0].due)
		}
		if wait <= 0 {
			defer q.mu.Unlock()
			return heap.Pop(l).(*item)
		}
		q.mu.Unlock()
	}
	return nil
}

// take begins the work on an item. It returns what was seen of it, and its waiters.
func (q *queue) take(it *item) (Evidence, []chan error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e, waiters := it.evidence, it.waiters
	it.evidence, it.waiters, it.due, it.patient = Evidence{}, nil, time.Time{}, !e.urgent
	return e, waiters
}

// look returns the context of a look by the worker of an item.
func (q *queue) look(ctx context.Context, it *item) (context.Context, context.CancelFunc) {
	look, cancel := context.WithCancel(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	it.cancel = cancel
	it.supersede()
	return look, cancel
}

// done ends the work on an item. again is the time until its next try, for e and the waiters; 0 if it needs none.
func (q *queue) done(it *item, again time.Duration, e Evidence, waiters ...chan error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it.cancel = nil
	if again > 0 {
		it.want(e, time.Now().Add(again), waiters)
	}
	if it.due.IsZero() || q.items == nil {
		delete(q.items, it.path)
		return
	}
	q.push(it)
}

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}

// close ends the wait of all callers, and accepts nothing more. It returns the paths with a write that the store was
// not told of.
func (q *queue) close() (untold []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for path, it := range q.items {
		if it.evidence.Tail != "" && it.record.IsZero() {
			untold = append(untold, path)
		}
	}
	close(q.ended)
	q.items, q.urgent.items, q.other.items = nil, nil, nil
	return untold
}
