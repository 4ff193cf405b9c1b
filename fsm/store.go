package fsm

import (
	"context"
	"time"
)

// Observation is a partition's reply to an observed tail.
type Observation struct {
	Outcome
	// Watched is false if no consumer of the partition is subscribed to the stream.
	Watched bool
	// Busy is true if all subscribed consumers are awake or cannot be woken, so further events would wake no consumer.
	Busy bool
	// Noted is the noted end, with this tail included. It lies beyond the observed tail if that tail is old news, or if
	// the stream was made anew under the same name. It lies before the observed tail only if the stream was seen closed
	// there.
	Noted Noted
}

// LinkReply is the reply to a Linking.
type LinkReply struct {
	Outcome
	// Done is false if nothing was changed, because the record has another stamp or is gone.
	Done bool
	// Stream is the record as it is now.
	Stream Stream
}

// Watched is one stream that consumers of a partition are subscribed to.
type Watched struct {
	Path string
	Tail Offset
	// Seq orders the streams of a partition by when they were first watched.
	Seq int64
}

// SubscriptionStore keeps the subscriptions.
type SubscriptionStore interface {
	// Catalog is this replica's view of the subscriptions; the store keeps it up to date.
	Catalog() *Catalog
	// CreateSubscription stores sub unless its ID is taken. If the stored subscription has the same configuration, it
	// returns that one and false. A replica that reads a Version of the list from then on finds it Told. If the
	// configuration differs, it returns a *ConflictError. A created subscription has a backfill under way until
	// EndBackfill.
	CreateSubscription(ctx context.Context, sub Subscription) (stored Subscription, created bool, err error)
	// ChangeSubscription stores what change returns, and returns it as stored. It is then Told, and in the list from
	// the list's next version on. The function change may alter what SameConfig compares, except Pattern and Mode. It
	// may also alter Paused and the secrets. If another change came in between, change is called again. If it fails,
	// its error is returned as it is and nothing is stored. A previous secret that does not sign any more is dropped
	// with the next change. An unknown ID is ErrNotFound.
	ChangeSubscription(
		ctx context.Context, id string, change func(Subscription) (Subscription, error),
	) (Subscription, error)
	// RotateSecret is ChangeSubscription by Rotate.
	RotateSecret(ctx context.Context, id string, r Rotation) (Subscription, error)
	// DeleteSubscription removes a subscription and all of its consumers. Callbacks find the consumers gone as soon as
	// it returns. An unknown ID is no error.
	DeleteSubscription(ctx context.Context, id string) error
	// ResumeSubscription resumes deliveries: it ends Paused, and then makes the transition Resume on all consumers of
	// the subscription. It returns how many consumers this changed, and ErrNotFound for an unknown ID. An error may
	// come after some were resumed.
	ResumeSubscription(ctx context.Context, id string) (consumers int, o Outcome, err error)
	// RetrySubscription makes the transition RetryEndpoint, then Retry on all consumers of the subscription. It returns
	// how many consumers had a waiting attempt, and ErrNotFound for an unknown ID. An error may come after some
	// transitions were made.
	RetrySubscription(ctx context.Context, id string) (consumers int, err error)
	// RetryWake makes the transition RetryEndpoint, then Retry on one consumer of the subscription. It makes neither if
	// that consumer is in another wake. It says whether an attempt has waited.
	RetryWake(ctx context.Context, sub Subscription, r WakeRef) (waited bool, err error)
	// Version of the list of subscriptions as it is now.
	Version(ctx context.Context) (int64, error)
	// RefreshCatalog reads the subscriptions anew if they have changed.
	RefreshCatalog(ctx context.Context) error
}

// BackfillStore keeps which new subscriptions must still be linked to the existing streams.
type BackfillStore interface {
	// Backfills returns the backfills under way, by subscription ID.
	Backfills(ctx context.Context) (map[string]Backfill, error)
	SetBackfill(ctx context.Context, sub Subscription, b Backfill) error
	EndBackfill(ctx context.Context, sub Subscription) error
}

// PartitionStore says which partitions there are, and which of them are this replica's.
type PartitionStore interface {
	// Partitions is the number of partitions, numbered from 0. PartitionOf is the partition of the consumers with a
	// home (ConsumerRef), and of the record of a stream with this path.
	Partitions() int
	PartitionOf(home string) int
	// Ownership is what this replica works for.
	Ownership() *Ownership
}

