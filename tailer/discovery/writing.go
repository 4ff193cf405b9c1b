package discovery

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/tailer/upstream"
)

const (
	// writesMax bounds the streams whose writes are kept in mind.
	writesMax = 100_000
	// replaceTimeout bounds how long the answer to a write waits for the consumers of the stream that it has replaced.
	replaceTimeout = 5 * time.Second
)

// writing keeps in mind the writes that are on their way upstream to streams that they make, or that upstream has not
// shown yet, so that these stay awaited as long as the writes take.
type writing struct {
	// setUnnoted is called when there come to be unnoted writes (fsm.ReplicaStore), and when there are none any more.
	setUnnoted func(some bool)

	mu     sync.Mutex
	byPath map[string]writes
	// unnoted counts the streams with unnoted writes.
	unnoted int
}

type writes struct {
	// n counts those that are on their way, held those that wait because the store cannot be told of them.
	n, held int
	// passed is true if one has passed that the store could not be told of, until the stream is on record.
	passed bool
}

func (s writes) unnoted() bool { return s.held > 0 || s.passed }

func newWriting(setUnnoted func(bool)) *writing {
	return &writing{setUnnoted: setUnnoted, byPath: map[string]writes{}}
}

// change changes what is kept of the writes to a stream, and says whether anything is. Unnoted writes that are too many
// to be kept are never reported as noted: the replica then has some for good.
func (w *writing) change(path string, f func(*writes)) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	was, there := w.byPath[path]
	s := was
	f(&s)
	if s.unnoted() != was.unnoted() {
		w.countUnnoted(s.unnoted())
	}
	switch {
	case s == writes{}:
		delete(w.byPath, path)
	case there || len(w.byPath) < writesMax:
		w.byPath[path] = s
		return true
	}
	return false
}

func (w *writing) countUnnoted(more bool) {
	if more {
		w.unnoted++
	} else {
		w.unnoted--
	}
	w.setUnnoted(w.unnoted > 0)
}

func (w *writing) end(path string) { w.change(path, func(s *writes) { s.n-- }) }

// noted says that a stream is on record.
func (w *writing) noted(path string) { w.change(path, func(s *writes) { s.passed = false }) }

func (w *writing) has(path string) bool { return w.change(path, func(*writes) {}) }

// sent says whether a write to a stream has gone upstream whose outcome is not on record.
func (w *writing) sent(path string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.byPath[path]
	return s.n > 0 || s.passed
}

func (w *writing) paths() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.byPath))
}

// BeforeWrite notes that a write is about to go upstream: when it returns, the stream is on record, so that no crash
// loses its event. create says that the write makes the stream if it is not there. For a stream that is linked an
// append costs no call of the store. A store that cannot be told holds a write up until the other replicas know what
// that means, for as long as a lease lasts at most.
func (d *Discovery) BeforeWrite(ctx context.Context, path string, create bool) fsm.Write {
	if !d.Tracked(path) {
		return fsm.Write{}
	}
	w := fsm.Write{Path: path}
	if r, ok := d.memory.get(path); ok && !create {
		w.First = r.first
		return w
	}
	s, err := d.announce(ctx, path)
	if err != nil && ctx.Err() == nil {
		s = d.hold(ctx, path)
	}
	if ctx.Err() != nil {
		return w // the write goes nowhere
	}
	// Consumers of other streams may be subscribed to a stream that is not on record.
	w.First, w.Present = s.First, s.Present() || d.watcher.Knew(path)
	// A replica that drops the record meanwhile does not know of a write that makes the stream. An append makes none.
	if create || !s.Present() {
		w.Kept = d.writing.change(path, func(s *writes) { s.n++ })
	}
	return w
}

