// Package memstore is an fsm.Store in memory, for tests. Every transition in it is fsm's own. What is left to this
// package is what the Lua scripts of redisstore do around them: which consumers a call concerns, and which tails
// are noted. test/property runs it beside those scripts on random histories and demands the same result after every
// step. A call is made once or not at all: what a client does that sends a script again because its reply got lost
// is not modelled.
//
// A DB is the shared database (db.go), a Store is one replica's way to it (replica.go). partition.go holds what a
// partition keeps. The methods of fsm.Store are in subscriptions.go, streams.go (the records of
// streams), watched.go (tails), deliveries.go, endpoints.go,
// callbacks.go and operator.go. aids.go is for tests that look into a
// DB or change it directly.
package memstore
