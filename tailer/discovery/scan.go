package discovery

import (
	"context"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/tailer/upstream"
)

// looksMax bounds the streams that one scan enqueues only because their time has come. leftMax bounds those that should
// have been due sooner (isLeft).
const looksMax, leftMax = 1000, 100

// scanRecords calls f for each record of some partitions, at least once. If it cannot read one partition, it still
// reads the others.
func (d *Discovery) scanRecords(ctx context.Context, partitions []int, f func(fsm.Stream)) (failure error) {
	for _, partition := range partitions {
		for cursor, more := "0", true; more; more = cursor != "0" {
			list, next, err := d.store.ScanStreams(ctx, partition, cursor)
			if err != nil {
				failure = err
				break
			}
			for _, s := range list {
				f(s)
			}
			cursor = next
		}
	}
	return failure
}

// scan enqueues unfinished work from the records of this replica's partitions. A crash, a full queue or a lost hint may
// have left it behind. It costs less than a hundredth of the time. A new partition brings the next scan forward, within
// bounds.
func (d *Discovery) scan(ctx context.Context) {
	for ctx.Err() == nil {
		began, owned := time.Now(), d.store.Ownership().Changed()
		d.complain(ctx, "which streams are on record", d.scanOnce(ctx))
		took := time.Since(began)
		if upstream.Sleep(ctx, max(d.cfg.Resync/10, 10*took)) {
			upstream.SleepOr(ctx, max(d.cfg.Resync, 100*took), owned)
		}
	}
}

// scanOnce makes one scan.
func (d *Discovery) scanOnce(ctx context.Context) error {
	version := d.store.Catalog().Version()
	under, err := d.store.Backfills(ctx)
	if err != nil {
		return err
	}
	looks, left, now := 0, 0, time.Now()
	return d.scanRecords(ctx, d.store.Ownership().Partitions(), func(s fsm.Stream) {
		subs := d.store.Catalog().Match(s.Path)
		due := !now.Before(s.Until)
		switch {
		case !s.Present() && due, isBehind(s, subs, version, under):
		case due && looks < looksMax:
			looks++
		case len(subs) == 0 && left < leftMax && d.isLeft(s, now):
			left++
		default:
			return
		}
		d.Enqueue(s.Path, Evidence{})
	})
}

// isBehind says whether a stream lacks a link to a subscription, or a subscription waits for it to be made. A backfill
// under way links its subscription to the streams on record. A subscription that came after version may have a
// backfill, too.
func isBehind(s fsm.Stream, subs []fsm.Subscription, version int64, under map[string]fsm.Backfill) bool {
	for _, sub := range subs {
		if !s.Present() {
			return true
		}
		if _, backfilled := under[sub.ID]; !backfilled && sub.Version > s.Linked && sub.Version <= version {
			return true
		}
	}
	return false
}

// isLeft says whether a stream has lost its last subscription since its next look was set. The look is then far later
// than for a stream without one. Only twice as late counts, because the clocks of replicas and store may differ.
func (d *Discovery) isLeft(s fsm.Stream, now time.Time) bool {
	return s.Present() && d.store.Catalog().Loaded() && s.Until.Sub(now) > 2*d.lookAfter(s, false)
}

// watchLosses enqueues what this replica remembers of a partition, and the named streams of the partition. It does so
// at the start, and whenever the store may have lost its latest changes there. What is not on record is put there.
func (d *Discovery) watchLosses(ctx context.Context) {
	ownership, seen := d.store.Ownership(), map[int]int64{}
	for ctx.Err() == nil {
		changed := ownership.Changed()
		var lost []int
		for p := range d.store.Partitions() {
			losses := ownership.Losses(p)
			if was, known := seen[p]; known && was == losses {
				continue
			}
			seen[p] = losses
			lost = append(lost, p)
			for _, path := range d.memory.paths(p) {
				d.Confirm(path)
			}
		}
		d.enqueueNamed(lost)
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}

// complain logs that something could not be read, if there is an error.
func (d *Discovery) complain(ctx context.Context, what string, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	d.unread.Log(d.log, time.Now()).Warn("reading "+what+" failed; it is tried again", zap.Error(err))
}
