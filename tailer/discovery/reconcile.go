package discovery

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/tailer/upstream"
)

var (
	errStaleCatalog = errors.New("the list of subscriptions could not be brought up to date")
	// errChanged says that the record has changed since it was read, or that what came meanwhile has ended a look.
	errChanged = errors.New("the stream has changed meanwhile")
)

// lookMin is the shortest time until the next look at a new stream without consumers.
const lookMin = time.Minute

// changedDelay is how long the next try waits after the record has changed.
const changedDelay = 5 * time.Millisecond

// tick handles what was seen of one path, and decides when the next try is due. A write to a stream that is remembered
// as linked (current) goes through tellTail to Tell (tailer/tell.go), which tells the store. What that does not settle
// is reconciled.
func (d *Discovery) tick(ctx context.Context, it *item) {
	e, waiters := d.queue.take(it)
	again, done, err := d.tellTail(ctx, it, &e)
	if !done {
		again, err = d.reconcile(ctx, it, &e)
	}
	if errors.Is(err, errChanged) {
		// Callers that wait for this try wait for the next one.
		d.queue.done(it, changedDelay, e, waiters...)
		return
	}
	if err != nil && again == 0 {
		it.failures.Min, it.failures.Max = d.cfg.RetryMin, d.cfg.RetryMax
		again = upstream.Jitter(it.failures.Next())
		if ctx.Err() == nil && e.Tail != "" {
			d.unhandled.Log(d.log, time.Now()).Warn("a write to a stream could not be handled; it is tried again",
				zap.String("stream", it.path), zap.Error(err))
		}
		e.urgent = e.urgent && e.Tail != "" // no caller waits any longer
	} else {
		it.failures.Reset()
		e.urgent = false
		if !done {
			e.Await, e.Tail, e.First, e.Made, e.Stray = 0, "", time.Time{}, false, false // it is on record
		}
	}
	for _, w := range waiters {
		w <- err
	}
	d.queue.done(it, again, e)
}

// tellTail handles writes to a linked stream: it has the store told the tail. If the stream has no subscription, a
// later one begins at the tail on record. So the tail of many writes is put on record TailEvery after the first. done
// is false if the stream must be reconciled, for that or because it is not linked.
func (d *Discovery) tellTail(ctx context.Context, it *item, e *Evidence) (again time.Duration, done bool, err error) {
	subscribed, current := d.current(it.path, *e)
	if !e.onlyWrites || !current {
		return 0, false, nil
	}
	seen := e.Seen
	seen.Path, seen.Tail = it.path, e.Tail
	linked, err := d.watcher.Tell(ctx, seen, subscribed, false)
	switch {
	case err != nil, subscribed && linked:
		return 0, true, err
	case subscribed:
		// Another replica forgot the stream, the store lost its latest changes, or no consumer is left.
		e.confirm, e.known = true, true
		return 0, false, nil
	case it.record.IsZero():
		it.record = time.Now().Add(d.cfg.TailEvery)
	}
	again = time.Until(it.record)
	return again, again > 0, nil
}

