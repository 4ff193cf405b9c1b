package discovery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"reveille/fsm"
)

// Deleted handles a deletion by a client through the gateway: it removes the stream's consumers. The registry stream
// will report the deletion, too. Another client may have made the stream anew already, and have its answer.
func (d *Discovery) Deleted(ctx context.Context, path string) error {
	if !d.Tracked(path) {
		return nil
	}
	return d.renew(ctx, path, fsm.Deletion{Anew: true, Expect: d.cfg.Registry != "", Doubt: true})
}

// renew removes a deleted stream, and asks upstream whether it exists again. If there is doubt, it asks once more after
// the grace.
func (d *Discovery) renew(ctx context.Context, path string, deletion fsm.Deletion) error {
	err := d.remove(ctx, path, deletion)
	e := Evidence{deleted: time.Now()}
	if deletion.Doubt {
		e.deleted = e.deleted.Add(d.cfg.GoneGrace)
	}
	d.Enqueue(path, e)
	return err
}

// Forget takes streams off the record and removes their consumers.
func (d *Discovery) Forget(ctx context.Context, paths []string) error {
	for _, path := range paths {
		if err := d.remove(ctx, path, fsm.Deletion{}); err != nil {
			return fmt.Errorf("stream %s could not be forgotten: %w", path, err)
		}
	}
	return nil
}

// RemovedElsewhere notes that another replica took a stream off the record and removed its consumers.
func (d *Discovery) RemovedElsewhere(path string) {
	d.ForgottenElsewhere(path)
	d.watcher.Deleted(path)
}

// ForgottenElsewhere notes that another replica took a stream off the record, or gave its record another First. If a
// write to it is on its way, the stream is put on record again, as awaited.
func (d *Discovery) ForgottenElsewhere(path string) {
	d.memory.removed(path)
	if d.pending.has(path) {
		d.Enqueue(path, Evidence{Await: d.cfg.WriteFor})
	}
}

// Forgotten notes that this replica took a stream off the record, because upstream did not have it for long. Or it gave
// the record another First, because upstream has another stream of the name.
func (d *Discovery) Forgotten(path string) {
	d.ForgottenElsewhere(path)
	d.store.Hint(fsm.Hint{Kind: fsm.HintForgotten, Path: path})
}

// remove takes a stream off the record and removes its consumers.
//
// It begins with the home partition, where the record goes with the consumers. If it cannot reach one of the others, it
// still handles the rest. The error says that consumers there may not have started over.
func (d *Discovery) remove(ctx context.Context, path string, deletion fsm.Deletion) error {
	defer d.memory.removed(path)
	if err := d.removeIn(ctx, d.store.PartitionOf(path), path, deletion); err != nil {
		return err
	}
	err := d.removeElsewhere(ctx, path)
	d.watcher.Deleted(path)
	d.store.Hint(fsm.Hint{Kind: fsm.HintRemoved, Path: path})
	return err
}

// removeElsewhere makes the consumers of other streams that are subscribed to this one start over, outside its home
// partition.
func (d *Discovery) removeElsewhere(ctx context.Context, path string) error {
	partitions, err := d.store.WatchedIn(ctx, path)
	for _, partition := range partitions {
		if partition != d.store.PartitionOf(path) {
			err = errors.Join(err, d.removeIn(ctx, partition, path, fsm.Deletion{}))
		}
	}
	return err
}

// removeIn removes a stream and its consumers from one partition.
func (d *Discovery) removeIn(ctx context.Context, partition int, path string, deletion fsm.Deletion) error {
	told := time.Now()
	o, err := d.store.Deleted(ctx, partition, path, deletion)
	d.outcomes.Follow(o, fsm.Sighting{Path: path, Told: told}) // before an error, the store may have removed some
	return err
}
