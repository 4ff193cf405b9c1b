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

// writesMax bounds the streams whose writes are kept in mind.
const writesMax = 100_000

// writing keeps in mind the writes that are on their way upstream to streams that they make, or that upstream has not
// shown yet, so that these stay awaited as long as the writes take.
type writing struct {
	mu     sync.Mutex
	byPath map[string]writes
}

type writes struct {
	// n counts those that are on their way.
	n int
	// unnoted is true if the store could not be told of one before it went, until the stream is on record: what it
	// holds may be news.
	unnoted bool
}

func newWriting() *writing { return &writing{byPath: map[string]writes{}} }

// change changes what is kept of the writes to a stream, and says whether anything is.
func (w *writing) change(path string, f func(*writes)) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, there := w.byPath[path]
	f(&s)
	switch {
	case s == writes{}:
		delete(w.byPath, path)
	case there || len(w.byPath) < writesMax:
		w.byPath[path] = s
		return true
	}
	return false
}

func (w *writing) end(path string) { w.change(path, func(s *writes) { s.n-- }) }

// noted says that a stream is on record.
func (w *writing) noted(path string) { w.change(path, func(s *writes) { s.unnoted = false }) }

func (w *writing) has(path string) bool { return w.change(path, func(*writes) {}) }

func (w *writing) paths() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.byPath))
}

// BeforeWrite notes that a write is about to go upstream: when it returns, the stream is on record, so that no crash
// loses its event. create says that the write makes the stream if it is not there. For a stream that is linked an
// append costs no call of the store. A store that cannot be told holds up no write.
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
	if ctx.Err() != nil {
		return w // the write goes nowhere
	}
	if err != nil {
		if times, log := d.unnoted.Happened(time.Now()); log {
			d.log.Warn("a stream could not be put on record before it was written to; it is put there after",
				zap.String("stream", path), zap.Int("times", times), zap.Error(err))
		}
	}
	// Consumers of others may be subscribed to a stream that is not on record.
	w.First, w.Present = s.First, s.Present() || d.watcher.Knew(path)
	// A replica that drops the record meanwhile does not know of a write that makes the stream. An append makes none.
	if create || !s.Present() {
		w.Kept = d.writing.change(path, func(s *writes) {
			s.n++
			s.unnoted = s.unnoted || err != nil
		})
	}
	return w
}

// announce puts a stream on record that is about to be written to. One that upstream has already is first heard of
// through this write, and what it holds is nobody's (D12), unless another write is on its way or went before that
// nobody could note.
func (d *Discovery) announce(ctx context.Context, path string) (fsm.Stream, error) {
	s, err := d.store.Stream(ctx, path)
	if err != nil || s.Present() {
		return s, err
	}
	if !s.Found() && !d.writing.has(path) {
		if info, err := d.up.HeadAnew(ctx, path); err == nil && info.Exists {
			n := fsm.NewStream(path, info.Tail)
			n.Stamp = s.Stamp
			if s, noted, err := d.store.NoteStream(ctx, n, d.cfg.LookEvery); err != nil || noted || s.Present() {
				return s, err
			}
		}
	}
	s, _, err = d.store.NoteStream(ctx, fsm.NewStream(path, ""), d.cfg.WriteFor)
	return s, err
}

// Written takes in that upstream has accepted a write that ended at tail, and returns what is
// known of the stream by it.
func (d *Discovery) Written(w fsm.Write, tail fsm.Offset, seen fsm.Sighting) Evidence {
	if w.Kept {
		d.writing.end(w.Path)
	}
	return Evidence{Tail: tail, First: w.First, Seen: seen}
}

// Replace removes the stream that was there before a write that has made one of its name.
func (d *Discovery) Replace(ctx context.Context, w fsm.Write) error {
	s, err := d.store.Stream(ctx, w.Path)
	if err == nil {
		_, err = d.replace(ctx, s, w.First)
	}
	return err
}

// Refused takes in that a write did not succeed, as far as is known: upstream may have taken it, and its answer is
// lost. A stream that is linked is watched; any other one is looked at now.
func (d *Discovery) Refused(w fsm.Write) {
	if w.Kept {
		d.writing.end(w.Path)
	}
	if w.Kept || !d.Linked(w.Path) {
		d.Enqueue(w.Path, Evidence{confirm: true})
	}
}

// Unsubscribed takes in the tail of a write to a stream that nobody is subscribed to: whoever subscribes later begins
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
