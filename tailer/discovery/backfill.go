package discovery

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"reveille/fsm"
	"reveille/tailer/upstream"
)

const (
	// smallBackfill bounds the streams of a small backfill. Subscribed waits smallPatience times as long for one. It
	// needs only a few looks, and early looks show best what existed before the subscription.
	smallBackfill, smallPatience = 2 * workers, 8
	// flushPatience times BackfillWait bounds how long Subscribe waits for earlier writes. A slower write costs no
	// event: at worst the subscription begins earlier than it could.
	flushPatience = 8
	// backfillWidth is how many streams of a backfill are in the queue at a time.
	backfillWidth = 2 * workers
	// progressEvery is how often the progress of a backfill is stored.
	progressEvery = 200 * time.Millisecond
)

// backfills links new subscriptions to the streams that are on record (webhook spec, Existing Streams). A backfill
// reconciles each stream whose record is older than the subscription, until none is left.
type backfills struct {
	d *Discovery

	// ctx ends with Run.
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	running map[int64]*backfill

	// unanswered has the generations of subscriptions whose creators wait at this replica for the answer. What is seen
	// of a stream by then existed before the subscription, unless a later list shows the subscription as Told.
	unanswered sync.Map
}

// backfill is the work for one subscription.
type backfill struct {
	sub  fsm.Subscription
	over chan struct{}
	// total is how many streams the backfill had to link, left how many remain.
	total, left atomic.Int64
	// watched are the records of streams that were watched when they were scanned. No client had been told of the
	// subscription then, so their tails are from before it. The lock of backfills guards it.
	watched map[string]fsm.Stream
}

func newBackfills(d *Discovery) *backfills {
	bs := &backfills{d: d, running: map[int64]*backfill{}}
	bs.ctx, bs.cancel = context.WithCancel(context.Background())
	return bs
}

// Subscribe stores a subscription, once Reveille knows where it may have to begin (knowEnds). For a new subscription it
// begins the backfill, whether or not the creator waits. It returns when the backfill is over, or has taken longer than
// a creator can wait. The rest goes on in Run.
func (d *Discovery) Subscribe(ctx context.Context, sub fsm.Subscription) (fsm.Subscription, bool, error) {
	if err := d.knowEnds(ctx, sub); err != nil {
		return fsm.Subscription{}, false, err
	}
	d.backfills.unanswered.Store(sub.Generation, nil)
	defer d.backfills.unanswered.Delete(sub.Generation)
	stored, created, err := d.store.CreateSubscription(ctx, sub)
	if err == nil && created {
		d.Subscribed(context.WithoutCancel(ctx), stored)
	}
	return stored, created, err
}

// knowEnds finds out which streams exist and where they end, before the subscription exists. It reads the registry
// stream up to its present end, and puts writes through this replica on record. A subscription that begins at the start
// of each stream does not need this.
func (d *Discovery) knowEnds(ctx context.Context, sub fsm.Subscription) error {
	if sub.Start == fsm.Start {
		return nil
	}
	if err := d.registry.catchUp(ctx); err != nil {
		return err
	}
	d.flush(ctx, sub)
	return nil
}

// flush puts on record what writes through this replica have shown of streams without consumers. A new subscription
// begins there, and no earlier, although its backfill may come to them late.
func (d *Discovery) flush(ctx context.Context, sub fsm.Subscription) {
	pattern, err := fsm.ParsePattern(sub.Pattern)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, flushPatience*d.cfg.BackfillWait)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(urgentWorkers)
	for _, path := range d.queue.withTail() {
		if pattern.Matches(path) {
			g.Go(func() error {
				_ = d.Do(ctx, path, Evidence{confirm: true}) // a failed one is tried again, and the backfill finds it
				return nil
			})
		}
	}
	_ = g.Wait()
}

