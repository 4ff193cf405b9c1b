package tailer

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
)

// observe tells the store a tail in a partition, once.
func (w *watch) observe(
	ctx context.Context, partition int, tail fsm.Offset, seen fsm.Sighting,
) (observed, fsm.Observation, error) {
	since := w.moment()
	seen.Path, seen.Tail, seen.Told = w.path, tail, time.Now()
	obs, err := w.t.store.Observe(ctx, partition, w.path, tail)
	w.t.cfg.Outcomes.Follow(obs.Outcome, seen) // an error may have come after some were woken
	return observed{
		partition: partition, since: since, tail: tail,
		noted: obs.Tail, watched: obs.Watched, busy: obs.Busy && len(obs.Wakes) == 0,
	}, obs, err
}

// tell tells the store a tail in a partition until it takes it.
func (w *watch) tell(ctx context.Context, partition int, tail fsm.Offset) input {
	in, seen := input{kind: inputTold}, fsm.Sighting{At: time.Now()}
	_ = w.t.insist(ctx, "tail", zap.String("stream", w.path), func() (err error) {
		in.observed, _, err = w.observe(ctx, partition, tail, seen)
		return err
	})
	return in
}

// announce is tell for an event that a live request shows. The gateway sees the same one at the same time: while it
// tells the store, the live request waits, and makes a call of its own if that failed.
func (w *watch) announce(ctx context.Context, partition int, tail fsm.Offset) input {
	end, wait := w.beginAnnouncing(partition, tail)
	if end != nil {
		defer end()
		return w.tell(ctx, partition, tail)
	}
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
		}
	}
	return input{kind: inputKnown, partition: partition}
}

// gatewayPatience is how long the gateway waits for others that tell the store what it saw.
const gatewayPatience = 100 * time.Millisecond

// announceWritten has do tell the store where a write through the gateway ended, unless it was told that or a higher
// tail. Others must not hold up the gateway: a live request that is at it goes on until the store knows, and another
// writer that fails has the stream looked at.
func (w *watch) announceWritten(ctx context.Context, partition int, tail fsm.Offset, do func() error) error {
	patience := time.NewTimer(gatewayPatience)
	defer patience.Stop()
	for {
		end, wait := w.beginAnnouncing(partition, tail)
		switch {
		case end != nil:
			defer end()
			return do()
		case wait == nil:
			return nil
		}
		select {
		case <-wait:
		case <-patience.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// observeWritten tells the store a tail for the gateway.
func (w *watch) observeWritten(
	ctx context.Context, partition int, tail fsm.Offset, seen fsm.Sighting,
) (fsm.Observation, error) {
	o, obs, err := w.observe(ctx, partition, tail, seen)
	if err == nil {
		w.step(&input{kind: inputObserved, observed: o})
	}
	return obs, err
}

// announcement is a call of the store that tells it what an event has moved the tail to.
type announcement struct {
	partition int
	tail      fsm.Offset
	over      chan struct{}
}

// beginAnnouncing returns what must be called when the store has been told; or what to wait for; or neither, if it
// knows.
func (w *watch) beginAnnouncing(partition int, tail fsm.Offset) (end func(), wait <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.machine.part(partition)
	switch {
	case p == nil:
		return func() {}, nil
	case !tail.After(p.tail):
		return nil, nil
	}
	for _, other := range w.announcing {
		if other.partition == partition && !tail.After(other.tail) {
			return nil, other.over
		}
	}
	mine := &announcement{partition: partition, tail: tail, over: make(chan struct{})}
	w.announcing = append(w.announcing, mine)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.announcing = slices.DeleteFunc(w.announcing, func(a *announcement) bool { return a == mine })
		close(mine.over)
	}, nil
}
