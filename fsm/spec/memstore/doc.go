// Package memstore is the store in memory for tests: production runs redisstore and its scripts, and never this
// package. Every transition in it is one of fsm/spec. This package adds what the Lua scripts do around the transitions:
// it finds the consumers that a call concerns, and notes tails. The tests in test/property run it beside those scripts
// on random histories. They demand the same result after every step. A call is made once or not at all: a client that
// repeats a script after a lost reply is not modelled.
//
// A DB is the shared database (db.go), and a Store is one replica's way to it (replica.go). The file partition.go holds
// what a partition keeps. The methods for subscriptions and streams are in subscriptions.go, streams.go
// (the records of streams) and watched.go (tails). The methods for deliveries are in deliveries.go, endpoints.go,
// letters.go, replay.go and deliverylog.go. The others are in callbacks.go, operator.go, place.go and replica.go. The
// file aids.go is for tests that look into a DB or change it directly.
package memstore
