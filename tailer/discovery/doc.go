// Package discovery answers two questions: does a stream exist, and at which offset does each matching subscription
// begin in it. It is a level-triggered reconciler, like the controllers of Kubernetes.
//
// Sources only enqueue a path with what they saw of it ([Evidence]). The gateway does so before and after a write.
// Settings and operators do so by name, and patterns without a wildcard, too. The other sources are the registry
// stream, a new subscription, a watch that met a 404, and the scan of the records.
//
// For each path, one worker at a time reads the record, and asks upstream where needed. It asks [fsm.StartOffset] where
// each new consumer begins. It then makes one store call, which links the consumers and moves the record
// (reconcile.go). Only a callback links a consumer to more streams (httpapi/native/callback_look.go). If a stream is
// linked already, a write to it needs none of this: the worker has the [Watcher] tell the store the tail.
//
// The rules:
//
//   - The record and the consumers share one partition. A crash, or a store that lost its latest changes, can leave
//     work behind. The scan finds it, and there is just more to do.
//   - A stream is on record before the first write to it goes upstream (writing.go), so no crash loses its event.
//   - A Linking carries the stamp that the record had before upstream was asked. The store refuses another stamp, and
//     upstream is asked again. So an answer from before a deletion never makes a consumer after it.
//   - Versions of the list of subscriptions, not clocks, tell what came before and what after. There is one exception,
//     for a store that has lost its latest changes: lost_version in the scripts' library says why.
//   - A PUT that makes a stream, or a deletion, replaces the earlier record (replace, renew). The table in
//     fsm/evidence.go says what else is evidence of another stream, and what is not.
//   - Everything in memory is bounded and may be lost. That costs a look, a wait or an event twice, never an event.
package discovery
