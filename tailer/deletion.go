package tailer

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
)

// Deleted is fsm.Streams'.
func (t *Tailer) Deleted(ctx context.Context, path string) error {
	if !t.tracked(path) {
		return nil
	}
	t.noteDelete(path)
	t.store.Hint(fsm.Hint{Kind: fsm.HintDeleted, Path: path})
	return t.deleted(ctx, path)
}

func (t *Tailer) deleted(ctx context.Context, path string) error {
	if err := t.remove(ctx, path); err != nil {
		return err
	}
	// Who made it anew meanwhile may have linked it before its old consumers were removed, and these with them.
	info, err := t.HeadAnew(ctx, path)
	if err == nil && info.Exists {
		err = t.adopt(ctx, path, info.Tail, nil, fromStart)
		if err == nil {
			return nil
		}
	}
	switch {
	case err != nil: // then nobody may take it for known and linked before it was asked for
		t.awaited.doubt(path, t.cfg.GoneGrace)
		if err := t.store.ForgetKnown(ctx, path, false); err != nil {
			return err
		}
	case !t.isNamed(path):
		return nil
	}
	return t.await(ctx, path, false)
}

// Forget is fsm.Streams'.
func (t *Tailer) Forget(ctx context.Context, paths []string) error {
	for _, path := range paths {
		if err := t.remove(ctx, path); err != nil {
			return fmt.Errorf("stream %s could not be forgotten: %w", path, err)
		}
	}
	return nil
}

// remove forgets a stream and removes its consumers.
func (t *Tailer) remove(ctx context.Context, path string) error {
	t.writes.drop(path)
	t.awaited.remove(path)
	t.linked.Remove(path)
	t.removed.Add(path, time.Now())
	if err := t.store.ForgetKnown(ctx, path, false); err != nil {
		return err
	}
	// Whichever replica watches it there: a stream that is made anew must not be taken for the old one.
	partitions, err := t.store.WatchedIn(ctx, path)
	if err != nil {
		return err
	}
	for _, partition := range partitions {
		s := telling(path, "")
		o, err := t.store.Deleted(ctx, partition, path)
		if err != nil {
			return err
		}
		t.settle(s, o)
	}
	t.watches.deleted(path)
	t.store.Hint(fsm.Hint{Kind: fsm.HintRemoved, Path: path})
	return nil
}

// lost is for a stream that stayed away until nobody's pattern had a consumer of it any more: should it come back, it is a new one. It
// does nothing, and says so, to one that is written to, or that may have such consumers unless it is given up all the same.
func (t *Tailer) lost(ctx context.Context, path string, givenUp bool) bool {
	t.linked.Remove(path)
	if w := t.watches.find(path); !givenUp && w != nil && w.isHome() || t.awaited.writtenTo(path) {
		return false
	}
	err := t.insist(ctx, "lost", zap.String("stream", path), func() error { return t.store.ForgetKnown(ctx, path, false) })
	if err == nil && t.isNamed(path) {
		_ = t.insist(ctx, "lost", zap.String("stream", path), func() error { return t.await(ctx, path, false) })
	}
	return true
}

// returned is for a stream that was away and is back. If that took so long that its consumers were removed, it is a new one.
func (t *Tailer) returned(ctx context.Context, path string, tail fsm.Offset) error {
	if !t.tracked(path) {
		return nil
	}
	return t.insist(ctx, "returned", zap.String("stream", path), func() error {
		known, found, err := t.store.Known(ctx, path)
		if err != nil || found && !known.Awaited {
			return err
		}
		t.linked.Remove(path)
		return t.adopt(ctx, path, tail, nil, fromStart)
	})
}

// forgotten is for a stream that the store should know, unless it has lost its latest changes: then the stream is linked anew should
// it exist. One that was removed a moment ago is rightly not known.
func (t *Tailer) forgotten(ctx context.Context, path string) error {
	if at, ok := t.removed.Get(path); !t.tracked(path) || ok && time.Since(at) < removedKept {
		return nil
	}
	known, found, err := t.store.Known(ctx, path)
	if err != nil || found && !known.Awaited {
		return err
	}
	t.linked.Remove(path)
	// A proxy in front of a server that is down, as the store was, says of every stream that there is none.
	t.awaited.doubt(path, t.cfg.GoneGrace)
	return t.await(ctx, path, false)
}

// removedElsewhere is for a stream that another replica has removed.
func (t *Tailer) removedElsewhere(path string) {
	t.linked.Remove(path)
	t.removed.Add(path, time.Now())
	if !t.awaited.writtenTo(path) {
		t.awaited.remove(path)
	}
	t.watches.deleted(path)
}

// noteDelete remembers a deletion that is dealt with, until the registry tells of it.
func (t *Tailer) noteDelete(path string) {
	if t.cfg.Registry == "" {
		return
	}
	d, _ := t.deletes.Get(path)
	if time.Since(d.last) > deletesKept {
		d.n = 0
	}
	t.deletes.Add(path, deletes{n: d.n + 1, last: time.Now()})
}

// tookDelete says whether a deletion that the registry tells of was dealt with when it was made.
func (t *Tailer) tookDelete(path string) bool {
	d, ok := t.deletes.Get(path)
	if !ok {
		return false
	}
	if t.deletes.Remove(path); d.n > 1 {
		t.deletes.Add(path, deletes{n: d.n - 1, last: d.last})
	}
	return time.Since(d.last) <= deletesKept
}

// deletes counts the deletions of a stream that are dealt with.
type deletes struct {
	n    int
	last time.Time
}

// removedKept is how long it is remembered that a stream was removed: longer than it takes until nothing tells of it any more.
const removedKept = time.Minute

// deletesKept is how long they are remembered: the registry tells of them sooner, or another replica reads it.
const deletesKept = time.Minute
