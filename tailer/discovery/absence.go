package discovery

import (
	"context"
	"errors"
	"time"

	"reveille/fsm"
	"reveille/tailer/upstream"
)

// errGone says that upstream does not have a stream that is on record. Reveille asks again before it believes that.
var errGone = errors.New("upstream has no such stream")

// patience is how many graces a gone stream stays on record because consumers of other streams read it. No fact proves
// that a missing stream will never come back.
const patience = 3

// await puts a stream on record that upstream has not shown. If the stream is awaited already, await extends the wait
// to at least span. It returns the record.
func (d *Discovery) await(ctx context.Context, path string, span time.Duration) (fsm.Stream, error) {
	s, _, err := d.store.NoteStream(ctx, fsm.NewStream(path, ""), span)
	return s, err
}

// absent handles a stream that upstream does not have. If every name is a stream to the server, and this one shows no
// event, gone is false. Then nothing is known of the stream but that it is awaited.
func (d *Discovery) absent(
	ctx context.Context, it *item, s fsm.Stream, e Evidence, gone bool,
) (again time.Duration, err error) {
	path, await := it.path, e.Await
	d.memory.remove(path)
	if e.Tail != "" { // upstream took a write to it, so this may be only a proxy's answer
		await = max(await, d.cfg.WriteFor)
	}
	switch {
	case s.Present() && !gone: // its events have expired; its consumers go on if new events come
		return 0, nil
	case s.Found():
	case await == 0 && (d.pending.has(path) || d.Named(path)):
		await = d.cfg.WriteFor
	case await > 0:
	case e.known && !it.absent.lasts(d.cfg.GoneGrace):
		// The stream was on record. A proxy in front of a server that is down answers 404 for every stream.
		return d.askAgain(it), errGone
	default:
		return 0, nil
	}
	if await > 0 && !s.Present() {
		if s, err = d.await(ctx, path, await); err != nil {
			return 0, err
		}
	}
	d.pending.noted(path)
	if forgotten, err := d.forget(ctx, it, s, e.deleted); forgotten || err != nil {
		return 0, err
	}
	switch mine := d.store.Ownership().Owns(d.store.PartitionOf(path)); {
	case s.Present():
		return d.askAgain(it), errGone
	case d.pending.has(path):
		return d.askAgain(it), nil
	case time.Now().Before(e.deleted) && !d.Named(path):
		return time.Until(e.deleted), nil
	case !mine:
		d.store.Hint(fsm.Hint{Kind: fsm.HintLook, Path: path})
		return 0, nil
	case len(d.store.Catalog().Match(path)) > 0, !time.Now().Before(s.Until):
		return d.askAgain(it), nil
	}
	return 0, nil // the scan finds it when its time is up, or when a subscription matches it
}

// askAgain returns the time until the next look at a stream that upstream does not have.
func (d *Discovery) askAgain(it *item) time.Duration {
	// The looks follow each other well within the gap that would begin a new absence.
	it.waits.Min, it.waits.Max = d.cfg.AwaitMin, min(d.cfg.RetryMax, d.cfg.GoneGrace/4)
	return upstream.Jitter(it.waits.Next())
}

// forget takes a stream off the record, unless a write or a name waits for it. Upstream must have lacked the stream for
// all of the grace. For a deleted stream, it is enough that the time deleted has passed.
func (d *Discovery) forget(ctx context.Context, it *item, s fsm.Stream, deleted time.Time) (bool, error) {
	gone := it.absent.lasts(d.cfg.GoneGrace)
	if !s.Present() && !deleted.IsZero() && !time.Now().Before(deleted) {
		gone = true
	}
	if !gone || d.pending.has(it.path) || !s.Present() && d.Named(it.path) {
		return false, nil
	}
	readByOthers := it.absent.lasts(patience * d.cfg.GoneGrace)
	forgotten, err := d.store.ForgetStream(ctx, it.path, s.Stamp, readByOthers)
	if err != nil || !forgotten {
		return false, err
	}
	d.Forgotten(it.path)
	if d.Named(it.path) {
		_, err = d.await(ctx, it.path, d.cfg.WriteFor)
	}
	return err == nil, err
}

// absence is since when upstream has said that there is no such stream. In that time no replica saw the stream, no
// request for it failed, and it was asked for without a gap.
type absence struct {
	since, last time.Time
	outages     int64
	// stamp is the stamp of the stream's record. A replica moves it when it sees the stream. Without a record it is 0,
	// because other streams move the stamp then.
	stamp int64
}

// say notes the result of a look: there is no such stream, or anything else. s is the record from before the look. The
// outages of upstream count, because no replica asks for the stream during one. A look that comes later than gap after
// the last one begins a new absence: no fact shows what upstream had in between.
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
