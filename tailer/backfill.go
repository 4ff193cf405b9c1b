package tailer

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"reveille/fsm"
)

const (
	// backfillWidth is how many streams are asked for at a time in one backfill; progressEvery is how often its progress
	// is told.
	backfillWidth = 32
	progressEvery = 200 * time.Millisecond
	// literalPatience is by how much longer Subscribed waits for a literal pattern.
	literalPatience = 8
	// patience is for how many graces a stream that is gone, and has consumers, is waited for.
	patience = 3
)

// backfills gives new subscriptions the consumers of the streams that were there before them (webhook spec, Existing Streams).
type backfills struct {
	t *Tailer

	mu      sync.Mutex
	ctx     context.Context
	wg      sync.WaitGroup
	running map[subscriptionKey]*backfill
}

func newBackfills(t *Tailer) *backfills {
	return &backfills{t: t, running: map[subscriptionKey]*backfill{}}
}

// backfill is the work for one subscription.
type backfill struct {
	t   *Tailer
	sub fsm.Subscription
	// answered is true once the subscription's creator may have been told of it: a stream that is found to exist
	// only after that may have appeared after the subscription.
	answered atomic.Bool
	over     chan struct{}

	mu sync.Mutex
	// away holds the absences of streams.
	away map[string]*absence
}

var errAway = errors.New("upstream says that it has no such stream")

// Subscribed is fsm.Streams'. What is left when it returns goes on in Run, and in the next one if that ends.
func (t *Tailer) Subscribed(ctx context.Context, sub fsm.Subscription) {
	b := t.backfills.begin(sub, false)
	if b == nil {
		return
	}
	wait := t.cfg.BackfillWait
	if literal(sub) != "" {
		// It is one HEAD, and whether the stream was there before the subscription is known only if that comes first.
		wait *= literalPatience
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-b.over:
	case <-timer.C:
	case <-ctx.Done():
	}
	b.answered.Store(true)
}

// begin begins a backfill, or returns the one that runs; nil before and after Run.
func (bs *backfills) begin(sub fsm.Subscription, answered bool) *backfill {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	if bs.ctx == nil {
		return nil
	}
	if b := bs.running[keyOf(sub)]; b != nil {
		return b
	}
	b := &backfill{t: bs.t, sub: sub, over: make(chan struct{}), away: map[string]*absence{}}
	b.answered.Store(answered)
	bs.running[keyOf(sub)] = b
	ctx := bs.ctx
	bs.wg.Go(func() {
		defer close(b.over)
		b.run(ctx)
		bs.mu.Lock()
		defer bs.mu.Unlock()
		delete(bs.running, keyOf(sub))
	})
	return b
}

func (bs *backfills) isRunning(sub fsm.Subscription) bool {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	return bs.running[keyOf(sub)] != nil
}

// Run owns the backfills. It takes up those that were left unfinished, each replica its share: all of them at the start, later those
// that have made no progress from one look to the next, because the replica that was at them has died.
func (bs *backfills) Run(ctx context.Context) error {
	bs.mu.Lock()
	bs.ctx = ctx
	bs.mu.Unlock()
	defer func() {
		bs.mu.Lock()
		bs.ctx = nil
		bs.mu.Unlock()
		bs.wg.Wait()
	}()
	var before map[string]fsm.Backfill
	reading := complaint{log: bs.t.log, what: "reading which backfills are unfinished"}
	ownership := bs.t.store.Ownership()
	for first := true; ctx.Err() == nil; {
		changed := ownership.Changed()
		under, err := bs.t.store.Backfills(ctx)
		if reading.about(ctx, err) != nil {
			sleep(ctx, jitter(bs.t.cfg.WatchEvery))
			continue
		}
		for id, progress := range under {
			sub, ok := bs.t.store.Catalog().Get(id)
			was, seen := before[id]
			if ok && ownership.Owns(bs.t.store.PartitionOf(id)) && !bs.isRunning(sub) &&
				(seen && was == progress || first && !bs.lostLately(ctx, id)) {
				bs.begin(sub, true)
			}
		}
		before = under
		if first && len(ownership.Partitions()) == 0 {
			sleepOr(ctx, bs.t.cfg.WatchEvery, changed)
			continue
		}
		first = false
		sleep(ctx, bs.t.cfg.Resync)
	}
	return nil
}

// lostLately says whether the store may have lost just now that a backfill was over. Whoever made its links knows where they began and makes
// them again (confirms), which must come first.
func (bs *backfills) lostLately(ctx context.Context, id string) bool {
	lost, err := bs.t.lostAt(ctx, id)
	return err != nil || time.Since(lost) < lossSlack
}

