package fsm

import (
	"context"
	"time"
)

// Observation is what a partition made of a stream's tail.
type Observation struct {
	Outcome
	// Watched is false if no consumer of the partition is subscribed to the stream.
	Watched bool
	// Busy is true if all that are subscribed are awake or cannot be woken, so further events would wake no consumer.
	Busy bool
	// Noted is what is noted by now, this tail included. Its tail lies beyond the observed one if that is old news, or
	// if the stream was made anew under the same name. It lies before the observed one only if the stream was seen
	// closed there.
	Noted Noted
}

// LinkReply is what became of a Linking.
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
	// CreateSubscription stores sub unless its ID is taken. The same configuration again returns the stored one and
	// false, and a replica that reads a Version of the list from then on finds it Told; another returns a
	// *ConflictError. A created one has a backfill under way until EndBackfill.
	CreateSubscription(ctx context.Context, sub Subscription) (stored Subscription, created bool, err error)
	// ChangeSubscription stores what change returns, and returns it as stored: Told, and in the list from its next
	// version on. change may alter what SameConfig compares, but for Pattern and Mode, and Paused and the secrets. It
	// is called again if another change came in between. If it fails, its error is returned as it is and nothing is
	// stored. A previous secret that does not sign any more is dropped with the next change. An unknown ID is
	// ErrNotFound.
	ChangeSubscription(
		ctx context.Context, id string, change func(Subscription) (Subscription, error),
	) (Subscription, error)
	// RotateSecret is ChangeSubscription by Rotate.
	RotateSecret(ctx context.Context, id string, r Rotation) (Subscription, error)
	// DeleteSubscription removes a subscription and all of its consumers; callbacks find them gone as soon as it
	// returns. An unknown ID is no error.
	DeleteSubscription(ctx context.Context, id string) error
	// ResumeSubscription resumes deliveries: the subscription is not Paused any more, and then all of its consumers
	// make the transition Resume. It returns for how many that changed something, and ErrNotFound for an unknown ID. An
	// error may come after some were resumed.
	ResumeSubscription(ctx context.Context, id string) (consumers int, o Outcome, err error)
	// RetrySubscription is the transition Retry on the endpoint of a subscription, then on all of its consumers. It
	// returns of how many an attempt has waited, and ErrNotFound for an unknown ID. An error may come after it was made
	// on some.
	RetrySubscription(ctx context.Context, id string) (consumers int, err error)
	// RetryWake is the transition Retry on the endpoint of a subscription, then on one of its consumers, unless that is
	// in another wake. It says whether an attempt has waited.
	RetryWake(ctx context.Context, sub Subscription, r WakeRef) (waited bool, err error)
	// Version of the list of subscriptions as it is now.
	Version(ctx context.Context) (int64, error)
	// RefreshCatalog reads the subscriptions anew if they have changed.
	RefreshCatalog(ctx context.Context) error
}

// BackfillStore keeps which new subscriptions are still to be linked to the streams that there are.
type BackfillStore interface {
	// Backfills returns the backfills under way, by subscription ID.
	Backfills(ctx context.Context) (map[string]Backfill, error)
	SetBackfill(ctx context.Context, sub Subscription, b Backfill) error
	EndBackfill(ctx context.Context, sub Subscription) error
}

// PartitionStore says which partitions there are, and which of them are this replica's.
type PartitionStore interface {
	// Partitions is how many there are, numbered from 0. PartitionOf is where the consumers with a home live
	// (ConsumerRef), and where the record of a stream of this path is.
	Partitions() int
	PartitionOf(home string) int
	// Ownership is what this replica works for.
	Ownership() *Ownership
}

