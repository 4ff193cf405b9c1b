package tailer

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
)

const (
	// writeWorkers take in writes at the same time; writesMax is how many streams may wait for one.
	writeWorkers = 64
	writesMax    = 16_384
	// writeTries is how often the store is told of a write before the loops have to find it.
	writeTries = 4
)

// write is what the gateway saw of one or more writes to a stream.
type write struct {
	tail    fsm.Offset
	created bool
	// replaced are the tails, by partition, that the store had noted of an older stream of the same name when this one was created.
	replaced map[int]fsm.Offset
	// at is when the first of them had succeeded.
	at time.Time
}

// writeEnd is where a write ended, and the subscriptions that matched when it had succeeded.
type writeEnd struct {
	tail fsm.Offset
	subs []subscriptionKey
}

// writeEnds are those of the writes to one stream that have not been taken in: open of them wait or are being taken in. Of
// the writes that the same subscriptions matched, only the highest is kept.
type writeEnds struct {
	open int
	list []writeEnd
}

// writes is the queue between the gateway, which must not wait, and the store. Writes to one stream that wait together
// become one: tails only go up.
//
// A write that cannot be queued, or that the store does not take, is not lost: a stream with a loop is seen by it, and
// one that nobody had heard of was noted as awaited before its write went upstream.
type writes struct {
	t     *Tailer
	ready chan string

	mu      sync.Mutex
	waiting map[string]write
	ends    map[string]*writeEnds
}

func newWrites(t *Tailer) *writes {
	return &writes{t: t, ready: make(chan string, writesMax), waiting: map[string]write{}, ends: map[string]*writeEnds{}}
}

// add queues a write; subs are the subscriptions that match now that it has succeeded. It does not block.
func (ws *writes) add(path string, wr write, subs []subscriptionKey) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	was, ok := ws.waiting[path]
	if !ok && len(ws.ready) == cap(ws.ready) {
		ws.t.fallBack(path)
		return
	}
	e := ws.ends[path]
	if e == nil {
		e = &writeEnds{}
		ws.ends[path] = e
	}
	e.add(wr.tail, subs)
	if was.tail.After(wr.tail) {
		wr.tail = was.tail
	}
	if ok && !was.at.IsZero() {
		wr.at = was.at
	}
	if wr.created = wr.created || was.created; wr.replaced == nil {
		wr.replaced = was.replaced
	}
	ws.waiting[path] = wr
	if !ok {
		e.open++
		ws.ready <- path
	}
}

func (e *writeEnds) add(tail fsm.Offset, subs []subscriptionKey) {
	for i, end := range e.list {
		if slices.Equal(end.subs, subs) {
			if tail.After(end.tail) {
				e.list[i].tail = tail
			}
			return
		}
	}
	e.list = append(e.list, writeEnd{tail, subs})
}

// endBefore is where the last write ended that had succeeded before a subscription was made; empty if there is none, as far as
// the writes go that have not been taken in.
func (ws *writes) endBefore(path string, sub subscriptionKey) (last fsm.Offset) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if e := ws.ends[path]; e != nil {
		for _, end := range e.list {
			if end.tail.After(last) && !slices.Contains(end.subs, sub) {
				last = end.tail
			}
		}
	}
	return last
}

// done ends what take began.
func (ws *writes) done(path string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if e := ws.ends[path]; e.open > 1 {
		e.open--
	} else {
		delete(ws.ends, path)
	}
}

// take returns what waits for a stream; its tail is empty if it was dropped. done must follow.
func (ws *writes) take(path string) write {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	wr := ws.waiting[path]
	delete(ws.waiting, path)
	return wr
}

func (ws *writes) has(path string) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	_, ok := ws.waiting[path]
	return ok
}

// drop forgets what waits for a stream that is gone. Its path stays in the queue.
func (ws *writes) drop(path string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if _, ok := ws.waiting[path]; ok {
		ws.waiting[path] = write{}
	}
	if e := ws.ends[path]; e != nil {
		e.list = nil
	}
}

// Run takes in writes until the context ends, and leaves those that wait then to the owners of their partitions.
func (ws *writes) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for range writeWorkers {
		wg.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case path := <-ws.ready:
					if wr := ws.take(path); wr.tail != "" {
						ws.do(ctx, path, wr)
					}
					ws.done(path)
				}
			}
		})
	}
	wg.Wait()
	for {
		select {
		case path := <-ws.ready:
			ws.t.store.Hint(fsm.Hint{Kind: fsm.HintWritten, Path: path})
		default:
			return nil
		}
	}
}

func (ws *writes) do(ctx context.Context, path string, wr write) {
	delay := growing{least: 20 * time.Millisecond, most: 200 * time.Millisecond}
	var err error
	for range writeTries {
		if err = ws.t.wrote(ctx, path, wr); err == nil {
			return
		}
		if !sleep(ctx, jitter(delay.next())) {
			ws.t.store.Hint(fsm.Hint{Kind: fsm.HintWritten, Path: path})
			return
		}
	}
	if times, log := ws.t.unwritten.Happened(time.Now()); log {
		ws.t.log.Warn("a write could not be taken in; its stream is looked at instead", zap.String("stream", path),
			zap.Int("times", times), zap.Error(err))
	}
	ws.t.fallBack(path)
}

// fallBack is for a write that is not taken in: the loop of its stream looks, or the stream is asked for until it is known and linked.
func (t *Tailer) fallBack(path string) {
	t.watches.doubt(path)
	switch {
	case t.linked.Contains(path):
	case len(t.store.Catalog().Match(path)) > 0:
		t.awaited.add(path, false)
		t.awaited.untell(path)
	default: // of those that nobody is subscribed to, only the doubtful are asked for
		t.awaited.doubt(path, t.cfg.GoneGrace)
	}
}
