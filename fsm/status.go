package fsm

import "time"

// ReplicaStatus is what the store knows of a replica.
type ReplicaStatus struct {
	ID string
	// Alive is false for a replica that has died or left while it still had leases.
	Alive bool
	// Since is when the replica's present unbroken life began, by the store's clock; zero if that is not known.
	Since time.Time
	// Partitions is how many it has leased.
	Partitions int
}

// StreamServerStatus is what a replica knows of the stream server.
type StreamServerStatus struct {
	State StreamServerState
	// Since is when the server went up or down; zero if that is not known.
	Since time.Time
	// Dialect is the dialect of the server, as far as it is known. Watching is how streams are watched: "sse" or
	// "long-poll".
	Dialect, Watching string
}

// StreamServerState is whether the stream server answers.
type StreamServerState string

// The states of a stream server.
const (
	StreamServerUp   StreamServerState = "up"
	StreamServerDown StreamServerState = "down"
	// StreamServerNotSeen: the server has not shown yet that it is a stream server.
	StreamServerNotSeen StreamServerState = "not_seen"
)

// Trouble is what is noted of a trouble that operators are told of.
type Trouble struct {
	// Since is when it began, as far as is known.
	Since time.Time
	// Told is true once operators were told.
	Told bool
}

// MaxTroubles bounds the troubles of subscriptions that are noted.
const MaxTroubles = 10_000
