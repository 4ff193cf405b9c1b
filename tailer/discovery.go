package tailer

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
)

// linked is what is remembered of a stream that is known to the store: the subscriptions that it is linked to, and the version of
// the list of subscriptions that this holds for. Never changed in place.
type linked struct {
	version int64
	subs    []subscriptionKey
}

type subscriptionKey struct{ id, generation string }

func keyOf(s fsm.Subscription) subscriptionKey { return subscriptionKey{s.ID, s.Generation} }

var errStaleCatalog = errors.New("the list of subscriptions could not be brought up to date")

// tracked says whether a path can be that of a stream of interest.
func (t *Tailer) tracked(path string) bool { return path != t.cfg.Registry && t.any.Matches(path) }

// BeforeWrite is fsm.Streams'. For a stream that is known and linked it costs no call of the store.
func (t *Tailer) BeforeWrite(ctx context.Context, path string) {
	if !t.tracked(path) {
		return
	}
	l, ok := t.linked.Get(path)
	if ok && l.version == t.store.Catalog().Version() {
		return
	}
	if err := t.prepare(ctx, path, l, ok); err != nil {
		if times, log := t.unlinked.Happened(time.Now()); log {
			t.log.Warn("a stream could not be linked before it was written to; it is linked after",
				zap.String("stream", path), zap.Int("times", times), zap.Error(err))
		}
	}
}

// prepare links a stream to the subscriptions it has none of yet, at the tail it has before the write.
func (t *Tailer) prepare(ctx context.Context, path string, l linked, ok bool) error {
	version := t.store.Catalog().Version()
	subs := t.store.Catalog().Match(path)
	switch {
	case ok && containsAll(l.subs, subs):
		return nil // what the store knows of it is looked at after the write
	case !ok && len(subs) == 0:
		// Nobody is to be linked. The note says since when it was written to, should somebody subscribe meanwhile.
		return t.noteWriting(ctx, path)
	}
	known, found, err := t.store.Known(ctx, path)
	if err != nil {
		if !ok {
			t.passed(ctx, path)
		}
		return err
	}
	if !found || known.Awaited {
		if ok { // the store has lost it
			t.awaited.doubt(path, t.cfg.GoneGrace)
			t.linked.Remove(path)
		}
		return t.prepareUnknown(ctx, path, found)
	}
	// It is linked to every subscription but those whose backfill may not have come to it yet.
	finished, err := t.finished(ctx, subs)
	if err != nil {
		return err
	}
	already := append(finished, l.subs...)
	if containsAll(already, subs) {
		t.linked.Add(path, linked{version, keysOf(subs)})
		return nil
	}
	info, err := t.Head(ctx, path)
	if err != nil || !info.Exists {
		return err
	}
	return t.adoptBefore(ctx, path, info.Tail, already, true)
}

func (t *Tailer) prepareUnknown(ctx context.Context, path string, awaited bool) error {
	if awaited {
		return t.noteWriting(ctx, path)
	}
	info, err := t.Head(ctx, path)
	if err != nil || !info.Exists {
		return t.noteWriting(ctx, path)
	}
	// What it shows may be another write's, which was noted before it went upstream, or could not be.
	known, found, err := t.store.Known(ctx, path)
	if err == nil && (found && known.Awaited || t.awaited.isUntold(path)) {
		return t.noteWriting(ctx, path)
	}
	if err == nil {
		err = t.adoptBefore(ctx, path, info.Tail, nil, false)
	}
	if err != nil {
		t.passed(ctx, path)
	}
	return err
}

// passed is for a write that goes upstream although the store could not be told of it.
func (t *Tailer) passed(ctx context.Context, path string) {
	if ctx.Err() == nil { // otherwise it goes nowhere
		t.awaited.writing(path)
		t.awaited.untell(path)
	}
}

// lossMemory is how long after a loss the store may still lack what it has lost. Whoever made a stream known or linked it sees to that
// again (confirms), once that replica can reach the store.
const lossMemory = 10 * time.Minute

// adoptBefore is adopt before a write. What is in the stream then was there before somebody was to be told of it, and is nobody's. But a
// store that has lost something lately may have lost that the stream was known or, if it is known, that it was linked to a subscription
// from before the loss; and what was written after that is somebody's.
func (t *Tailer) adoptBefore(ctx context.Context, path string, tail fsm.Offset, already []subscriptionKey, known bool) error {
	lost, err := t.lostAt(ctx, path)
	if err != nil {
		return err
	}
	lately := time.Since(lost) < lossMemory
	return t.adopt(ctx, path, tail, already, func(sub fsm.Subscription) fsm.Offset {
		if lately && (!known || sub.CreatedAt.Before(lost.Add(lossSlack))) {
			return fsm.Start
		}
		return tail
	})
}

