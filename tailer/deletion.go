package tailer

import (
	"context"
	"fmt"

	"reveille/fsm"
)

// Deleted is fsm.Streams'.
func (t *Tailer) Deleted(ctx context.Context, path string) error {
	if !t.tracked(path) {
		return nil
	}
	if t.cfg.Registry != "" {
		n, _ := t.deletes.Get(path)
		t.deletes.Add(path, n+1)
	}
	return t.deleted(ctx, path)
}

func (t *Tailer) deleted(ctx context.Context, path string) error {
	if err := t.remove(ctx, path); err != nil {
		return err
	}
	if t.isNamed(path) {
		return t.await(ctx, path, false)
	}
	return nil
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
	if err := t.store.ForgetKnown(ctx, path, false); err != nil {
		return err
	}
	partitions := map[int]fsm.Offset{}
	if w, _ := t.watches.get(path); w != nil {
		partitions = w.partitions()
	}
	partitions[t.store.PartitionOf(path)] = ""
	for partition := range partitions {
		o, err := t.store.Deleted(ctx, partition, path)
		if err != nil {
			return err
		}
		t.settle(o)
	}
	t.watches.doubt(path)
	return nil
}

// lost is for a stream that stayed away until nobody was subscribed to it any more: should it come back, it is a new one.
func (t *Tailer) lost(ctx context.Context, path string) {
	t.linked.Remove(path)
	if t.watches.find(path) != nil || t.awaited.writtenTo(path) {
		return
	}
	err := t.insist(ctx, "lost", path, func() error { return t.store.ForgetKnown(ctx, path, false) })
	if err == nil && t.isNamed(path) {
		_ = t.insist(ctx, "lost", path, func() error { return t.await(ctx, path, false) })
	}
}

// returned is for a stream that was away and is back. If that took so long that its consumers were removed, it is a new one.
func (t *Tailer) returned(ctx context.Context, path string, tail fsm.Offset) error {
	if !t.tracked(path) {
		return nil
	}
	return t.insist(ctx, "returned", path, func() error {
		known, found, err := t.store.Known(ctx, path)
		if err != nil || found && !known.Awaited {
			return err
		}
		t.linked.Remove(path)
		return t.adopt(ctx, path, tail, nil, fromStart)
	})
}
