package discovery

import (
	"context"
	"maps"
	"math"
	"sync"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/tailer/upstream"
)

const (
	// smallBackfill is a backfill of so few streams that Subscribed waits smallPatience times as long for it: it is a few
	// looks, and what was there before the subscription is known best if they come first.
	smallBackfill, smallPatience = 2 * workers, 8
	// flushPatience is by how much longer Subscribe waits, at most, for writes from before it.
	flushPatience = 8
	// progressEvery is how often the progress of a backfill is stored.
	progressEvery = 200 * time.Millisecond
)

// backfills links new subscriptions to the streams that are on record (webhook spec, Existing Streams). A backfill
// enqueues each of them whose record is older than the subscription, and is over when none is left.
type backfills struct {
	d *Discovery

	mu      sync.Mutex
	ctx     context.Context
	wg      sync.WaitGroup
	running map[int64]*backfill
	// unanswered counts, by their generations, the subscriptions whose creators here are not told of them yet. What is
	// seen of a stream by then was there before the subscription.
	unanswered map[string]int
}

// backfill is the work for one subscription.
type backfill struct {
	sub  fsm.Subscription
	over chan struct{}

	// The rest is guarded by the lock of backfills.
	total int
	// left are the streams that are not linked yet; none is closed when none is left.
	left map[string]struct{}
	none chan struct{}
	// absent are streams that upstream does not have: should they come, the scan sees to them.
	absent map[string]struct{}
}

func newBackfills(d *Discovery) *backfills {
	return &backfills{d: d, running: map[int64]*backfill{}, unanswered: map[string]int{}}
}

// Subscribe stores a subscription. For one that is new it begins the backfill, whether or not the creator waits for it,
// and returns when that is over or has taken longer than a creator can be kept waiting; the rest goes on in Run.
func (d *Discovery) Subscribe(ctx context.Context, sub fsm.Subscription) (fsm.Subscription, bool, error) {
	d.flush(ctx, sub)
	defer d.backfills.unanswer(sub.Generation)()
	stored, created, err := d.store.CreateSubscription(ctx, sub)
	switch {
	case err != nil:
	case created:
		d.Subscribed(context.WithoutCancel(ctx), stored)
	default:
		d.backfills.answered(stored.Generation)
	}
	return stored, created, err
}

// flush puts on record what writes through this replica have shown of streams that nobody was subscribed to. A new
// subscription begins there, and no earlier, although its backfill may come to them late.
func (d *Discovery) flush(ctx context.Context, sub fsm.Subscription) {
	pattern, err := fsm.ParsePattern(sub.Pattern)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, flushPatience*d.cfg.BackfillWait)
	defer cancel()
	d.queue.expedite(ctx, pattern.Matches)
}

