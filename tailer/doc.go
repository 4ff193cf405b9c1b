// Package tailer is the side of Reveille that faces the stream server. It finds out which streams exist (discovery), ties
// them to the subscriptions that match them, and watches every stream that some consumer is subscribed to. What it sees it
// tells the store ("the tail of S is O"); the wakes that come of it go to the deliverer at once.
//
// Its one promise is that no event stays without a wake. Three rules carry it:
//
//   - No waiter is trusted. A silent long-poll or SSE stream is checked with HEAD, and each loop begins with HEAD again
//     whenever anything was unclear.
//   - Nothing counts as done before the store has said so: a tail that was seen is told to the store until it takes it.
//   - What a crash could lose is noted in the store first: a stream that is about to be written to is linked or
//     remembered as awaited before the write goes upstream.
//
// Where the two sides of a race cannot be told apart the choice is the earlier offset: a wake too many, never one too few.
package tailer
