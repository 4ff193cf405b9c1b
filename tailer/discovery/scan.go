package discovery

import (
	"context"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/tailer/upstream"
)

// looksMax bounds the streams that one scan has looked at for no other reason than that their time has come.
const looksMax = 1000

// scanRecords calls f for each record of some partitions, at least once. One that cannot be read keeps no other from it.
func (d *Discovery) scanRecords(ctx context.Context, partitions []int, f func(fsm.Stream)) (failure error) {
	for _, partition := range partitions {
		for cursor := "0"; ; {
			list, next, err := d.store.ScanStreams(ctx, partition, cursor)
			if err != nil {
				failure = err
				break
			}
			for _, s := range list {
				f(s)
			}
			if cursor = next; cursor == "0" {
				break
			}
		}
	}
	return failure
}

// scan enqueues what the records of this replica's partitions say is left to do: what a crash, a full queue or a lost
// hint has left behind. What it costs stays below a hundredth of the time; a new partition brings it forward, within
// bounds.
func (d *Discovery) scan(ctx context.Context) {
	var named bool
	for ctx.Err() == nil {
		began, owned := time.Now(), d.store.Ownership().Changed()
		err := d.scanOnce(ctx)
		if err == nil && !named {
			err = d.enqueueNamed(ctx, fsm.AllPartitions(d.store.Partitions()))
			named = err == nil
		}
		if err != nil {
			d.complain(ctx, "which streams are on record", err)
		}
		took := time.Since(began)
		if upstream.Sleep(ctx, max(d.cfg.Resync/10, 10*took)) {
			upstream.SleepOr(ctx, max(d.cfg.Resync, 100*took), owned)
		}
	}
}

// scanOnce is one scan.
func (d *Discovery) scanOnce(ctx context.Context) error {
	under, err := d.store.Backfills(ctx)
	if err != nil {
		return err
	}
	looks, now := 0, time.Now()
	return d.scanRecords(ctx, d.store.Ownership().Partitions(), func(s fsm.Stream) {
		switch due := !now.Before(s.Until); {
		case !d.Tracked(s.Path):
		case !s.Present() && due, d.isBehind(s, under):
			d.Enqueue(s.Path, Evidence{})
		case due && looks < looksMax:
			looks++
			d.Enqueue(s.Path, Evidence{})
		}
	})
}

// isBehind says whether somebody is to be linked to a stream, or waits for it to be made. Streams on record are linked
// to a subscription whose backfill is under way by that.
func (d *Discovery) isBehind(s fsm.Stream, under map[string]fsm.Backfill) bool {
	for _, sub := range d.store.Catalog().Match(s.Path) {
		if !s.Present() {
			return true
		}
		if _, backfilled := under[sub.ID]; !backfilled && sub.Version > s.Linked {
			return true
		}
	}
	return false
}

// enqueueNamed enqueues the streams of some partitions that settings and literal patterns name, should the store
// not have them on record.
func (d *Discovery) enqueueNamed(ctx context.Context, partitions []int) error {
	in := map[int]bool{}
	for _, p := range partitions {
		in[p] = true
	}
	for _, path := range d.cfg.Names {
		if in[d.store.PartitionOf(path)] {
			d.Enqueue(path, Evidence{confirm: true})
		}
	}
	for _, sub := range d.store.Catalog().All() {
		if path := literal(sub); path != "" && in[d.store.PartitionOf(path)] {
			d.Enqueue(path, Evidence{confirm: true})
		}
	}
	return ctx.Err()
}

// watchDoubts enqueues what this replica remembers of a partition whenever the store may have lost its latest changes
// to it: whatever is not on record any more is put there again.
func (d *Discovery) watchDoubts(ctx context.Context) {
	ownership, seen := d.store.Ownership(), map[int]int64{}
	for p := range d.store.Partitions() {
		seen[p] = ownership.Doubts(p)
	}
	for ctx.Err() == nil {
		changed := ownership.Changed()
		var doubted []int
		for p := range d.store.Partitions() {
			if n := ownership.Doubts(p); n != seen[p] {
				seen[p] = n
				doubted = append(doubted, p)
			}
		}
		for _, p := range doubted {
			for _, path := range d.memory.paths(p) {
				d.Confirm(path)
			}
		}
		if len(doubted) > 0 {
			_ = d.enqueueNamed(ctx, doubted)
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}

// complain logs that something could not be read, thinned out.
func (d *Discovery) complain(ctx context.Context, what string, err error) {
	if ctx.Err() != nil {
		return
	}
	if times, log := d.unread.Happened(time.Now()); log {
		d.log.Warn("reading "+what+" failed; it is tried again", zap.Int("times", times), zap.Error(err))
	}
}
