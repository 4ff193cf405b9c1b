package discovery

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"reveille/fsm"
)

// namesWidth is how many named streams are looked at at a time.
const namesWidth = 32

// Name puts streams on record and links those that exist from their start; the others are awaited. An upstream that
// cannot be asked counts as one that does not have the streams yet.
func (d *Discovery) Name(ctx context.Context, paths []string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(namesWidth)
	for _, path := range paths {
		g.Go(func() error {
			if !d.Tracked(path) {
				return nil
			}
			s, err := d.store.Stream(ctx, path)
			if err == nil && !s.Present() {
				_, _, err = d.store.NoteStream(ctx, fsm.NewStream(path, ""), d.cfg.NameFor)
			}
			if err != nil {
				return fmt.Errorf("stream %s could not be named: %w", path, err)
			}
			_ = d.Do(ctx, path, Evidence{}) // it is on record, and tried again
			return nil
		})
	}
	return g.Wait()
}

// Deleted takes in that a client has deleted a stream through the gateway: its consumers are removed. The registry
// stream will tell of it, too.
func (d *Discovery) Deleted(ctx context.Context, path string) error {
	if !d.Tracked(path) {
		return nil
	}
	if err := d.remove(ctx, path, d.cfg.Registry != ""); err != nil {
		return err
	}
	// Somebody may have made it anew meanwhile, or waits for that.
	d.Enqueue(path, Evidence{})
	return nil
}

// Forget takes streams off the record and removes their consumers.
func (d *Discovery) Forget(ctx context.Context, paths []string) error {
	for _, path := range paths {
		if !d.Tracked(path) {
			continue
		}
		if err := d.remove(ctx, path, false); err != nil {
			return fmt.Errorf("stream %s could not be forgotten: %w", path, err)
		}
	}
	return nil
}

// remove takes a stream off the record and removes its consumers. expect says that the registry will tell of it.
func (d *Discovery) remove(ctx context.Context, path string, expect bool) error {
	d.memory.remove(path)
	partitions, err := d.store.WatchedIn(ctx, path)
	if err != nil {
		return err
	}
	// Home first: the record goes with the consumers there.
	home := d.store.PartitionOf(path)
	partitions = append([]int{home}, slices.DeleteFunc(partitions, func(p int) bool { return p == home })...)
	for _, partition := range partitions {
		told := time.Now()
		o, err := d.store.Deleted(ctx, partition, path, expect && partition == home)
		d.outcomes.Follow(o, fsm.Sighting{Path: path, Told: told})
		if err != nil {
			return err
		}
	}
	d.watcher.Deleted(path)
	d.store.Hint(fsm.Hint{Kind: fsm.HintRemoved, Path: path})
	return nil
}
