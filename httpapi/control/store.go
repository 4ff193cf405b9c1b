package control

import (
	"context"
	"time"

	"reveille/fsm"
	"reveille/fsm/cache"
)

// Store is what the ports use of the state. View and Service are the only way of the faces to it. Every method may
// return an error that wraps fsm.ErrUnavailable.
type Store interface {
	wholeStore
	foundStore
	LetterStore
	ReplayStore
	AuditStore
	// Catalog is this replica's view of the subscriptions; the store keeps it up to date.
	Catalog() *cache.Catalog
	// ChangeSubscription stores what change returns, and returns it as stored. It is then Told, and in the list from
	// the list's next version on. The function change may alter what SameConfig compares, except Pattern and Mode. It
	// may also alter Paused and the secrets. If another change came in between, change is called again. If it fails,
	// its error is returned as it is and nothing is stored. A previous secret that does not sign any more is dropped
	// with the next change. An unknown ID is fsm.ErrNotFound.
	ChangeSubscription(
		ctx context.Context, id string, change func(fsm.Subscription) (fsm.Subscription, error),
	) (fsm.Subscription, error)
	// BackfillsOf returns the backfills under way of some subscriptions, by their IDs.
	BackfillsOf(ctx context.Context, ids []string) (map[string]fsm.Backfill, error)
	// Consumer returns one consumer, or fsm.ErrNotFound.
	Consumer(ctx context.Context, r fsm.ConsumerRef) (fsm.Consumer, error)
	// ScanStreams walks the records of a partition, each at least once. It begins and ends with cursor "0".
	ScanStreams(ctx context.Context, partition int, cursor string) ([]fsm.Stream, string, error)
	// WatchedSince returns the streams of a partition that came to be watched after seq, in order.
	WatchedSince(ctx context.Context, partition int, seq int64) ([]fsm.Watched, error)

	// The rest is for Service alone: once it has found the subscription, the principal sees it.

	// RotateSecret is ChangeSubscription by Rotate.
	RotateSecret(ctx context.Context, id string, r fsm.Rotation) (fsm.Subscription, error)
	// DeleteSubscription removes a subscription and all of its consumers. Callbacks find the consumers gone as soon as
	// it returns. An unknown ID is no error.
	DeleteSubscription(ctx context.Context, id string) error
	// ResumeSubscription resumes deliveries: it ends Paused, and then makes the transition Resume on all consumers of
	// the subscription. It returns how many consumers this changed, and fsm.ErrNotFound for an unknown ID. An error may
	// come after some were resumed.
	ResumeSubscription(ctx context.Context, id string) (consumers int, o fsm.Outcome, err error)
	// RetrySubscription makes the transition RetryEndpoint, then Retry on all consumers of the subscription. It returns
	// how many consumers had a waiting attempt, and fsm.ErrNotFound for an unknown ID. An error may come after some
	// transitions were made.
	RetrySubscription(ctx context.Context, id string) (consumers int, err error)
}

// wholeStore has what belongs to no principal.
type wholeStore interface {
	fsm.PartitionStore
	// RefreshCatalog reads the subscriptions anew if they have changed.
	RefreshCatalog(ctx context.Context) error
	// Endpoints is this replica's view of the endpoints in trouble.
	Endpoints() *cache.Endpoints
	// Ownership is what this replica works for.
	Ownership() *cache.Ownership
	// CountPending returns the sums of Tally.Pending and Tally.WaitingSince over all subscriptions, and over those
	// whose consumers are being removed.
	CountPending(ctx context.Context) (pending int, waiting time.Time, err error)
	// LatestLogs returns the IDs of the subscriptions whose delivery logs have the latest entries, the latest first.
	// All of these entries were stored since a time, unless it is zero. The largest number of IDs is most. If there are
	// more, next is when the latest entry of the next log was stored, in milliseconds since 1970, otherwise 0. An entry
	// that a crash has kept from being noted counts some minutes later.
	LatestLogs(ctx context.Context, since time.Time, most int) (ids []string, next int64, err error)
	// AllCountedAttempts is CountedAttempts of all subscriptions together, also of those that are deleted.
	AllCountedAttempts(ctx context.Context) (fsm.AttemptCounts, error)
}

