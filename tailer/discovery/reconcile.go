package discovery

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/tailer/upstream"
)

var (
	errStaleCatalog = errors.New("the list of subscriptions could not be brought up to date")
	// errChanged says that the record has changed since it was read. Upstream is asked again.
	errChanged = errors.New("the record of the stream has changed meanwhile")
)

// patience is for how many graces a stream that is gone is kept on record because consumers of others read it.
const patience = 3

// work reconciles what is in the queue until the context ends.
func (d *Discovery) work(ctx context.Context) {
	var wg sync.WaitGroup
	for l, n := range map[*lane]int{&d.queue.urgent: urgentWorkers, &d.queue.other: workers} {
		items := make(chan *item)
		wg.Go(func() { d.queue.feed(ctx, l, items) })
		for range n {
			wg.Go(func() {
				for it := range items {
					d.tick(ctx, it)
				}
			})
		}
	}
	wg.Wait()
}

// changedDelay is by how much longer a try waits each time that the record had changed before it.
const changedDelay = 5 * time.Millisecond

// tick reconciles one path and says when it is to be done again.
func (d *Discovery) tick(ctx context.Context, it *item) {
	e, waiters, look, cancel := d.queue.take(ctx, it)
	defer cancel()
	again, err := d.reconcile(ctx, look, it, e)
	switch superseded := err != nil && look.Err() != nil && ctx.Err() == nil; {
	case superseded, errors.Is(err, errChanged):
		// Whoever waits for this try waits for the next one.
		after := time.Duration(it.changed) * changedDelay
		it.changed++
		d.queue.retry(it, e, waiters, after)
		return
	case err != nil:
		it.failures.Min, it.failures.Max = d.cfg.RetryMin, d.cfg.RetryMax
		again = upstream.Jitter(it.failures.Next())
		if ctx.Err() == nil && e.Tail != "" {
			if times, log := d.undone.Happened(time.Now()); log {
				d.log.Warn("a stream could not be linked; it is tried again", zap.String("stream", it.path),
					zap.Int("times", times), zap.Error(err))
			}
		}
	case again == 0:
		e = Evidence{}
	default:
		e.Await = 0 // it is on record by now
	}
	if err == nil {
		it.failures.Reset()
	}
	it.changed = 0
	for _, w := range waiters {
		w <- err
	}
	d.queue.done(it, e, again)
}

