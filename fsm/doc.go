// Package fsm is the domain of Reveille. It has the subscriptions, consumer instances, wakes and callbacks, the glob
// patterns that tie streams to subscriptions, and the retry schedule. It also has every transition of a consumer as a
// pure function (state + event → state + effects). It does no I/O and has no clock and no randomness of its own: a
// transition gets them in an [Env].
//
// The transitions here are the readable specification. In production, Lua scripts do the same inside Redis. A property
// test drives both with the same histories and demands the same result after every step.
//
// The other packages share the types of this one; each declares the interfaces that it needs. tailer, dispatcher,
// httpapi and redisstore never import each other.
package fsm
