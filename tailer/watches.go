package tailer

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/tailer/discovery"
	"reveille/tailer/upstream"
)

// watches is the set of watches, one a stream, kept in step with what the store says is watched.
type watches struct {
	t *Tailer

	mu sync.Mutex
	// ctx and wg are those of the running Tailer; ctx is nil before and after.
	ctx    context.Context
	wg     sync.WaitGroup
	byPath map[string]*watch
}

// Run keeps the watches in step with the store and owns them.
func (ws *watches) Run(ctx context.Context) error {
	store, lists := ws.t.store, map[int]*reading{}
	changed := store.Ownership().Changed()
	ws.mu.Lock()
	ws.ctx = ctx
	ws.mu.Unlock()
	defer func() {
		ws.mu.Lock()
		ws.ctx = nil
		ws.mu.Unlock()
		ws.wg.Wait()
		ws.mu.Lock()
		clear(ws.byPath)
		ws.mu.Unlock()
	}()
	var ended time.Time
	var took time.Duration
	var version int64
	var unread fsm.Trouble
	for ctx.Err() == nil {
		began := time.Now()
		select {
		case <-changed:
			changed = store.Ownership().Changed()
			ws.disown(lists)
		default:
		}
		// Reading everything takes a hundredth of the time at most, or a tenth where there is reason for it: it ends
		// the watches that a deleted subscription leaves behind.
		share, current := 100, store.Catalog().Version()
		reason := current != version
		for _, l := range lists {
			reason = reason || len(l.missing) > 0
		}
		if reason {
			share = 10
		}
		all := began.Sub(ended) >= max(ws.t.cfg.Resync, time.Duration(share)*took)
		err := ws.readOwned(ctx, lists, all)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			if times, log := unread.Happened(time.Now()); log {
				ws.t.log.Warn("reading which streams are watched failed; it is tried again", zap.Int("times", times),
					zap.Error(err))
			}
		case unread.Over():
			ws.t.log.Info("reading which streams are watched works again")
		}
		if err == nil && all {
			ended, took, version = time.Now(), time.Since(began), current
			ws.tendClosed()
		}
		upstream.SleepOr(ctx, ws.t.cfg.WatchEvery, changed)
	}
	return nil
}

// reading is how far the list of a partition's watched streams was read.
type reading struct {
	seq int64
	// losses is how often the store may have lost its latest changes when all of it was read; notRead before that.
	losses int64
	// missing are the watches whose streams were not on the list when all of it was read last, with when they were
	// added.
	missing map[*watch]moment
}

// notRead stands for no number of losses.
const notRead = -1

// disown ends the watching for partitions that are another replica's now. It goes by the watches, not by the lists: a
// partition may have come and gone since the lists were read.
func (ws *watches) disown(lists map[int]*reading) {
	owns := ws.t.store.Ownership().Owns
	maps.DeleteFunc(lists, func(partition int, _ *reading) bool { return !owns(partition) })
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.byPath {
		for _, partition := range w.partitions(false) {
			if owns(partition) {
				continue
			}
			ws.run(w, w.take(&input{kind: inputDisowned, partition: partition}))
			if partition == w.machine.home {
				ws.t.discovery.Remember(w.path)
			}
		}
	}
}

// readOwned reads the lists of the owned partitions: what is new in them, or all if that is asked for, if they were not
// read yet, or if the store may have lost its latest changes. A partition that cannot be read does not hold up the
// others.
func (ws *watches) readOwned(ctx context.Context, lists map[int]*reading, all bool) (failure error) {
	ownership := ws.t.store.Ownership()
	for _, partition := range ownership.Partitions() {
		l := lists[partition]
		if l == nil {
			l = &reading{losses: notRead}
			lists[partition] = l
		}
		var err error
		if losses := ownership.Losses(partition); !all && losses == l.losses {
			err = ws.readNew(ctx, partition, l)
		} else if err = ws.readAll(ctx, partition, l, l.losses != notRead && losses != l.losses); err == nil {
			l.losses = losses
		}
		if err != nil {
			failure = err
		}
	}
	return failure
}

