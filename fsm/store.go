package fsm

import (
	"context"
	"time"
)

// Outcome is what a transition that ran in the store asks its caller to do.
type Outcome struct {
	// Wakes are delivery attempts to make now. Their deadlines bring them back if the caller dies.
	Wakes []Wake
	// Idle are the streams of consumers that have come to rest.
	Idle []string
	// Hidden are the primary streams of consumers that have been hidden for a while: whether they are back is to be looked at.
	Hidden []string
	// Removed counts consumers that are gone from now on.
	Removed int
	// Linked counts consumers that were made.
	Linked int
	// Ended are wakes that are over, if that is of interest to anybody.
	Ended []WakeEnd
}

// Add merges another outcome into o.
func (o *Outcome) Add(p Outcome) {
	o.Wakes = append(o.Wakes, p.Wakes...)
	o.Idle = append(o.Idle, p.Idle...)
	o.Hidden = append(o.Hidden, p.Hidden...)
	o.Removed += p.Removed
	o.Linked += p.Linked
	o.Ended = append(o.Ended, p.Ended...)
}

// Observation is what a partition made of a stream's tail.
type Observation struct {
	Outcome
	// Watched is false if no consumer of the partition is subscribed to the stream.
	Watched bool
	// Busy is true if all that are subscribed are awake or cannot be woken, so further events would wake nobody.
	Busy bool
	// Tail is the highest tail noted, this one included. It lies beyond the observed one if that is old news, or if the
	// stream was made anew under the same name.
	Tail Offset
}

// Known is what the store remembers of a stream that discovery came upon.
type Known struct {
	Path string
	// At is when the store first heard of it, by the store's clock.
	At time.Time
	// Awaited is true while it was only announced: upstream did not have it when last asked.
	Awaited bool
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
	// false; another returns ErrConflict. A created one has a backfill under way until EndBackfill.
	CreateSubscription(ctx context.Context, sub Subscription) (stored Subscription, created bool, err error)
	// DeleteSubscription removes a subscription and all of its consumers; callbacks find them gone as soon as it
	// returns. An unknown ID is no error.
	DeleteSubscription(ctx context.Context, id string) error
	// ResumeSubscription lets consumers be delivered to again whose endpoint answered 410.
	ResumeSubscription(ctx context.Context, id string) error
	// RefreshCatalog reads the subscriptions anew if they have changed.
	RefreshCatalog(ctx context.Context) error

	// Backfills returns the backfills under way, by subscription ID.
	Backfills(ctx context.Context) (map[string]Backfill, error)
	SetBackfill(ctx context.Context, sub Subscription, b Backfill) error
	EndBackfill(ctx context.Context, sub Subscription) error
}

