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
