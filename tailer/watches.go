package tailer

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/fsm/throttle"
	"reveille/tailer/discovery"
	"reveille/tailer/upstream"
)

// watches is the set of watches, one a stream. It follows the store's lists of watched streams.
type watches struct {
	t *Tailer

	mu sync.Mutex
	// ctx and wg belong to the running Tailer. ctx is nil before and after Run.
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
	var unread throttle.Trouble
	for ctx.Err() == nil {
		began := time.Now()
		select {
		case <-changed:
			changed = store.Ownership().Changed()
			ws.disown(lists)
		default:
		}
		// Reading all lists takes at most a hundredth of the time. It takes up to a tenth after a change of the
		// subscriptions, or if watched streams were not on the lists. A deleted subscription may have left their
		// watches behind, and a full reading ends them.
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
			unread.Log(ws.t.log, time.Now()).Warn(
				"reading which streams are watched failed; it is tried again", zap.Error(err))
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
	// losses is how often the store may have lost its latest changes, as of the last full reading; notRead before that.
	losses int64
	// missing are the watches whose streams were not on the list at the last full reading, with when they were added.
	missing map[*watch]moment
}

// notRead marks a list that was not read yet.
const notRead = -1

// disown ends the watching for partitions that another replica owns now. It goes through the watches, not through the
// lists: this replica may have gained and lost a partition since it read the lists.
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

// readOwned reads the lists of the owned partitions. It reads a whole list if all is set, if it has not read the list
// yet, or if the store may have lost changes. Otherwise it reads what is new. If it cannot read one partition, it still
// reads the others.
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

// closedBatch bounds the closed streams that get a look at a time, beside those that are named by themselves.
const closedBatch = 1000

// tendClosed removes the closed streams without a consumer. It starts a look at those that had none for long. They rest
// again at once if nothing has changed.
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

// isNamed says whether a setting or a literal pattern names a closed stream. Reveille waits for the next incarnation of
// such a stream, as it did for the first one. The lock of the set is held.
func (w *watch) isNamed() bool {
	if version := w.t.store.Catalog().Version(); w.namedAt != version || version == 0 {
		w.named, w.namedAt = w.t.discovery.Named(w.path), version
	}
	return w.named
}

// read calls f for each stream that came to be watched in a partition after the last one that it read.
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

// readAll compares the watches with a partition's whole list. It begins missing watches and drops those that no
// consumer needs. It tells the store again what the store has forgotten. If lost is set, the store may have lost its
// latest changes, and it is told everything. It may have noted a tail since, without all the consumers that the tail
// concerns.
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
			// This replica may not have noticed yet that the store lost changes. At the next reading it will have.
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

// watching returns the watches for a partition, with when the partition was added to them.
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

// Watch makes the owner of a partition watch a stream there. Before and after Run it does nothing: the store knows what
// is watched.
func (ws *watches) Watch(partition int, path string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	switch {
	case !ws.t.store.Ownership().Owns(partition): // the lock is held, so disown finds what was added before
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

// run starts the goroutine of a watch in the set if an action says so. ws.mu is held.
func (ws *watches) run(w *watch, a action) {
	if a.run && ws.ctx != nil && ws.byPath[w.path] == w {
		w.action = a
		ctx := ws.ctx
		ws.wg.Go(func() { w.run(ctx) })
	}
}

// end removes a watch from the set, or lets it rest, if its machine says so. more says whether there is more to do. If
// not, the watch may run again before end returns.
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

// remove removes a watch without partitions from the set. The store may have lost its consumers, so discovery remembers
// a stream that a subscription matches. ws.mu is held.
func (ws *watches) remove(w *watch) {
	if !w.isDeleted() && len(ws.t.store.Catalog().Match(w.path)) > 0 {
		ws.t.discovery.Remember(w.path)
	}
	delete(ws.byPath, w.path)
}

// get returns the watch of a stream, or nil. runs is false if the watch rests.
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

// Knew says whether the store has noted a tail of a watched stream. The watch may rest. Consumers may be subscribed to
// a stream that does not exist yet: the first stream of that name replaces nothing.
func (ws *watches) Knew(path string) bool {
	w, _ := ws.get(path)
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.machine.parts, func(p part) bool { return p.noted.Tail != "" })
}

// lookSoon makes a HEAD check every live request within Check. Upstream was down, and answers to silent requests may be
// lost.
func (ws *watches) lookSoon() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.byPath {
		w.take(&input{kind: inputSoon})
	}
}

// stir tells the running watch of a stream that something has happened to the stream. Where slots are few, it comes
// first. It says whether there is such a watch.
func (ws *watches) stir(path string, kind inputKind) bool {
	w, runs := ws.get(path)
	if runs {
		w.step(&input{kind: kind})
		ws.t.slots.touch(w)
	}
	return runs
}

// Invalidate voids earlier 404s. The watch of the stream, if there is one, hides no consumers for a 404 from before the
// call.
func (ws *watches) Invalidate(path string) {
	if w, _ := ws.get(path); w != nil {
		w.step(&input{kind: inputVoid})
	}
}

// Deleted notes that the store has removed the consumers of a stream and what it had noted of the stream. The next
// stream of that name is a new one.
func (ws *watches) Deleted(path string) {
	if w, _ := ws.get(path); w != nil {
		w.step(&input{kind: inputDeleted})
	}
	ws.Look(path)
}

// Look implements discovery.Watcher. A closed stream is also looked at for its home partition, whichever replica owns
// that.
func (ws *watches) Look(path string) {
	w, runs := ws.get(path)
	if w == nil {
		return
	}
	if !runs {
		ws.Watch(w.machine.home, path)
	}
	w.step(&input{kind: inputRefresh, partition: everywhere})
}
