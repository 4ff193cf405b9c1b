package tailer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

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
		t.log.Warn("a stream could not be linked before it was written to; it is linked after",
			zap.String("stream", path), zap.Error(err))
	}
}

// prepare links a stream to the subscriptions it has none of yet, at the tail it has before the write.
func (t *Tailer) prepare(ctx context.Context, path string, l linked, ok bool) error {
	version := t.store.Catalog().Version()
	subs := t.store.Catalog().Match(path)
	if !ok {
		if len(subs) == 0 {
			// Nobody is to be linked. The note says since when it was written to, should somebody subscribe meanwhile.
			return t.noteWriting(ctx, path)
		}
		known, found, err := t.store.Known(ctx, path)
		if err != nil {
			return err
		}
		if !found || known.Awaited {
			return t.prepareUnknown(ctx, path, found)
		}
		// It is linked to every subscription but those whose backfill may not have come to it yet.
		if l.subs, err = t.finished(ctx, subs); err != nil {
			return err
		}
	}
	if containsAll(l.subs, subs) {
		t.linked.Add(path, linked{version, keysOf(subs)})
		return nil
	}
	info, err := t.Head(ctx, path)
	if err != nil || !info.Exists {
		return err
	}
	return t.adopt(ctx, path, info.Tail, l.subs, at(info.Tail))
}

func (t *Tailer) prepareUnknown(ctx context.Context, path string, awaited bool) error {
	if !awaited {
		info, err := t.Head(ctx, path)
		if err == nil && info.Exists {
			return t.adopt(ctx, path, info.Tail, nil, at(info.Tail))
		}
	}
	return t.noteWriting(ctx, path)
}

// noteWriting has the store remember a stream until the write that is on its way has been taken in. When it returns, the
// subscriptions that were made before the write are all known here.
func (t *Tailer) noteWriting(ctx context.Context, path string) error {
	t.awaited.writing(path)
	version, err := t.store.NoteKnown(ctx, path, true)
	if err != nil || version <= t.store.Catalog().Version() {
		return err
	}
	return t.store.RefreshCatalog(ctx)
}

// Written is fsm.Streams'.
func (t *Tailer) Written(path string, tail fsm.Offset, created bool) {
	switch {
	case !t.tracked(path):
		return
	case tail == "": // against the protocol; upstream is asked
		t.Refused(path)
		return
	}
	t.awaited.written(path)
	l, ok := t.linked.Get(path)
	if !ok || created || l.version != t.store.Catalog().Version() {
		l.subs = keysOf(t.store.Catalog().Match(path))
	}
	t.writes.add(path, write{tail: tail, created: created}, l.subs)
}

// wrote takes in a successful write. For a stream that is known and linked it is one call of the store in each partition that
// watches it, mostly one in all.
func (t *Tailer) wrote(ctx context.Context, path string, wr write) error {
	l, ok := t.linked.Get(path)
	if ok && !wr.created && l.version == t.store.Catalog().Version() {
		return t.observeWritten(ctx, path, wr.tail, l)
	}
	known, found, err := t.store.Known(ctx, path)
	if err != nil {
		return err
	}
	var already []subscriptionKey
	switch {
	case wr.created:
	case ok:
		already = l.subs
	case found && !known.Awaited:
		if already, err = t.finished(ctx, t.store.Catalog().Match(path)); err != nil {
			return err
		}
	}
	// A subscription that was made after writes had succeeded begins where the last of them ended.
	from := func(sub fsm.Subscription) fsm.Offset {
		if found && sub.CreatedAt.After(known.At) {
			if end := t.writes.endBefore(path, keyOf(sub)); end != "" {
				return end
			}
		}
		return fsm.Start
	}
	if err := t.adopt(ctx, path, wr.tail, already, from); err != nil {
		return err
	}
	t.awaited.remove(path)
	l, _ = t.linked.Get(path)
	if wr.created {
		return t.observeCreated(ctx, path, wr.tail)
	}
	return t.observeWritten(ctx, path, wr.tail, l)
}