// TailStore keeps which streams are watched and where they end. It wakes, hides and restarts the consumers.
type TailStore interface {
	// Observe notes in one partition that a stream's tail is at least this, and wakes the consumers that it concerns.
	// The argument closed says that the stream is closed there. If a stream was seen closed, its noted tail stays as it
	// is until Restart or Deleted.
	Observe(ctx context.Context, partition int, path string, tail Offset, closed bool) (Observation, error)
	// Hide hides the consumers of a primary stream that upstream reports as gone, until the stream is observed again.
	// It removes the consumers whose stream has been gone for all of the grace. An error may come after some were
	// hidden or removed.
	Hide(ctx context.Context, path string, a Absence) (Outcome, error)
	// Restart is for a new stream under an old name. The new stream ends at tail, which belies what was noted of the
	// old one, with the tail was. It does nothing if the noted tail is no longer was. New consumers at Start replace
	// the consumers of the old stream.
	Restart(ctx context.Context, partition int, path string, was, tail Offset) (Outcome, error)
	// WatchedSince returns the streams of a partition that came to be watched after seq, in order.
	WatchedSince(ctx context.Context, partition int, seq int64) ([]Watched, error)
}

// RecordStore keeps which streams exist, and links them to subscriptions.
type RecordStore interface {
	// Stream returns the record of a stream. Without a record, only Path, Stamp and Lost are set.
	Stream(ctx context.Context, path string) (Stream, error)
	// NoteStream puts a stream on record: what NewStream made, with the Stamp that was read before upstream was asked.
	// Its Lost becomes the given version, or the version up to which the store itself may have lost something,
	// whichever is later. The record is due for a look after look. A stream that is on record stays as it is, but an
	// awaited one is waited for at least that long. NoteStream returns the record. It returns false if it refused a
	// stream that upstream has shown, because one is on record or was taken off since.
	NoteStream(ctx context.Context, s Stream, look time.Duration) (Stream, bool, error)
	// LinkStream makes the missing consumers of a Linking, and moves the record with them. It refuses if the record now
	// has another stamp. The list that the Links come from may be old, but no older than the Linking's Version. If a
	// subscription was deleted since, its consumers are not made. Existing consumers keep their offsets. An error may
	// come after some were made.
	LinkStream(ctx context.Context, path string, l Linking) (LinkReply, error)
	// ForgetStream takes a stream that upstream does not have off the record. It does nothing if the record now has
	// another stamp, if the stream is awaited for longer, or if its partition has consumers of it. With readByOthers it
	// takes the stream off in spite of such consumers: they all have other primary streams.
	ForgetStream(ctx context.Context, path string, stamp int64, readByOthers bool) (bool, error)
	// ScanStreams walks the records of a partition, each at least once. It begins and ends with cursor "0".
	ScanStreams(ctx context.Context, partition int, cursor string) ([]Stream, string, error)
	// Deleted takes a stream off the record of its partition, and removes the consumers whose primary stream it was.
	// The other consumers of the stream start over if it is made anew. The Deletion says how all of this is done.
	Deleted(ctx context.Context, partition int, path string, d Deletion) (Outcome, error)
	// WatchedIn returns the partitions that have consumers of a stream. With an error it returns the partitions that
	// are known to have some.
	WatchedIn(ctx context.Context, path string) ([]int, error)
}

// RegistryStore keeps how far the registry stream was read, and which of its deletions were dealt with.
type RegistryStore interface {
	// RegistryPlace is how far it was read; at Start before the first time.
	RegistryPlace(ctx context.Context) (RegistryPlace, error)
	// MoveRegistry moves the place on, and does nothing if the place is not at from (any more). The argument anew says
	// that another incarnation of the stream is read from now on, which sets Since.
	MoveRegistry(ctx context.Context, from, to RegistryPlace, anew bool) (moved bool, err error)
	// RegistryRead says whether the registry stream was ever read to its end, which SetRegistryRead notes.
	RegistryRead(ctx context.Context) (bool, error)
	SetRegistryRead(ctx context.Context) error
	// TakeDeletion says whether a deletion that the registry stream reports was dealt with when it was made.
	TakeDeletion(ctx context.Context, path string) (bool, error)
}

