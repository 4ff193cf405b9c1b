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
	// pendingWritesMax bounds the streams whose writes are remembered.
	pendingWritesMax = 100_000
	// replaceTimeout bounds how long the answer to a write waits for the consumers of the stream that it replaced.
	replaceTimeout = 5 * time.Second
)

// pending remembers the writes on their way upstream to streams that they make, or that upstream has not shown yet. So
// these streams stay awaited as long as the writes take.
type pending struct {
	// setUnnoted is called when the number of streams with unnoted writes changes, and says whether there are any
	// (ReplicaStore).
	setUnnoted func(some bool)

	mu     sync.Mutex
	byPath map[string]pendingWrites
	// unnoted counts the streams with unnoted writes.
	unnoted int
}

type pendingWrites struct {
	// n counts the writes on their way. held counts those that wait because the store cannot be told of them.
	n, held int
	// passed is true after a write that the store could not be told of, until the stream is on record.
	passed bool
}

func (s pendingWrites) unnoted() bool { return s.held > 0 || s.passed }

func newPending(setUnnoted func(bool)) *pending {
	return &pending{setUnnoted: setUnnoted, byPath: map[string]pendingWrites{}}
}

// change changes what is kept of the writes to a stream, and says whether anything is kept. Unnoted writes beyond the
// bound are never reported as noted: the replica then has some for good.
func (p *pending) change(path string, f func(*pendingWrites)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	was, there := p.byPath[path]
	s := was
	f(&s)
	if s.unnoted() != was.unnoted() {
		p.countUnnoted(s.unnoted())
	}
	switch {
	case s == pendingWrites{}:
		delete(p.byPath, path)
	case there || len(p.byPath) < pendingWritesMax:
		p.byPath[path] = s
		return true
	}
	return false
}

func (p *pending) countUnnoted(more bool) {
	if more {
		p.unnoted++
	} else {
		p.unnoted--
	}
	p.setUnnoted(p.unnoted > 0)
}

func (p *pending) end(path string) { p.change(path, func(s *pendingWrites) { s.n-- }) }

// noted notes that a stream is on record.
func (p *pending) noted(path string) { p.change(path, func(s *pendingWrites) { s.passed = false }) }

func (p *pending) has(path string) bool { return p.change(path, func(*pendingWrites) {}) }

// sent says whether a write to a stream has gone upstream, and its outcome is not on record.
func (p *pending) sent(path string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.byPath[path]
	return s.n > 0 || s.passed
}

func (p *pending) paths() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.byPath))
}

// BeforeWrite notes that a write is about to go upstream. When it returns, the stream is on record, so no crash loses
// its event. With create, the write makes the stream if it does not exist. An append to a linked stream needs no store
// call. If the store cannot be told, the write waits until the other replicas know what that means. That takes at most
// as long as a lease.
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
		w.Kept = d.pending.change(path, func(s *pendingWrites) { s.n++ })
	}
	return w
}

// hold holds a write that the store could not be told of. It returns the record once the store can be told. Or it
// returns an empty one, once the write may pass unnoted.
func (d *Discovery) hold(ctx context.Context, path string) fsm.Stream {
	kept := d.pending.change(path, func(s *pendingWrites) { s.held++ })
	end := func(passed bool) {
		if kept {
			d.pending.change(path, func(s *pendingWrites) { s.held, s.passed = s.held-1, s.passed || passed })
		}
	}
	delay := upstream.Backoff{Min: 50 * time.Millisecond, Max: time.Second}
	for {
		// Try once more in any case. The place of a replica that was frozen has lapsed, and the store can be told.
		if !upstream.Sleep(ctx, upstream.Jitter(delay.Next())) {
			end(true) // later writes must not wait from the beginning
			return fsm.Stream{}
		}
		s, err := d.announce(ctx, path)
		switch {
		case err == nil:
			end(false)
			return s
		case d.store.MayWriteUnnoted():
			end(true)
			d.unnoted.Log(d.log, time.Now()).Warn(
				"a stream could not be put on record before it was written to; it is put there after",
				zap.String("stream", path), zap.Error(err))
			return fsm.Stream{}
		}
	}
}

// announce puts a stream on record before a write to it. If upstream already has the stream, Reveille first hears of it
// through this write, and no consumer gets what it holds (D12). That does not apply if another write is on its way, or
// if there may be one that the store was not told of.
func (d *Discovery) announce(ctx context.Context, path string) (fsm.Stream, error) {
	s, err := d.store.Stream(ctx, path)
	if err != nil || s.Present() {
		return s, err
	}
	if !s.Found() && !d.pending.sent(path) {
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

// Written handles a successful write through the gateway. created says that it made the stream. Written does not block,
// unless the write has replaced a stream. Then the client gets its answer once the store has that, so that no crash
// loses it. The wait is at most replaceTimeout.
func (d *Discovery) Written(w fsm.Write, tail fsm.Offset, created bool) {
	switch {
	case w.Path == "":
		return
	case tail == "": // against the protocol: ask upstream
		d.Refused(w)
		return
	case w.Kept:
		d.pending.end(w.Path)
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
	seen.onlyWrites, seen.urgent = true, true
	if !d.queue.add(w.Path, seen, time.Now()) {
		d.watcher.Look(w.Path)
		d.leave(w.Path)
	}
}

// leave leaves streams that were written to to the owners of their partitions, which look at them. If such a stream was
// unknown, it was put on record before its write went upstream.
func (d *Discovery) leave(paths ...string) {
	for _, path := range paths {
		d.store.Hint(fsm.Hint{Kind: fsm.HintLook, Path: path})
	}
}

// replaceBefore removes the earlier stream after a write has made one of its name.
func (d *Discovery) replaceBefore(ctx context.Context, w fsm.Write) error {
	s, err := d.store.Stream(ctx, w.Path)
	if err == nil {
		_, err = d.replace(ctx, s, w.First)
	}
	return err
}

// Refused notes that a write did not succeed, as far as is known. Upstream may have accepted it, and its answer is
// lost. If the stream of the announcement is linked, its watch sees that. Any other stream is looked at now.
func (d *Discovery) Refused(w fsm.Write) {
	if w.Kept {
		d.pending.end(w.Path)
	}
	if _, current := d.current(w.Path, Evidence{First: w.First}); w.Kept || !current {
		d.Enqueue(w.Path, Evidence{First: w.First, confirm: true})
	}
}

// renewWrites keeps streams awaited as long as writes to them are on their way.
func (d *Discovery) renewWrites(ctx context.Context) {
	for upstream.Sleep(ctx, d.cfg.WriteFor/3) {
		for _, path := range d.pending.paths() {
			d.Enqueue(path, Evidence{Await: d.cfg.WriteFor})
		}
	}
}
