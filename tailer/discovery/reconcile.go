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
	// errChanged says that the record has changed since it was read. Upstream is asked again.
	errChanged = errors.New("the record of the stream has changed meanwhile")
	// errGone says that upstream does not have a stream that is on record. It is asked again before that is believed.
	errGone = errors.New("upstream has no such stream")
)

// patience is for how many graces a stream that is gone is kept on record because consumers of others read it. No fact
// tells that a stream which upstream does not have will never come back.
const patience = 3

// lookMin is how soon a new stream that nobody is subscribed to is looked at again.
const lookMin = time.Minute

// changedDelay is how long a try waits before which the record had changed.
const changedDelay = 5 * time.Millisecond

// tick reconciles one path and says when it is to be done again.
func (d *Discovery) tick(ctx context.Context, it *item) {
	e, waiters, look, cancel := d.queue.take(ctx, it)
	defer cancel()
	again, err := d.reconcile(ctx, look, it, e)
	superseded := err != nil && look.Err() != nil && ctx.Err() == nil
	if superseded || errors.Is(err, errChanged) {
		// Whoever waits for this try waits for the next one.
		d.queue.done(it, changedDelay, e, waiters...)
		return
	}
	if err != nil && again == 0 {
		it.failures.Min, it.failures.Max = d.cfg.RetryMin, d.cfg.RetryMax
		again = upstream.Jitter(it.failures.Next())
		if ctx.Err() == nil && e.Tail != "" {
			if times, log := d.unlinked.Happened(time.Now()); log {
				d.log.Warn("a stream could not be linked; it is tried again", zap.String("stream", it.path),
					zap.Int("times", times), zap.Error(err))
			}
		}
	} else {
		it.failures.Reset()
		e.Await, e.Tail, e.Made = 0, "", false // it is on record by now
	}
	for _, w := range waiters {
		w <- err
	}
	d.queue.done(it, again, e)
}

// reconcile makes record and consumers of a stream agree with what upstream has and who is subscribed. It returns after
// how long the stream is to be looked at again; 0 if nothing is left to do, or if an error says that it is to be tried
// again soon.
func (d *Discovery) reconcile(ctx, look context.Context, it *item, e Evidence) (again time.Duration, err error) {
	path, doubts := it.path, d.memory.doubts(it.path)
	s, err := d.store.Stream(ctx, path)
	if err == nil && e.Made {
		s, err = d.replace(ctx, s, e.Of)
	}
	if err != nil {
		return 0, err
	}
	if e.confirm && s.Present() && covers(s.Linked, d.store.Catalog().Match(path)) {
		d.writing.noted(path)
		d.memory.put(s, doubts)
		return 0, nil
	}
	tail := e.Tail
	if tail == "" || !s.Found() || !e.First.Equal(s.First) {
		ask := d.up.Look
		if e.urgent { // somebody waits: what fails is tried again in the other lane
			ask = d.up.LookNow
		}
		info, err := ask(look, path)
		it.absent.say(err == nil && !info.Exists, s, d.up.Outages(), d.cfg.GoneGrace/2)
		switch {
		case err != nil:
			return 0, err
		case !info.Exists:
			return d.absent(ctx, it, s, e, info.Gone())
		}
		tail = info.Tail
	}
	if !s.Found() {
		n := fsm.NewStream(path, tail)
		// Who first hears of a stream by anything but a write cannot tell what in it is news.
		n.Begin, n.Stamp = fsm.Start, s.Stamp
		var noted bool
		if s, noted, err = d.store.NoteStream(ctx, n, d.cfg.LookEvery); err != nil {
			return 0, err
		} else if !noted {
			return 0, errChanged
		}
	}
	d.writing.noted(path)
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
	d.watcher.Void(path)
	seen := e.Seen
	if seen.At.IsZero() && !s.Present() {
		seen.At = time.Now() // it has just appeared
	}
	seen.Path, seen.Tail, seen.Told = path, tail, time.Now()
	reply, err := d.store.LinkStream(ctx, path, l)
	d.outcomes.Follow(reply.Outcome, seen) // an error may have come after some were made
	switch {
	case err != nil:
		return 0, err
	case !reply.Done:
		return 0, errChanged
	}
	if len(l.Links) > 0 {
		d.watcher.Watch(d.store.PartitionOf(path), path)
	}
	d.memory.put(reply.Stream, doubts)
	it.waits.Reset()
	return 0, nil
}

// lookAfter is how long a stream on record can go without a look at whether it is still there: where nobody is
// subscribed, and so nobody watches it, for as long as it has been on record, within bounds. What was deleted unseen
// then stays on record for no longer than it was there.
func (d *Discovery) lookAfter(s fsm.Stream, subscribed bool) time.Duration {
	if subscribed {
		return d.cfg.LookEvery
	}
	return min(max(time.Since(s.First), lookMin), d.cfg.LookEvery)
}

// replace removes the stream that was on record before a write has made another one of its name. first is that of its
// record; if the store could not be asked for it before the write, whatever is on record may be of before.
func (d *Discovery) replace(ctx context.Context, s fsm.Stream, first time.Time) (fsm.Stream, error) {
	if first.IsZero() {
		first = s.First
	}
	if !s.First.Equal(first) {
		return s, nil
	}
	// The record tells that this is still to be done, so it goes last.
	if err := d.removeElsewhere(ctx, s.Path); err != nil {
		return s, err
	}
	if err := d.remove(ctx, s.Path, fsm.Deletion{Of: first, Anew: true}); err != nil {
		return s, err
	}
	return d.store.Stream(ctx, s.Path)
}

