package tailer

import (
	"context"
	"time"

	"reveille/fsm"
)

// Written is fsm.Streams'.
func (t *Tailer) Written(path string, tail fsm.Offset, created bool) {
	switch {
	case !t.tracked(path):
		return
	case t.ended.Load():
		t.store.Hint(fsm.Hint{Kind: fsm.HintWritten, Path: path})
		return
	case tail == "": // against the protocol; upstream is asked
		t.Refused(path)
		return
	}
	t.awaited.written(path)
	l, ok := t.linked.Get(path)
	if !ok || created || l.version != t.store.Catalog().Version() {
		l.subs = keysOf(t.store.Catalog().Match(path))
	}
	wr := write{tail: tail, created: created, at: time.Now()}
	if w := t.watches.find(path); w != nil && created {
		wr.replaced = w.notedBeyond(tail)
	}
	t.writes.add(path, wr, l.subs)
}

// wrote takes in a successful write. For a stream that is known and linked it is one call of the store in each partition that
// watches it, mostly one in all.
func (t *Tailer) wrote(ctx context.Context, path string, wr write) error {
	l, ok := t.linked.Get(path)
	if ok && !wr.created && l.version == t.store.Catalog().Version() {
		t.awaited.remove(path) // the write may have begun before it was linked
		return t.observeWritten(ctx, path, wr, l)
	}
	known, found, err := t.store.Known(ctx, path)
	if err != nil {
		return err
	}
	var already []subscriptionKey
	switch {
	case wr.created, !found, known.Awaited: // whatever is remembered here
	case ok:
		already = l.subs
	default:
		if already, err = t.finished(ctx, t.store.Catalog().Match(path)); err != nil {
			return err
		}
	}
	version, subs := t.store.Catalog().Version(), t.store.Catalog().Match(path)
	if len(subs) > 0 && containsAll(already, subs) {
		l = linked{version, keysOf(subs)}
		t.linked.Add(path, l)
		t.awaited.remove(path)
		return t.observeWritten(ctx, path, wr, l)
	}
	// A subscription that was made after writes had succeeded begins where the last of them ended.
	from := func(sub fsm.Subscription) fsm.Offset {
		if found && sub.CreatedAt.After(known.At) {
			if end := t.writes.endBefore(path, keyOf(sub)); end != "" {
				return end
			}
		}
		return fsm.Start
	}
	if err := t.adoptSeen(ctx, path, wr.tail, already, from, wr.sighting()); err != nil {
		return err
	}
	t.awaited.remove(path)
	l, _ = t.linked.Get(path)
	if wr.created {
		return t.observeCreated(ctx, path, wr)
	}
	return t.observeWritten(ctx, path, wr, l)
}

func (wr write) sighting() fsm.Sighting { return fsm.Sighting{At: wr.at, Gateway: true} }

// observeWritten tells the store a tail in the home partition and in those whose consumers are known to watch the stream.
func (t *Tailer) observeWritten(ctx context.Context, path string, wr write, l linked) error {
	home, tail := t.store.PartitionOf(path), wr.tail
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
	if !watched && len(l.subs) > 0 {
		partitions[home] = ""
	}
	for partition := range partitions {
		err := w.tellOnce(ctx, partition, tail, func() error {
			obs, err := w.observeOnce(ctx, partition, tail, wr.sighting())
			if err != nil {
				return err
			}
			switch {
			case partition != home:
			case !obs.Watched:
				return t.wroteUnwatched(ctx, path, tail)
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

// wroteUnwatched is for a write to a stream that nobody in its home partition is subscribed to. If the store does not know it
// either, it was forgotten through another replica, or the store has lost its latest changes: it is a new one now.
func (t *Tailer) wroteUnwatched(ctx context.Context, path string, tail fsm.Offset) error {
	known, found, err := t.store.Known(ctx, path)
	if err != nil || found && !known.Awaited {
		return err
	}
	t.linked.Remove(path)
	return t.adopt(ctx, path, tail, nil, fromStart)
}

// observeCreated is for a stream that upstream has just made. Consumers of an older one of the same name start over: those whose
// stream was known to end beyond the new one's beginning, and those for whom the tail that was noted lies beyond the new one's.
func (t *Tailer) observeCreated(ctx context.Context, path string, wr write) error {
	tail, partitions := wr.tail, map[int]fsm.Offset{t.store.PartitionOf(path): ""}
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
		if err := t.restart(ctx, w, partition, was, info.Tail); err != nil {
			return err
		}
	}
	for partition := range partitions {
		obs, err := w.observeOnce(ctx, partition, tail, wr.sighting())
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
			if err := t.restart(ctx, w, partition, obs.Tail, info.Tail); err != nil {
				return err
			}
		}
	}
	w.prodded() // it may believe its stream away
	return nil
}

// Refused is fsm.Streams'. The write may have succeeded all the same, only nobody knows: if the stream is there, its event counts.
func (t *Tailer) Refused(path string) {
	if t.tracked(path) {
		t.awaited.refused(path)
	}
}