// TailStore keeps which streams are watched and where they end. It wakes, hides and restarts the consumers.
type TailStore interface {
	// Observe notes that a stream's tail is at least this, in one partition, and wakes the consumers that it concerns.
	// closed says that it is closed there. The tail noted of a stream that was seen closed stays as it is until Restart
	// or Deleted.
	Observe(ctx context.Context, partition int, path string, tail Offset, closed bool) (Observation, error)
	// Hide hides the consumers of a primary stream that upstream says is gone, until the stream is observed again. It
	// removes those whose stream has been gone for all of the grace. An error may come after some were.
	Hide(ctx context.Context, path string, a Absence) (Outcome, error)
	// Restart is for a new stream under an old name. The new one ends at tail, which belies what was noted of the old
	// one with the tail was. It does nothing if the tail noted is no longer was. Consumers of the old one are replaced
	// by new ones at Start.
	Restart(ctx context.Context, partition int, path string, was, tail Offset) (Outcome, error)
	// WatchedSince returns the streams of a partition that came to be watched after seq, in order.
	WatchedSince(ctx context.Context, partition int, seq int64) ([]Watched, error)
}

// RecordStore keeps which streams exist, and links them to subscriptions.
type RecordStore interface {
	// Stream returns the record of a stream. One that is not on record has only Path, Stamp and Lost.
	Stream(ctx context.Context, path string) (Stream, error)
	// NoteStream puts a stream on record: what NewStream made, with the Stamp that was read before upstream was asked.
	// Its Lost is the version given, or that up to which the store itself may have lost something, whichever is later.
	// The record is due for a look after look. One that is on record stays as it is, but an awaited one is waited for
	// at least that long. It returns the record. It returns false if it refused a stream that upstream has shown,
	// because one is on record or was taken off since.
	NoteStream(ctx context.Context, s Stream, look time.Duration) (Stream, bool, error)
	// LinkStream makes the consumers of a Linking that are not there yet, and moves the record with them. It refuses if
	// the record's stamp is another by now. The list that the Links are from may be old, but no older than the
	// Linking's Version: consumers of subscriptions that are deleted by now are not made. Those that are there keep
	// their offsets. An error may come after some were made.
	LinkStream(ctx context.Context, path string, l Linking) (LinkReply, error)
	// ForgetStream takes a stream that upstream does not have off the record, unless its stamp is another by now, it is
	// awaited for longer, or its partition has consumers of it. With readByOthers it takes the stream off in spite of
	// such consumers: they all have other primary streams.
	ForgetStream(ctx context.Context, path string, stamp int64, readByOthers bool) (bool, error)
	// ScanStreams walks the records of a partition, each at least once. It begins and ends with cursor "0".
	ScanStreams(ctx context.Context, partition int, cursor string) ([]Stream, string, error)
	// Deleted takes a stream off the record of its partition, removes the consumers whose primary stream it was, and
	// has the others start over should it be made anew, all of it as the Deletion says.
	Deleted(ctx context.Context, partition int, path string, d Deletion) (Outcome, error)
	// WatchedIn returns the partitions that have consumers of a stream. With an error it returns those that are known
	// to have some.
	WatchedIn(ctx context.Context, path string) ([]int, error)
}

// RegistryStore keeps how far the registry stream was read, and which of its deletions were dealt with.
type RegistryStore interface {
	// RegistryPlace is how far it was read; at Start before the first time.
	RegistryPlace(ctx context.Context) (RegistryPlace, error)
	// MoveRegistry moves that on, and does nothing if it is not at from (any more). anew says that another incarnation
	// of the stream is read from now on, which sets Since.
	MoveRegistry(ctx context.Context, from, to RegistryPlace, anew bool) (moved bool, err error)
	// RegistryRead says whether the registry stream was ever read to its end, which SetRegistryRead notes.
	RegistryRead(ctx context.Context) (bool, error)
	SetRegistryRead(ctx context.Context) error
	// TakeDeletion says whether a deletion that the registry stream tells of was dealt with when it was made.
	TakeDeletion(ctx context.Context, path string) (bool, error)
}

