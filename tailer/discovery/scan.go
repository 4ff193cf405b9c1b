package discovery

import (
	"context"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/tailer/upstream"
)

// looksMax bounds the streams that one scan has looked at for no other reason than that their time has come, leftMax
// those for which it would have come sooner (isLeft).
const looksMax, leftMax = 1000, 100

// scanRecords calls f for each record of some partitions, at least once. One that cannot be read does not hold up the
// others.
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

// scan enqueues what the records of this replica's partitions say is left to do: what a crash, a full queue or a lost
// hint has left behind. What it costs stays below a hundredth of the time; a new partition brings it forward, within
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

// scanOnce is one scan.
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

// isBehind says whether a subscription is to be linked to a stream, or waits for it to be made. A backfill that is
// under way links its subscription to the streams on record, and a subscription that came after the version may have
// one, too.
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

// isLeft says whether a stream has lost its last subscription since its next look was set: the look is far later than
// that of a stream without one. Twice as late, because the clocks of replicas and store may differ.
func (d *Discovery) isLeft(s fsm.Stream, now time.Time) bool {
	return s.Present() && d.store.Catalog().Loaded() && s.Until.Sub(now) > 2*d.lookAfter(s, false)
}

// watchLosses enqueues what this replica remembers of a partition, and the streams of it that are named, at the start
// and whenever the store may have lost its latest changes to it: whatever is not on record is put there.
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
	if times, log := d.unread.Happened(time.Now()); log {
		d.log.Warn("reading "+what+" failed; it is tried again", zap.Int("times", times), zap.Error(err))
	}
}