// noteWriting has the store remember a stream until the write that is on its way has been taken in. When it returns, the
// subscriptions that were made before the write are all known here.
func (t *Tailer) noteWriting(ctx context.Context, path string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t.awaited.writing(path)
	version, news, err := t.store.NoteKnown(ctx, path, true)
	switch {
	case err != nil:
		t.awaited.untell(path)
	case news:
		t.awaited.noted(path)
	}
	if err != nil || version <= t.store.Catalog().Version() {
		return err
	}
	return t.store.RefreshCatalog(ctx)
}

func fromStart(fsm.Subscription) fsm.Offset { return fsm.Start }

// adopt links a stream that exists to every matching subscription but those it is linked to already, remembers it, and has it
// watched. from is the offset that a subscription's consumer begins with. A subscription that is made at the same moment
// either finds the stream known, in its backfill, or is found here.
func (t *Tailer) adopt(
	ctx context.Context, path string, tail fsm.Offset, already []subscriptionKey, from func(fsm.Subscription) fsm.Offset,
) error {
	return t.adoptSeen(ctx, path, tail, already, from, fsm.Sighting{})
}

// adoptSeen is adopt after an event that was seen.
func (t *Tailer) adoptSeen(
	ctx context.Context, path string, tail fsm.Offset, already []subscriptionKey, from func(fsm.Subscription) fsm.Offset,
	seen fsm.Sighting,
) error {
	if t.watches.find(path) != nil {
		// Its loop may be about to hide the stream's consumers for a 404 from before: what it has seen is void from here on.
		t.watches.watch(t.store.PartitionOf(path), path)
	}
	catalog := t.store.Catalog()
	done, made := slices.Clone(already), confirm{path: path, made: time.Now()}
	link := func() (version int64, err error) {
		version = catalog.Version()
		for _, sub := range catalog.Match(path) {
			if slices.Contains(done, keyOf(sub)) {
				continue
			}
			told, acked := telling(path, tail), from(sub)
			o, err := t.store.Link(ctx, sub, path, acked, tail)
			if err != nil {
				return 0, err
			}
			t.settleSeen(told, o, seen)
			done = append(done, keyOf(sub))
			if o.Linked > 0 {
				made.links = append(made.links, madeLink{keyOf(sub), acked})
			}
		}
		return version, nil
	}
	// Also those that were made before something failed: whoever tries again finds them there.
	defer func() {
		if len(made.links) > 0 || t.linked.Contains(path) {
			t.confirms.add(made)
		}
	}()
	version, err := link()
	if err != nil {
		return err
	}
	noted, _, err := t.store.NoteKnown(ctx, path, false)
	if err != nil {
		return err
	}
	for version < noted {
		if err := t.store.RefreshCatalog(ctx); err != nil {
			return err
		}
		was := version
		if version, err = link(); err != nil {
			return err
		}
		if version == was {
			return errStaleCatalog
		}
	}
	t.linked.Add(path, linked{version, done})
	t.removed.Remove(path)
	if len(done) > 0 {
		t.watches.watch(t.store.PartitionOf(path), path)
		if w := t.watches.find(path); w != nil && seen.Gateway {
			w.rouse()
		}
	}
	return nil
}

// finished returns those of subs whose backfill is over: a known stream is linked to them.
func (t *Tailer) finished(ctx context.Context, subs []fsm.Subscription) ([]subscriptionKey, error) {
	if len(subs) == 0 {
		return nil, nil
	}
	under, err := t.store.Backfills(ctx)
	if err != nil {
		return nil, err
	}
	var keys []subscriptionKey
	for _, s := range subs {
		if _, ok := under[s.ID]; !ok {
			keys = append(keys, keyOf(s))
		}
	}
	return keys, nil
}

func keysOf(subs []fsm.Subscription) []subscriptionKey {
	keys := make([]subscriptionKey, 0, len(subs))
	for _, s := range subs {
		keys = append(keys, keyOf(s))
	}
	return keys
}

func containsAll(keys []subscriptionKey, subs []fsm.Subscription) bool {
	return !slices.ContainsFunc(subs, func(s fsm.Subscription) bool { return !slices.Contains(keys, keyOf(s)) })
}