// StreamStore keeps which streams exist and where they end.
type StreamStore interface {
	// Partitions is how many there are, numbered from 0. PartitionOf is where the consumers of a primary stream live.
	Partitions() int
	PartitionOf(path string) int

	// Link creates the consumer that sub has for a stream, with acked as its offset, and notes the tail. One that is
	// there already keeps its offsets. A subscription that was deleted meanwhile gets none.
	Link(ctx context.Context, sub Subscription, path string, acked, tail Offset) (Outcome, error)
	// Observe notes that a stream's tail is at least this, in one partition, and wakes whom that concerns.
	Observe(ctx context.Context, partition int, path string, tail Offset) (Observation, error)
	// Hide keeps the consumers whose primary stream upstream says is gone from sight, until it is observed again. Those for
	// which that has been so for the grace are removed. It reports whether there were any.
	Hide(ctx context.Context, path string, a Absence) (found bool, err error)
	// Restart is for a stream whose tail moved back from was to tail: a new one under an old name. It does nothing if the tail
	// noted is no longer was. Consumers of the old one are replaced by new ones at Start.
	Restart(ctx context.Context, partition int, path string, was, tail Offset) (Outcome, error)
	// Deleted removes the consumers whose primary stream was deleted, and has the others start over should it be made anew.
	Deleted(ctx context.Context, partition int, path string) (Outcome, error)
	// WatchedIn returns the partitions whose consumers a stream concerns.
	WatchedIn(ctx context.Context, path string) ([]int, error)
	// WatchedSince returns the streams of a partition that came to be watched after seq, in order.
	WatchedSince(ctx context.Context, partition int, seq int64) ([]Watched, error)

	// NoteKnown remembers a stream; awaited ones are turned into present ones, never back. It returns the version of
	// the list of subscriptions at that moment, and whether that was news.
	NoteKnown(ctx context.Context, path string, awaited bool) (version int64, news bool, err error)
	// Known returns what is remembered of a stream.
	Known(ctx context.Context, path string) (Known, bool, error)
	// ForgetKnown forgets a stream; if onlyAwaited, only one that is still awaited.
	ForgetKnown(ctx context.Context, path string, onlyAwaited bool) error
	// ScanKnown walks the remembered streams of a partition, each at least once. It begins and ends with cursor "0".
	ScanKnown(ctx context.Context, partition int, cursor string) ([]Known, string, error)

	// LostAgo says whether the store may ever have lost its latest changes to what it remembers of a stream and its consumers, and how
	// long ago the last time was. What it does not know since may be what it has lost.
	LostAgo(ctx context.Context, path string) (ago time.Duration, lost bool, err error)

	// RegistryOffset is how far the registry stream was read; Start before the first time.
	RegistryOffset(ctx context.Context) (Offset, error)
	// MoveRegistryOffset moves it on, and does nothing if it is not at from (any more).
	MoveRegistryOffset(ctx context.Context, from, to Offset) (moved bool, err error)
}

// DeliveryStore drives the deliveries.
type DeliveryStore interface {
	// Due acts on the deadlines of a partition that have passed, at most limit of them, and returns how many there were.
	Due(ctx context.Context, partition, limit int) (o Outcome, n int, err error)
	// NextDue returns, for each of the partitions, how long it is until its next deadline; negative if there is none, or if the
	// partition could not be asked for. The error is that of one such partition; the others' deadlines are good.
	NextDue(ctx context.Context, partitions []int) ([]time.Duration, error)
	// Fail, Park, Begin, Accept and Finish are the transitions of the same name on Consumer.
	Fail(ctx context.Context, r WakeRef, f Failure) (Outcome, error)
	Park(ctx context.Context, r WakeRef, wait time.Duration) error
	Begin(ctx context.Context, r WakeRef) (Outcome, error)
	Accept(ctx context.Context, r WakeRef) error
	Finish(ctx context.Context, r WakeRef, seen []StreamTail) (Outcome, error)
}

// CallbackStore judges and processes callbacks.
type CallbackStore interface {
	// Callback is the transition of the same name on Consumer.
	Callback(ctx context.Context, cb Callback) (CallbackReply, error)
	// Consumer returns one consumer, or ErrNotFound.
	Consumer(ctx context.Context, id, primary string) (Consumer, error)
}

// OperatorStore shows an operator what is there. No call costs the store more than a bounded time.
type OperatorStore interface {
	// CountConsumers returns how many consumers each of some subscriptions has in each partition.
	CountConsumers(ctx context.Context, subs []Subscription) (byPartition [][]int, err error)
	// ScanConsumers walks the consumers that a subscription has in a partition, each at least once and about count at a time,
	// without their Links. It begins and ends with cursor "0".
	ScanConsumers(ctx context.Context, sub Subscription, partition int, cursor string, count int) ([]Consumer, string, error)
}

// CallbackReply is a CallbackResult as the store returns it.
type CallbackReply struct {
	Code    Code
	Path    string
	Streams []StreamTail
	// WakeID is CallbackResult's, if it is of interest to anybody.
	WakeID string
	Outcome
}

