package discovery

import (
	"context"
	"time"

	"reveille/fsm"
	"reveille/fsm/cache"
)

// Store is the part of the state that discovery uses.
type Store interface {
	fsm.PartitionStore
	RecordStore
	RegistryStore
	BackfillStore
	ReplicaStore
	// Ownership is what this replica works for.
	Ownership() *cache.Ownership
	// Catalog is this replica's view of the subscriptions; the store keeps it up to date.
	Catalog() *cache.Catalog
	// RefreshCatalog reads the subscriptions anew if they have changed.
	RefreshCatalog(ctx context.Context) error
	// Version of the list of subscriptions as it is now.
	Version(ctx context.Context) (int64, error)
	// CreateSubscription stores sub unless its ID is taken. If the stored subscription has the same configuration, it
	// returns that one and false. A replica that reads a Version of the list from then on finds it Told. If the
	// configuration differs, it returns a *fsm.ConflictError. A created subscription has a backfill under way until
	// EndBackfill.
	CreateSubscription(ctx context.Context, sub fsm.Subscription) (stored fsm.Subscription, created bool, err error)
}

// BackfillStore keeps which new subscriptions must still be linked to the existing streams.
type BackfillStore interface {
	// Backfills returns the backfills under way, by subscription ID.
	Backfills(ctx context.Context) (map[string]fsm.Backfill, error)
	SetBackfill(ctx context.Context, sub fsm.Subscription, b fsm.Backfill) error
	EndBackfill(ctx context.Context, sub fsm.Subscription) error
}

// RecordStore keeps which streams exist, and links them to subscriptions.
type RecordStore interface {
	// Stream returns the record of a stream. Without a record, only Path, Stamp and Lost are set.
	Stream(ctx context.Context, path string) (fsm.Stream, error)
	// NoteStream puts a stream on record: what NewStream made, with the Stamp that was read before upstream was asked.
	// Its Lost becomes the given version, or the version up to which the store itself may have lost something,
	// whichever is later. The record is due for a look after look. A stream that is on record stays as it is, but an
	// awaited one is waited for at least that long. NoteStream returns the record. It returns false if it refused a
	// stream that upstream has shown, because one is on record or was taken off since.
	NoteStream(ctx context.Context, s fsm.Stream, look time.Duration) (fsm.Stream, bool, error)
	// LinkStream makes the missing consumers of a Linking, and moves the record with them. It refuses if the record now
	// has another stamp. The list that the Links come from may be old, but no older than the Linking's Version. If a
	// subscription was deleted since, its consumers are not made. Existing consumers keep their offsets. An error may
	// come after some were made.
	LinkStream(ctx context.Context, path string, l fsm.Linking) (fsm.LinkReply, error)
	// ForgetStream takes a stream that upstream does not have off the record. It does nothing if the record now has
	// another stamp, if the stream is awaited for longer, or if its partition has consumers of it. With readByOthers it
	// takes the stream off in spite of such consumers: they all have other primary streams.
	ForgetStream(ctx context.Context, path string, stamp int64, readByOthers bool) (bool, error)
	// ScanStreams walks the records of a partition, each at least once. It begins and ends with cursor "0".
	ScanStreams(ctx context.Context, partition int, cursor string) ([]fsm.Stream, string, error)
	// Deleted takes a stream off the record of its partition, and removes the consumers whose primary stream it was.
	// The other consumers of the stream start over if it is made anew. The Deletion says how all of this is done.
	Deleted(ctx context.Context, partition int, path string, d fsm.Deletion) (fsm.Outcome, error)
	// WatchedIn returns the partitions that have consumers of a stream. With an error it returns the partitions that
	// are known to have some.
	WatchedIn(ctx context.Context, path string) ([]int, error)
}

// RegistryStore keeps how far the registry stream was read, and which of its deletions were dealt with.
type RegistryStore interface {
	// RegistryPlace is how far it was read; at Start before the first time.
	RegistryPlace(ctx context.Context) (fsm.RegistryPlace, error)
	// MoveRegistry moves the place on, and does nothing if the place is not at from (any more). The argument anew says
	// that another incarnation of the stream is read from now on, which sets Since.
	MoveRegistry(ctx context.Context, from, to fsm.RegistryPlace, anew bool) (moved bool, err error)
	// RegistryRead says whether the registry stream was ever read to its end, which SetRegistryRead notes.
	RegistryRead(ctx context.Context) (bool, error)
	SetRegistryRead(ctx context.Context) error
	// TakeDeletion says whether a deletion that the registry stream reports was dealt with when it was made.
	TakeDeletion(ctx context.Context, path string) (bool, error)
}

// ReplicaStore is what replicas tell each other, and what a replica could not tell the store.
//
// A write is unnoted if it went upstream before the store knew of it. Only a write that makes a stream counts, or one
// that may be the first that Reveille hears of. The replica that looks at the stream next would take its event for an
// old one.
type ReplicaStore interface {
	// Hint tells the other replicas something. It does not block, and a hint may get lost.
	Hint(h fsm.Hint)

	// SetUnnoted says whether this replica has unnoted writes, or is about to. It does not block.
	SetUnnoted(some bool)
	// MayWriteUnnoted says whether an unnoted write may go upstream now. If it may, any replica that sees its event
	// there and then calls UnnotedThrough learns of it. SetUnnoted comes first. It stays true until all writes are
	// noted.
	MayWriteUnnoted() bool
	// UnnotedThrough returns the latest version of the list of subscriptions that counts as older than unnoted writes
	// of any replica. It is 0 if there certainly were none.
	UnnotedThrough(ctx context.Context) (int64, error)
}
