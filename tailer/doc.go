// Package tailer is the side of Reveille that faces the stream server. It watches every stream with a subscribed
// consumer and tells the store what it sees ("the tail of S is O"). It passes the store's outcome to Outcomes at once.
//
// The machine decides which requests Reveille sends for a watched stream, and when. Its step is a pure function, and
// its comment has the table of states. A watch carries out the actions. The set of watches is in watches. The live
// requests share slots.
//
// The package makes one promise: each event leads to a wake. Three rules keep it:
//
//   - No live request is trusted. A HEAD checks a silent long-poll or SSE stream. A watch begins with HEAD, and returns
//     to HEAD whenever anything is unclear.
//   - Nothing counts as done until the store confirms it. A tail that was seen is reported until the store accepts it.
//   - What a crash could lose is stored first. A write that may make a stream goes upstream only once the stream is on
//     record (discovery).
//
// If Reveille cannot tell which side of a race came first, it takes the earlier offset. That can cause an extra wake.
// It never loses one.
package tailer
