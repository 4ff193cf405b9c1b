package discovery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"reveille/fsm"
)

// Deleted takes in that a client has deleted a stream through the gateway: its consumers are removed. The registry
// stream will tell of it, too.
func (d *Discovery) Deleted(ctx context.Context, path string) error {
	if !d.Tracked(path) {
		return nil
	}
	return d.renew(ctx, path, d.cfg.Registry != "")
}

// renew removes a stream that was deleted. Somebody may have made it anew by now, or waits for that: it stays awaited
// until it was looked at, so that a write meanwhile does not pass for the first that anybody has heard of.
func (d *Discovery) renew(ctx context.Context, path string, expect bool) error {
	err := d.remove(ctx, path, expect)
	_, _, unnoted := d.store.NoteStream(ctx, fsm.NewStream(path, ""), 0)
	d.Enqueue(path, Evidence{deleted: true})
	return errors.Join(err, unnoted)
}

// Forget takes streams off the record and removes their consumers. What an earlier version has stored may be no
// stream's path, and is let go of all the same.
func (d *Discovery) Forget(ctx context.Context, paths []string) error {
	for _, path := range paths {
		if err := d.remove(ctx, path, false); err != nil {
			return fmt.Errorf("stream %s could not be forgotten: %w", path, err)
		}
	}
	return nil
}

// RemovedElsewhere takes in that another replica has taken a stream off the record and removed its consumers.
func (d *Discovery) RemovedElsewhere(path string) {
	d.ForgottenElsewhere(path)
	d.watcher.Deleted(path)
}

// ForgottenElsewhere takes in that another replica has taken a stream off the record. One that a write is on its way to
// is put there again, as awaited.
func (d *Discovery) ForgottenElsewhere(path string) {
	d.memory.remove(path)
	if d.writing.has(path) {
		d.Enqueue(path, Evidence{Await: d.cfg.WriteFor})
	}
}

// Forgotten takes in that this replica has taken a stream off the record that upstream did not have for long.
func (d *Discovery) Forgotten(path string) {
	d.ForgottenElsewhere(path)
	d.store.Hint(fsm.Hint{Kind: fsm.HintForgotten, Path: path})
}

// remove takes a stream off the record and removes its consumers. expect says that the registry will tell of it.
//
// Home first: the record goes with the consumers there. A partition that cannot be reached keeps no other from it; the
// error says that consumers there may not have started over.
func (d *Discovery) remove(ctx context.Context, path string, expect bool) error {
	d.memory.remove(path)
	home := d.store.PartitionOf(path)
	if err := d.removeIn(ctx, home, path, expect); err != nil {
		return err
	}
	partitions, err := d.store.WatchedIn(ctx, path)
	for _, partition := range partitions {
		if partition != home {
			err = errors.Join(err, d.removeIn(ctx, partition, path, false))
		}
	}
	d.watcher.Deleted(path)
	d.store.Hint(fsm.Hint{Kind: fsm.HintRemoved, Path: path})
	return err
}

// removeIn removes a stream and its consumers from one partition.
func (d *Discovery) removeIn(ctx context.Context, partition int, path string, expect bool) error {
	told := time.Now()
	o, err := d.store.Deleted(ctx, partition, path, expect)
	d.outcomes.Follow(o, fsm.Sighting{Path: path, Told: told}) // an error may have come after some were removed
	return err
}