// Subscribed begins the backfill of a stored subscription, and returns as Subscribe does.
func (d *Discovery) Subscribed(ctx context.Context, sub fsm.Subscription) {
	b := d.backfills.begin(sub)
	if b == nil {
		return
	}
	for _, wait := range []time.Duration{d.cfg.BackfillWait, (smallPatience - 1) * d.cfg.BackfillWait} {
		select {
		case <-b.over:
			return
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if b.total.Load() > smallBackfill {
			return
		}
	}
}

// tailBefore returns a tail that a stream had before any client was told of a subscription; empty if none is known. The
// argument tail was seen before the list with the subscription was read.
func (bs *backfills) tailBefore(sub fsm.Subscription, s fsm.Stream, tail fsm.Offset) fsm.Offset {
	if _, unanswered := bs.unanswered.Load(sub.Generation); unanswered && !sub.Told {
		return tail
	}
	bs.mu.Lock()
	defer bs.mu.Unlock()
	if b := bs.running[sub.Version]; b != nil && b.watched[s.Path].First.Equal(s.First) {
		return b.watched[s.Path].NotedTail
	}
	return ""
}

// begin begins a backfill, or returns a running one. After Run it returns nil.
func (bs *backfills) begin(sub fsm.Subscription) *backfill {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	if bs.ctx.Err() != nil {
		return nil
	}
	if b := bs.running[sub.Version]; b != nil {
		return b
	}
	b := &backfill{sub: sub, over: make(chan struct{}), watched: map[string]fsm.Stream{}}
	bs.running[sub.Version] = b
	bs.wg.Go(func() {
		bs.do(bs.ctx, b)
		bs.mu.Lock()
		defer bs.mu.Unlock()
		delete(bs.running, sub.Version)
		close(b.over)
	})
	return b
}

// run owns the backfills. It continues unfinished ones, each replica its share. At the start, these are all unfinished
// ones. Later, they are those without progress from one look to the next, because their replica has died. Two replicas
// at one backfill do no harm.
func (bs *backfills) run(ctx context.Context) {
	defer func() {
		bs.mu.Lock()
		bs.cancel()
		bs.mu.Unlock()
		bs.wg.Wait()
	}()
	store, ownership := bs.d.store, bs.d.store.Ownership()
	var before map[string]fsm.Backfill // nil until this replica has its share
	for ctx.Err() == nil {
		changed, early := ownership.Changed(), before == nil
		under, err := store.Backfills(ctx)
		bs.d.complain(ctx, "which backfills are unfinished", err)
		for id, progress := range under {
			sub, ok := store.Catalog().Get(id)
			was, seen := before[id]
			if ok && ownership.Owns(store.PartitionOf(id)) && (early || seen && was == progress) {
				bs.begin(sub)
			}
		}
		if err == nil && (!early || len(ownership.Partitions()) > 0) {
			before = under
		}
		if before != nil {
			changed = nil
		}
		upstream.SleepOr(ctx, bs.d.cfg.Resync, changed)
	}
}

// do carries out one backfill, in rounds. What fails in one round is left to the next.
func (bs *backfills) do(ctx context.Context, b *backfill) {
	pause := upstream.Backoff{Min: bs.d.cfg.RetryMin, Max: bs.d.cfg.Resync}
	for first := true; ctx.Err() == nil && !bs.isDeleted(ctx, b.sub); first = false {
		paths, err := bs.behind(ctx, b, first)
		bs.link(ctx, b, paths)
		if err == nil && b.left.Load() == 0 && bs.d.store.EndBackfill(ctx, b.sub) == nil {
			return
		}
		bs.d.complain(ctx, "which streams a subscription is to be linked to", err)
		upstream.Sleep(ctx, upstream.Jitter(pause.Next()))
	}
}

// behind returns the streams that a subscription is not linked to yet. It returns awaited streams only in the first
// round: if they come later, the scan finds them. If it cannot read one partition, it still reads the others.
func (bs *backfills) behind(ctx context.Context, b *backfill, first bool) (paths []string, err error) {
	d := bs.d
	if path := literal(b.sub); d.Tracked(path) {
		return []string{path}, nil // whether or not it is on record
	}
	pattern, err := fsm.ParsePattern(b.sub.Pattern)
	if err != nil {
		return nil, nil // never stored
	}
	watched := map[string]fsm.Stream{}
	err = d.scanRecords(ctx, fsm.AllPartitions(d.store.Partitions()), func(s fsm.Stream) {
		if s.LinkedTo(b.sub) || !pattern.Matches(s.Path) || !d.Tracked(s.Path) || !first && !s.Present() ||
			b.sub.Format != fsm.FormatOutbox && d.store.Catalog().IsForOutbox(s.Path) {
			return
		}
		paths = append(paths, s.Path)
		if _, unanswered := bs.unanswered.Load(b.sub.Generation); unanswered && s.NotedTail != "" {
			watched[s.Path] = s
		}
	})
	if len(watched) > 0 && !bs.isTold(ctx, b.sub) {
		bs.mu.Lock()
		defer bs.mu.Unlock()
		maps.Copy(b.watched, watched)
	}
	return paths, err
}

// isTold says whether another client may have been told of a subscription whose creator was not.
func (bs *backfills) isTold(ctx context.Context, sub fsm.Subscription) bool {
	_, err := bs.d.version(ctx) // the list is at least that new
	now, _ := bs.d.store.Catalog().Get(sub.ID)
	return err != nil || now.Told || now.Generation != sub.Generation
}

// link reconciles streams, some at a time, and reports the progress to the store meanwhile.
func (bs *backfills) link(ctx context.Context, b *backfill, paths []string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b.left.Store(int64(len(paths)))
	b.total.Store(max(b.total.Load(), b.left.Load()))
	over := make(chan struct{})
	go func() {
		defer close(over)
		var g errgroup.Group
		g.SetLimit(backfillWidth)
		for _, path := range paths {
			if ctx.Err() != nil {
				break
			}
			g.Go(func() error {
				if bs.d.queue.do(ctx, path, Evidence{confirm: true}) == nil {
					b.left.Add(-1)
				}
				return nil
			})
		}
		_ = g.Wait()
	}()
	var set fsm.Backfill
	for done := false; !done; {
		select {
		case <-over:
			done = true
		case <-time.After(progressEvery):
			if bs.isDeleted(ctx, b.sub) {
				cancel()
			}
		}
		left, total := int(b.left.Load()), int(b.total.Load())
		now := fsm.Backfill{Done: total - left, Total: total}
		// A backfill that waits long for a stream costs the store nothing.
		if left > 0 && now != set && bs.d.store.SetBackfill(ctx, b.sub, now) == nil {
			set = now
		}
	}
}

func (bs *backfills) isDeleted(ctx context.Context, sub fsm.Subscription) bool {
	if err := bs.d.store.RefreshCatalog(ctx); err != nil {
		return false
	}
	now, ok := bs.d.store.Catalog().Get(sub.ID)
	return !ok || now.Generation != sub.Generation
}
