package fsm

import (
	"cmp"
	"maps"
	"slices"
)

// Events that are lost without an attempt leave a dead letter, too.

// RemovalReasons are the reasons of letters whose stream is gone, by their Class.
var RemovalReasons = map[RemovalCause]string{
	RemovedStreamDeleted:   "the stream was deleted",
	RemovedStreamGone:      "the stream server has no such stream any more",
	RemovedStreamRecreated: "the stream was made anew under its name",
}

// streamIsGone says whether the letter was left by a stream that is gone: its events cannot be read again.
func (l DeadLetter) streamIsGone() bool { return RemovalReasons[RemovalCause(l.Class)] != "" }

// GivenUp says whether the letter was left by a consumer that was given up.
func (l DeadLetter) GivenUp() bool { return RemovalCause(l.Class) == RemovedGivenUp }

// letter returns a dead letter for what is pending on one of the consumer's streams.
func (c Consumer) letter(path string, cause RemovalCause, reason string) *DeadLetter {
	l := c.Links[path]
	return &DeadLetter{
		Subscription: c.Subscription, Generation: c.Generation, Consumer: c.ID, Stream: path, Born: c.Born,
		From: l.Acked, To: l.Tail, Within: l.Tail, Attempts: c.Attempt, Class: string(cause), Reason: reason,
		FirstFailure: c.FirstFailure,
	}
}

// lost returns the dead letter that the consumer leaves as it goes with its stream. The letter covers what an aside, or
// a consumer of ModePush, had yet to deliver. It is nil if nothing is pending. It is also nil if there is such a letter
// already. An aside that replays a letter leaves that one, and a consumer that was given up has left one then. A wake
// consumer leaves none: its worker reads the streams itself.
func (c Consumer) lost(cause RemovalCause) *DeadLetter {
	switch {
	case RemovalReasons[cause] == "", c.Replay != 0, !c.Links[c.Primary].Pending():
		return nil
	case c.IsAside():
		return c.letter(c.Primary, cause, cmp.Or(c.LastError, RemovalReasons[cause]))
	case !c.Profile.Lasting, c.State == GivenUp:
		return nil
	}
	return c.letter(c.Primary, cause, RemovalReasons[cause])
}

// unwoken returns the dead letter that the consumer leaves as it is given up. The letter covers the primary stream or,
// if nothing is pending there, the first pending stream by path. It is nil if nothing is pending.
func (c Consumer) unwoken() *DeadLetter {
	if c.IsAside() { // only if the subscription is not of ModePush any more, which no client can cause
		return nil
	}
	for _, path := range append([]string{c.Primary}, slices.Sorted(maps.Keys(c.Links))...) {
		if c.Links[path].Pending() {
			return c.letter(path, RemovedGivenUp, c.LastError)
		}
	}
	return nil
}
