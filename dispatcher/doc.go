// Package dispatcher delivers wakes: it signs them, POSTs them to webhooks, decides what an answer means and tells the
// store. It also acts on the deadlines that the store keeps (retries, the waking and the liveness timeout, removals)
// and judges webhook URLs, when a subscription is created and again when a connection is dialled.
//
// The state of a delivery is the store's alone. What the dispatcher holds in memory may be lost at any time: the
// deadline of the attempt brings the wake back. While the process lives, it begins each attempt that it was handed out,
// or gives it back (park.go).
//
// Accepted races. Two attempts of one wake may be under way at once, because an attempt without an answer is repeated
// after the waking timeout while its request may stay open for longer; a 2xx of either counts. An attempt may still go
// out for a consumer that was removed a moment ago; its callbacks are then refused. Both are within "at least once".
package dispatcher
