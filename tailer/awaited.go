package tailer

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
)

const (
	// awaitWidth is how many awaited streams are asked for at a time; awaitedMax is how many are kept in memory. The others
	// are found in the store again when there is room.
	awaitWidth = 32
	awaitedMax = 100_000
)

// awaited is the set of streams that somebody waits for and upstream did not have when last asked: they were
// about to be written to, or a setting, an operator or a literal pattern names them. They are asked for until they exist.
type awaited struct {
	t *Tailer

	mu     sync.Mutex
	byPath map[string]*awaitedStream
}

type awaitedStream struct {
	// writes is how many writes are on their way upstream, of those that have begun.
	writes, begun int
	named         bool
	// mine is true if a write through this replica was the first that the store heard of the stream. If another was, or somebody named
	// it elsewhere, it is not for a write that is refused here to have it forgotten.
	mine bool
	// untold is true if a write went upstream that the store could not be told of before: what the stream holds is not nobody's.
	untold bool
	// passing is true if it is here for nothing but writes.
	passing bool
	// doubtful is true if it may never come to be (the write that was to make it did not succeed as far as anybody knows): once upstream
	// has said nothing else for as long as the patience, it is forgotten; or only here, if it is for others to have it forgotten.
	doubtful bool
	patience time.Duration
	absent   absence
	asking   bool
	delay    growing
	due      time.Time
}

func newAwaited(t *Tailer) *awaited { return &awaited{t: t, byPath: map[string]*awaitedStream{}} }

// entry returns the entry of a path; nil if it is new and there is no room.
func (a *awaited) entry(path string) *awaitedStream {
	s := a.byPath[path]
	if s == nil && len(a.byPath) < awaitedMax {
		s = &awaitedStream{delay: growing{least: a.t.cfg.AwaitMin, most: a.t.cfg.Check}}
		s.due = time.Now().Add(jitter(s.delay.next()))
		a.byPath[path] = s
	}
	return s
}

func (a *awaited) add(path string, named bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.entry(path); s != nil {
		s.named, s.passing = s.named || named, false
	}
}

// doubt adds a stream that may not exist. Upstream is believed that it does not once it has said so, and nothing else, for the patience.
func (a *awaited) doubt(path string, patience time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.entry(path); s != nil {
		s.mine, s.passing, s.doubtful = true, false, true
		s.patience, s.absent = max(s.patience, patience), absence{}
	}
}

// writing is: a write to the stream goes upstream.
func (a *awaited) writing(path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, there := a.byPath[path]
	if s := a.entry(path); s != nil {
		s.writes++
		s.begun++
		s.passing = s.passing || !there
	}
}

// untell is: the store could not be told of a write that is on its way, or was.
func (a *awaited) untell(path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.byPath[path]; s != nil {
		s.untold = true
	}
}

func (a *awaited) isUntold(path string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.byPath[path]
	return s != nil && s.untold
}

// noted is: the store had not heard of the stream before a write that is on its way.
func (a *awaited) noted(path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.byPath[path]; s != nil {
		s.mine = true
	}
}

// written is: a write has succeeded.
func (a *awaited) written(path string) { a.ended(path, false) }

// refused is: a write did not succeed.
func (a *awaited) refused(path string) { a.ended(path, true) }

func (a *awaited) ended(path string, refused bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.byPath[path]
	if s == nil || s.writes == 0 {
		return
	}
	s.writes--
	s.doubtful = s.doubtful || refused && (s.mine || s.passing)
}

// doubt says whether a stream is to be forgotten if upstream does not have it, whether by all or only here, and how many writes to it
// had begun.
type doubt struct {
	is, mine bool
	begun    int
}

func (a *awaited) doubtOf(path string) (d doubt) {
	a.mu.Lock()
	if s := a.byPath[path]; s != nil {
		d = doubt{s.doubtful && s.writes == 0 && s.absent.lasts(s.patience), s.mine, s.begun}
	}
	a.mu.Unlock()
	d.is = d.is && !a.t.isNamed(path)
	return d
}

// answered takes in whether upstream has just said that there is no such stream.
func (a *awaited) answered(path string, absent bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.byPath[path]; s != nil {
		s.absent.say(absent, a.t.health)
	}
}

func (a *awaited) writtenTo(path string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.byPath[path]
	return s != nil && s.writes > 0
}

func (a *awaited) isPassing(path string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.byPath[path]
	return s != nil && s.passing
}

func (a *awaited) isNamed(path string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.byPath[path]
	return s != nil && s.named
}

func (a *awaited) remove(path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.byPath, path)
}

// due returns the streams that are to be asked for now, and marks them.
func (a *awaited) due(now time.Time) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var paths []string
	for path, s := range a.byPath {
		if !s.asking && !now.Before(s.due) && (s.doubtful || len(a.t.store.Catalog().Match(path)) > 0) {
			s.asking = true
			paths = append(paths, path)
		}
	}
	return paths
}

// Run asks for the awaited streams, and reads from the store which ones others have noted.
func (a *awaited) Run(ctx context.Context) error {
	var asking sync.WaitGroup
	defer asking.Wait()
	asking.Go(func() { a.readNoted(ctx) })
	width := make(chan struct{}, awaitWidth)
	for sleep(ctx, a.t.cfg.AwaitMin/4) {
		for _, path := range a.due(time.Now()) {
			asking.Go(func() {
				select {
				case width <- struct{}{}:
					a.ask(ctx, path)
					<-width
				case <-ctx.Done():
				}
			})
		}
	}
	return nil
}