// reconcile makes the record and the consumers of a stream agree with upstream and with the matching subscriptions. It
// returns the time until the next look. That is 0 if nothing is left to do, or if an error asks for another try soon.
func (d *Discovery) reconcile(ctx context.Context, it *item, e *Evidence) (again time.Duration, err error) {
	it.record, e.onlyWrites = time.Time{}, false
	path, asked := it.path, d.memory.asks(it.path)
	s, err := d.store.Stream(ctx, path)
	if err == nil && e.Made {
		s, err = d.replace(ctx, s, e.Of)
	}
	if err == nil && e.strays(s) {
		s, err = d.replace(ctx, s, s.First)
	}
	if err != nil {
		return 0, err
	}
	if e.confirm && e.Tail == "" && s.Present() && covers(s.Linked, d.store.Catalog().Match(path)) {
		d.pending.noted(path)
		d.memory.put(s, asked)
		return 0, nil
	}
	tail := e.Tail
	if tail == "" || !s.Found() || !e.First.Equal(s.First) {
		ask := d.up.Look
		if e.urgent { // the other lane repeats a failed try
			ask = d.up.LookNow
		}
		look, cancel := d.queue.look(ctx, it)
		defer cancel()
		info, err := ask(look, path)
		it.absent.say(err == nil && !info.Exists, s, d.up.Outages(), d.cfg.GoneGrace/2)
		switch {
		case err != nil && look.Err() != nil: // what came meanwhile may need no look
			return 0, errChanged
		case err != nil:
			e.urgent = false // the other lane waits for upstream
			return 0, err
		case !info.Exists:
			return d.absent(ctx, it, s, *e, info.Gone())
		}
		tail = info.Tail
	}
	if !s.Found() {
		n := fsm.NewStream(path, tail)
		// A replica that first hears of a stream by anything but a write cannot tell which of its events are news.
		n.Begin, n.Stamp = fsm.Start, s.Stamp
		var noted bool
		if s, noted, err = d.store.NoteStream(ctx, n, d.cfg.LookEvery); err != nil {
			return 0, err
		} else if !noted {
			return 0, errChanged
		}
	}
	d.pending.noted(path)
	version, err := d.version(ctx)
	if err != nil {
		return 0, err
	}
	subs := d.store.Catalog().Match(path)
	l := fsm.Linking{Stamp: s.Stamp, Tail: tail, Version: max(version, s.Linked), Look: d.lookAfter(s, len(subs) > 0)}
	for _, sub := range subs {
		if sub.Version > s.Linked && sub.Version <= version {
			acked, _ := fsm.StartOffset(sub, s, tail, d.backfills.tailBefore(sub, s, tail))
			l.Links = append(l.Links, fsm.NewLink{Subscription: sub, Acked: acked})
		}
	}
	d.watcher.Invalidate(path)
	seen := e.Seen
	if seen.At.IsZero() && !s.Present() {
		seen.At = time.Now() // it has just appeared
	}
	seen.Path, seen.Tail, seen.Told = path, tail, time.Now()
	asked = d.memory.asks(path) // this try may have removed the record before
	reply, err := d.store.LinkStream(ctx, path, l)
	if reply.Done && len(l.Links) > 0 { // before the wakes: a worker may be done at once, and the watch must hear of it
		d.watcher.Watch(d.store.PartitionOf(path), path)
	}
	d.outcomes.Follow(reply.Outcome, seen) // before an error, the store may have made some
	switch {
	case err != nil:
		return 0, err
	case !reply.Done:
		return 0, errChanged
	}
	d.memory.put(reply.Stream, asked)
	it.waits.Reset()
	if e.Tail != "" {
		*e = Evidence{Tail: tail, First: reply.Stream.First, Seen: e.Seen, onlyWrites: true, urgent: true}
		_, err = d.watcher.Tell(ctx, seen, len(subs) > 0, true) // if it fails, this evidence is left
	}
	return 0, err
}

// lookAfter returns how long a stream on record can go without a look at whether it still exists. No replica watches a
// stream without subscriptions. It can go for as long as it has been on record, within bounds. If it was deleted
// unseen, it then stays on record for no longer than it existed.
func (d *Discovery) lookAfter(s fsm.Stream, subscribed bool) time.Duration {
	if subscribed {
		return d.cfg.LookEvery
	}
	return min(max(time.Since(s.First), lookMin), d.cfg.LookEvery)
}

// replace removes the earlier record of a stream, after a write has made another stream of its name. first is the First
// of that record. If the store could not be asked for it before the write, any record may be older than the write.
func (d *Discovery) replace(ctx context.Context, s fsm.Stream, first time.Time) (fsm.Stream, error) {
	if first.IsZero() {
		first = s.First
	}
	if !s.First.Equal(first) {
		return s, nil
	}
	// The record says that this is still to do, so it goes last.
	if err := d.removeElsewhere(ctx, s.Path); err != nil {
		return s, err
	}
	if err := d.remove(ctx, s.Path, fsm.Deletion{Of: first, Anew: true}); err != nil {
		return s, err
	}
	return d.store.Stream(ctx, s.Path)
}

// version reads a version of the list of subscriptions, and makes this replica's list at least that new. For an empty
// list it returns 1, because 0 means none.
func (d *Discovery) version(ctx context.Context) (int64, error) {
	version, err := d.store.Version(ctx)
	if err != nil {
		return 0, err
	}
	if catalog := d.store.Catalog(); catalog.Version() != version {
		if err := d.store.RefreshCatalog(ctx); err != nil {
			return 0, err
		}
		// A list that has lost its latest changes has a lower version than before. Its subscriptions are all that
		// exist.
		if catalog.Version() < version {
			return 0, errStaleCatalog
		}
	}
	return max(version, 1), nil
}
