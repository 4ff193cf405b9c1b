package httpapi

import (
	"context"
	"net/http"

	"reveille/fsm"
	"reveille/httpapi/control"
	"reveille/httpapi/native"
)

// What each resource needs of the rest of the program.

// Store is the part of the state that the ports use.
type Store interface {
	control.Store
	control.OutboxStore
	native.Store
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
	control.Streams
	native.Streams
}

// Upstream asks the stream server for what callbacks and the gateway want to know.
type Upstream interface {
	native.Upstream
	Passed
}

// Passed is what the gateway needs to know of the stream server that it passes requests to.
type Passed interface {
	// TakesWrites says whether clients can write to streams by the protocol.
	TakesWrites() bool
	// NextOffset is the tail that an answer to a write shows; empty if it shows none.
	NextOffset(header http.Header) fsm.Offset
}
