package tailer

import (
	"context"

	"reveille/fsm"
	"reveille/fsm/cache"
	"reveille/tailer/discovery"
)

// Store is the part of the state that a Tailer and its Discovery use.
type Store interface {
	watchStore
	discovery.Store
}

// watchStore is the part of the store that watching uses.
type watchStore interface {
	fsm.PartitionStore
	TailStore
	// Ownership is what this replica works for.
	Ownership() *cache.Ownership
	// Catalog is this replica's view of the subscriptions; the store keeps it up to date.
	Catalog() *cache.Catalog
	Hint(h fsm.Hint)
}

// TailStore keeps which streams are watched and where they end. It wakes, hides and restarts the consumers.
type TailStore interface {
	// Observe notes in one partition that a stream's tail is at least this, and wakes the consumers that it concerns.
	// The argument closed says that the stream is closed there. If a stream was seen closed, its noted tail stays as it
	// is until Restart or Deleted.
	Observe(ctx context.Context, partition int, path string, tail fsm.Offset, closed bool) (fsm.Observation, error)
	// Hide hides the consumers of a primary stream that upstream reports as gone, until the stream is observed again.
	// It removes the consumers whose stream has been gone for all of the grace. An error may come after some were
	// hidden or removed.
	Hide(ctx context.Context, path string, a fsm.Absence) (fsm.Outcome, error)
	// Restart is for a new stream under an old name. The new stream ends at tail, which belies what was noted of the
	// old one, with the tail was. It does nothing if the noted tail is no longer was. New consumers at Start replace
	// the consumers of the old stream.
	Restart(ctx context.Context, partition int, path string, was, tail fsm.Offset) (fsm.Outcome, error)
	// WatchedSince returns the streams of a partition that came to be watched after seq, in order.
	WatchedSince(ctx context.Context, partition int, seq int64) ([]fsm.Watched, error)
}
