package tailer

import (
	"context"
	"time"

	"reveille/fsm"
)

// Written takes in a successful write through the gateway; created says that the stream is new. It does not block.
func (t *Tailer) Written(w fsm.Write, tail fsm.Offset, created bool) {
	switch {
	case w.Path == "":
		return
	case tail == "": // against the protocol; upstream is asked
		t.Refused(w)
		return
	}
	wr := write{
		seen: t.Discovery.Written(w, tail, fsm.Sighting{At: time.Now(), Gateway: true}), created: created,
	}
	if watch, runs := t.watches.get(w.Path); runs && created {
		wr.replaced = watch.notedBeyond(tail)
	}
	t.writes.add(w.Path, wr)
}

// wrote takes in a successful write. For a stream that is linked it is one call of the store in each partition that
// watches it, mostly one in all.
func (t *Tailer) wrote(ctx context.Context, path string, wr write) error {
	if wr.created || !t.Current(path, wr.seen) {
		if err := t.Do(ctx, path, wr.seen); err != nil {
			return err
		}
		t.watches.stir(path, inputActive)
	}
	if !t.Current(path, wr.seen) {
		// It may have been to a stream that was deleted since: where the present one ends is asked for.
		info, err := t.HeadAnew(ctx, path)
		if err != nil || !info.Exists {
			return err
		}
		wr.seen.Tail = info.Tail
	}
	w, runs := t.watches.get(path)
	if !runs {
		w = newWatch(t, path) // for this write alone
	}
	subscribed := len(t.store.Catalog().Match(path)) > 0
	switch {
	case wr.created:
		return w.created(ctx, wr)
	case !subscribed:
		t.Unsubscribed(path, wr.seen)
	}
	return w.written(ctx, wr, subscribed)
}

// written tells the store a tail in the home partition and in those whose consumers are known to watch the stream.
func (w *watch) written(ctx context.Context, wr write, subscribed bool) error {
	if w.looksAfterPause() {
		return nil
	}
	home := w.machine.home
	_, watched := w.told(home)
	for _, partition := range w.partitions(subscribed) {
		err := w.tellOnce(ctx, partition, wr.seen.Tail, time.After(gatewayPatience), func() error {
			o, err := w.report(ctx, partition, wr)
			switch {
			case err != nil:
				return err
			case partition != home:
			case !o.watched:
				// It was forgotten through another replica, the store has lost its latest changes, or nobody is left.
				w.t.Confirm(w.path)
			case !watched && w.t.store.Ownership().Owns(home):
				w.t.watches.Watch(home, w.path)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// gatewayPatience is how long the gateway waits for others that tell the store what it saw.
const gatewayPatience = 100 * time.Millisecond

// report tells the store the tail of a write.
func (w *watch) report(ctx context.Context, partition int, wr write) (observed, error) {
	o, err := w.observe(ctx, partition, wr.seen.Tail, wr.seen.Seen)
	if err == nil {
		w.step(&input{kind: inputObserved, observed: o})
	}
	return o, err
}

// created has the consumers of an older stream start over when upstream has just made one of the same name: those
// whose stream was known to end beyond the new one's beginning, and those for whom the tail that was noted lies beyond
// the new one's.
func (w *watch) created(ctx context.Context, wr write) error {
	partitions := w.partitions(true)
	for partition, was := range wr.replaced {
		// The new one may have grown as far by now.
		if err := w.startOver(ctx, partition, was, true); err != nil {
			return err
		}
		delete(wr.replaced, partition) // once, should what follows be tried again
	}
	for _, partition := range partitions {
		o, err := w.report(ctx, partition, wr)
		if err == nil && o.watched && o.noted.After(wr.seen.Tail) {
			err = w.startOver(ctx, partition, o.noted, false)
		}
		if err != nil {
			return err
		}
	}
	w.step(&input{kind: inputLook}) // it may believe its stream away
	return nil
}

// startOver has the consumers of a partition start over whose stream ended at was before it was made anew. If it is not
// known to be replaced, it is another one only if it ends before that.
func (w *watch) startOver(ctx context.Context, partition int, was fsm.Offset, replaced bool) error {
	info, err := w.t.HeadAnew(ctx, w.path)
	if err != nil || !info.Exists || !replaced && !was.After(info.Tail) {
		return err
	}
	if err := w.restart(ctx, partition, was, info.Tail); err != nil {
		return err
	}
	w.step(&input{kind: inputRefresh, partition: partition})
	return nil
}