// ReplicaStore shares the work out among the replicas.
type ReplicaStore interface {
	// Ownership is what this replica works for.
	Ownership() *Ownership
	// Hint tells the other replicas something. It does not block, and a hint may get lost.
	Hint(h Hint)
}

// Hint is something that replicas tell each other so that it is acted on at once. Each of them would find it out by itself
// within seconds.
type Hint struct {
	Kind HintKind
	// Partition that a HintWatch is about.
	Partition int
	// Path of the stream.
	Path string
}

// HintKind is what a hint is about.
type HintKind string

// The kinds of hints. All are for whoever watches the stream.
const (
	// HintWatch is: consumers of a partition are subscribed to the stream now.
	HintWatch HintKind = "watch"
	// HintIdle is: a consumer of the stream has come to rest.
	HintIdle HintKind = "idle"
	// HintGone is: the stream's consumers were hidden, because upstream had no such stream a moment ago.
	HintGone HintKind = "gone"
	// HintDeleted is: a client has deleted the stream. The registry will tell of it, too.
	HintDeleted HintKind = "deleted"
	// HintRemoved is: the stream was deleted or is to be forgotten, and its consumers are removed.
	HintRemoved HintKind = "removed"
	// HintWritten is: a client has created or appended to the stream through a replica that stops and does not take it in.
	HintWritten HintKind = "written"
)

// Store is all of the state. Every method may return an error that wraps ErrUnavailable.
type Store interface {
	SubscriptionStore
	StreamStore
	DeliveryStore
	CallbackStore
	OperatorStore
	ReplicaStore
	// Ping returns nil if the store answers.
	Ping(ctx context.Context) error
}

// Upstream asks the stream server.
type Upstream interface {
	// Head returns a stream's metadata. Equal requests at the same time may share one answer, which can then be from a
	// moment before the call.
	Head(ctx context.Context, path string) (StreamInfo, error)
	// HeadAnew is Head with an answer from after the call.
	HeadAnew(ctx context.Context, path string) (StreamInfo, error)
	// ParseOffset makes an Offset of what a client or the server calls one; the error wraps ErrOffset.
	ParseOffset(s string) (Offset, error)
}

// Streams is the part of the program that knows which streams exist and watches them. None of its methods blocks for
// longer than a few requests take.
type Streams interface {
	// BeforeWrite is called before a PUT or a POST goes upstream. When it returns, a stream that nobody had heard of is
	// linked at the tail it had, or remembered as one that does not exist yet, so that no crash can lose its event.
	BeforeWrite(ctx context.Context, path string)
	// Written is called after a successful PUT or POST; created says that the stream is new. It does not block.
	Written(path string, tail Offset, created bool)
	// Refused is called after a PUT or POST that did not succeed. It does not block.
	Refused(path string)
	// Deleted is called after a successful DELETE.
	Deleted(ctx context.Context, path string) error
	// Name makes streams known; those that exist upstream are linked from Start, the others are awaited.
	Name(ctx context.Context, paths []string) error
	// Forget removes streams and their consumers from what is known.
	Forget(ctx context.Context, paths []string) error
	// Subscribed is called after a subscription was created. It begins the backfill and returns when it is over or has
	// taken longer than a caller can be kept waiting.
	Subscribed(ctx context.Context, sub Subscription)
	// Watch makes sure that streams are watched in the partition of a consumer's primary stream.
	Watch(primary string, paths []string)
	// Idle says that consumers of these streams have come to rest. It does not block.
	Idle(paths []string)
	// Gone says that consumers were hidden because upstream had no such stream a moment ago. The stream is looked at, and
	// they are shown again should it be there. It does not block.
	Gone(path string)
}

// Deliverer makes delivery attempts. Deliver does not block.
type Deliverer interface {
	Deliver(wakes []Wake)
}

// Targets judges webhook URLs.
type Targets interface {
	// CheckTarget returns an error that says why wakes may not be sent to a URL, in a sentence that begins with "webhook"
	// (webhook spec, SSRF Prevention).
	CheckTarget(ctx context.Context, url string) error
}
