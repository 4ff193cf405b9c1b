package tailer

import (
	"context"
	"time"

	"reveille/fsm"
	"reveille/tailer/discovery"
)

// BeforeWrite is fsm.Streams'.
func (t *Tailer) BeforeWrite(ctx context.Context, path string, create bool) fsm.Write {
	return t.discovery.Writing(ctx, path, create)
}

// Written is fsm.Streams'.
func (t *Tailer) Written(w fsm.Write, tail fsm.Offset, created bool) {
	switch {
	case w.Path == "":
		return
	case t.ended.Load():
		t.store.Hint(fsm.Hint{Kind: fsm.HintLook, Path: w.Path})
		return
	case tail == "": // against the protocol; upstream is asked
		t.Refused(w)
		return
	}
	wr := write{
		seen: t.discovery.Written(w, tail, fsm.Sighting{At: time.Now(), Gateway: true}), created: created,
	}
	if watch := t.watches.find(w.Path); watch != nil && created {
		wr.replaced = watch.notedBeyond(tail)
	}
	t.writes.add(w.Path, wr)
}

// Refused is fsm.Streams'. The write may have succeeded all the same, only nobody knows: if the stream is
// there, its event counts.
func (t *Tailer) Refused(w fsm.Write) { t.discovery.Refused(w) }

// Deleted is fsm.Streams'.
func (t *Tailer) Deleted(ctx context.Context, path string) error {
	return t.discovery.Deleted(ctx, path)
}

// Name is fsm.Streams'.
func (t *Tailer) Name(ctx context.Context, paths []string) error { return t.discovery.Name(ctx, paths) }

// Forget is fsm.Streams'.
func (t *Tailer) Forget(ctx context.Context, paths []string) error {
	return t.discovery.Forget(ctx, paths)
}

// Subscribe is fsm.Streams'.
func (t *Tailer) Subscribe(ctx context.Context, sub fsm.Subscription) (fsm.Subscription, bool, error) {
	return t.discovery.Subscribe(ctx, sub)
}

// wrote takes in a successful write. For a stream that is linked it is one call of the store in each partition that
// watches it, mostly one in all.
func (t *Tailer) wrote(ctx context.Context, path string, wr write) error {
	if wr.created || !t.discovery.Linked(path) {
		if err := t.discovery.Do(ctx, path, wr.seen); err != nil {
			return err
		}
		if w := t.watches.find(path); w != nil {
			w.step(&input{kind: inputActive})
			t.slots.touch(w)
		}
	}
	switch {
	case wr.created:
		return t.observeCreated(ctx, path, wr)
	case len(t.store.Catalog().Match(path)) == 0:
		t.discovery.Unsubscribed(path, wr.seen)
	}
	return t.observeWritten(ctx, path, wr)
}

// observeWritten tells the store a tail in the home partition and in those whose consumers are
// known to watch the stream.
func (t *Tailer) observeWritten(ctx context.Context, path string, wr write) error {
	home, tail := t.store.PartitionOf(path), wr.seen.Tail
	partitions := map[int]fsm.Offset{}
	w := t.watches.find(path)
	switch {
	case w == nil:
		w = newWatch(t, path)
	case w.looksAfterPause():
		return nil
	default:
		partitions = w.partitions()
	}
	_, watched := partitions[home]
	if !watched && len(t.store.Catalog().Match(path)) > 0 {
		partitions[home] = ""
	}
	for partition := range partitions {
		err := w.announceWritten(ctx, partition, tail, func() error {
			obs, err := w.observeWritten(ctx, partition, tail, wr.seen.Seen)
			if err != nil {
				return err
			}
			switch {
			case partition != home:
			case !obs.Watched:
				// It was forgotten through another replica, the store has lost its latest changes, or nobody is left.
				t.discovery.Confirm(path)
			case !watched && t.store.Ownership().Owns(home):
				t.watches.watch(home, path)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// observeCreated is for a stream that upstream has just made. Consumers of an older one of the same name start over:
// those whose stream was known to end beyond the new one's beginning, and those for whom the tail that was noted
// lies beyond the new one's.
func (t *Tailer) observeCreated(ctx context.Context, path string, wr write) error {
	tail, partitions := wr.seen.Tail, map[int]fsm.Offset{t.store.PartitionOf(path): ""}
	w := t.watches.find(path)
	if w != nil {
		for partition := range w.partitions() {
			partitions[partition] = ""
		}
	} else {
		w = newWatch(t, path)
	}
	for partition, was := range wr.replaced {
		// The new one may have grown as far by now.
		info, err := t.HeadAnew(ctx, path)
		if err != nil {
			return err
		}
		if !info.Exists {
			break
		}
		if err := t.restart(ctx, path, partition, was, info.Tail); err != nil {
			return err
		}
		w.step(&input{kind: inputRefresh, partition: partition})
	}
	for partition := range partitions {
		obs, err := w.observeWritten(ctx, partition, tail, wr.seen.Seen)
		if err != nil {
			return err
		}
		if !obs.Watched || !obs.Tail.After(tail) {
			continue
		}
		info, err := t.HeadAnew(ctx, path)
		if err != nil {
			return err
		}
		if info.Exists && obs.Tail.After(info.Tail) {
			if err := t.restart(ctx, path, partition, obs.Tail, info.Tail); err != nil {
				return err
			}
			w.step(&input{kind: inputRefresh, partition: partition})
		}
	}
	w.step(&input{kind: inputLook}) // it may believe its stream away
	return nil
}

// asker asks upstream for discovery.
type asker struct{ *Tailer }

// Look is discovery.Upstream's.
func (a asker) Look(ctx context.Context, path string) (fsm.StreamInfo, error) {
	return a.look(ctx, path, a.HeadAnew)
}

// Outages is discovery.Upstream's.
func (a asker) Outages() int64 { return a.health.Outages() }

// voider is the watcher as discovery knows it.
type voider struct{ *watches }

// Watch is discovery.Watcher's.
func (v voider) Watch(partition int, path string) { v.watch(partition, path) }

// Void is discovery.Watcher's.
func (v voider) Void(path string) { v.void(path) }

// Deleted is discovery.Watcher's.
func (v voider) Deleted(path string) { v.deleted(path) }

// lost is reports'.
func (t *Tailer) lost(path string) { t.discovery.Enqueue(path, discovery.Evidence{}) }

// returned is reports'.
func (t *Tailer) returned(path string) { t.discovery.Confirm(path) }

// forgotten is reports'.
func (t *Tailer) forgotten(path string) { t.discovery.Confirm(path) }

// left is reports'.
func (t *Tailer) left(path string) { t.discovery.Remember(path) }