// DeliveryStore drives the deliveries.
type DeliveryStore interface {
	// Due acts on the deadlines of a partition that have passed, at most limit of them, and returns their number.
	Due(ctx context.Context, partition, limit int) (o Outcome, n int, err error)
	// NextDue returns, for each of the partitions, the time until its next deadline. The time is negative if there is
	// no deadline, or if the partition could not be asked. The error comes from one such partition; the deadlines of
	// the others are good.
	NextDue(ctx context.Context, partitions []int) ([]time.Duration, error)
	// Fail, Park, Begin, Accept, Finish and Deliver are the transitions of the same name (fsm/spec).
	Fail(ctx context.Context, r WakeRef, f Failure) (Outcome, error)
	Park(ctx context.Context, r WakeRef, wait time.Duration) (Outcome, error)
	Begin(ctx context.Context, r WakeRef, by string) (Outcome, error)
	Accept(ctx context.Context, r WakeRef) (Outcome, error)
	Finish(ctx context.Context, r WakeRef, seen []StreamTail) (Outcome, error)
	Deliver(ctx context.Context, r WakeRef, d Delivered) (Outcome, error)
	// ReleaseHeld makes the transition of the same name on all consumers of a subscription. An error may come after
	// some transitions were made.
	ReleaseHeld(ctx context.Context, sub Subscription) (Outcome, error)
}

// EndpointStore keeps which endpoints are in trouble, until their subscription is deleted.
type EndpointStore interface {
	// Endpoints is this replica's view of them. The store updates it with the answers to its own calls at once, and
	// with the changes of other replicas within about a second.
	Endpoints() *Endpoints
	// FailEndpoint, RecoverEndpoint and ReturnProbe are the transitions of the same name. The result changed says
	// whether the endpoint went down by this call, or is not down any more since.
	FailEndpoint(ctx context.Context, sub Subscription, f EndpointFailure) (changed bool, err error)
	RecoverEndpoint(ctx context.Context, sub Subscription) (changed bool, err error)
	ReturnProbe(ctx context.Context, sub Subscription, slot time.Time, sent bool) error
	// LongestWaiting returns the wake of a subscription whose next attempt has waited for longest, and since when it
	// waits. It considers only waits that began after a time. Where it looks, a wake without a failure comes before the
	// others. The result ok is false if no wake waits, or if none was found among the many of other subscriptions.
	LongestWaiting(
		ctx context.Context, sub Subscription, after time.Time,
	) (r WakeRef, since time.Time, ok bool, err error)
	// ProbeWake is the transition Probe, unless the consumer is in another wake. It says whether an attempt
	// has waited.
	ProbeWake(ctx context.Context, r WakeRef) (waited bool, err error)
	// ProbeEndpoint is the transition of the same name.
	ProbeEndpoint(ctx context.Context, sub Subscription, patience time.Duration) (Probe, error)
}

// LetterStore keeps dead letters, in the partitions of their consumers.
type LetterStore interface {
	// DeadLetters returns the first letters of a span, in the order in which they came. The largest number of letters
	// is most. It ignores the span's Stream.
	DeadLetters(ctx context.Context, span LetterSpan, most int) ([]DeadLetter, error)
	// DropDeadLetters drops the last letters of a span. It looks at no more letters than most says. It begins at the
	// end, so that no replay begins of a letter that is about to be dropped. Their replays go with them: if one is
	// under way, the attempt that is out is the last. If a call is carried out twice because its reply was lost, it
	// returns what the second has dropped.
	DropDeadLetters(ctx context.Context, span LetterSpan, most int) (LetterWork, Outcome, error)
	// CountDeadLetters counts the letters of each partition.
	CountDeadLetters(ctx context.Context) (byPartition []LetterCounts, err error)
}

// ReplayStore delivers events again that were delivered before, or are dead. The replays of a consumer of ModePush wait
// in its queue. They run one after the other, in the order of their numbers, beside the deliveries of new events.
type ReplayStore interface {
	// ReplayDeadLetters queues the first letters of a span for their replay. It looks at no more letters than most
	// says. A letter is kept until its replay is over; events that are dead then leave another letter. A letter whose
	// replay was asked for before counts as Done, and is replayed once.
	ReplayDeadLetters(ctx context.Context, span LetterSpan, most int) (LetterWork, Outcome, error)
	// ReplaySpan queues a span of a consumer's stream for its replay, and returns the number that names it. A span that
	// waits already is replayed once. ErrNotFound says that the consumer is gone, or has another Born.
	// ErrTooManyReplays says that it has MaxReplaySpans.
	ReplaySpan(ctx context.Context, r ConsumerRef, born int64, span ReplaySpan) (int64, Outcome, error)
	// ReplayQueues returns the queues of the consumers in a partition that have something to replay, no more than most
	// says. They come in the order of the consumers' IDs, behind the ID after. A subscription's ID limits them to that
	// subscription, unless it is empty.
	ReplayQueues(ctx context.Context, partition int, subscription, after string, most int) ([]ReplayQueue, error)
	// CancelReplays empties the queue of a consumer and returns how many replays were in it. If a replay is under way,
	// the attempt that is out is its last. Dead letters stay.
	CancelReplays(ctx context.Context, r ConsumerRef) (int, Outcome, error)
}

