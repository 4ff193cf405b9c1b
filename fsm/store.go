package fsm

import "context"

// SubscriptionStore keeps the subscriptions.
type SubscriptionStore interface {
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

// PartitionStore says which partitions there are.
type PartitionStore interface {
	// Partitions is the number of partitions, numbered from 0. PartitionOf is the partition of the consumers with a
	// home (ConsumerRef), and of the record of a stream with this path.
	Partitions() int
	PartitionOf(home string) int
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

// Store is what the ports use of the state. tailer, tailer/discovery and dispatcher each declare what they use. Every
// method of a store may return an error that wraps ErrUnavailable.
type Store interface {
	SubscriptionStore
	PartitionStore
	LetterStore
	ReplayStore
	LogStore
	CallbackStore
	OperatorStore
	// Ping returns nil if the store answers.
	Ping(ctx context.Context) error
}

// AllPartitions returns the numbers of n partitions.
func AllPartitions(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