// hold keeps a write that the store could not be told of. It returns the record once the store can be told, or an empty
// one once the write may pass as an unnoted one.
func (d *Discovery) hold(ctx context.Context, path string) fsm.Stream {
	kept := d.writing.change(path, func(s *writes) { s.held++ })
	end := func(passed bool) {
		if kept {
			d.writing.change(path, func(s *writes) { s.held, s.passed = s.held-1, s.passed || passed })
		}
	}
	delay := upstream.Backoff{Min: 50 * time.Millisecond, Max: time.Second}
	for {
		// Once more in any case: the place of a replica that was frozen has lapsed, and the store can be told.
		if !upstream.Sleep(ctx, upstream.Jitter(delay.Next())) {
			end(true) // writes that come meanwhile are not to wait from the beginning
			return fsm.Stream{}
		}
		s, err := d.announce(ctx, path)
		switch {
		case err == nil:
			end(false)
			return s
		case d.store.MayWriteUnnoted():
			end(true)
			if times, log := d.unnoted.Happened(time.Now()); log {
				d.log.Warn("a stream could not be put on record before it was written to; it is put there after",
					zap.String("stream", path), zap.Int("times", times), zap.Error(err))
			}
			return fsm.Stream{}
		}
	}
}

// announce puts a stream on record that is about to be written to. A stream that upstream has already is first heard of
// through this write, and no consumer gets what it holds (D12), unless another write is on its way or there may be one
// that the store was not told of.
func (d *Discovery) announce(ctx context.Context, path string) (fsm.Stream, error) {
	s, err := d.store.Stream(ctx, path)
	if err != nil || s.Present() {
		return s, err
	}
	if !s.Found() && !d.writing.sent(path) {
		if info, err := d.up.HeadAnew(ctx, path); err == nil && info.Exists {
			n := fsm.NewStream(path, info.Tail)
			n.Stamp = s.Stamp
			if n.Lost, err = d.store.UnnotedThrough(ctx); err != nil {
				return s, err
			}
			if s, noted, err := d.store.NoteStream(ctx, n, d.cfg.LookEvery); err != nil || noted || s.Present() {
				return s, err
			}
		}
	}
	return d.await(ctx, path, d.cfg.WriteFor)
}

// Written takes in a successful write through the gateway; created says that it has made the stream. It does not block,
// unless the write has replaced a stream: then the client gets its answer once that is stored, if the store takes it
// within replaceTimeout, so that no crash loses it.
func (d *Discovery) Written(w fsm.Write, tail fsm.Offset, created bool) {
	switch {
	case w.Path == "":
		return
	case tail == "": // against the protocol; upstream is asked
		d.Refused(w)
		return
	case w.Kept:
		d.writing.end(w.Path)
	}
	seen := Evidence{Tail: tail, First: w.First, Seen: fsm.Sighting{At: time.Now(), Gateway: true}}
	if created && (w.Present || w.First.IsZero()) {
		seen.Made, seen.Of = true, w.First
	}
	if seen.Made && w.Present {
		ctx, cancel := context.WithTimeout(context.Background(), replaceTimeout)
		defer cancel()
		if d.replaceBefore(ctx, w) == nil {
			seen.Made = false
		}
	}
	d.watcher.ReportWrite(w.Path, seen)
}

// replaceBefore removes the stream that was there before a write that has made one of its name.
func (d *Discovery) replaceBefore(ctx context.Context, w fsm.Write) error {
	s, err := d.store.Stream(ctx, w.Path)
	if err == nil {
		_, err = d.replace(ctx, s, w.First)
	}
	return err
}

// Refused takes in that a write did not succeed, as far as is known: upstream may have taken it, and its answer is
// lost. The stream that it was announced to is watched if it is linked; any other one is looked at now.
func (d *Discovery) Refused(w fsm.Write) {
	if w.Kept {
		d.writing.end(w.Path)
	}
	if _, current := d.Current(w.Path, Evidence{First: w.First}); w.Kept || !current {
		d.Enqueue(w.Path, Evidence{First: w.First, confirm: true})
	}
}

// Unsubscribed takes in the tail of a write to a stream that no consumer is subscribed to: a later subscription begins
// there.
func (d *Discovery) Unsubscribed(path string, e Evidence) {
	d.queue.add(path, e, time.Now().Add(d.cfg.TailEvery))
}

// renewWrites has streams stay awaited as long as writes to them are on their way.
func (d *Discovery) renewWrites(ctx context.Context) {
	for upstream.Sleep(ctx, d.cfg.WriteFor/3) {
		for _, path := range d.writing.paths() {
			d.Enqueue(path, Evidence{Await: d.cfg.WriteFor})
		}
	}
}
