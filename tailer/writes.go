package tailer

import (
	"context"
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
	// first is the tail after the first of the writes, and subs are the subscriptions that matched when that had succeeded.
	first fsm.Offset
	subs  []subscriptionKey
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
}

func newWrites(t *Tailer) *writes {
	return &writes{t: t, ready: make(chan string, writesMax), waiting: map[string]write{}}
}

// add queues a write. It does not block.
func (ws *writes) add(path string, wr write) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	was, ok := ws.waiting[path]
	if !ok && len(ws.ready) == cap(ws.ready) {
		ws.t.fallBack(path)
		return
	}
	if was.tail.After(wr.tail) {
		wr.tail = was.tail
	}
	wr.created = wr.created || was.created
	if was.first != "" {
		wr.first, wr.subs = was.first, was.subs
	}
	ws.waiting[path] = wr
	if !ok {
		ws.ready <- path
	}
}

// take returns what waits for a stream; its tail is empty if it was dropped.
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
}

// Run takes in writes until the context ends.
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
				}
			}
		})
	}
	wg.Wait()
	return nil
}

func (ws *writes) do(ctx context.Context, path string, wr write) {
	delay := growing{least: 20 * time.Millisecond, most: 200 * time.Millisecond}
	var err error
	for range writeTries {
		if err = ws.t.wrote(ctx, path, wr); err == nil || !sleep(ctx, jitter(delay.next())) {
			return
		}
	}
	ws.t.log.Warn("a write could not be taken in; its stream is looked at instead", zap.String("stream", path), zap.Error(err))
	ws.t.fallBack(path)
}

// fallBack is for a write that is not taken in: the loop of its stream looks, or the stream is asked for until it is linked.
func (t *Tailer) fallBack(path string) {
	t.watches.doubt(path)
	if !t.linked.Contains(path) && len(t.store.Catalog().Match(path)) > 0 {
		t.awaited.add(path, false)
	}
}
