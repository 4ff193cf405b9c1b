package spec

import (
	"cmp"
	"maps"
	"slices"

	"reveille/fsm"
)

// Events that are lost without an attempt leave a dead letter, too.

// streamIsGone says whether the letter was left by a stream that is gone: its events cannot be read again.
func streamIsGone(l fsm.DeadLetter) bool { return fsm.RemovalReasons[fsm.RemovalCause(l.Class)] != "" }

// OfGivenUp says whether the letter was left by a consumer that was given up.
func OfGivenUp(l fsm.DeadLetter) bool { return fsm.RemovalCause(l.Class) == fsm.RemovedGivenUp }

// letter returns a dead letter for what is pending on one of the consumer's streams.
func letter(c fsm.Consumer, path string, cause fsm.RemovalCause, reason string) *fsm.DeadLetter {
	l := c.Links[path]
	return &fsm.DeadLetter{
		Subscription: c.Subscription, Generation: c.Generation, Consumer: cmp.Or(c.Owner, c.ID), Stream: path,
		Born: c.Born, From: l.Acked, To: l.Tail, Within: l.Tail, Attempts: c.Attempt, Class: string(cause),
		Reason: reason, FirstFailure: c.FirstFailure,
	}
}

// lost returns the dead letter that the consumer leaves as it goes with its stream. The letter covers what an aside, or
// a consumer of ModePush, had yet to deliver. It is nil if nothing is pending. It is also nil if there is such a letter
// already. An aside that replays a letter leaves that one, and a consumer that was given up has left one then. A wake
// consumer leaves none: its worker reads the streams itself.
func lost(c fsm.Consumer, cause fsm.RemovalCause) *fsm.DeadLetter {
	switch {
	case fsm.RemovalReasons[cause] == "", c.Replay != 0, !c.Links[c.Primary].Pending():
		return nil
	case c.IsAside():
		return letter(c, c.Primary, cause, cmp.Or(c.LastError, fsm.RemovalReasons[cause]))
	case !c.Profile.Lasting, c.State == fsm.GivenUp:
		return nil
	}
	return letter(c, c.Primary, cause, fsm.RemovalReasons[cause])
}

// unwoken returns the dead letter that the consumer leaves as it is given up. The letter covers the primary stream or,
// if nothing is pending there, the first pending stream by path. It is nil if nothing is pending.
func unwoken(c fsm.Consumer) *fsm.DeadLetter {
	if c.IsAside() { // only if the subscription is not of ModePush any more, which no client can cause
		return nil
	}
	for _, path := range append([]string{c.Primary}, slices.Sorted(maps.Keys(c.Links))...) {
		if c.Links[path].Pending() {
			return letter(c, path, fsm.RemovedGivenUp, c.LastError)
		}
	}
	return nil
}