// version returns a version of the list of subscriptions that was read now, and has this replica's list be no older.
// That of a list that never had a subscription is 1, for 0 stands for none.
func (d *Discovery) version(ctx context.Context) (int64, error) {
	version, err := d.store.Version(ctx)
	if err != nil {
		return 0, err
	}
	catalog := d.store.Catalog()
	if catalog.Version() == version {
		return max(version, 1), nil
	}
	if err := d.store.RefreshCatalog(ctx); err != nil {
		return 0, err
	}
	// A list that has lost its latest changes has a version below what it had; its subscriptions are what there is.
	if now := catalog.Version(); now < version {
		return 0, errStaleCatalog
	}
	return version, nil
}

// absent deals with a stream that upstream does not have. gone is false where every name is a stream to the server, and
// this one shows no event: then there is nothing to be known of it but that it is awaited.
func (d *Discovery) absent(
	ctx context.Context, it *item, s fsm.Stream, e Evidence, gone bool,
) (again time.Duration, err error) {
	path, await := it.path, e.Await
	d.memory.remove(path)
	if e.Tail != "" { // it had the stream when it took the write, so this may be no more than a proxy's word
		await = max(await, d.cfg.WriteFor)
	}
	switch {
	case s.Present() && !gone: // its events have expired, and consumers of it go on should there be others
		return 0, nil
	case s.Found():
	case await == 0 && (d.writing.has(path) || d.Named(path)):
		await = d.cfg.WriteFor
	case await > 0:
	case e.known && !it.absent.lasts(d.cfg.GoneGrace):
		// It should be on record. A proxy in front of a server that is down says of every stream that there is none.
		return d.askAgain(it), errGone
	default:
		return 0, nil
	}
	if await > 0 && !s.Present() {
		if s, _, err = d.store.NoteStream(ctx, fsm.NewStream(path, ""), await); err != nil {
			return 0, err
		}
	}
	d.writing.noted(path)
	if forgotten, err := d.forget(ctx, it, s, e.deleted); forgotten || err != nil {
		return 0, err
	}
	switch mine := d.store.Ownership().Owns(d.store.PartitionOf(path)); {
	case s.Present():
		return d.askAgain(it), errGone
	case d.writing.has(path):
		return d.askAgain(it), nil
	case !mine:
		d.store.Hint(fsm.Hint{Kind: fsm.HintLook, Path: path})
		return 0, nil
	case len(d.store.Catalog().Match(path)) > 0, !time.Now().Before(s.Until):
		return d.askAgain(it), nil
	}
	return 0, nil // the scan finds it when its time is up, or somebody is subscribed to it
}

// askAgain returns how long it is until the next look at a stream that upstream does not have.
func (d *Discovery) askAgain(it *item) time.Duration {
	// Looks follow each other well within what counts as a gap.
	it.waits.Min, it.waits.Max = d.cfg.AwaitMin, min(d.cfg.RetryMax, d.cfg.GoneGrace/4)
	return upstream.Jitter(it.waits.Next())
}

// forget takes a stream off the record that nobody waits for, and that upstream has not had for all of the grace, or
// that was deleted.
func (d *Discovery) forget(ctx context.Context, it *item, s fsm.Stream, deleted bool) (bool, error) {
	gone := it.absent.lasts(d.cfg.GoneGrace) || deleted && !s.Present()
	if !gone || d.writing.has(it.path) || !s.Present() && d.Named(it.path) {
		return false, nil
	}
	readByOthers := it.absent.lasts(patience * d.cfg.GoneGrace)
	forgotten, err := d.store.ForgetStream(ctx, it.path, s.Stamp, readByOthers)
	if err != nil || !forgotten {
		return false, err
	}
	d.Forgotten(it.path)
	if d.Named(it.path) {
		_, _, err = d.store.NoteStream(ctx, fsm.NewStream(it.path, ""), d.cfg.WriteFor)
	}
	return err == nil, err
}

// absence is since when upstream has said of a stream that there is none, and neither shown it to anybody nor failed
// since, nor gone unasked for.
type absence struct {
	since, last time.Time
	outages     int64
	// stamp is that of the stream's record: whoever is shown the stream moves it. It is 0 without a record, for then
	// it is other streams that move it.
	stamp int64
}

// say takes in what a look came to: that there is no such stream, or anything else. s is the record from before the
// look. outages counts those of upstream, during which nobody asks for the stream; a look that comes later than gap
// after the last one begins a new absence: no fact tells what upstream had while nobody asked.
func (a *absence) say(gone bool, s fsm.Stream, outages int64, gap time.Duration) {
	now := time.Now()
	if !s.Found() {
		s.Stamp = 0
	}
	switch {
	case !gone:
		*a = absence{}
		return
	case a.since.IsZero() || outages != a.outages || s.Stamp != a.stamp || now.Sub(a.last) > gap:
		a.since, a.outages, a.stamp = now, outages, s.Stamp
	}
	a.last = now
}

func (a *absence) lasts(d time.Duration) bool { return !a.since.IsZero() && time.Since(a.since) >= d }