// CallbackStore judges and processes callbacks.
type CallbackStore interface {
	// Callback is the transition of the same name.
	Callback(ctx context.Context, cb Callback) (CallbackReply, error)
	// Consumer returns one consumer, or ErrNotFound.
	Consumer(ctx context.Context, r ConsumerRef) (Consumer, error)
}

// OperatorStore shows an operator the state. No call keeps the store from its other work for long.
type OperatorStore interface {
	// CountConsumers returns how many consumers each of some subscriptions has in each partition.
	CountConsumers(ctx context.Context, subs []Subscription) (byPartition [][]int, err error)
	// TallyConsumers counts the consumers of some subscriptions, in the order of subs: none is left out without an
	// error. The time grows with the consumers of all subscriptions that are not idle, or are failing or hidden, by
	// some 5 µs each. It looks at few consumers of a partition at a time. If there are more, a consumer that changes
	// meanwhile may count in the state before, the one after, both or neither. All others are counted once. For a
	// deleted subscription it counts none.
	TallyConsumers(ctx context.Context, subs []Subscription) ([]Tally, error)
	// ScanConsumers walks the consumers that a subscription has in a partition, without their Links. It returns each at
	// least once, and about count at a time. It begins and ends with cursor "0".
	ScanConsumers(
		ctx context.Context, sub Subscription, partition int, cursor string, count int,
	) ([]Consumer, string, error)
}

// CallbackReply is the result of a callback (spec.CallbackResult) as the store returns it.
type CallbackReply struct {
	Code    Code
	Path    string
	Streams []StreamTail
	// WakeID is as in spec.CallbackResult.
	WakeID string
	Outcome
}

// ReplicaStore is what replicas tell each other, and what a replica could not tell the store.
//
// A write is unnoted if it went upstream before the store knew of it. Only a write that makes a stream counts, or one
// that may be the first that Reveille hears of. The replica that looks at the stream next would take its event for an
// old one.
type ReplicaStore interface {
	// Hint tells the other replicas something. It does not block, and a hint may get lost.
	Hint(h Hint)

	// SetUnnoted says whether this replica has unnoted writes, or is about to. It does not block.
	SetUnnoted(some bool)
	// MayWriteUnnoted says whether an unnoted write may go upstream now. If it may, any replica that sees its event
	// there and then calls UnnotedThrough learns of it. SetUnnoted comes first. It stays true until all writes are
	// noted.
	MayWriteUnnoted() bool
	// UnnotedThrough returns the latest version of the list of subscriptions that counts as older than unnoted writes
	// of any replica. It is 0 if there certainly were none.
	UnnotedThrough(ctx context.Context) (int64, error)
}

// Hint is something that replicas tell each other so that they act on it at once. Each of them would find it out by
// itself within seconds.
type Hint struct {
	Kind HintKind
	// Partition that a HintWatch is about.
	Partition int
	// Path of the stream.
	Path string
}

// HintKind is what a hint is about.
type HintKind string

// The kinds of hints.
const (
	// HintWatch says that consumers of a partition are subscribed to the stream now.
	HintWatch HintKind = "watch"
	// HintIdle says that a consumer of the stream has become idle.
	HintIdle HintKind = "idle"
	// HintGone says that the stream's consumers were hidden, because upstream had no such stream a moment ago.
	HintGone HintKind = "gone"
	// HintRemoved says that the stream was deleted or must be forgotten, and that its consumers are removed.
	HintRemoved HintKind = "removed"
	// HintForgotten says that the stream was taken off the record, because upstream did not have it for long.
	HintForgotten HintKind = "forgotten"
	// HintLook asks the owner of the stream's partition to look at it. A client has written to the stream through a
	// replica that stops and cannot handle the write, or the stream is awaited.
	HintLook HintKind = "look"
)

// Store is the whole state. Every method may return an error that wraps ErrUnavailable.
type Store interface {
	SubscriptionStore
	BackfillStore
	PartitionStore
	TailStore
	RecordStore
	RegistryStore
	DeliveryStore
	EndpointStore
	LetterStore
	ReplayStore
	LogStore
	CallbackStore
	OperatorStore
	ReplicaStore
	// Ping returns nil if the store answers.
	Ping(ctx context.Context) error
}

// Deliverer makes delivery attempts. Deliver does not block.
type Deliverer interface {
	Deliver(wakes []Wake)
}