// DeliveryStore drives the deliveries.
type DeliveryStore interface {
	// Due acts on the deadlines of a partition that have passed, at most limit of them, and
	// returns how many there were.
	Due(ctx context.Context, partition, limit int) (o Outcome, n int, err error)
	// NextDue returns, for each of the partitions, how long it is until its next deadline; negative if there
	// is none, or if the partition could not be asked for. The error is that of one such partition; the
	// others' deadlines are good.
	NextDue(ctx context.Context, partitions []int) ([]time.Duration, error)
	// Fail, Park, Begin, Accept, Finish and Deliver are the transitions of the same name on Consumer.
	Fail(ctx context.Context, r WakeRef, f Failure) (Outcome, error)
	Park(ctx context.Context, r WakeRef, wait time.Duration) (Outcome, error)
	Begin(ctx context.Context, r WakeRef, by string) (Outcome, error)
	Accept(ctx context.Context, r WakeRef) (Outcome, error)
	Finish(ctx context.Context, r WakeRef, seen []StreamTail) (Outcome, error)
	Deliver(ctx context.Context, r WakeRef, d Delivered) (Outcome, error)
	// ReleaseHeld is the transition of the same name on all consumers of a subscription. An error may come after it was
	// made on some.
	ReleaseHeld(ctx context.Context, sub Subscription) (Outcome, error)
}

// EndpointStore keeps which endpoints of subscriptions of ModePush are in trouble, until their subscription is deleted.
type EndpointStore interface {
	// Endpoints is this replica's view of them. The store keeps it up to date: with the answers to its own calls at
	// once, with those of other replicas within about a second.
	Endpoints() *Endpoints
	// FailEndpoint, RecoverEndpoint and ReturnProbe are the transitions Fail, Recover and Return on Endpoint. Changed
	// says whether the endpoint is down since this call, or is not down any more since.
	FailEndpoint(ctx context.Context, sub Subscription, f EndpointFailure) (changed bool, err error)
	RecoverEndpoint(ctx context.Context, sub Subscription) (changed bool, err error)
	ReturnProbe(ctx context.Context, sub Subscription, slot time.Time, sent bool) error
	// LongestWaiting returns the wake of a subscription whose next attempt has waited for longest, of those that began
	// to wait after a time, and since when it waits. Where it looks, one that has not failed yet comes before those
	// that have. ok is false if none waits, or none was found among the many of other subscriptions.
	LongestWaiting(
		ctx context.Context, sub Subscription, after time.Time,
	) (r WakeRef, since time.Time, ok bool, err error)
	// ProbeWake is the transition Probe on Consumer, unless that is in another wake. It says whether an attempt has
	// waited.
	ProbeWake(ctx context.Context, r WakeRef) (waited bool, err error)
	// ProbeEndpoint is the transition Probe on Endpoint.
	ProbeEndpoint(ctx context.Context, sub Subscription, patience time.Duration) (Probe, error)
}

// LetterStore keeps dead letters, in the partitions of their consumers.
type LetterStore interface {
	// DeadLetters returns the first letters of a span, at most so many, in the order in which they came. It takes those
	// of all streams.
	DeadLetters(ctx context.Context, span LetterSpan, most int) ([]DeadLetter, error)
	// DropDeadLetters drops the last letters of a span, of which it looks at so many at most, from the end: so no
	// replay begins of one that is to be dropped, too. Their replays go with them: of one that is under way, the
	// attempt that is out is the last. A call that is carried out twice because its reply was lost returns what the
	// second has dropped.
	DropDeadLetters(ctx context.Context, span LetterSpan, most int) (LetterWork, Outcome, error)
	// CountDeadLetters counts the letters of each partition.
	CountDeadLetters(ctx context.Context) (byPartition []LetterCounts, err error)
}

// ReplayStore has events delivered again that were delivered before, or are dead. What a consumer of ModePush is to
// replay waits in its queue: one thing after the other, in the order of its number, beside the deliveries of what is
// new.
type ReplayStore interface {
	// ReplayDeadLetters has the first letters of a span replayed, of which it looks at so many at most. A letter is
	// kept until its replay is over; events that are dead then leave another one. One whose replay was asked for before
	// counts as Done, and is replayed once.
	ReplayDeadLetters(ctx context.Context, span LetterSpan, most int) (LetterWork, Outcome, error)
	// ReplaySpan has a span of a consumer's stream replayed, and returns the number that it is known by. A span that
	// waits already is replayed once. ErrNotFound is of a consumer that is gone, or was made anew since it was born,
	// ErrTooManyReplays of one that has MaxReplaySpans.
	ReplaySpan(ctx context.Context, r ConsumerRef, born int64, span ReplaySpan) (int64, Outcome, error)
	// ReplayQueues returns the queues of the consumers in a partition that have something to replay, in the order of
	// their IDs, behind one of these, at most so many. A subscription's ID leaves out those of others, unless it is
	// empty.
	ReplayQueues(ctx context.Context, partition int, subscription, after string, most int) ([]ReplayQueue, error)
	// CancelReplays empties the queue of a consumer and returns how much was in it. Of the replay that is under way,
	// the attempt that is out is the last. Dead letters stay.
	CancelReplays(ctx context.Context, r ConsumerRef) (int, Outcome, error)
}

