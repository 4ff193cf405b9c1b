package fsm

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// StreamTail is a stream of a delivery: where its consumer stands and where the stream ends.
type StreamTail struct {
	Path  string
	Acked Offset
	Tail  Offset
}

// Delivery is what the store hands out for one attempt, which its receiver makes now: a wake, or a push. Every attempt
// of a wake cycle has the same Epoch and WakeID. Offsets and tails are as they were when the attempt was handed out.
type Delivery struct {
	Consumer     string
	Subscription string
	Generation   string
	Primary      string
	// Owner is Consumer.Owner.
	Owner  string
	Epoch  int64
	WakeID string
	// WokeAt is when the wake cycle began, by the store's clock.
	WokeAt time.Time
	// Attempt counts from 1 within the wake cycle, Handed is Consumer.Handed.
	Attempt, Handed int
	// Born tells the consumer from an earlier one of its ID, which had another stream (EventID); 0 without a Profile.
	Born int64
	// Patience is how long the attempt may be out; 0 without a Profile that sets it.
	Patience time.Duration
	// Nudged is true if a failure of the attempt does not count (Consumer.Nudged).
	Nudged bool
	// Replay is true if it replays a dead letter, or a span of its stream.
	Replay bool
	// Span is the number of events that the attempts before have brought, or of bytes in a stream that is not JSON. It
	// is 0 if no attempt has brought any. A further attempt brings no more, so that no event has only the last attempt.
	Span int64
	// Streams has the primary first if the consumer is still subscribed to it, then the others by path.
	Streams []StreamTail
	// Seen is how this process learned of the event that caused the wake. The store does not keep it.
	Seen Sighting
	// Asked is when this process called the store, by its own clock: the attempt was handed out no earlier. The store
	// does not keep it.
	Asked time.Time
}

// GoodUntil is until when the attempt may begin as it was handed out, by the clock of Asked. Until then its deadline is
// far enough away that the endpoint has its time. Later the store is asked anew (spec.Begin). The argument waking is
// Timing.Waking.
func (d Delivery) GoodUntil(waking time.Duration) time.Time {
	if d.Patience > 0 {
		return d.Asked.Add(min(AttemptMargin, d.Patience) / 2)
	}
	return d.Asked.Add(waking / 2)
}

// Ref names the delivery attempt in the transitions that follow from it. A transition whose Ref is not the current
// one changes nothing.
func (d Delivery) Ref() DeliveryRef {
	return DeliveryRef{
		Consumer: ConsumerRef{ID: d.Consumer, Home: d.Primary}, Owner: d.Owner, Epoch: d.Epoch, WakeID: d.WakeID,
		Attempt: d.Attempt, Handed: d.Handed,
	}
}

// Receiver is the ID of the consumer that the events are for: the owner of an aside.
func (d Delivery) Receiver() string { return cmp.Or(d.Owner, d.Consumer) }

// End is the position behind which a delivery of the wake brings nothing; empty if there is no end.
func (d Delivery) End() Offset {
	if d.Owner == "" {
		return ""
	}
	return d.Streams[0].Tail
}

// At is where the consumer stands in one of its streams; Start if it has no such stream.
func (d Delivery) At(path string) Offset {
	for _, s := range d.Streams {
		if s.Path == path {
			return s.Acked
		}
	}
	return Start
}

// DeliveryRef names one delivery attempt of one wake cycle. Handed tells it from an attempt with the same Attempt that
// was taken back. Owner is Consumer.Owner.
type DeliveryRef struct {
	Consumer        ConsumerRef
	Owner           string
	Epoch           int64
	WakeID          string
	Attempt, Handed int
}

// Failure is why a delivery attempt failed.
type Failure struct {
	// RetryAfter is the least time that the endpoint asked for; at most MaxRetryAfter counts.
	RetryAfter time.Duration
	// Retired is true if the endpoint answered 410.
	Retired bool
	// Profile is the present profile of the subscription: the consumer follows it from then on.
	Profile Profile
	// Span is the number of events that the attempt has brought, or of bytes in a stream that is not JSON; 0 for a
	// wake.
	Span int64
	// To, Within and Tail are as in Delivered, of the primary stream; empty unless the Profile is Aside.
	To, Within, Tail Offset
	// Event is the ID of the OutboxEvent that it was about, "" if it was none. Status is the status of the answer, 0
	// without one.
	Event  string
	Status int
	// Reason explains the failure to an operator in at most MaxReason bytes. It holds no URL and nothing that the
	// endpoint sent, except the scheme and host of a redirect.
	Reason string
}

// Delivered is the result for the events of a stream that an attempt of ModePush has brought.
type Delivered struct {
	Path string
	// To is the position behind the last event. Tail is the end of the stream, as the read has shown it.
	To, Tail Offset
	// Within is Batch.Within. It counts if an attempt of the wake may have been sent twice, because the other request
	// may have brought more. It also counts for an aside, whose end is such a position.
	Within Offset
	// Profile is as in Failure.
	Profile Profile
	// Dead is the dead letter that the events leave, without ID and times; nil if they were delivered.
	Dead *DeadLetter
	// Event and Status are as in Failure.
	Event  string
	Status int
	// Unsent is true if no event was sent: a filter leaves them out, or they cannot be sent. It counts only for the
	// attempt that is out. The next attempt, with another filter, may have failed to deliver them.
	Unsent bool
}

// MaxReason bounds Failure.Reason in bytes.
const MaxReason = 200

// ReasonTimeout is the Reason of an attempt that was not answered in time.
const ReasonTimeout = "no answer in time"

// Triggered returns the paths of a wake's streams that have pending events (webhook spec, triggered_by).
func (d Delivery) Triggered() []string {
	paths := []string{}
	for _, s := range d.Streams {
		if (Link{Acked: s.Acked, Tail: s.Tail}).Pending() {
			paths = append(paths, s.Path)
		}
	}
	return paths
}

// SortStreams orders the streams of a consumer: the primary first, then the others by path.
func SortStreams(primary string, streams []StreamTail) {
	slices.SortFunc(streams, func(a, b StreamTail) int {
		switch {
		case a.Path == primary:
			return -1
		case b.Path == primary:
			return 1
		}
		return strings.Compare(a.Path, b.Path)
	})
}

// WakeEnd is a wake that is over.
type WakeEnd struct {
	Consumer     string
	Subscription string
	Primary      string
	Epoch        int64
	WakeID       string
	// WokeAt is when it began, by the store's clock.
	WokeAt time.Time
	Cause  EndCause
}

// EndCause is why a wake is over.
type EndCause string

// The causes.
const (
	// EndDone: the worker has said that it is done.
	EndDone EndCause = "done"
	// EndSilent: the worker was not heard of for the liveness timeout.
	EndSilent EndCause = "silent"
	// EndRestarted: a stream of the consumer was made anew, and it starts over with another wake.
	EndRestarted EndCause = "restarted"
	// EndRewound: an operator has had the consumer read a stream again, with another wake.
	EndRewound EndCause = "rewound"
	// EndRemoved: the consumer is gone.
	EndRemoved EndCause = "removed"
	// EndLost: the store may have lost the result of the wake, and another wake takes its place.
	EndLost EndCause = "lost"
)

// EndCauses are all causes.
var EndCauses = []EndCause{EndDone, EndSilent, EndRestarted, EndRewound, EndRemoved, EndLost}