// foundStore has what is asked about subscriptions that the principal has found, and so sees. No call keeps the store
// from its other work for long.
type foundStore interface {
	// CountConsumers returns how many consumers each of some subscriptions has in each partition.
	CountConsumers(ctx context.Context, subs []fsm.Subscription) (byPartition [][]int, err error)
	// TallyConsumers counts the consumers of some subscriptions, in the order of subs: none is left out without an
	// error. It looks at no more than 20,000 consumers, by some 5 µs each: at all that are not idle, or are failing or
	// hidden, or else at those of the first subscriptions. A subscription for which that is too few gets a Partial
	// tally. It looks at few consumers of a partition at a time. If there are more, a consumer that changes meanwhile
	// may count in the state before, the one after, both or neither. All others are counted once. For a deleted
	// subscription it counts none.
	TallyConsumers(ctx context.Context, subs []fsm.Subscription) ([]fsm.Tally, error)
	// ScanConsumers walks the consumers that a subscription has in a partition, without their Links. It returns each at
	// least once, and about count at a time. It begins and ends with cursor "0".
	ScanConsumers(
		ctx context.Context, sub fsm.Subscription, partition int, cursor string, count int,
	) ([]fsm.Consumer, string, error)
	// RetryDelivery makes the transition RetryEndpoint, then Retry on one consumer of the subscription. It makes none
	// if that consumer is in another wake. It says whether an attempt has waited.
	RetryDelivery(ctx context.Context, sub fsm.Subscription, r fsm.DeliveryRef) (waited bool, err error)
	// Rewind makes the transition Rewind on one consumer of the subscription. It returns what was acked before; empty
	// if the call was repeated because its reply was lost. fsm.ErrNotFound says that the consumer is gone, or in
	// quarantine. fsm.ErrNotBefore says that it has no such stream, or has acked nothing behind the offset.
	Rewind(
		ctx context.Context, sub fsm.Subscription, r fsm.ConsumerRef, path string, to fsm.Offset,
	) (from fsm.Offset, o fsm.Outcome, err error)
	// LoggedAttempts returns, for each of some places, the latest entries before it, the latest first. The largest
	// number of entries for a place is most. A log is kept until its subscription is deleted.
	LoggedAttempts(ctx context.Context, places []fsm.LogPlace, most int) ([][]fsm.LoggedAttempt, error)
	// CountedAttempts returns what is counted of the attempts of a subscription. An attempt is counted once. It is
	// missing for about a second, until Redis answers, or for good if its process dies meanwhile.
	CountedAttempts(ctx context.Context, sub fsm.Subscription) (fsm.AttemptCounts, error)
}

// LetterStore keeps dead letters, in the partitions of their consumers.
type LetterStore interface {
	// DeadLetters returns the first letters of a span, in the order in which they came. The largest number of letters
	// is most. It ignores the span's Stream.
	DeadLetters(ctx context.Context, span fsm.LetterSpan, most int) ([]fsm.DeadLetter, error)
	// DropDeadLetters drops the last letters of a span. It looks at no more letters than most says. It begins at the
	// end, so that no replay begins of a letter that is about to be dropped. Their replays go with them: if one is
	// under way, the attempt that is out is the last. If a call is carried out twice because its reply was lost, it
	// returns what the second has dropped.
	DropDeadLetters(ctx context.Context, span fsm.LetterSpan, most int) (fsm.LetterWork, fsm.Outcome, error)
	// LettersOf counts the letters of each partition, and those of the subscriptions with some IDs.
	LettersOf(ctx context.Context, ids []string) (byPartition []fsm.LetterCounts, err error)
}

// ReplayStore delivers events again that were delivered before, or are dead. The replays of a consumer of ModePush wait
// in its queue. They run one after the other, in the order of their numbers, beside the deliveries of new events.
type ReplayStore interface {
	// ReplayDeadLetters queues the first letters of a span for their replay. It looks at no more letters than most
	// says. A letter is kept until its replay is over; events that are dead then leave another letter. A letter whose
	// replay was asked for before counts as Done, and is replayed once.
	ReplayDeadLetters(ctx context.Context, span fsm.LetterSpan, most int) (fsm.LetterWork, fsm.Outcome, error)
	// ReplaySpan queues a span of a consumer's stream for its replay, and returns the number that names it. A span that
	// waits already is replayed once. fsm.ErrNotFound says that the consumer is gone, or has another Born.
	// fsm.ErrTooManyReplays says that it has MaxReplaySpans.
	ReplaySpan(
		ctx context.Context, r fsm.ConsumerRef, born int64, span fsm.ReplaySpan,
	) (int64, fsm.Outcome, error)
	// ReplayQueues returns the queues of the consumers in a partition that have something to replay, no more than most
	// says. They come in the order of the consumers' IDs, behind the ID after. A subscription's ID limits them to that
	// subscription, unless it is empty.
	ReplayQueues(
		ctx context.Context, partition int, subscription, after string, most int,
	) ([]fsm.ReplayQueue, error)
	// CancelReplays empties the queue of a consumer and returns how many replays were in it. If a replay is under way,
	// the attempt that is out is its last. Dead letters stay.
	CancelReplays(ctx context.Context, r fsm.ConsumerRef) (int, fsm.Outcome, error)
}
