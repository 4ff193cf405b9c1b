package tailer

import (
	"context"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/tailer/upstream"
)

// insist repeats a call of the store until it succeeds or the context ends. While the store is away there is nothing
// better to do with what was seen than to hold on to it. what is for the log.
func (w *watch) insist(ctx context.Context, what string, call func() error) error {
	delay := upstream.Backoff{Min: 50 * time.Millisecond, Max: 2 * time.Second}
	for {
		err := call()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		}
		w.unstored(what, err)
		if !upstream.Sleep(ctx, upstream.Jitter(delay.Next())) {
			return ctx.Err()
		}
	}
}

// unstored logs that the store did not take a change. what is for the log.
func (w *watch) unstored(what string, err error) {
	if times, log := w.t.untold.Happened(time.Now()); log {
		w.t.log.Warn("a change of a stream could not be stored in redis; it is tried again",
			zap.String("what", what), zap.String("stream", w.path), zap.Int("times", times), zap.Error(err))
	}
}

// hide hides the consumers whose primary stream this is. It is not repeated: that would not be what upstream says then.
func (w *watch) hide(ctx context.Context, a fsm.Absence) error {
	told := time.Now()
	o, err := w.t.store.Hide(ctx, w.path, a)
	// An error may have come after some were removed.
	w.t.cfg.Outcomes.Follow(o, fsm.Sighting{Path: w.path, Told: told})
	if err != nil && ctx.Err() == nil {
		w.unstored("gone", err)
	}
	return err
}

// restart is for a stream whose tail has moved back.
func (w *watch) restart(ctx context.Context, partition int, was, tail fsm.Offset) error {
	if times, log := w.t.restarted.Happened(time.Now()); log {
		w.t.log.Info("the tail moved back: a new stream under an old name", zap.String("stream", w.path),
			zap.String("was", was.Value()), zap.String("tail", tail.Value()), zap.Int("times", times))
	}
	return w.insist(ctx, "restart", func() error {
		told := time.Now()
		o, err := w.t.store.Restart(ctx, partition, w.path, was, tail)
		// An error may have come after some were woken.
		w.t.cfg.Outcomes.Follow(o, fsm.Sighting{Path: w.path, Tail: tail, Told: told})
		return err
	})
}

// observe tells the store a tail in a partition, once. seen is when and how it was seen.
func (w *watch) observe(ctx context.Context, partition int, tail fsm.Offset, seen fsm.Sighting) (observed, error) {
	since := w.moment()
	seen.Path, seen.Tail, seen.Told = w.path, tail, time.Now()
	obs, err := w.t.store.Observe(ctx, partition, w.path, tail)
	w.t.cfg.Outcomes.Follow(obs.Outcome, seen) // an error may have come after some were woken
	return observed{
		partition: partition, since: since, tail: tail,
		noted: obs.Tail, watched: obs.Watched, busy: obs.Busy && len(obs.Wakes) == 0,
	}, err
}

// tell tells the store a tail in a partition until it takes it.
func (w *watch) tell(ctx context.Context, partition int, tail fsm.Offset) input {
	in, seen := input{kind: inputTold}, fsm.Sighting{At: time.Now()}
	_ = w.insist(ctx, "tail", func() (err error) {
		in.observed, err = w.observe(ctx, partition, tail, seen)
		return err
	})
	return in
}

// announce is tell for an event that a live request shows, unless the gateway has told the store, which sees the same
// one at the same time.
func (w *watch) announce(ctx context.Context, partition int, tail fsm.Offset) input {
	in := input{kind: inputDone}
	_ = w.tellOnce(ctx, partition, tail, nil, func() error {
		in = w.tell(ctx, partition, tail)
		return nil
	})
	return in
}

// tellOnce has do tell the store what an event has moved the tail to, unless it was told that or a higher tail. One at
// a time does: who has no patience to wait for the others has the stream looked at instead.
func (w *watch) tellOnce(
	ctx context.Context, partition int, tail fsm.Offset, patience <-chan time.Time, do func() error,
) error {
	select {
	case w.telling <- struct{}{}:
		defer func() { <-w.telling }()
	case <-patience:
		w.step(&input{kind: inputLook})
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	if told, watched := w.told(partition); watched && !tail.After(told) {
		return nil
	}
	return do()
}