// CallbackStore judges and processes callbacks.
type CallbackStore interface {
	// Callback is the transition of the same name on Consumer.
	Callback(ctx context.Context, cb Callback) (CallbackReply, error)
	// Consumer returns one consumer, or ErrNotFound.
	Consumer(ctx context.Context, r ConsumerRef) (Consumer, error)
}

// OperatorStore shows an operator what is there. No call keeps the store from its other work for long.
type OperatorStore interface {
	// CountConsumers returns how many consumers each of some subscriptions has in each partition.
	CountConsumers(ctx context.Context, subs []Subscription) (byPartition [][]int, err error)
	// TallyConsumers counts the consumers of some subscriptions, in the order of these: none is left out without an
	// error. The call takes time that grows with how many consumers of all subscriptions are not idle, or are failing
	// or hidden, some 5 µs each. It looks at few of a partition at a time. Where there are more, a consumer that
	// changes meanwhile may count in the state before, the one after, both or neither; the others are counted once. Of
	// a subscription that was deleted it counts none.
	TallyConsumers(ctx context.Context, subs []Subscription) ([]Tally, error)
	// ScanConsumers walks the consumers that a subscription has in a partition, each at least once and about count at a
	// time, without their Links. It begins and ends with cursor "0".
	ScanConsumers(
		ctx context.Context, sub Subscription, partition int, cursor string, count int,
	) ([]Consumer, string, error)
}

// CallbackReply is a CallbackResult as the store returns it.
type CallbackReply struct {
	Code    Code
	Path    string
	Streams []StreamTail
	// WakeID is that of the wake that the callback is of, if its epoch is the current one.
	WakeID string
	Outcome
}

// ReplicaStore is what replicas tell each other, and what one of them could not tell the store.
//
// A write is unnoted if it makes a stream, or may be the first to it that Reveille hears of, and the store could not be
// told of it before it went upstream. The replica that looks at the stream next would take its event for an old one.
type ReplicaStore interface {
	// Hint tells the other replicas something. It does not block, and a hint may get lost.
	Hint(h Hint)

	// SetUnnoted says whether this replica has unnoted writes, or is about to. It does not block.
	SetUnnoted(some bool)
	// MayWriteUnnoted says whether an unnoted write may go upstream now: any replica that sees its event there and then
	// calls UnnotedThrough is told of it. SetUnnoted comes first. It stays true until all are noted.
	MayWriteUnnoted() bool
	// UnnotedThrough returns the latest version of the list of subscriptions that counts as older than unnoted writes
	// of any replica; 0 if there were none for sure.
	UnnotedThrough(ctx context.Context) (int64, error)
}

// Hint is something that replicas tell each other so that it is acted on at once. Each of them would find it out by
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
	// HintIdle says that a consumer of the stream has come to rest.
	HintIdle HintKind = "idle"
	// HintGone says that the stream's consumers were hidden, because upstream had no such stream a moment ago.
	HintGone HintKind = "gone"
	// HintRemoved says that the stream was deleted or is to be forgotten, and that its consumers are removed.
	HintRemoved HintKind = "removed"
	// HintForgotten says that the stream was taken off the record, because upstream did not have it for long.
	HintForgotten HintKind = "forgotten"
	// HintLook asks the owner of the stream's partition to look at it: a client has written to it through a replica
	// that stops and does not take it in, or it is awaited.
	HintLook HintKind = "look"
)

// Store is all of the state. Every method may return an error that wraps ErrUnavailable.
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
