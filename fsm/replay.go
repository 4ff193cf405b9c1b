package fsm

import (
	"errors"
	"time"
)

// ReplaySpan is what a replay delivers again of a stream: what lies behind From, up to To. As of a batch, To is a
// position that counts from where From does.
type ReplaySpan struct{ From, To Offset }

// MaxReplaySpans is how many spans a consumer can have to replay at a time, beside its dead letters.
const MaxReplaySpans = 100

// ErrTooManyReplays says that a consumer has as many spans to replay as it may have.
var ErrTooManyReplays = errors.New("too many spans wait for their replay")

// ReplayQueue is what a consumer has to replay: dead letters, and spans of its stream, one after the other.
type ReplayQueue struct {
	Consumer, Subscription, Stream string
	// Waiting counts what is not over. Done counts what is, since the consumer had nothing to replay.
	Waiting, Done int
	// Number is that of the dead letter whose replay is under way; of a span, if Span is true. At is how far it has
	// come, To where it ends.
	Number int64
	Span   bool
	At, To Offset
	// Attempt, FirstFailure and LastError are those of the aside that replays it.
	Attempt      int
	FirstFailure time.Time
	LastError    string
}

// Replays says whether the consumer can replay a dead letter: its events are of the stream that the consumer is of now.
// That of a consumer that was given up is replayed by that one (Revive).
func (c Consumer) Replays(l DeadLetter) bool {
	switch {
	case l.GivenUp():
		return c.Letter == l.ID.Number
	case l.streamIsGone():
		return false
	}
	return l.Generation == c.Generation && l.Born == c.Born && l.Within.After(l.From)
}

// StartReplay makes the aside that delivers a span again, with its first attempt; without one if the consumer is
// retired, for its endpoint gets nothing. The number is that of the dead letter that is replayed, or what the span is
// known by. epoch is the highest that an earlier aside of the same ID may have had: its replay may have been cancelled.
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
