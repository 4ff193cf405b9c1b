package tailer

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/fsm/throttle"
	"reveille/tailer/discovery"
	"reveille/tailer/upstream"
)

const (
	// writeWorkers handle writes at the same time. queuedWritesMax bounds the streams that wait for a worker.
	writeWorkers    = 64
	queuedWritesMax = 16_384
	// writeTries is how often the store is told of a write. After that, the watches have to find it.
	writeTries = 4
)

// writes is the queue between the gateway, which must not wait, and the store. Tails only go up, so waiting writes to
// one stream become one.
//
// A write is not lost if the queue is full or the store refuses it. If the stream has a watch, the watch sees the
// write. If the stream was unknown, it was put on record before its write went upstream.
type writes struct {
	t     *Tailer
	ready chan string
	// unwritten limits the log lines about writes that the store was not told of.
	unwritten throttle.Trouble

	mu      sync.Mutex
	waiting map[string]discovery.Evidence
	// ended is true once Run accepts no more writes.
	ended bool
}

func newWrites(t *Tailer) *writes {
	return &writes{t: t, ready: make(chan string, queuedWritesMax), waiting: map[string]discovery.Evidence{}}
}

// add queues a write. It does not block.
func (ws *writes) add(path string, seen discovery.Evidence) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	was, ok := ws.waiting[path]
	switch {
	case ws.ended:
		ws.leave(path)
		return
	case !ok && len(ws.ready) == cap(ws.ready):
		ws.t.fallBack(path, seen)
		return
	}
	ws.waiting[path] = was.Merge(seen)
	if !ok {
		ws.ready <- path
	}
}

// take removes what waits for a stream and returns it.
func (ws *writes) take(path string) discovery.Evidence {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	seen := ws.waiting[path]
	delete(ws.waiting, path)
	return seen
}

// Run handles writes until the context ends. It leaves the rest to the owners of their partitions.
func (ws *writes) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for range writeWorkers {
		wg.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case path := <-ws.ready:
					ws.do(ctx, path, ws.take(path))
				}
			}
		})
	}
	wg.Wait()
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.ended = true
	for path := range ws.waiting {
		ws.leave(path)
	}
	return nil
}

// leave leaves a stream to the owner of its partition.
func (ws *writes) leave(path string) { ws.t.store.Hint(fsm.Hint{Kind: fsm.HintLook, Path: path}) }

func (ws *writes) do(ctx context.Context, path string, seen discovery.Evidence) {
	delay := upstream.Backoff{Min: 20 * time.Millisecond, Max: 200 * time.Millisecond}
	var err error
	for range writeTries {
		if err = ws.t.wrote(ctx, path, &seen); err == nil {
			return
		}
		if !upstream.Sleep(ctx, upstream.Jitter(delay.Next())) {
			ws.leave(path)
			return
		}
	}
	ws.unwritten.Log(ws.t.log, time.Now()).Warn(
		"a write through the gateway could not be stored in redis; the stream server is asked for the tail instead",
		zap.String("stream", path), zap.Error(err))
	ws.t.fallBack(path, seen)
}

// fallBack makes the watch look at a stream, because its write was not stored.
func (t *Tailer) fallBack(path string, seen discovery.Evidence) {
	t.watches.refresh(path)
	_, current := t.discovery.Current(path, seen)
	switch _, runs := t.watches.get(path); {
	case !current:
		t.discovery.Enqueue(path, seen)
	case !runs: // the store may have dropped its record meanwhile
		t.discovery.ConfirmWritten(path, seen)
	}
}
