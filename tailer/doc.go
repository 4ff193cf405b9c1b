// Package tailer is the side of Reveille that faces the stream server. It watches every stream that some consumer is
// subscribed to and tells the store what it sees ("the tail of S is O"); what that asks for goes to Outcomes at once.
//
// Where to look:
//
//   - A stream becomes known, and subscriptions get their consumers of it: reconcile in discovery/reconcile.go.
//   - What each piece of evidence decides of a stream, and where a consumer begins in it: fsm/evidence.go.
//   - A wake is created: settle in fsm/steps.go, which each transition that leaves a consumer idle calls. What runs is
//     its twin in redisstore/lua/lib.lua.
//   - A retry is decided: failed in fsm/steps.go, with the delay of fsm/schedule.go. Its twin is in lib.lua, too.
//   - A lease is taken: redisstore/lua/lease.lua, which redisstore/replicas.go calls.
//   - How the stream server is spoken to, and what differs between stream servers: package upstream.
//
// What a watched stream is asked, and when, is decided in one place, machine (its step is a pure function, and its
// comment has the table of states); watch carries that out, watches keeps the set, slots share the live requests out.
//
// Its one promise is that no event stays without a wake. Three rules carry it:
//
//   - No waiter is trusted. A silent long-poll or SSE stream is checked with HEAD, and each loop begins with HEAD again
//     whenever anything was unclear.
//   - Nothing counts as done before the store has said so: a tail that was seen is told to the store until it takes it.
//   - What a crash could lose is noted in the store first: a stream that is about to be written to is put on record
//     before the write goes upstream (discovery).
//
// Where the two sides of a race cannot be told apart the choice is the earlier offset: a wake too
// many, never one too few.
package tailer
