// Package discovery answers two questions: does a stream exist, and at which offset does each matching subscription
// begin in it. It is a level-triggered reconciler, as the controllers of Kubernetes are.
//
// Sources only enqueue a path with what they saw of it ([Evidence]): the gateway before and after a write, the registry
// stream, settings and operators by name, patterns without a wildcard, a new subscription, a watcher that met a 404,
// the scan of what is on record. One worker a path at a time reads the record, asks upstream where that is needed, asks
// [fsm.StartOffset] where each new consumer begins, and makes one call of the store, which links the consumers and
// moves the record (reconcile.go). Nothing else links.
//
// What carries it:
//
//   - The record lies with the consumers, in one partition. Whatever a crash or a store that has lost its latest
//     changes leaves behind is found by the scan, and there is just more to do.
//   - A stream is on record before the first write to it goes upstream (writing.go), so no crash loses its event.
//   - A Linking carries the stamp that the record had before upstream was asked. The store refuses one with another
//     stamp, and upstream is asked again: an answer from before a deletion never makes a consumer after it.
//   - Versions of the list of subscriptions, not clocks, tell what came before and what after. One exception says why:
//     a store that has lost its latest changes (lost_version in the scripts' library).
//   - A PUT that makes a stream, or a deletion, replaces what was on record before it (replace, renew). What else is
//     evidence of another stream, and what is not, is the table in fsm/evidence.go.
//   - Whatever is kept in memory is bounded and may be lost: that costs a look, a wait or an event twice, never an
//     event.
package discovery
