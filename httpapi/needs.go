package httpapi

import (
	"context"
	"net/http"
	"time"

	"reveille/fsm"
	"reveille/httpapi/control"
	"reveille/httpapi/fields"
)

// What each resource needs of the rest of the program. fsm.Store says what the methods of the store do.

// Callbacks is what the callbacks use of the store.
type Callbacks interface {
	Callback(ctx context.Context, cb fsm.Callback) (fsm.CallbackReply, error)
	Hide(ctx context.Context, path string, a fsm.Absence) (fsm.Outcome, error)
}

// Inventory is what the operator's requests, and the resources of Open Job Spec, show of the store.
type Inventory interface {
	Endpoints() *fsm.Endpoints
	Ownership() *fsm.Ownership
	Backfills(ctx context.Context) (map[string]fsm.Backfill, error)
	RetryWake(ctx context.Context, sub fsm.Subscription, r fsm.WakeRef) (waited bool, err error)
	TallyConsumers(ctx context.Context, subs []fsm.Subscription) ([]fsm.Tally, error)
	ScanConsumers(
		ctx context.Context, sub fsm.Subscription, partition int, cursor string, count int,
	) ([]fsm.Consumer, string, error)
	ScanStreams(ctx context.Context, partition int, cursor string) ([]fsm.Stream, string, error)
	WatchedSince(ctx context.Context, partition int, seq int64) ([]fsm.Watched, error)
}

// Store is the part of the state that the ports use.
type Store interface {
	control.Store
	Callbacks
	Inventory
}

// Writes receives the writes and deletions that pass through the gateway.
type Writes interface {
	// BeforeWrite is called before a PUT (create) or a POST goes upstream. When it returns, a stream that was not known
	// before is on record, so that no crash can lose its event. Its result goes to Written or Refused.
	BeforeWrite(ctx context.Context, path string, create bool) fsm.Write
	// Written is called after a successful PUT or POST; created says that it has made the stream. It does not block,
	// unless the write has replaced a stream: then it waits a few seconds at most until that is stored.
	Written(w fsm.Write, tail fsm.Offset, created bool)
	// Refused is called after a PUT or POST that did not succeed. It does not block.
	Refused(w fsm.Write)
	// Deleted is called after a successful DELETE.
	Deleted(ctx context.Context, path string) error
}

// Streams is the part of the program that knows which streams exist and watches them. None of its methods blocks for
// longer than a few requests take.
type Streams interface {
	Writes
	control.Subscriber
	// Name makes streams known; those that exist upstream are linked from fsm.Start, the others are awaited.
	Name(ctx context.Context, paths []string) error
	// Forget removes streams and their consumers from what is known.
	Forget(ctx context.Context, paths []string) error
	// Watch makes sure that streams are watched in the partition of a consumer's primary stream.
	Watch(primary string, paths []string)
}

// Upstream asks the stream server for what callbacks and the gateway want to know.
type Upstream interface {
	control.Upstream
	// HeadAnew is Head that waits for no other request, and shares none.
	HeadAnew(ctx context.Context, path string) (fsm.StreamInfo, error)
	fields.Offsets
	Passed
}

// Passed is what the gateway needs to know of the stream server that it passes requests to.
type Passed interface {
	// TakesWrites says whether clients can write to streams by the protocol.
	TakesWrites() bool
	// NextOffset is the tail that an answer to a write shows; empty if it shows none.
	NextOffset(header http.Header) fsm.Offset
}

// Health is the health of the program's parts, for an operator.
type Health interface {
	// ReplicaID names the replica that is asked.
	ReplicaID() string
	// Replicas returns the replicas that are alive or have partitions leased, and how many partitions no replica has
	// leased.
	Replicas(ctx context.Context) (all []fsm.ReplicaStatus, unowned int, err error)
	// Answers says whether Redis answers, as this replica last found, and since when it does or does not; zero if that
	// is not known.
	Answers() (up bool, since time.Time)
	StreamServer() fsm.StreamServerStatus
}