// closedBatch is how many closed streams are looked at at a time, besides those that are named by themselves.
const closedBatch = 1000

// tendClosed removes the closed streams that no consumer is subscribed to any more, and has those looked at that were
// not looked at for long. They rest again at once if nothing has changed.
func (ws *watches) tendClosed() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	looks := 0
	for _, w := range ws.byPath {
		since, rests := w.rests()
		rested := time.Since(since)
		switch {
		case !rests:
			continue
		case len(w.partitions(false)) == 0:
			ws.remove(w)
			continue
		case rested >= ws.t.cfg.ClosedCheck && looks < closedBatch:
			looks++
		case rested < min(calm*ws.t.cfg.Check, ws.t.cfg.ClosedCheck) || !w.isNamed():
			continue
		}
		ws.run(w, w.take(&input{kind: inputRefresh, partition: everywhere}))
	}
}

// isNamed says whether a closed stream is named by itself: its next incarnation is waited for, as the first one was.
// The lock of the set is held.
func (w *watch) isNamed() bool {
	if version := w.t.store.Catalog().Version(); w.namedAt != version || version == 0 {
		w.named, w.namedAt = w.t.discovery.Named(w.path), version
	}
	return w.named
}

// read calls f for each stream that came to be watched in a partition since the one it last was called for.
func (ws *watches) read(ctx context.Context, partition int, l *reading, f func(fsm.Watched)) error {
	for {
		entries, err := ws.t.store.WatchedSince(ctx, partition, l.seq)
		if err != nil || len(entries) == 0 {
			return err
		}
		for _, entry := range entries {
			f(entry)
			l.seq = entry.Seq
		}
	}
}

func (ws *watches) readNew(ctx context.Context, partition int, l *reading) error {
	return ws.read(ctx, partition, l, func(entry fsm.Watched) {
		w, runs := ws.get(entry.Path)
		if told, _ := w.told(partition); runs || told == "" || told != entry.Tail {
			ws.Watch(partition, entry.Path)
		}
	})
}

// readAll compares the watches with a partition's whole list. It begins what is missing, drops what no consumer is
// subscribed to any more, and tells the store again what the store has forgotten. lost says that the store may have
// lost its latest changes: then it is told everything, for a tail that it has may have been noted since, without all
// the consumers that the tail concerns.
func (ws *watches) readAll(ctx context.Context, partition int, l *reading, lost bool) error {
	before := ws.watching(partition)
	l.seq = 0
	err := ws.read(ctx, partition, l, func(entry fsm.Watched) {
		w, runs := ws.get(entry.Path)
		told, watched := w.told(partition)
		switch {
		case !watched, !runs && (lost || told == "" || told != entry.Tail):
			ws.Watch(partition, entry.Path)
		case lost, told.Ahead(entry.Tail):
			w.step(&input{kind: inputRefresh, partition: partition})
		}
		delete(before, w)
	})
	if err != nil {
		return err
	}
	missing := map[*watch]moment{}
	for w, added := range before {
		switch {
		case !lost && l.missing[w] != added:
			// A loss of the store may not have been noticed yet. It will have been by the next time.
			missing[w] = added
			continue
		case lost && partition == w.machine.home && !w.isDeleted():
			ws.t.discovery.Confirm(w.path)
		}
		w.step(&input{kind: inputDropped, partition: partition, since: added})
	}
	l.missing = missing
	return nil
}

// watching returns the watches for a partition, with when it was added to them.
func (ws *watches) watching(partition int) map[*watch]moment {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	m := map[*watch]moment{}
	for _, w := range ws.byPath {
		w.mu.Lock()
		if p := w.machine.part(partition); p != nil {
			m[w] = p.added
		}
		w.mu.Unlock()
	}
	return m
}

