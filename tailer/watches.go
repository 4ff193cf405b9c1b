package tailer

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"reveille/fsm"
	"reveille/tailer/upstream"
)

// watches is the set of watches, one a stream, kept in step with what the store says is watched.
type watches struct {
	t       *Tailer
	reports reports

	mu sync.Mutex
	// ctx and wg are those of the running Tailer; ctx is nil before and after.
	ctx    context.Context
	wg     sync.WaitGroup
	byPath map[string]*watch
}

func newWatches(t *Tailer) *watches {
	return &watches{t: t, reports: t, byPath: map[string]*watch{}}
}

// Run keeps the watches in step with the store and owns them.
func (ws *watches) Run(ctx context.Context) error {
	loops, cancel := context.WithCancel(ctx)
	ws.mu.Lock()
	ws.ctx = loops
	ws.mu.Unlock()
	defer func() {
		ws.mu.Lock()
		ws.ctx = nil
		ws.mu.Unlock()
		cancel()
		ws.wg.Wait()
		ws.mu.Lock()
		clear(ws.byPath)
		ws.mu.Unlock()
	}()
	ownership := ws.t.store.Ownership()
	read := map[int]*reading{}
	var whole, early time.Time
	var version int64
	complain := complaint{log: ws.t.log, what: "reading which streams are watched"}
	for ctx.Err() == nil {
		now, changed := time.Now(), ownership.Changed()
		ws.disown(read)
		// A subscription that is deleted leaves watches behind, which a reading of everything ends.
		current := ws.t.store.Catalog().Version()
		all := !now.Before(whole) || !now.Before(early) && (current != version || anyMissing(read))
		err := ws.readOwned(ctx, read, all)
		if err == nil && all {
			// What it costs stays below a hundredth of the time, and a tenth where there is reason for it.
			took := time.Since(now)
			whole, early = time.Now().Add(max(ws.t.cfg.Resync, 100*took)), time.Now().Add(max(ws.t.cfg.Resync, 10*took))
			version = current
			ws.lookAtClosed()
		}
		_ = complain.about(ctx, err)
		upstream.SleepOr(ctx, ws.t.cfg.WatchEvery, changed)
	}
	return nil
}

// reports is whom watches tell what they find out of their streams.
type reports interface {
	// returned is called for a stream that upstream shows again after it had said that there is none. If that took so
	// long that its consumers were removed, it is a new one.
	returned(path string)
	// lost is called for a stream that stayed away until nobody here was subscribed to it any more.
	lost(path string)
	// forgotten is called for a watched stream that the list of its home partition lacks since the store may have lost
	// its latest changes.
	forgotten(path string)
	// left is called for a stream that is not watched for its home partition any more: another replica's turn has come,
	// or nobody is subscribed to it. That nobody is may be what the store has lost.
	left(path string)
}

// reading is how far the list of a partition's watched streams was read.
type reading struct {
	seq int64
	// whole is true once all of it was, and doubts is how often the store was in doubt by then.
	whole  bool
	doubts int64
	// missing are the watches whose streams were not on the list when all of it was read last, with when they were
	// added.
	missing map[*watch]moment
}

func anyMissing(read map[int]*reading) bool {
	for _, r := range read {
		if len(r.missing) > 0 {
			return true
		}
	}
	return false
}

// disown ends the watching for partitions that are another replica's now.
func (ws *watches) disown(read map[int]*reading) {
	ownership := ws.t.store.Ownership()
	for partition := range read {
		if !ownership.Owns(partition) {
			delete(read, partition)
			for w := range ws.watching(partition) {
				w.step(&input{kind: inputDisowned, partition: partition})
				if partition == ws.t.store.PartitionOf(w.path) {
					ws.reports.left(w.path)
				}
			}
		}
	}
}

// readOwned reads the lists of the owned partitions: what is new in them, or all if that is asked for, if they were not
// read yet, or if the store is in doubt. A partition that cannot be read does not keep the others from it.
func (ws *watches) readOwned(ctx context.Context, read map[int]*reading, all bool) error {
	ownership := ws.t.store.Ownership()
	var failure error
	for _, partition := range ownership.Partitions() {
		r := read[partition]
		if r == nil {
			r = &reading{}
			read[partition] = r
		}
		var err error
		if doubts := ownership.Doubts(partition); all || !r.whole || doubts != r.doubts {
			if err = ws.readAll(ctx, partition, r, r.whole && doubts != r.doubts); err == nil {
				r.whole, r.doubts = true, doubts
			}
		} else {
			err = ws.readNew(ctx, partition, r)
		}
		if err != nil {
			failure = err
		}
	}
	if all {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		for _, w := range ws.byPath {
			if _, rests := w.rests(); rests && w.isEmpty() {
				ws.remove(w)
			}
		}
	}
	return failure
}

// closedBatch is how many closed streams are looked at at a time.
const closedBatch = 1000

// lookAtClosed has closed streams looked at that were not for long. They rest again at once if nothing has changed.
func (ws *watches) lookAtClosed() {
	ws.mu.Lock()
	var due []*watch
	for _, w := range ws.byPath {
		if since, rests := w.rests(); rests && len(due) < closedBatch && time.Since(since) >= ws.t.cfg.ClosedCheck {
			due = append(due, w)
		}
	}
	ws.mu.Unlock()
	for _, w := range due {
		ws.step(w, &input{kind: inputRefresh, partition: everywhere})
	}
}

