package tailer

import (
	"context"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
)

// untaken logs that the store did not take what upstream said. what is for the log.
func (w *watch) untaken(ctx context.Context, what string, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	if times, log := w.t.untold.Happened(time.Now()); log {
		w.t.log.Warn("a change of a stream could not be stored in redis; the stream server is asked again",
			zap.String("what", what), zap.String("stream", w.path), zap.Int("times", times), zap.Error(err))
	}
}

// hide hides the consumers whose primary stream this is.
func (w *watch) hide(ctx context.Context, a fsm.Absence) error {
	told := time.Now()
	o, err := w.t.store.Hide(ctx, w.path, a)
	// An error may have come after some were removed.
	w.t.cfg.Outcomes.Follow(o, fsm.Sighting{Path: w.path, Told: told})
	if len(o.Gone) > 0 {
		w.t.discovery.Forgotten(w.path) // the record went with the consumers
	}
	return err
}

// restart starts over the consumers of a new stream under an old name.
func (w *watch) restart(ctx context.Context, partition int, was, tail fsm.Offset) error {
	if times, log := w.t.restarted.Happened(time.Now()); log {
		w.t.log.Info("a new stream under an old name", zap.String("stream", w.path),
			zap.String("was", was.Value()), zap.String("tail", tail.Value()), zap.Int("times", times))
	}
	told := time.Now()
	o, err := w.t.store.Restart(ctx, partition, w.path, was, tail)
	// An error may have come after some were woken.
	w.t.cfg.Outcomes.Follow(o, fsm.Sighting{Path: w.path, Tail: tail, Told: told})
	return err
}

// observe tells the store a tail in a partition, and whether the stream is closed there. seen is when and how that was
// seen.
func (w *watch) observe(
	ctx context.Context, partition int, tail fsm.Offset, closed bool, seen fsm.Sighting,
) (observed, error) {
	since := w.moment()
	seen.Path, seen.Tail, seen.Told = w.path, tail, time.Now()
	obs, err := w.t.store.Observe(ctx, partition, w.path, tail, closed)
	w.t.cfg.Outcomes.Follow(obs.Outcome, seen) // an error may have come after some were woken
	return observed{
		partition: partition, since: since, tail: tail,
		noted: obs.Noted, watched: obs.Watched, busy: obs.Busy && len(obs.Wakes) == 0,
	}, err
}

// tell tells the store a tail in a partition, and whether the stream is closed there.
func (w *watch) tell(ctx context.Context, partition int, tail fsm.Offset, closed bool) input {
	o, err := w.observe(ctx, partition, tail, closed, fsm.Sighting{At: time.Now()})
	w.untaken(ctx, "tail", err)
	return input{kind: inputTold, observed: o, err: err}
}

// announce tells the store of an event that a live request shows, unless the gateway, which sees the same event at the
// same time, has done so. It returns what is next.
func (w *watch) announce(ctx context.Context, partition int, tail fsm.Offset) (next action, err error) {
	mine := false
	err = w.tellOnce(ctx, partition, tail, nil, func() error {
		in := w.tell(ctx, partition, tail, false)
		if ctx.Err() == nil {
			next, mine = w.step(&in), true
		}
		return ctx.Err()
	})
	if err == nil && !mine {
		next = w.step(&input{kind: inputDone})
	}
	return next, err
}

// tellOnce calls do, which tells the store, and then the machine, the tail that an event has led to, unless the store
// was told that tail or a higher one. One goroutine at a time does so. A caller whose patience ends before its turn has
// the stream looked at instead.
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
