package tailer

import (
	"context"
	"time"

	"reveille/fsm"
)

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
