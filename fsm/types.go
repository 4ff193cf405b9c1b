package fsm

import "time"

// Subscription maps a glob pattern to a webhook (webhook spec, Subscription). It is immutable.
type Subscription struct {
	// ID is the client's name for it: 1 to 128 characters of A-Za-z0-9._~-.
	ID string
	// Generation tells this subscription from an earlier one of the same ID; consumers and callback tokens carry it.
	Generation string
	// Pattern in canonical form, see ParsePattern.
	Pattern string
	// Webhook is the URL that wakes are POSTed to.
	Webhook string
	// Secret signs the wakes. It leaves the program only in the answer to the creating request.
	Secret string
	// Description is free text, may be empty.
	Description string
	// CreatedAt by the store's clock.
	CreatedAt time.Time
}

// SameConfig says whether a PUT of o under s's ID asks for what is there: pattern, webhook and description.
func (s Subscription) SameConfig(o Subscription) bool {
	return s.Pattern == o.Pattern && s.Webhook == o.Webhook && s.Description == o.Description
}

// Backfill is the progress of creating the consumers of streams that were there before their subscription.
type Backfill struct{ Done, Total int }

// State of a consumer (webhook spec, State Machine).
type State string

// The states of a consumer.
const (
	Idle   State = "idle"
	Waking State = "waking"
	Live   State = "live"
)

// Link is one stream that a consumer is subscribed to.
type Link struct {
	// Acked is the last acknowledged offset, inclusive; Start if nothing was processed.
	Acked Offset
	// Tail is the stream's end as last noted; empty if nobody has seen it.
	Tail Offset
}

// Pending says whether the stream has unprocessed events (webhook spec, Pending Work).
func (l Link) Pending() bool { return l.Tail.After(l.Acked) }

// Consumer is one consumer instance. All times have the precision of a millisecond.
type Consumer struct {
	// ID, Subscription, Generation and Primary never change.
	ID           string
	Subscription string
	Generation   string
	Primary      string

	State State
	// Epoch of the current wake, or of the last one while idle.
	Epoch int64
	// WakeID of the current wake; kept while idle so that a repeated final callback still matches.
	WakeID string
	// WokeAt is when that wake began; zero if none has, or if a version that did not note it began it.
	WokeAt time.Time
	// Links by stream path.
	Links map[string]Link

	// Attempt counts the delivery attempts begun in this wake.
	Attempt int
	// Sent is true while the last attempt begun has neither failed nor succeeded.
	Sent bool
	// FirstFailure is when the uninterrupted run of failed attempts began; zero without one.
	FirstFailure time.Time
	// LastError is why the last attempt failed, in a few words; empty without an uninterrupted run of failed attempts.
	LastError string
	// Retired is true when the endpoint answered 410: no delivery until the subscription is resumed.
	Retired bool
	// Stalled counts the wakes in a row that ended with work pending and no acked offset moved.
	Stalled int
	// Moved is true once an acked offset moved in this wake.
	Moved bool
	// HiddenAt is when upstream said that the primary stream is gone; zero while it is there.
	HiddenAt time.Time
	// Deadline is when the one thing this state waits for is due; zero if it waits for nothing.
	Deadline time.Time
}

// StreamTail is a stream of a wake: where its consumer stands and where the stream ends.
type StreamTail struct {
	Path  string
	Acked Offset
	Tail  Offset
}

// Wake is one delivery attempt that its receiver is to make now. Every attempt of a wake cycle has the same Epoch and
// WakeID; offsets and tails are those of the moment the attempt was handed out.
type Wake struct {
	Consumer     string
	Subscription string
	Generation   string
	Primary      string
	Epoch        int64
	WakeID       string
	// WokeAt is when the wake cycle began, by the store's clock; zero if that was not noted.
	WokeAt time.Time
	// Attempt counts from 1 within the wake cycle.
	Attempt int
	// Streams has the primary first if the consumer is still subscribed to it, then the others by path.
	Streams []StreamTail
	// Seen is how this process came to know of the event that set the wake off. The store keeps nothing of it.
	Seen Sighting
}

// Sighting is when and how a process saw an event; zero if it saw none.
type Sighting struct {
	At time.Time
	// Gateway is true if the event passed through the gateway.
	Gateway bool
}

// Ref names the delivery attempt in the transitions that follow from it. A transition whose Ref is not the current
// one changes nothing.
func (w Wake) Ref() WakeRef {
	return WakeRef{Consumer: w.Consumer, Primary: w.Primary, Epoch: w.Epoch, WakeID: w.WakeID, Attempt: w.Attempt}
}

// WakeRef names one delivery attempt of one wake cycle.
type WakeRef struct {
	Consumer string
	// Primary stream of the consumer: where the store keeps it.
	Primary string
	Epoch   int64
	WakeID  string
	Attempt int
}

// Failure is what a delivery attempt failed of.
type Failure struct {
	// RetryAfter is the least time that the endpoint asked for; at most MaxRetryAfter counts.
	RetryAfter time.Duration
	// Retired is true if the endpoint answered 410.
	Retired bool
	// Reason says it to an operator in at most MaxReason bytes, without a URL and without anything that the endpoint sent.
	Reason string
}

// MaxReason bounds Failure.Reason in bytes.
const MaxReason = 200

// ReasonTimeout is the Reason of an attempt that was not answered in time.
const ReasonTimeout = "no answer in time"

// StreamInfo is what a HEAD of a stream says.
type StreamInfo struct {
	// Exists is false if the server answered 404 or 410; the other fields are then zero.
	Exists bool
	Tail   Offset
	// TTL is true if the stream has a sliding time to live, which any read would extend.
	TTL bool
	// Closed is true if no append can follow.
	Closed bool
}