func (ws *watches) readNew(ctx context.Context, partition int, r *reading) error {
	return ws.read(ctx, partition, r, func(entry fsm.Watched) {
		if w, runs := ws.get(entry.Path); w == nil || runs || w.knowsAnother(partition, entry.Tail) {
			ws.watch(partition, entry.Path)
		}
	})
}

// read calls f for each stream that came to be watched in a partition since the one it last was called for.
func (ws *watches) read(ctx context.Context, partition int, r *reading, f func(fsm.Watched)) error {
	for {
		list, err := ws.t.store.WatchedSince(ctx, partition, r.seq)
		if err != nil || len(list) == 0 {
			return err
		}
		for _, entry := range list {
			f(entry)
			r.seq = entry.Seq
		}
	}
}

// readAll compares the watches with a partition's whole list: what is missing is begun, what nobody is subscribed to
// any more is dropped, and what the store has forgotten it is told again. lost says that it may have lost its latest
// changes: then it is told everything, for a tail that it has may have been noted since, without all whom that
// concerns.
func (ws *watches) readAll(ctx context.Context, partition int, r *reading, lost bool) error {
	before := ws.watching(partition)
	r.seq = 0
	err := ws.read(ctx, partition, r, func(entry fsm.Watched) {
		w, runs := ws.get(entry.Path)
		if w == nil {
			ws.watch(partition, entry.Path)
			return
		}
		told, watched := w.partitions()[partition]
		switch {
		case !watched, !runs && (lost || w.knowsAnother(partition, entry.Tail)):
			ws.watch(partition, entry.Path)
		case lost, ahead(told, entry.Tail):
			w.step(&input{kind: inputRefresh, partition: partition})
		}
		delete(before, w)
	})
	if err != nil {
		return err
	}
	missing := map[*watch]moment{}
	for w, added := range before {
		if lost && partition == ws.t.store.PartitionOf(w.path) {
			if !w.removed.Load() {
				ws.reports.forgotten(w.path)
			}
		} else if !lost && r.missing[w] != added {
			// That the store has lost something may not have been noticed yet. It will have been the next time.
			missing[w] = added
			continue
		}
		w.step(&input{kind: inputDropped, partition: partition, since: added})
	}
	r.missing = missing
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

// watch has a stream watched in a partition, by whoever owns that. Before and after Run it does nothing: the store
// knows what is watched.
func (ws *watches) watch(partition int, path string) {
	if !ws.t.store.Ownership().Owns(partition) {
		ws.t.store.Hint(fsm.Hint{Kind: fsm.HintWatch, Partition: partition, Path: path})
		return
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.ctx == nil {
		return
	}
	w, there := ws.byPath[path]
	if !there {
		w = newWatch(ws.t, path)
		ws.byPath[path] = w
	}
	w.removed.Store(false)
	a := w.step(&input{kind: inputAdded, partition: partition})
	if !there {
		a = w.step(&input{kind: inputStart})
	}
	ws.run(w, a)
}

// run begins the goroutine of a watch if an action says so. ws.mu is held.
func (ws *watches) run(w *watch, a action) {
	if a.run {
		w.action = a
		ctx := ws.ctx
		ws.wg.Go(func() { w.run(ctx) })
	}
}

// step is the step of a watch that may rest.
func (ws *watches) step(w *watch, in *input) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.ctx == nil || ws.byPath[w.path] != w {
		return
	}
	ws.run(w, w.step(in))
}

// end has a watch leave the set, or rest, if its machine says so. It says whether there is more to do; if not, the
// watch may run again by the time that it returns.
func (ws *watches) end(w *watch) (more bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.action = w.step(&input{kind: inputEnd})
	if w.action.leave {
		ws.remove(w)
	}
	return w.action.ask != askNothing
}

// remove takes a watch out of the set. ws.mu is held.
func (ws *watches) remove(w *watch) {
	if w.hasLeftHome() && !w.removed.Load() {
		ws.reports.left(w.path)
	}
	delete(ws.byPath, w.path)
}

// find returns the watch of a stream, or nil if there is none or it rests.
func (ws *watches) find(path string) *watch {
	if w, runs := ws.get(path); runs {
		return w
	}
	return nil
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

// lookSoon has all streams looked at within Check: upstream was down, and answers to silent requests may have got lost
// meanwhile.
func (ws *watches) lookSoon() {
	ws.mu.Lock()
	all := slices.Collect(maps.Values(ws.byPath))
	ws.mu.Unlock()
	for _, w := range all {
		w.step(&input{kind: inputSoon})
	}
}

// void makes void what the watch of a stream, if there is one, has seen by now: it hides no consumers for a 404 from
// before.
func (ws *watches) void(path string) {
	if w, _ := ws.get(path); w != nil {
		w.step(&input{kind: inputVoid})
	}
}

// deleted notes that the consumers of a stream were removed because it was deleted, and with them what the store had
// noted of it. One of that name is a new one.
func (ws *watches) deleted(path string) {
	if w, _ := ws.get(path); w != nil {
		w.removed.Store(true)
		w.step(&input{kind: inputDeleted})
	}
	ws.refresh(path)
}

// refresh has a stream looked at now and the store told its tail again, if it is watched here. A closed one is looked
// at for its home partition, too, whoever owns that.
func (ws *watches) refresh(path string) {
	w, runs := ws.get(path)
	if w == nil {
		return
	}
	if !runs {
		ws.watch(ws.t.store.PartitionOf(path), path)
	}
	ws.step(w, &input{kind: inputRefresh, partition: everywhere})
}
