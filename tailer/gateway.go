package tailer

import (
	"context"
	"time"

	"reveille/fsm"
	"reveille/tailer/discovery"
)

// replaceTimeout bounds how long the answer to a write waits for the consumers of the stream that it has replaced.
const replaceTimeout = 5 * time.Second

// Written takes in a successful write through the gateway; created says that it has made the stream. It does not block,
// unless the write has replaced a stream: then the client gets its answer once that is stored, if the store takes it
// within replaceTimeout, so that no crash loses it.
func (t *Tailer) Written(w fsm.Write, tail fsm.Offset, created bool) {
	switch {
	case w.Path == "":
		return
	case tail == "": // against the protocol; upstream is asked
		t.Refused(w)
		return
	}
	seen := t.Discovery.Written(w, tail, fsm.Sighting{At: time.Now(), Gateway: true})
	if created && (w.Present || w.First.IsZero()) {
		seen.Made, seen.Of = true, w.First
	}
	if seen.Made && w.Present {
		ctx, cancel := context.WithTimeout(context.Background(), replaceTimeout)
		defer cancel()
		if t.Replace(ctx, w) == nil {
			seen.Made = false
		}
	}
	t.writes.add(w.Path, seen)
}

// wrote takes in a successful write. For a stream that is linked it is one call of the store in each partition that
// watches it, mostly one in all.
func (t *Tailer) wrote(ctx context.Context, path string, write *discovery.Evidence) error {
	seen := *write
	subscribed, known := t.Current(path, seen)
	current := known
	if !known {
		if err := t.Do(ctx, path, seen); err != nil {
			return err
		}
		seen.Made, seen.Stray = false, false
		*write = seen // what is done is not done again
		t.watches.stir(path, inputActive)
		subscribed, current = t.Current(path, seen)
	}
	if !current {
		// The write may have been to a stream that was deleted since: upstream is asked where the present one ends.
		info, err := t.HeadAnew(ctx, path)
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
	if known && !subscribed { // otherwise the tail is on record by now
		t.Unsubscribed(path, seen)
	}
	return w.written(ctx, seen, subscribed)
}

// written tells the store a tail in the home partition and in those whose consumers are known to watch the stream.
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
			case o.noted.Closed: // a new stream, unless the answer is late: a watch at rest is to look
				w.t.watches.Watch(partition, w.path)
			case partition != home:
			case !o.watched:
				// It was forgotten through another replica, the store has lost its latest changes, or no consumer is
				// left.
				w.t.ConfirmWritten(w.path, seen)
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