// Watch has a stream watched in a partition, by the replica that owns the partition. Before and after Run it does
// nothing: the store knows what is watched.
func (ws *watches) Watch(partition int, path string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	switch {
	case !ws.t.store.Ownership().Owns(partition): // asked with the lock, so that disown finds what is added before
		ws.t.store.Hint(fsm.Hint{Kind: fsm.HintWatch, Partition: partition, Path: path})
		return
	case ws.ctx == nil:
		return
	}
	w, there := ws.byPath[path]
	if !there {
		w = newWatch(ws.t, path)
		ws.byPath[path] = w
	}
	ws.run(w, w.take(&input{kind: inputAdded, partition: partition}))
}

// run begins the goroutine of a watch in the set if an action says so. ws.mu is held.
func (ws *watches) run(w *watch, a action) {
	if a.run && ws.ctx != nil && ws.byPath[w.path] == w {
		w.action = a
		ctx := ws.ctx
		ws.wg.Go(func() { w.run(ctx) })
	}
}

// end has a watch leave the set, or rest, if its machine says so. It says whether there is more to do; if not, the
// watch may run again by the time that it returns.
func (ws *watches) end(w *watch) (more bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.action = w.take(&input{kind: inputDone})
	if w.action.leave {
		ws.remove(w)
	}
	if w.action.lost {
		ws.t.discovery.Enqueue(w.path, discovery.Evidence{})
	}
	return w.action.phase.asks()
}

// remove takes a watch that watches for no partition any more out of the set. The consumers may be missing because the
// store has lost them: a stream that a subscription matches is remembered. ws.mu is held.
func (ws *watches) remove(w *watch) {
	if !w.isDeleted() && len(ws.t.store.Catalog().Match(w.path)) > 0 {
		ws.t.discovery.Remember(w.path)
	}
	delete(ws.byPath, w.path)
}

// get returns the watch of a stream, or nil; runs is false if it rests.
func (ws *watches) get(path string) (w *watch, runs bool) {
	ws.mu.Lock()
	w = ws.byPath[path]
	ws.mu.Unlock()
	if w == nil {
		return nil, false
	}
	_, rests := w.rests()
	return w, !rests
}

// Knew says whether the store has noted a tail of a stream that is watched, even by a watch that rests. Consumers may
// be subscribed to a stream that is yet to be made: the first one of its name replaces none.
func (ws *watches) Knew(path string) bool {
	w, _ := ws.get(path)
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.machine.parts, func(p part) bool { return p.noted.Tail != "" })
}

// lookSoon has all streams looked at within Check: upstream was down, and answers to silent requests may have got lost
// meanwhile.
func (ws *watches) lookSoon() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.byPath {
		w.take(&input{kind: inputSoon})
	}
}

// stir has the watch of a stream, if it runs, take in that something has happened to the stream: it comes first where
// slots are few. It says whether the watch runs.
func (ws *watches) stir(path string, kind inputKind) bool {
	w, runs := ws.get(path)
	if runs {
		w.step(&input{kind: kind})
		ws.t.slots.touch(w)
	}
	return runs
}

// Invalidate has the watch of a stream, if there is one, hide no consumers for a 404 from before the call.
func (ws *watches) Invalidate(path string) {
	if w, _ := ws.get(path); w != nil {
		w.step(&input{kind: inputVoid})
	}
}

// Deleted takes in that the consumers of a stream were removed, and with them what the store had noted of it: a stream
// of that name is a new one.
func (ws *watches) Deleted(path string) {
	if w, _ := ws.get(path); w != nil {
		w.step(&input{kind: inputDeleted})
	}
	ws.refresh(path)
}

// ReportWrite queues a write through the gateway: its tail is reported to the store.
func (ws *watches) ReportWrite(path string, e discovery.Evidence) { ws.t.writes.add(path, e) }

// refresh has a stream looked at now and the store told its tail again, if it is watched here. A closed one is looked
// at for its home partition, too, whichever replica owns it.
func (ws *watches) refresh(path string) {
	w, runs := ws.get(path)
	if w == nil {
		return
	}
	if !runs {
		ws.Watch(w.machine.home, path)
	}
	w.step(&input{kind: inputRefresh, partition: everywhere})
}
