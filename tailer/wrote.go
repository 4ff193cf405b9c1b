package tailer

import (
	"context"
	"time"

	"reveille/tailer/discovery"
)

// wrote handles a successful write. For a linked stream, that is one store call for each partition that watches the
// stream, usually one in all.
func (t *Tailer) wrote(ctx context.Context, path string, write *discovery.Evidence) error {
	seen := *write
	subscribed, known := t.discovery.Current(path, seen)
	current := known
	if !known {
		if err := t.discovery.Do(ctx, path, seen); err != nil {
			return err
		}
		seen.Made, seen.Stray = false, false
		*write = seen // do not repeat what is done
		t.watches.stir(path, inputActive)
		subscribed, current = t.discovery.Current(path, seen)
	}
	if !current {
		// The stream of the write may have been deleted since. Upstream says where the present one ends.
		info, err := t.upstream.HeadAnew(ctx, path)
		if err != nil || !info.Exists {
			return err
		}
		seen.Tail = info.Tail
		subscribed = len(t.store.Catalog().Match(path)) > 0
	}
	w, runs := t.watches.get(path)
	if !runs {
		w = newWatch(t, path) // for this write alone
	}
	if known && !subscribed { // otherwise the tail is on record
		t.discovery.Unsubscribed(path, seen)
	}
	return w.written(ctx, seen, subscribed)
}

// written tells the store a tail in the home partition and in each partition whose consumers are known to watch the
// stream.
func (w *watch) written(ctx context.Context, seen discovery.Evidence, subscribed bool) error {
	if w.looksAfterPause() {
		return nil
	}
	home := w.machine.home
	_, watched := w.told(home)
	for _, partition := range w.partitions(subscribed) {
		err := w.tellOnce(ctx, partition, seen.Tail, time.After(gatewayPatience), func() error {
			o, err := w.observe(ctx, partition, seen.Tail, false, seen.Seen)
			if err != nil {
				return err
			}
			w.step(&input{kind: inputObserved, observed: o})
			switch {
			case o.noted.Closed: // a new stream, unless the answer is late: a watch at rest must look
				w.t.watches.Watch(partition, w.path)
			case partition != home:
			case !o.watched:
				// Another replica forgot the stream, the store lost its latest changes, or no consumer is left.
				w.t.discovery.ConfirmWritten(w.path, seen)
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

// gatewayPatience is how long a write through the gateway waits while another goroutine tells the store of an event.
const gatewayPatience = 100 * time.Millisecond
