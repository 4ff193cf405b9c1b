// Package fsm is the domain of Reveille. It has the subscriptions, consumer instances, wakes and callbacks, the glob
// patterns that tie streams to subscriptions, and the rules that production runs: where a consumer begins, which
// profile it follows, what an endpoint's health allows. It does no I/O. It has no clock and no randomness of its own:
// its callers pass the time.
//
// The transitions of a consumer are Lua scripts inside Redis (redisstore/lua). Package fsm/spec has the same
// transitions in Go, as their specification.
//
// The other packages share the types of this one; each declares the interfaces that it needs. tailer, dispatcher,
// httpapi and redisstore never import each other.
package fsm
