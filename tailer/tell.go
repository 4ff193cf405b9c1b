package tailer

import (
	"context"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
)

// note tells the store the tail that a HEAD showed, in each partition that does not know it yet. It returns what is true
// of the stream in the end: a tail behind one that was seen before is asked for again, and if it stays behind and nothing can be
// read beyond it, the stream is a new one under an old name and its consumers start over.
func (w *watch) note(ctx context.Context, info fsm.StreamInfo) (fsm.StreamInfo, error) {
	behind := map[int]fsm.Offset{}
	for partition, told := range w.partitions() {
		if told == info.Tail {
			continue
		}
		obs, err := w.observe(ctx, partition, info.Tail)
		if err != nil {
			return info, err
		}
		if obs.Watched && obs.Tail.After(info.Tail) {
			behind[partition] = obs.Tail
		}
	}
	if len(behind) == 0 {
		return info, nil
	}
	// Every tail in behind was noted before this HEAD, so a tail behind it cannot be old news.
	info, err := w.t.HeadAnew(ctx, w.path)
	if err == nil && info.Exists && !info.TTL {
		// A server may have more to read than its HEAD says: one that was interrupted in an append, say. Its stream is the same one.
		// Some show that to nobody who is at the end by their HEAD, but to those behind it.
		for _, from := range []fsm.Offset{info.Tail, fsm.Start} {
			var end fsm.Offset
			if end, err = w.t.readBeyond(ctx, w.path, from, info.Tail); err != nil {
				break
			}
			if end.After(info.Tail) {
				info.Tail = end
				break
			}
		}
	}
	if err != nil || !info.Exists {
		return info, err
	}
	for partition, was := range behind {
		if !was.After(info.Tail) {
			if _, err := w.observe(ctx, partition, info.Tail); err != nil {
				return info, err
			}
			continue
		}
		if err := w.t.restart(ctx, w, partition, was, info.Tail); err != nil {
			return info, err
		}
	}
	return info, nil
}

// noteAhead tells the store a position that a live request showed, where it lies beyond what the store was told.
func (w *watch) noteAhead(ctx context.Context, offset fsm.Offset) error {
	for partition := range w.partitions() {
		err := w.tell(ctx, partition, offset, func() error {
			_, err := w.observe(ctx, partition, offset)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *watch) observe(ctx context.Context, partition int, tail fsm.Offset) (obs fsm.Observation, err error) {
	seen := fsm.Sighting{At: time.Now()}
	err = w.t.insist(ctx, "tail", zap.String("stream", w.path), func() error {
		obs, err = w.observeOnce(ctx, partition, tail, seen)
		return err
	})
	return obs, err
}

func (w *watch) observeOnce(ctx context.Context, partition int, tail fsm.Offset, seen fsm.Sighting) (fsm.Observation, error) {
	s, told := w.stamp(partition), telling(w.path, tail)
	obs, err := w.t.store.Observe(ctx, partition, w.path, tail)
	w.t.settleSeen(told, obs.Outcome, seen) // an error may have come after some were woken
	if err == nil {
		w.seen(partition, s, tail, obs)
	}
	return obs, err
}

// tellingTail is a call of the store that tells it a tail.
type tellingTail struct {
	tail fsm.Offset
	over chan struct{}
}

// tell calls do, which tells the store a tail in a partition, unless it was told that one or a higher one. The gateway and a live
// request see the same event at the same time: while the gateway tells it the loop waits, and makes a call of its own if that failed.
func (w *watch) tell(ctx context.Context, partition int, tail fsm.Offset, do func() error) error {
	for {
		end, wait := w.beginTelling(partition, tail)
		switch {
		case end != nil:
			defer end()
			return do()
		case wait == nil:
			return nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tellPatience is how long the gateway waits for others that tell the store what it saw.
const tellPatience = 100 * time.Millisecond

// tellOnce is tell for the gateway, which others must not hold up: a loop that is at it goes on until the store knows, and another writer
// that fails has the loop look.
func (w *watch) tellOnce(ctx context.Context, partition int, tail fsm.Offset, do func() error) error {
	limited, cancel := context.WithTimeout(ctx, tellPatience)
	defer cancel()
	begun := false
	err := w.tell(limited, partition, tail, func() error {
		begun = true
		return do()
	})
	if !begun && ctx.Err() == nil {
		return nil
	}
	return err
}

// beginTelling returns what must be called when the store has been told; or what to wait for; or neither, if there is nothing to tell.
func (w *watch) beginTelling(partition int, tail fsm.Offset) (end func(), wait <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.parts[partition]
	switch {
	case p == nil:
		return func() {}, nil
	case !tail.After(p.tail):
		return nil, nil
	case p.telling != nil && !tail.After(p.telling.tail):
		return nil, p.telling.over
	}
	mine := &tellingTail{tail: tail, over: make(chan struct{})}
	p.telling = mine
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if p.telling == mine {
			p.telling = nil
		}
		close(mine.over)
	}, nil
}