// observeWritten tells the store a tail in the home partition and in those whose consumers are known to watch the stream.
func (t *Tailer) observeWritten(ctx context.Context, path string, tail fsm.Offset, l linked) error {
	home := t.store.PartitionOf(path)
	partitions := map[int]fsm.Offset{}
	w := t.watches.find(path)
	switch {
	case w == nil:
		w = newWatch(t, path)
	case w.looksAfterPause():
		return nil
	default:
		partitions = w.partitions()
	}
	_, watched := partitions[home]
	if !watched && len(l.subs) > 0 {
		partitions[home] = ""
	}
	for partition, told := range partitions {
		if !tail.After(told) {
			continue
		}
		s := w.stamp(partition)
		obs, err := t.store.Observe(ctx, partition, path, tail)
		t.settle(obs.Outcome)
		if err != nil {
			return err
		}
		w.seen(partition, s, tail, obs)
		switch {
		case partition != home:
		case !obs.Watched:
			err = t.wroteUnwatched(ctx, path, tail)
		case !watched:
			t.watches.watch(home, path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// wroteUnwatched is for a write to a stream that nobody in its home partition is subscribed to. If the store does not know it
// either, it was forgotten through another replica, or the store has lost its latest changes: it is a new one now.
func (t *Tailer) wroteUnwatched(ctx context.Context, path string, tail fsm.Offset) error {
	known, found, err := t.store.Known(ctx, path)
	if err != nil || found && !known.Awaited {
		return err
	}
	t.linked.Remove(path)
	return t.adopt(ctx, path, tail, nil, fromStart)
}

// observeCreated is for a stream that upstream has just made. If consumers of an older one of the same name are there, the
// tail that was noted lies beyond: it is confirmed and they start over.
func (t *Tailer) observeCreated(ctx context.Context, path string, tail fsm.Offset) error {
	partitions := map[int]fsm.Offset{t.store.PartitionOf(path): ""}
	w := t.watches.find(path)
	if w != nil {
		for partition := range w.partitions() {
			partitions[partition] = ""
		}
	} else {
		w = newWatch(t, path)
	}
	for partition := range partitions {
		s := w.stamp(partition)
		obs, err := t.store.Observe(ctx, partition, path, tail)
		t.settle(obs.Outcome)
		if err != nil {
			return err
		}
		w.seen(partition, s, tail, obs)
		if !obs.Watched || !obs.Tail.After(tail) {
			continue
		}
		info, err := t.HeadAnew(ctx, path)
		if err != nil {
			return err
		}
		if info.Exists && obs.Tail.After(info.Tail) {
			if err := t.restart(ctx, w, partition, obs.Tail, info.Tail); err != nil {
				return err
			}
		}
	}
	w.hurry()
	return nil
}

// looksAfterPause says whether the loop is in a pause, after which it looks at the stream. The write was over before this is
// asked, so that look will see it. A loop whose stream is away is told to look now.
func (w *watch) looksAfterPause() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.away {
		signal(w.poke)
	}
	return w.pausing
}

// hurry has the loop look now if it believes its stream away.
func (w *watch) hurry() { w.looksAfterPause() }

func fromStart(fsm.Subscription) fsm.Offset { return fsm.Start }

func at(tail fsm.Offset) func(fsm.Subscription) fsm.Offset {
	return func(fsm.Subscription) fsm.Offset { return tail }
}

// adopt links a stream that exists to every matching subscription but those it is linked to already, remembers it, and has it
// watched. from is the offset that a subscription's consumer begins with. A subscription that is made at the same moment
// either finds the stream known, in its backfill, or is found here.
func (t *Tailer) adopt(
	ctx context.Context, path string, tail fsm.Offset, already []subscriptionKey, from func(fsm.Subscription) fsm.Offset,
) error {
	catalog := t.store.Catalog()
	done := slices.Clone(already)
	link := func() (version int64, err error) {
		version = catalog.Version()
		for _, sub := range catalog.Match(path) {
			if slices.Contains(done, keyOf(sub)) {
				continue
			}
			o, err := t.store.Link(ctx, sub, path, from(sub), tail)
			if err != nil {
				return 0, err
			}
			t.settle(o)
			done = append(done, keyOf(sub))
		}
		return version, nil
	}
	version, err := link()
	if err != nil {
		return err
	}
	noted, err := t.store.NoteKnown(ctx, path, false)
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
	if len(done) > 0 {
		t.watches.watch(t.store.PartitionOf(path), path)
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

// Refused is fsm.Streams'. The write may have succeeded all the same, only nobody knows: if the stream is there, its event counts.
func (t *Tailer) Refused(path string) {
	if t.tracked(path) {
		t.awaited.refused(path)
	}
}

// isNamed says whether a stream is waited for whatever becomes of it: a setting or a literal pattern names it.
func (t *Tailer) isNamed(path string) bool {
	if slices.Contains(t.cfg.Names, path) || t.awaited.isNamed(path) {
		return true
	}
	return slices.ContainsFunc(t.store.Catalog().Match(path), func(s fsm.Subscription) bool { return literal(s) == path })
}

// literal is the path that a subscription's pattern names, or empty if it has a wildcard.
func literal(s fsm.Subscription) string {
	p, err := fsm.ParsePattern(s.Pattern)
	if err != nil || !p.Literal() {
		return ""
	}
	return p.String()
}

// Deleted is fsm.Streams'.
func (t *Tailer) Deleted(ctx context.Context, path string) error {
	if !t.tracked(path) {
		return nil
	}
	if t.cfg.Registry != "" {
		n, _ := t.deletes.Get(path)
		t.deletes.Add(path, n+1)
	}
	return t.deleted(ctx, path)
}

func (t *Tailer) deleted(ctx context.Context, path string) error {
	if err := t.remove(ctx, path); err != nil {
		return err
	}
	if t.isNamed(path) {
		return t.await(ctx, path, false)
	}
	return nil
}

// remove forgets a stream and removes its consumers.
func (t *Tailer) remove(ctx context.Context, path string) error {
	t.writes.drop(path)
	t.awaited.remove(path)
	t.linked.Remove(path)
	if err := t.store.ForgetKnown(ctx, path, false); err != nil {
		return err
	}
	partitions := map[int]fsm.Offset{}
	if w, _ := t.watches.get(path); w != nil {
		partitions = w.partitions()
	}
	partitions[t.store.PartitionOf(path)] = ""
	for partition := range partitions {
		o, err := t.store.Deleted(ctx, partition, path)
		if err != nil {
			return err
		}
		t.settle(o)
	}
	t.watches.doubt(path)
	return nil
}

// lost is for a stream that stayed away until nobody was subscribed to it any more: should it come back, it is a new one.
func (t *Tailer) lost(ctx context.Context, path string) {
	t.linked.Remove(path)
	if t.watches.find(path) != nil || t.awaited.writtenTo(path) {
		return
	}
	err := t.insist(ctx, "lost", path, func() error { return t.store.ForgetKnown(ctx, path, false) })
	if err == nil && t.isNamed(path) {
		_ = t.insist(ctx, "lost", path, func() error { return t.await(ctx, path, false) })
	}
}

// returned is for a stream that was away and is back. If that took so long that its consumers were removed, it is a new one.
func (t *Tailer) returned(ctx context.Context, path string, tail fsm.Offset) error {
	if !t.tracked(path) {
		return nil
	}
	return t.insist(ctx, "returned", path, func() error {
		known, found, err := t.store.Known(ctx, path)
		if err != nil || found && !known.Awaited {
			return err
		}
		t.linked.Remove(path)
		return t.adopt(ctx, path, tail, nil, fromStart)
	})
}

// await remembers a stream that does not exist yet and asks for it until it does.
func (t *Tailer) await(ctx context.Context, path string, named bool) error {
	t.awaited.add(path, named)
	_, err := t.store.NoteKnown(ctx, path, true)
	return err
}

// awaitDoubtfully is await for a stream that is forgotten if it turns out not to exist.
func (t *Tailer) awaitDoubtfully(ctx context.Context, path string) error {
	t.awaited.doubt(path)
	return t.await(ctx, path, false)
}

// Name is fsm.Streams'. An upstream that cannot be asked counts as one that does not have the streams yet.
func (t *Tailer) Name(ctx context.Context, paths []string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(backfillWidth)
	for _, path := range paths {
		g.Go(func() error {
			if !t.tracked(path) {
				return nil
			}
			if err := t.name(ctx, path); err != nil {
				return fmt.Errorf("stream %s could not be named: %w", path, err)
			}
			return nil
		})
	}
	return g.Wait()
}

func (t *Tailer) name(ctx context.Context, path string) error {
	already, err := t.linkedTo(ctx, path)
	if err != nil {
		return err
	}
	info, err := t.Head(ctx, path)
	if err == nil && info.Exists {
		return t.adopt(ctx, path, info.Tail, already, fromStart)
	}
	return t.await(ctx, path, true)
}

// linkedTo returns the subscriptions that a stream has been linked to, by what the store knows of it. Linking it again would bring
// back a consumer whose worker has unsubscribed.
func (t *Tailer) linkedTo(ctx context.Context, path string) ([]subscriptionKey, error) {
	known, found, err := t.store.Known(ctx, path)
	if err != nil || !found || known.Awaited {
		return nil, err
	}
	return t.finished(ctx, t.store.Catalog().Match(path))
}

// Forget is fsm.Streams'.
func (t *Tailer) Forget(ctx context.Context, paths []string) error {
	for _, path := range paths {
		if err := t.remove(ctx, path); err != nil {
			return fmt.Errorf("stream %s could not be forgotten: %w", path, err)
		}
	}
	return nil
}
