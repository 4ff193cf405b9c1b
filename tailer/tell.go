package tailer

import (
	"context"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
)

// gatewayPatience is how long a write through the gateway waits while another goroutine tells the store of an event.
const gatewayPatience = 100 * time.Millisecond

// untaken logs that the store did not take what upstream said. The log line contains what.
func (w *watch) untaken(ctx context.Context, what string, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	w.t.untold.Log(w.t.log, time.Now()).Warn(
		"a change of a stream could not be stored in redis; the stream server is asked again",
		zap.String("what", what), zap.String("stream", w.path), zap.Error(err))
}

// hide hides the consumers whose primary stream this is.
func (w *watch) hide(ctx context.Context, a fsm.Absence) error {
	told := time.Now()
	o, err := w.t.store.Hide(ctx, w.path, a)
	// Before an error, the store may have removed some consumers.
	w.t.cfg.Outcomes.Follow(o, fsm.Sighting{Path: w.path, Told: told})
	if len(o.Removed) > 0 {
		w.t.discovery.Forgotten(w.path) // the record went with the consumers
	}
	return err
}

// restart makes the consumers of a new stream under an old name start over.
func (w *watch) restart(ctx context.Context, partition int, was, tail fsm.Offset) error {
	w.t.restarted.Log(w.t.log, time.Now()).Info("a new stream under an old name", zap.String("stream", w.path),
		zap.String("was", was.Value()), zap.String("tail", tail.Value()))
	told := time.Now()
	o, err := w.t.store.Restart(ctx, partition, w.path, was, tail)
	if partition == w.machine.home {
		// The record has another First. The late answer to a write from before must not pass for one to this stream.
		w.t.discovery.Forgotten(w.path)
	}
	// Before an error, the store may have woken some consumers.
	w.t.cfg.Outcomes.Follow(o, fsm.Sighting{Path: w.path, Tail: tail, Told: told})
	return err
}

// observe tells the store a tail in a partition, and whether the stream is closed there. seen is when and how the tail
// was seen.
func (w *watch) observe(
	ctx context.Context, partition int, tail fsm.Offset, closed bool, seen fsm.Sighting,
) (observed, error) {
	since := w.moment()
	seen.Path, seen.Tail, seen.Told = w.path, tail, time.Now()
	obs, err := w.t.store.Observe(ctx, partition, w.path, tail, closed)
	w.t.cfg.Outcomes.Follow(obs.Outcome, seen) // before an error, the store may have woken some
	return observed{
		partition: partition, since: since, tail: tail,
		noted: obs.Noted, watched: obs.Watched, busy: obs.Busy && len(obs.Deliveries) == 0,
	}, err
}

// tell tells the store a tail in a partition, and whether the stream is closed there.
func (w *watch) tell(ctx context.Context, partition int, tail fsm.Offset, closed bool) input {
	o, err := w.observe(ctx, partition, tail, closed, fsm.Sighting{At: time.Now()})
	w.untaken(ctx, "tail", err)
	return input{kind: inputTold, observed: o, err: err}
}

// announce tells the store of an event that a live request shows. The gateway may see the same event at the same time:
// if it has told the store, announce does not. It returns the next action.
func (w *watch) announce(ctx context.Context, partition int, tail fsm.Offset) (next action, err error) {
	mine, err := w.takeTurn(ctx, partition, tail, nil)
	if err != nil {
		return action{}, err
	} else if !mine {
		return w.step(&input{kind: inputDone}), nil
	}
	defer w.endTurn()
	in := w.tell(ctx, partition, tail, false)
	if ctx.Err() == nil {
		next = w.step(&in)
	}
	return next, ctx.Err()
}

// takeTurn waits for the turn to tell the store a tail, which is from an event. One goroutine at a time has the turn,
// until endTurn. It then tells the store, and after that the machine. mine is false if the store was told the tail or a
// higher one meanwhile. If the caller's patience ends before its turn, the watch looks at the stream instead.
func (w *watch) takeTurn(
	ctx context.Context, partition int, tail fsm.Offset, patience <-chan time.Time,
) (mine bool, err error) {
	select {
	case w.telling <- struct{}{}:
	case <-patience:
		w.step(&input{kind: inputLook})
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
	if told, watched := w.told(partition); watched && !tail.After(told) {
		w.endTurn()
		return false, nil
	}
	return true, nil
}

func (w *watch) endTurn() { <-w.telling }

// Tell implements discovery.Watcher. That is one store call for each partition that watches the stream, usually one in
// all.
func (ws *watches) Tell(ctx context.Context, seen fsm.Sighting, subscribed, anew bool) (linked bool, err error) {
	path := seen.Path
	w, runs := ws.get(path)
	switch {
	case runs && anew:
		ws.stir(path, inputActive)
	case !runs && !subscribed:
		return true, nil
	case !runs:
		w = newWatch(ws.t, path) // for this write alone
	}
	if w.looksAfterPause() {
		return true, nil
	}
	linked = true
	home := w.machine.home
	_, watched := w.told(home)
	for _, partition := range w.partitions(subscribed) {
		mine, err := w.takeTurn(ctx, partition, seen.Tail, time.After(gatewayPatience))
		if err != nil {
			return linked, err
		} else if !mine {
			continue
		}
		o, err := w.observe(ctx, partition, seen.Tail, false, seen)
		if err == nil {
			w.step(&input{kind: inputObserved, observed: o})
		}
		w.endTurn()
		switch {
		case err != nil:
			return linked, err
		case o.noted.Closed: // a new stream, unless the answer is late: a watch at rest must look
			ws.Watch(partition, path)
		case partition != home:
		case !o.watched:
			linked = false
		case !watched && ws.t.store.Ownership().Owns(home):
			ws.Watch(home, path)
		}
	}
	return linked, nil
}