// reconcile makes record and consumers of a stream agree with what upstream has and who is subscribed. It returns after
// how long the stream is to be looked at again; 0 if nothing is left to do.
func (d *Discovery) reconcile(ctx, look context.Context, it *item, e Evidence) (again time.Duration, err error) {
	path, doubts := it.path, d.memory.doubts(it.path)
	s, err := d.store.Stream(ctx, path)
	if err != nil {
		return 0, err
	}
	if e.confirm && s.Present() && d.linkedTo(s) {
		d.memory.put(s, doubts)
		return 0, nil
	}
	tail := e.Tail
	if tail == "" || !s.Found() || !e.First.Equal(s.First) {
		info, err := d.up.Look(look, path)
		it.absent.say(err == nil && !info.Exists, d.up.Outages())
		switch {
		case err != nil:
			return 0, err
		case !info.Exists:
			return d.absent(ctx, it, s, e, info.Gone())
		}
		tail = info.Tail
	}
	// What was seen by now was there before the subscriptions whose creators are not told of them yet.
	unanswered := d.backfills.allUnanswered()
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
	l := fsm.Linking{Stamp: s.Stamp, Tail: tail, Version: max(version, s.Linked), Look: d.cfg.LookEvery}
	matching := d.store.Catalog().Match(path)
	for _, sub := range matching {
		if sub.Version <= s.Linked || sub.Version > version {
			continue
		}
		var before fsm.Offset
		if seen := e.before[sub.Version]; seen.first.Equal(s.First) {
			before = seen.tail
		}
		if unanswered[sub.Generation] > 0 {
			before = tail
		}
		acked, _ := fsm.StartOffset(sub, s, tail, before)
		l.Links = append(l.Links, fsm.NewLink{Subscription: sub, Acked: acked})
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
	d.backfills.settled(path, version)
	it.waits.Reset()
	return 0, nil
}

// linkedTo says whether a stream is linked to all subscriptions that match it, as far as this replica knows them.
func (d *Discovery) linkedTo(s fsm.Stream) bool {
	return !slices.ContainsFunc(d.store.Catalog().Match(s.Path),
		func(sub fsm.Subscription) bool { return sub.Version > s.Linked })
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
	path := it.path
	d.memory.remove(path)
	switch {
	case !s.Found():
		await := e.Await
		if await == 0 && (d.writing.has(path) || d.named(path)) {
			await = d.cfg.WriteFor
		}
		switch {
		case await > 0:
		case e.known && !it.absent.lasts(d.cfg.GoneGrace):
			// It should be on record. A proxy in front of a server that is down says of every
			// stream that there is none.
			return d.askAgain(it), nil
		default:
			d.backfills.settled(path, math.MaxInt64)
			return 0, nil
		}
		if s, _, err = d.store.NoteStream(ctx, fsm.NewStream(path, ""), await); err != nil {
			return 0, err
		}
		d.writing.noted(path)
	case e.Await > 0 && !s.Present():
		if s, _, err = d.store.NoteStream(ctx, fsm.NewStream(path, ""), e.Await); err != nil {
			return 0, err
		}
	}
	switch {
	case s.Present() && !gone: // its events have expired, and consumers of it go on should there be others
		d.backfills.settled(path, math.MaxInt64)
		return 0, nil
	default:
		if forgotten, err := d.forget(ctx, it, s); forgotten || err != nil {
			return 0, err
		}
	}
	if !s.Present() {
		// Whoever is subscribed gets its consumer when the stream is there.
		d.backfills.settled(path, math.MaxInt64)
	}
	again = d.askAgain(it)
	switch mine := d.store.Ownership().Owns(d.store.PartitionOf(path)); {
	case d.backfills.waitFor(path), d.writing.has(path):
		return again, nil
	case !mine:
		d.store.Hint(fsm.Hint{Kind: fsm.HintLook, Path: path})
		return 0, nil
	case s.Present(), len(d.store.Catalog().Match(path)) > 0, !time.Now().Before(s.Until):
		return again, nil
	}
	return 0, nil // the scan finds it when its time is up, or somebody is subscribed to it
}

// askAgain returns how long it is until the next look at a stream that upstream does not have.
func (d *Discovery) askAgain(it *item) time.Duration {
	it.waits.Min, it.waits.Max = d.cfg.AwaitMin, d.cfg.RetryMax
	return upstream.Jitter(it.waits.Next())
}

// forget takes a stream off the record that upstream has not had for all of the grace, and that nobody waits for.
func (d *Discovery) forget(ctx context.Context, it *item, s fsm.Stream) (bool, error) {
	if !it.absent.lasts(d.cfg.GoneGrace) || d.writing.has(it.path) || !s.Present() && d.named(it.path) {
		return false, nil
	}
	readByOthers := it.absent.lasts(patience * d.cfg.GoneGrace)
	forgotten, err := d.store.ForgetStream(ctx, it.path, s.Stamp, readByOthers)
	if err != nil || !forgotten {
		return false, err
	}
	d.backfills.settled(it.path, math.MaxInt64)
	if d.named(it.path) {
		_, _, err = d.store.NoteStream(ctx, fsm.NewStream(it.path, ""), d.cfg.WriteFor)
	}
	return err == nil, err
}

// absence is since when upstream has said of a stream that there is none, and neither shown it nor failed since.
type absence struct {
	since   time.Time
	outages int64
}

// say takes in what a look came to: that there is no such stream, or anything else. outages counts those of upstream,
// during which nobody asks for the stream.
func (a *absence) say(gone bool, outages int64) {
	switch {
	case !gone:
		*a = absence{}
	case a.since.IsZero() || outages != a.outages:
		*a = absence{time.Now(), outages}
	}
}

func (a *absence) lasts(d time.Duration) bool { return !a.since.IsZero() && time.Since(a.since) >= d }
