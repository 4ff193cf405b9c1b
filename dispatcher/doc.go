// Package dispatcher delivers wakes and pushes. It signs each request, POSTs it to the webhook, decides what the answer
// means, and tells the store. It also acts on the deadlines that the store keeps: retries, the waking and liveness
// timeouts, removals. It judges webhook URLs when a subscription is created, and again when a connection is dialled.
//
// The state of a delivery is in the store only. What the dispatcher holds in memory may be lost at any time: the
// deadline of the attempt then brings the wake back. While the process lives, it begins each attempt that the store
// handed out to it, or gives it back (park.go).
//
// Accepted races. Two attempts of one wake may be under way at once. After the waking timeout, an attempt without an
// answer is repeated, while its request may stay open for longer; a 2xx of either counts. An attempt may still go out
// for a consumer that was removed a moment ago; its callbacks are then refused. Both are within "at least once".
package dispatcher