func (b *backfill) run(ctx context.Context) {
	var streams []fsm.Known
	err := b.t.insist(ctx, "backfill", zap.String("subscription", b.sub.ID), func() (err error) {
		streams, err = b.streams(ctx)
		return err
	})
	if err != nil {
		return
	}
	var done atomic.Int64
	total := len(streams)
	stop := b.tellProgress(ctx, &done, total)
	defer stop()
	delay := growing{least: b.t.cfg.BackoffMin, most: b.t.cfg.Check}
	var unlinked fsm.Trouble
	for len(streams) > 0 && !b.deleted(ctx) {
		// What cannot be asked for now is asked for again after the others.
		var mu sync.Mutex
		var left []fsm.Known
		var g errgroup.Group
		g.SetLimit(backfillWidth)
		for _, known := range streams {
			g.Go(func() error {
				if err := b.link(ctx, known); err != nil {
					mu.Lock()
					defer mu.Unlock()
					left = append(left, known)
					return err
				}
				done.Add(1)
				return nil
			})
		}
		err := g.Wait()
		if ctx.Err() != nil {
			return
		}
		if streams = left; err != nil {
			if times, log := unlinked.Happened(time.Now()); log {
				b.t.log.Warn("existing streams could not be linked; they are tried again", zap.String("subscription", b.sub.ID),
					zap.Int("left", len(left)), zap.Int("times", times), zap.Error(err))
			}
			sleep(ctx, jitter(delay.next()))
		}
	}
	stop()
	_ = b.t.insist(ctx, "backfill", zap.String("subscription", b.sub.ID), func() error { return b.t.store.EndBackfill(ctx, b.sub) })
}

// streams returns the known streams that match, or the one that a literal pattern names.
func (b *backfill) streams(ctx context.Context) ([]fsm.Known, error) {
	pattern, err := fsm.ParsePattern(b.sub.Pattern)
	if err != nil {
		return nil, nil // never stored
	}
	if path := literal(b.sub); path != "" {
		return b.named(ctx, path)
	}
	var list []fsm.Known
	seen := map[string]bool{}
	err = b.t.scanKnown(ctx, fsm.AllPartitions(b.t.store.Partitions()), func(k fsm.Known) {
		if !seen[k.Path] && pattern.Matches(k.Path) && b.t.tracked(k.Path) {
			seen[k.Path] = true
			list = append(list, k)
		}
	})
	return list, err
}

// named returns the one stream that a literal pattern names.
func (b *backfill) named(ctx context.Context, path string) ([]fsm.Known, error) {
	if !b.t.tracked(path) {
		return nil, nil
	}
	known, found, err := b.t.store.Known(ctx, path)
	if !found {
		known = fsm.Known{Path: path, Awaited: true}
	}
	return []fsm.Known{known}, err
}

// link gives one stream its consumer. One that was there before the subscription begins at the tail it has now; one that
// appeared after it, or may have, begins at Start.
func (b *backfill) link(ctx context.Context, known fsm.Known) error {
	info, err := b.t.look(ctx, known.Path)
	away := b.absence(known.Path, err == nil && !info.Exists)
	if err != nil {
		return err
	}
	if !info.Exists {
		switch {
		case known.Awaited:
			return b.t.await(ctx, known.Path, literal(b.sub) == known.Path)
		case !away.lasts(b.t.cfg.GoneGrace), !b.t.lost(ctx, known.Path, away.lasts(patience*b.t.cfg.GoneGrace)):
			// A proxy in front of a server that is down says so of every stream.
			return errAway
		}
		return nil
	}
	acked := info.Tail
	after := !known.At.IsZero() && !known.At.Before(b.sub.CreatedAt)
	if after || known.Awaited && b.answered.Load() {
		acked = fsm.Start
	}
	s := telling(known.Path, info.Tail)
	o, err := b.t.store.Link(ctx, b.sub, known.Path, acked, info.Tail)
	if err != nil {
		return err
	}
	if b.t.settle(s, o); o.Linked > 0 {
		b.t.confirms.add(confirm{path: known.Path, known: true, links: []madeLink{{keyOf(b.sub), acked}}, made: s.begun})
	}
	if l, ok := b.t.linked.Get(known.Path); ok && !containsAll(l.subs, []fsm.Subscription{b.sub}) {
		subs := append(append([]subscriptionKey(nil), l.subs...), keyOf(b.sub))
		b.t.linked.Add(known.Path, linked{l.version, subs})
	}
	b.t.watches.watch(b.t.store.PartitionOf(known.Path), known.Path)
	if !known.Awaited {
		return nil
	}
	// It exists, so it is awaited no more, and any other subscription it was awaited for gets its consumer too.
	if err := b.t.adopt(ctx, known.Path, info.Tail, []subscriptionKey{keyOf(b.sub)}, fromStart); err != nil {
		return err
	}
	b.t.awaited.remove(known.Path)
	return nil
}

// absence takes in whether upstream has just said that there is no such stream.
func (b *backfill) absence(path string, gone bool) absence {
	b.mu.Lock()
	defer b.mu.Unlock()
	away := b.away[path]
	if away == nil {
		away = &absence{}
		b.away[path] = away
	}
	if away.say(gone, b.t.health); !gone {
		delete(b.away, path)
	}
	return *away
}

// deleted says whether the subscription is gone.
func (b *backfill) deleted(ctx context.Context) bool {
	if err := b.t.store.RefreshCatalog(ctx); err != nil {
		return false
	}
	sub, ok := b.t.store.Catalog().Get(b.sub.ID)
	return !ok || sub.Generation != b.sub.Generation
}

// tellProgress keeps the store told of how far the backfill is until it is stopped.
func (b *backfill) tellProgress(ctx context.Context, done *atomic.Int64, total int) (stop func()) {
	tell := func() {
		if err := b.t.store.SetBackfill(ctx, b.sub, fsm.Backfill{Done: int(done.Load()), Total: total}); err != nil {
			b.t.log.Debug("the progress of a backfill could not be stored", zap.String("subscription", b.sub.ID), zap.Error(err))
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for sleep(ctx, progressEvery) {
			tell()
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}
