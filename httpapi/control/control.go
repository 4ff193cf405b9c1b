// Package control is what can be done to subscriptions and to their deliveries, whatever the dialect that asks for it.
// It knows no HTTP: a face reads what is asked for, and answers. Its refusals are for clients. It logs what was done.
package control

import (
	"context"
	"crypto/rand"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/fsm/cache"
	"reveille/fsm/router"
)

// Store is what the use cases need of the store. fsm.Store says what its methods do.
type Store interface {
	Catalog() *cache.Catalog
	RefreshCatalog(ctx context.Context) error
	ChangeSubscription(
		ctx context.Context, id string, change func(fsm.Subscription) (fsm.Subscription, error),
	) (fsm.Subscription, error)
	DeleteSubscription(ctx context.Context, id string) error
	RotateSecret(ctx context.Context, id string, r fsm.Rotation) (fsm.Subscription, error)
	ResumeSubscription(ctx context.Context, id string) (consumers int, o fsm.Outcome, err error)
	RetrySubscription(ctx context.Context, id string) (consumers int, err error)
	Partitions() int
	PartitionOf(path string) int
	Consumer(ctx context.Context, r fsm.ConsumerRef) (fsm.Consumer, error)
	CountConsumers(ctx context.Context, subs []fsm.Subscription) (byPartition [][]int, err error)
	fsm.LetterStore
	fsm.ReplayStore
	fsm.LogStore
}

// Subscriber makes subscriptions.
type Subscriber interface {
	// Subscribe stores a subscription (fsm.SubscriptionStore, CreateSubscription). If it creates one, it begins the
	// backfill. It then returns when the backfill is over, or has taken longer than a caller can wait.
	Subscribe(ctx context.Context, sub fsm.Subscription) (stored fsm.Subscription, created bool, err error)
}

// Upstream asks the stream server.
type Upstream interface {
	// Head returns a stream's metadata, newer than the call. Callers that wait at the same time may share one answer.
	Head(ctx context.Context, path string) (fsm.StreamInfo, error)
	// Locate returns where an offset lies, as a position that counts from where a read from another one shows it. It
	// may read what lies between them. It need not check whether the offset lies behind the end of the stream. The
	// error fsm.ErrOffset says that they are not such offsets of the stream, and fsm.ErrNoStream that there is no
	// stream.
	Locate(ctx context.Context, path string, from, to fsm.Offset) (fsm.Offset, error)
}

// Tester makes test deliveries.
type Tester interface {
	// Test sends a synthetic event to a subscription's endpoint, as a delivery is sent, and changes nothing. It returns
	// fsm.ErrTesting if the largest number of test deliveries is under way.
	Test(ctx context.Context, sub fsm.Subscription) (fsm.TestDelivery, error)
}

// Service has the use cases. All fields are required. It is safe for concurrent use.
type Service struct {
	Store    Store
	Streams  Subscriber
	Upstream Upstream
	Tester   Tester
	Outcomes *router.Router
	Clock    func() time.Time
	// Log gets no secret and no URL of a webhook.
	Log *zap.Logger
}

// Random returns random bytes for a secret.
func Random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails: it would end the program
	return b
}
