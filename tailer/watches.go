package tailer

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"reveille/fsm"
)

// watches is the set of loops, one a stream, kept in step with what the store says is watched.
type watches struct {
	t *Tailer

	mu sync.Mutex
	// ctx and wg are those of the running Tailer; ctx is nil before and after.
	ctx    context.Context
	wg     sync.WaitGroup
	byPath map[string]*watch
	// closed holds what is left of the loops whose streams are closed and at their end: which partitions were told of that.
	closed map[string]*watch
	// ended holds when loops ended that watched for the home partition of their stream.
	ended map[string]time.Time
}

func newWatches(t *Tailer) *watches {
	return &watches{t: t, byPath: map[string]*watch{}, closed: map[string]*watch{}, ended: map[string]time.Time{}}
}

// Run keeps the loops in step with the store and owns them.
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
		clear(ws.closed)
		clear(ws.ended)
		ws.mu.Unlock()
	}()
	ownership := ws.t.store.Ownership()
	read, checked := map[int]*reading{}, map[int]int64{}
	var whole, early time.Time
	var version int64
	complain := complaint{log: ws.t.log, what: "reading which streams are watched"}
	for ctx.Err() == nil {
		now, changed := time.Now(), ownership.Changed()
		doubts := ws.doubts()
		ws.disown(read)
		// A subscription that is deleted leaves loops behind, which a reading of everything ends.
		current := ws.t.store.Catalog().Version()
		all := !now.Before(whole) || !now.Before(early) && (current != version || anyMissing(read))
		err := ws.readOwned(ctx, read, all)
		if recheckErr := ws.recheck(ctx, doubts, checked); err == nil {
			err = recheckErr
		}
		if err == nil && all {
			// What it costs stays below a hundredth of the time, and a tenth where there is reason for it.
			took := time.Since(now)
			whole, early = time.Now().Add(max(ws.t.cfg.Resync, 100*took)), time.Now().Add(max(ws.t.cfg.Resync, 10*took))
			version = current
			ws.lookAtClosed()
		}
		_ = complain.about(ctx, err)
		sleepOr(ctx, ws.t.cfg.WatchEvery, changed)
	}
	return nil
}

// reading is how far the list of a partition's watched streams was read.
type reading struct {
	seq int64
	// whole is true once all of it was, and doubts is how often the store was in doubt by then.
	whole  bool
	doubts int64
	// missing are the loops whose streams were not on the list when all of it was read last, with their generations.
	missing map[*watch]int64
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
			for w := range ws.generations(partition) {
				w.disown(partition)
			}
		}
	}
}

// readOwned reads the lists of the owned partitions: what is new in them, or all if that is asked for, if they were not read yet,
// or if the store is in doubt. A partition that cannot be read does not keep the others from it.
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
		maps.DeleteFunc(ws.closed, func(path string, w *watch) bool {
			if w.isEmpty() && w.hasLeftHome() {
				ws.ended[path] = time.Now()
			}
			return w.isEmpty()
		})
		ws.forgetEnded()
	}
	return failure
}

// closedBatch is how many closed streams are looked at at a time.
const closedBatch = 1000

// lookAtClosed begins loops for closed streams that were not looked at for long. They end at once if nothing has changed.
func (ws *watches) lookAtClosed() {
	ws.mu.Lock()
	var due []*watch
	for _, w := range ws.closed {
		if len(due) < closedBatch && time.Since(w.closed) >= ws.t.cfg.ClosedCheck {
			due = append(due, w)
		}
	}
	ws.mu.Unlock()
	for _, w := range due {
		for partition := range w.partitions() {
			ws.watch(partition, w.path)
		}
	}
}

