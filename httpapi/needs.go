package httpapi

import (
	"context"
	"net/http"

	"reveille/fsm"
)

// What each resource needs of the rest of the program. fsm.Store and fsm.Streams say what the methods do.

// Subscriptions is what the subscription API uses of the store.
type Subscriptions interface {
	Catalog() *fsm.Catalog
	RefreshCatalog(ctx context.Context) error
	DeleteSubscription(ctx context.Context, id string) error
	Backfills(ctx context.Context) (map[string]fsm.Backfill, error)
}

// Callbacks is what the callbacks use of the store.
type Callbacks interface {
	Callback(ctx context.Context, cb fsm.Callback) (fsm.CallbackReply, error)
	Hide(ctx context.Context, path string, a fsm.Absence) (fsm.Outcome, error)
}

// Inventory is what the operator's requests use of the store.
type Inventory interface {
	Partitions() int
	PartitionOf(path string) int
	ResumeSubscription(ctx context.Context, id string) (fsm.Outcome, error)
	Consumer(ctx context.Context, id, primary string) (fsm.Consumer, error)
	CountConsumers(ctx context.Context, subs []fsm.Subscription) (byPartition [][]int, err error)
	ScanConsumers(
		ctx context.Context, sub fsm.Subscription, partition int, cursor string, count int,
	) ([]fsm.Consumer, string, error)
	ScanStreams(ctx context.Context, partition int, cursor string) ([]fsm.Stream, string, error)
	WatchedSince(ctx context.Context, partition int, seq int64) ([]fsm.Watched, error)
}

// Store is the part of the state that the ports use.
type Store interface {
	Subscriptions
	Callbacks
	Inventory
}

// Writes is what the gateway tells of the writes and deletions that pass through it.
type Writes interface {
	BeforeWrite(ctx context.Context, path string, create bool) fsm.Write
	Written(w fsm.Write, tail fsm.Offset, created bool)
	Refused(w fsm.Write)
	Deleted(ctx context.Context, path string) error
}

// Streams is whom the ports tell of streams: of writes, of names, and of new subscriptions to them.
type Streams interface {
	Writes
	Name(ctx context.Context, paths []string) error
	Forget(ctx context.Context, paths []string) error
	Subscribe(ctx context.Context, sub fsm.Subscription) (stored fsm.Subscription, created bool, err error)
	Watch(primary string, paths []string)
}

// Upstream is the stream server, as far as callbacks ask it.
type Upstream interface {
	Head(ctx context.Context, path string) (fsm.StreamInfo, error)
	HeadAnew(ctx context.Context, path string) (fsm.StreamInfo, error)
	Offsets
	Passed
}

// Passed is what the gateway needs to know of the stream server that it passes requests to.
type Passed interface {
	// TakesWrites says whether clients can write to streams by the protocol.
	TakesWrites() bool
	// NextOffset is the tail that an answer to a write shows; empty if it shows none.
	NextOffset(header http.Header) fsm.Offset
}

// Offsets reads what clients and the stream server call an offset.
type Offsets interface {
	ParseOffset(s string) (fsm.Offset, error)
}

// Targets judges webhook URLs.
type Targets interface {
	CheckTarget(ctx context.Context, url string) error
}