// Subscribed is Subscribe for a subscription that is stored already.
func (d *Discovery) Subscribed(ctx context.Context, sub fsm.Subscription) {
	defer d.backfills.unanswer(sub.Generation)()
	b := d.backfills.begin(sub)
	if b == nil {
		return
	}
	timer := time.NewTimer(d.cfg.BackfillWait)
	defer timer.Stop()
	for patient := false; ; patient = true {
		select {
		case <-b.over:
			return
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if patient || d.backfills.size(b) > smallBackfill {
			return
		}
		timer.Reset((smallPatience - 1) * d.cfg.BackfillWait)
	}
}

// size is how many streams a backfill has to link, as far as is known.
func (bs *backfills) size(b *backfill) int {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	return b.total
}

// unanswer notes that the creator of a subscription is not told of it until answered is called.
func (bs *backfills) unanswer(generation string) (answered func()) {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	bs.unanswered[generation]++
	return func() {
		bs.mu.Lock()
		defer bs.mu.Unlock()
		if bs.unanswered[generation]--; bs.unanswered[generation] <= 0 {
			delete(bs.unanswered, generation)
		}
	}
}

// answered notes that somebody is told of a subscription now, whoever else still waits.
func (bs *backfills) answered(generation string) {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	delete(bs.unanswered, generation)
}

// isUnanswered says whether the creator of a subscription is not told of it yet.
func (bs *backfills) isUnanswered(sub fsm.Subscription) bool {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	return bs.unanswered[sub.Generation] > 0
}

// Running says whether Run has begun and not ended.
func (d *Discovery) Running() bool {
	d.backfills.mu.Lock()
	defer d.backfills.mu.Unlock()
	return d.backfills.ctx != nil
}

// begin begins a backfill, or returns the one that runs; nil before and after Run.
func (bs *backfills) begin(sub fsm.Subscription) *backfill {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	if bs.ctx == nil {
		return nil
	}
	if b := bs.running[sub.Version]; b != nil {
		return b
	}
	b := &backfill{sub: sub, over: make(chan struct{}), left: map[string]struct{}{}, absent: map[string]struct{}{}}
	bs.running[sub.Version] = b
	ctx := bs.ctx
	bs.wg.Go(func() {
		bs.do(ctx, b)
		bs.mu.Lock()
		defer bs.mu.Unlock()
		delete(bs.running, sub.Version)
		close(b.over)
	})
	return b
}

// allUnanswered returns the generations of the subscriptions whose creators are not told of them yet.
func (bs *backfills) allUnanswered() map[string]int {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	return maps.Clone(bs.unanswered)
}

// settled takes in that a stream is linked through a version, or that there is nothing to link.
func (bs *backfills) settled(path string, version int64) {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	for v, b := range bs.running {
		if _, waits := b.left[path]; waits && v <= version {
			if version == math.MaxInt64 {
				b.absent[path] = struct{}{}
			}
			if delete(b.left, path); len(b.left) == 0 {
				close(b.none)
			}
		}
	}
}

// waitFor says whether a backfill waits for a stream.
func (bs *backfills) waitFor(path string) bool {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	for _, b := range bs.running {
		if _, waits := b.left[path]; waits {
			return true
		}
	}
	return false
}

// run owns the backfills. It takes up those that were left unfinished, each replica its share: all of them at the
// start, later those that have made no progress from one look to the next, because the replica that was at them has
// died. Two replicas at one backfill do no harm.
func (bs *backfills) run(ctx context.Context) {
	bs.mu.Lock()
	bs.ctx = ctx
	bs.mu.Unlock()
	defer func() {
		bs.mu.Lock()
		bs.ctx = nil
		bs.mu.Unlock()
		bs.wg.Wait()
	}()
	store, first := bs.d.store, true
	var before map[string]fsm.Backfill
	for ctx.Err() == nil {
		changed := store.Ownership().Changed()
		under, err := store.Backfills(ctx)
		if err != nil {
			bs.d.complain(ctx, "which backfills are unfinished", err)
			upstream.Sleep(ctx, upstream.Jitter(bs.d.cfg.RetryMax))
			continue
		}
		for id, progress := range under {
			sub, ok := store.Catalog().Get(id)
			was, seen := before[id]
			if ok && store.Ownership().Owns(store.PartitionOf(id)) && (first || seen && was == progress) {
				bs.begin(sub)
			}
		}
		before = under
		if first && len(store.Ownership().Partitions()) == 0 {
			upstream.SleepOr(ctx, bs.d.cfg.Resync/10, changed)
			continue
		}
		first = false
		upstream.Sleep(ctx, bs.d.cfg.Resync)
	}
}

// do carries out one backfill.
func (bs *backfills) do(ctx context.Context, b *backfill) {
	stop := bs.tellProgress(ctx, b)
	failures := upstream.Backoff{Min: bs.d.cfg.RetryMin, Max: bs.d.cfg.RetryMax}
	for ctx.Err() == nil && !bs.isDeleted(ctx, b.sub) {
		left, err := bs.enqueue(ctx, b)
		if err != nil {
			bs.d.complain(ctx, "which streams a subscription is to be linked to", err)
			upstream.Sleep(ctx, upstream.Jitter(failures.Next()))
			continue
		}
		if left == nil {
			if err := bs.d.store.EndBackfill(ctx, b.sub); err == nil {
				break
			}
			upstream.Sleep(ctx, upstream.Jitter(failures.Next()))
			continue
		}
		// What did not fit into the queue, or has changed hands, is found by the next scan.
		upstream.SleepOr(ctx, bs.d.cfg.Resync, left)
	}
	stop()
}

// enqueue has the streams reconciled that the subscription is not linked to yet, and returns a channel that is closed
// when all of them are; nil if there is none.
func (bs *backfills) enqueue(ctx context.Context, b *backfill) (<-chan struct{}, error) {
	d, found := bs.d, map[string]Evidence{}
	var unread error
	if path := literal(b.sub); path != "" {
		s, err := d.store.Stream(ctx, path)
		if err != nil {
			return nil, err
		}
		if d.Tracked(path) && !s.LinkedTo(b.sub) && (b.total == 0 || s.Present()) {
			found[path] = Evidence{}
		}
	} else {
		pattern, err := fsm.ParsePattern(b.sub.Pattern)
		if err != nil {
			return nil, nil // never stored
		}
		// A partition that cannot be read keeps no other from it.
		unread = d.scanRecords(ctx, fsm.AllPartitions(d.store.Partitions()), func(s fsm.Stream) {
			if s.LinkedTo(b.sub) || !pattern.Matches(s.Path) || !d.Tracked(s.Path) || b.total > 0 && !s.Present() {
				return
			}
			e := Evidence{}
			if bs.isUnanswered(b.sub) && s.NotedTail != "" {
				e.before = map[int64]seen{b.sub.Version: {s.NotedTail, s.First}}
			}
			found[s.Path] = e
		})
	}
	bs.mu.Lock()
	for path := range b.absent {
		delete(found, path)
	}
	if len(found) == 0 {
		bs.mu.Unlock()
		return nil, unread
	}
	if b.total == 0 {
		b.total = len(found)
	}
	clear(b.left)
	for path := range found {
		b.left[path] = struct{}{}
	}
	b.none = make(chan struct{})
	none := b.none
	bs.mu.Unlock()
	for path, e := range found {
		d.Enqueue(path, e)
	}
	return none, nil
}

func (bs *backfills) isDeleted(ctx context.Context, sub fsm.Subscription) bool {
	if err := bs.d.store.RefreshCatalog(ctx); err != nil {
		return false
	}
	now, ok := bs.d.store.Catalog().Get(sub.ID)
	return !ok || now.Generation != sub.Generation
}

// tellProgress keeps the store told of how far a backfill is until it is stopped.
func (bs *backfills) tellProgress(ctx context.Context, b *backfill) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for upstream.Sleep(ctx, progressEvery) {
			bs.mu.Lock()
			progress := fsm.Backfill{Done: b.total - len(b.left), Total: b.total}
			bs.mu.Unlock()
			if err := bs.d.store.SetBackfill(ctx, b.sub, progress); err != nil {
				bs.d.log.Debug("the progress of a backfill could not be stored", zap.String("subscription", b.sub.ID),
					zap.Error(err))
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}