// ask looks whether an awaited stream exists by now, or ever will.
func (a *awaited) ask(ctx context.Context, path string) {
	over, err := a.isOver(ctx, path)
	switch {
	case over:
		return
	case err != nil:
		a.t.log.Debug("an awaited stream could not be dealt with", zap.String("stream", path), zap.Error(err))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.byPath[path]; s != nil {
		s.asking = false
		s.due = time.Now().Add(jitter(s.delay.next()))
	}
}

// isOver says whether there is nothing to wait for any more: the stream exists and is linked, or it is forgotten. Nobody has seen
// it before, so its consumers begin at Start.
func (a *awaited) isOver(ctx context.Context, path string) (bool, error) {
	info, err := a.t.look(ctx, path)
	a.answered(path, err == nil && !info.Exists)
	doubt := a.doubtOf(path)
	if err == nil && !info.Exists && doubt.is {
		// What that answer was shared with may have asked before the write was over.
		info, err = a.t.HeadAnew(ctx, path)
		a.answered(path, err == nil && !info.Exists)
	}
	switch {
	case err != nil:
		return false, err
	case info.Exists:
		err := a.link(ctx, path, info.Tail)
		if err == nil {
			a.remove(path)
		}
		return err == nil, err
	case !doubt.is || doubt != a.doubtOf(path):
		return false, nil
	case doubt.mine:
		if err = a.t.store.ForgetKnown(ctx, path, true); err != nil {
			return false, err
		}
	}
	if a.removeUnlessWritten(path, doubt.begun) {
		return true, nil
	}
	// A write that has begun meanwhile may have noted the stream before it was forgotten.
	_, _, err = a.t.store.NoteKnown(ctx, path, true)
	return false, err
}

// link links an awaited stream that exists.
func (a *awaited) link(ctx context.Context, path string, tail fsm.Offset) error {
	known, found, err := a.t.store.Known(ctx, path)
	if err != nil {
		return err
	}
	var already []subscriptionKey
	if found && !known.Awaited {
		if a.isPassing(path) {
			return nil // its writes are taken in where they end, and who lacks a consumer of it is being backfilled
		}
		if already, err = a.t.finished(ctx, a.t.store.Catalog().Match(path)); err != nil {
			return err
		}
	}
	return a.t.adopt(ctx, path, tail, already, fromStart)
}

func (a *awaited) removeUnlessWritten(path string, begun int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.byPath[path]; s != nil && s.begun != begun {
		return false
	}
	delete(a.byPath, path)
	return true
}

// readNoted takes over what is awaited by the store's account: what was noted before a crash, or through another replica, and the
// streams that settings and literal patterns name.
func (a *awaited) readNoted(ctx context.Context) {
	named := false
	naming := complaint{log: a.t.log, what: "making the streams of the settings known"}
	literals := complaint{log: a.t.log, what: "reading which streams the literal patterns name"}
	reading := complaint{log: a.t.log, what: "reading which streams are awaited"}
	for ctx.Err() == nil {
		began, changed, owned := time.Now(), a.t.store.Catalog().Changed(), a.t.store.Ownership().Changed()
		if !named {
			named = naming.about(ctx, a.t.Name(ctx, a.t.cfg.Names)) == nil
		}
		_ = literals.about(ctx, a.readLiterals(ctx))
		_ = reading.about(ctx, a.readKnown(ctx))
		// What it costs stays below a hundredth of the time; a new subscription brings it forward, within bounds.
		took := time.Since(began)
		if sleep(ctx, max(a.t.cfg.Resync/10, 10*took)) {
			sleepOrEither(ctx, max(a.t.cfg.Resync, 100*took), changed, owned)
		}
	}
}

// readLiterals awaits the streams that literal patterns name and nobody knows. A backfill that is under way has that for its task.
func (a *awaited) readLiterals(ctx context.Context) error {
	var under map[string]fsm.Backfill
	for _, sub := range a.t.store.Catalog().All() {
		path := literal(sub)
		if path == "" || !a.t.tracked(path) || !a.t.store.Ownership().Owns(a.t.store.PartitionOf(path)) {
			continue
		}
		known, found, err := a.t.store.Known(ctx, path)
		switch {
		case err != nil:
			return err
		case found && known.Awaited:
			a.add(path, true)
			continue
		case found:
			continue
		}
		if under == nil {
			if under, err = a.t.store.Backfills(ctx); err != nil {
				return err
			}
		}
		if _, ok := under[sub.ID]; ok {
			continue
		}
		if err := a.t.await(ctx, path, true); err != nil {
			return err
		}
	}
	return nil
}

func (a *awaited) readKnown(ctx context.Context) error {
	return a.t.scanKnown(ctx, a.t.store.Ownership().Partitions(), func(k fsm.Known) {
		if k.Awaited && a.t.tracked(k.Path) && len(a.t.store.Catalog().Match(k.Path)) > 0 {
			a.add(k.Path, false)
		}
	})
}

// scanKnown calls f for each stream that the store remembers in some partitions, at least once.
func (t *Tailer) scanKnown(ctx context.Context, partitions []int, f func(fsm.Known)) error {
	for _, partition := range partitions {
		for cursor := "0"; ; {
			list, next, err := t.store.ScanKnown(ctx, partition, cursor)
			if err != nil {
				return err
			}
			for _, k := range list {
				f(k)
			}
			if cursor = next; cursor == "0" {
				break
			}
		}
	}
	return nil
}