func (ws *watches) readNew(ctx context.Context, partition int, r *reading) error {
	return ws.read(ctx, partition, r, func(entry fsm.Watched) {
		if w, runs := ws.get(entry.Path); w == nil || runs || w.untoldOf(partition, entry.Tail) {
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

// readAll compares the loops with a partition's whole list: what is missing is begun, what nobody is subscribed to any more is
// dropped, and what the store has forgotten it is told again. lost says that it may have lost its latest changes: then it is told
// everything, for a tail that it has may have been noted since, without all whom that concerns.
func (ws *watches) readAll(ctx context.Context, partition int, r *reading, lost bool) error {
	before := ws.generations(partition)
	r.seq = 0
	err := ws.read(ctx, partition, r, func(entry fsm.Watched) {
		w, runs := ws.get(entry.Path)
		if w == nil {
			ws.watch(partition, entry.Path)
			return
		}
		told, watched := w.partitions()[partition]
		switch {
		case !watched, !runs && (lost || w.untoldOf(partition, entry.Tail)):
			ws.watch(partition, entry.Path)
		case lost, told.After(entry.Tail):
			w.distrust(partition)
			w.prodded()
		}
		delete(before, w)
	})
	if err != nil {
		return err
	}
	missing := map[*watch]int64{}
	for w, generation := range before {
		if lost && partition == ws.t.store.PartitionOf(w.path) {
			if err := ws.t.forgotten(ctx, w.path); err != nil {
				return err
			}
		} else if !lost && r.missing[w] != generation {
			// That the store has lost something may not have been noticed yet. It will have been the next time.
			missing[w] = generation
			continue
		}
		w.drop(partition, generation)
	}
	r.missing = missing
	return nil
}

// generations returns the loops, those that have ended at a closed stream too, that watch for a partition.
func (ws *watches) generations(partition int) map[*watch]int64 {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	m := map[*watch]int64{}
	for _, set := range []map[string]*watch{ws.byPath, ws.closed} {
		for _, w := range set {
			w.mu.Lock()
			if p := w.parts[partition]; p != nil {
				m[w] = p.generation
			}
			w.mu.Unlock()
		}
	}
	return m
}

// watch has a stream watched in a partition, by whoever owns that. Before and after Run it does nothing: the store knows what is
// watched.
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
	w, runs := ws.byPath[path]
	if !runs {
		w = newWatch(ws.t, path)
		if was := ws.closed[path]; was != nil {
			for partition := range was.partitions() {
				w.add(partition)
			}
			delete(ws.closed, path)
		}
		ws.byPath[path] = w
	}
	w.add(partition)
	if !runs {
		ctx := ws.ctx
		ws.wg.Go(func() { w.run(ctx) })
	}
}

// find returns the loop of a stream, or nil.
func (ws *watches) find(path string) *watch {
	if w, runs := ws.get(path); runs {
		return w
	}
	return nil
}

// get returns the loop of a stream, or what is left of one that has ended because the stream is closed, or nil.
func (ws *watches) get(path string) (w *watch, runs bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w := ws.byPath[path]; w != nil {
		return w, true
	}
	return ws.closed[path], false
}

// lookSoon has all streams looked at within Check: upstream was down, and answers to silent requests may have got lost meanwhile.
func (ws *watches) lookSoon() {
	ws.mu.Lock()
	all := slices.Collect(maps.Values(ws.byPath))
	ws.mu.Unlock()
	for _, w := range all {
		w.lookSoon()
	}
}

// deleted is: the consumers of a stream were removed because it was deleted.
func (ws *watches) deleted(path string) {
	if w, _ := ws.get(path); w != nil {
		w.deleted()
	}
	ws.doubt(path)
}

// doubt has a stream looked at now and the store told its tail again, if it has a loop here or had one until it was closed.
func (ws *watches) doubt(path string) {
	w, runs := ws.get(path)
	switch {
	case runs:
		w.distrust(-1)
		w.prodded()
	case w != nil:
		ws.watch(ws.t.store.PartitionOf(path), path)
	}
}

// endClosed takes the loop of a closed stream out of the set unless it was asked for since the count in asked. The stream is
// looked at again when somebody asks for it, or when a partition turns out to know another tail than it was told.
func (ws *watches) endClosed(w *watch, asked int64) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w.asked() != asked {
		return false
	}
	delete(ws.byPath, w.path)
	ws.closed[w.path], w.closed = w, time.Now()
	return true
}

// endUnwatched takes a loop out of the set if no partition watches its stream.
func (ws *watches) endUnwatched(w *watch) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if !w.isEmpty() {
		return false
	}
	delete(ws.byPath, w.path)
	if w.hasLeftHome() {
		ws.ended[w.path] = time.Now()
	}
	return true
}
