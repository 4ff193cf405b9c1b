package fsm

import (
	"errors"
	"time"
)

// ReplaySpan is the part of a stream that a replay delivers again: what lies behind From, up to To. As in a batch, To
// is a position that counts from the same offset as From.
type ReplaySpan struct{ From, To Offset }

// MaxReplaySpans is how many spans a consumer can have in its queue, beside dead letters.
const MaxReplaySpans = 100

// ErrTooManyReplays says that a consumer has MaxReplaySpans spans to replay.
var ErrTooManyReplays = errors.New("too many spans wait for their replay")

// ReplayQueue is what a consumer has to replay: dead letters, and spans of its stream, one after the other.
type ReplayQueue struct {
	Consumer, Subscription, Stream string
	// Waiting counts the replays that are not over. Done counts the finished ones since the queue was last empty.
	Waiting, Done int
	// Number is the number of the dead letter whose replay is under way, or of the span if Span is true. At is how far
	// the replay has come, and To where it ends.
	Number int64
	Span   bool
	At, To Offset
	// Attempt, FirstFailure and LastError belong to the aside that replays it.
	Attempt      int
	FirstFailure time.Time
	LastError    string
}

// Replays says whether the consumer can replay a dead letter: its events are in the stream that the consumer has now.
// The letter of a consumer that was given up can be replayed only by that consumer (Revive).
func (c Consumer) Replays(l DeadLetter) bool {
	switch {
	case l.GivenUp():
		return c.Letter == l.ID.Number
	case l.streamIsGone():
		return false
	}
	return l.Generation == c.Generation && l.Born == c.Born && l.Within.After(l.From)
}

// StartReplay makes the aside that delivers a span again, with its first attempt. If the consumer is retired, there is
// no attempt, because its endpoint gets nothing. The argument number is the number of the dead letter, or the number
// that names the span. An earlier aside of the same ID may have had epochs up to epoch: its replay may have been
// cancelled.
func (c Consumer) StartReplay(env Env, number int64, span ReplaySpan, epoch int64) (Consumer, Effects) {
	aside := Consumer{
		ID: AsideID(c.ID, number), Subscription: c.Subscription, Generation: c.Generation, Primary: c.Primary,
		State: Waking, Profile: c.Profile, Born: c.Born, Epoch: max(c.Epoch, epoch), Replay: number, Retired: c.Retired,
		Links: map[string]Link{c.Primary: {Acked: span.From, Tail: span.To}},
	}
	aside.begin(env)
	if aside.Retired {
		return aside, Effects{}
	}
	e := aside.handOut(env)
	return aside, e
}
