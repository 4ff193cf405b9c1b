package fsm

import "time"

// State of a consumer (webhook spec, State Machine).
type State string

// The states of a consumer.
const (
	Idle   State = "idle"
	Waking State = "waking"
	Live   State = "live"
	// GivenUp is gone for workers: it gets no callback, deadline or attempt. It keeps its offsets. The next event of
	// one of its streams, or a resumption of its subscription, makes it idle again.
	GivenUp State = "given_up"
	// InQuarantine is only shown to operators, for a consumer whose record the store cannot read (Quarantined).
	InQuarantine State = "quarantined"
)

// Link is one stream that a consumer is subscribed to.
type Link struct {
	// Acked is the last acknowledged offset, inclusive; Start if nothing was processed.
	Acked Offset
	// Tail is the stream's end as last noted; empty if no tail is noted yet.
	Tail Offset
	// Past is the tail at which the consumer was given up: what lies beyond is news. It is empty unless the consumer is
	// given up.
	Past Offset
	// Since is the epoch of the consumer when the link last went back: the stream was deleted or made anew, or an
	// operator has rewound the consumer. A worker of that epoch, or of an earlier one, may have read the stream before,
	// so its acks do not count. It is 0 if that never happened to the link.
	Since int64
}

// Pending says whether the stream has unprocessed events (webhook spec, Pending Work). An ack of another incarnation
// acknowledges nothing in this one.
func (l Link) Pending() bool { return l.Tail.Ahead(l.Acked) }

// Consumer is one consumer instance. All times have the precision of a millisecond.
type Consumer struct {
	// ID, Subscription, Generation, Primary, Owner and Born never change.
	ID           string
	Subscription string
	Generation   string
	Primary      string
	// Owner is the ID of the consumer that an aside belongs to (IsAside). It is empty for every other consumer.
	Owner string
	// Born is the epoch that the consumer was made with, if it was made with a Profile. It tells the consumer from an
	// earlier one of the same ID, which had another stream.
	Born    int64
	Profile Profile
	// Asides counts the asides of the consumer. They go with it.
	Asides int
	// Replay is the number of the dead letter, or of the span, that an aside replays; 0 for none. Replaying is the
	// number of what an aside of the consumer replays; 0 for none. Replayed is ReplayQueue.Done.
	Replay, Replaying, Replayed int64
	// Letter is the number of the dead letter that the consumer has left as it was given up. It is 0 if there is no
	// letter, and while the consumer is not given up. The letter may be gone: letters are discarded, and dropped by age
	// and number.
	Letter int64
	// Links by stream path.
	Links map[string]Link
	Lease
	Attempts
}

// Lease is the part of a consumer that tells whether it works: its present wake, or its last one while it is idle.
type Lease struct {
	State State
	// Epoch of the current wake, or of the last one while idle.
	Epoch int64
	// WakeID of the current wake; kept while idle so that a repeated final callback still matches.
	WakeID string
	// WokeAt is when that wake began; zero if there was no wake.
	WokeAt time.Time
	// Stalled counts the wakes in a row that ended with work pending and no acked offset moved.
	Stalled int
	// Moved is true once an acked offset moved in this wake.
	Moved bool
	// HiddenAt is when upstream said that the primary stream is gone; zero while it is there.
	HiddenAt time.Time
	// Deadline is when the one thing this state waits for is due; zero if it waits for nothing.
	Deadline time.Time
}

// Attempts is the part of a consumer that tells how its wake is delivered.
type Attempts struct {
	// Attempt counts the delivery attempts begun in this wake. If the Profile has Delays, it counts the attempts whose
	// failure was reported, and the attempt that is out. If the wake of a push replaces one after a loss, the count
	// goes on.
	Attempt int
	// Span is Failure.Span of this wake's first failure.
	Span int64
	// Again is true once an attempt of this wake was taken back that may have been sent.
	Again bool
	// Handed counts how often an attempt of this wake was handed out. It includes the attempts that were taken back, so
	// that no two have the same number.
	Handed int
	// Holder is the last caller that got an attempt of this wake by Begin.
	Holder Holder
	// Sent is true from the beginning of an attempt until it fails, succeeds or is taken back.
	Sent bool
	// Nudged is the deadline that a nudge has put forward (spec.ReleaseHeld); zero without one. An attempt that begins
	// before it does not count if it fails. After such a failure, Nudged is the time of the failure. The next attempt
	// then counts, and there is no other nudge until that attempt has failed.
	Nudged time.Time
	// Probed is true if Nudged was set by a probe (spec.Probe). Unlike a nudge, a probe may come any number of times.
	Probed bool
	// FirstFailure is when the uninterrupted run of failed attempts began; zero without one. An attempt that was not
	// answered in time fails when its request must have ended. So FirstFailure may lie ahead for a while, unless the
	// failure of another attempt is reported. Until then the consumer is shown without a failure (AsOf).
	FirstFailure time.Time
	// Uncounted is the part of the time since FirstFailure that does not count, because no attempt could be made. In
	// that time no replica acted on a deadline, the attempt was parked, or the consumer was hidden or idle. While the
	// consumer is idle, the counted time is subtracted; Uncounted may be negative.
	Uncounted time.Duration
	// ParkedAt is when the next attempt was parked: it was handed out and not begun (spec.Park). The time since then
	// does not count either. It is zero if no attempt is parked, and without a FirstFailure.
	ParkedAt time.Time
	// Held is why the next attempt was parked; empty if it is not parked, or was handed back.
	Held BlockReason
	// LastError is why the last attempt failed, in a few words; empty without an uninterrupted run of failed attempts.
	LastError string
	// Retired is true when the endpoint answered 410: no delivery until the subscription is resumed.
	Retired bool
}

// Holder is the caller that got an attempt by Begin. By identifies the caller, and Handed is the number of that
// attempt.
type Holder struct {
	Handed int
	By     string
}

// ConsumerRef names a consumer, and says where the store keeps it.
type ConsumerRef struct {
	ID string
	// Home decides on the partition (PartitionStore.PartitionOf): it is the primary stream.
	Home string
}

// Ref names the consumer.
func (c Consumer) Ref() ConsumerRef { return ConsumerRef{ID: c.ID, Home: c.Primary} }

// RefOf names the consumer that a subscription has for a stream.
func RefOf(subscription, stream string) ConsumerRef {
	return ConsumerRef{ID: ConsumerID(subscription, stream), Home: stream}
}

// IsAside says whether the consumer is an aside: it goes on with a delivery of another consumer, which has stepped
// aside (Profile.Aside). Its only stream ends for it where that delivery did, whatever follows: the Tail of its Link
// never changes. It is removed once everything is delivered or dead. It is never hidden, but waits while the other
// consumer is hidden (spec.Env.Away). It is removed with the other consumer, and no Removal reports it.
func (c Consumer) IsAside() bool { return c.Owner != "" }

// Pending says whether any subscribed stream has unprocessed events (webhook spec, Pending Work).
func (c Consumer) Pending() bool {
	for _, l := range c.Links {
		if l.Pending() {
			return true
		}
	}
	return false
}
