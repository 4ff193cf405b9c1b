// Package tailer is the side of Reveille that faces the stream server. It watches every stream that some consumer is
// subscribed to and tells the store what it sees ("the tail of S is O"); what that asks for goes to Outcomes at once.
//
// What a watched stream is asked, and when, is decided in one place, machine (its step is a pure function, and its
// comment has the table of states); watch carries that out, watches keeps the set, slots share the live requests out.
//
// Its one promise is that no event stays without a wake. Three rules carry it:
//
//   - No live request is trusted. A silent long-poll or SSE stream is checked with HEAD, and each loop begins with HEAD
//     again whenever anything was unclear.
//   - Nothing counts as done before the store has said so: a tail that was seen is reported to the store until the
//     store accepts it.
//   - What a crash could lose is noted in the store first: a stream that is about to be written to is put on record
//     before the write goes upstream (discovery).
//
// Where it is not clear which side of a race came first, Reveille takes the earlier offset: a wake too many, never one
// too few.
package tailer
