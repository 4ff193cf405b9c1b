package dispatcher

import (
	"context"
	"time"

	"reveille/fsm"
	"reveille/fsm/cache"
)

// Store is what the dispatcher uses of the state.
type Store interface {
	DeliveryStore
	EndpointStore
	// TakeTurns is the transition of the same name.
	TakeTurns(ctx context.Context, limits []fsm.Limit, most int) (fsm.Turns, error)
	PartitionOf(home string) int
	// Ownership is what this replica works for.
	Ownership() *cache.Ownership
	// Catalog is this replica's view of the subscriptions; the store keeps it up to date.
	Catalog() *cache.Catalog
	RefreshCatalog(ctx context.Context) error
	// ChangeConsent stores what change returns as the Consent of a subscription, and returns the subscription as it is
	// then. It tells no client, so the subscription is not Told by it. The function change gets the consent and the
	// time. If another change came in between, change is called again. If it fails, its error is returned as it is and
	// nothing is stored. Another Generation or Webhook is fsm.ErrNotFound.
	ChangeConsent(
		ctx context.Context, sub fsm.Subscription, change func(was fsm.Consent, now time.Time) (fsm.Consent, error),
	) (fsm.Subscription, error)
	// TakeEvent says whether an attempt is to send an event that was handed over, and notes that it does. It is not if
	// the attempt is not out any more, if the event is over, or if another consumer brings it.
	TakeEvent(ctx context.Context, r fsm.DeliveryRef, e fsm.OutboxEvent, replay bool) (deliver bool, err error)
	// RetireSubscription notes that the endpoint of a subscription has answered 410. Another Generation or Webhook is
	// fsm.ErrNotFound.
	RetireSubscription(ctx context.Context, sub fsm.Subscription) error
	// DisableSubscription pauses a subscription whose endpoint has failed for its DisableAfter (DisabledAs).
	DisableSubscription(ctx context.Context, sub fsm.Subscription) error
}

// DeliveryStore drives the deliveries.
type DeliveryStore interface {
	// Due acts on the deadlines of a partition that have passed, at most limit of them, and returns their number.
	Due(ctx context.Context, partition, limit int) (o fsm.Outcome, n int, err error)
	// NextDue returns, for each of the partitions, the time until its next deadline. The time is negative if there is
	// no deadline, or if the partition could not be asked. The error comes from one such partition; the deadlines of
	// the others are good.
	NextDue(ctx context.Context, partitions []int) ([]time.Duration, error)
	// Fail, Park, Begin, Accept, Finish and Deliver are the transitions of the same name (fsm/spec).
	Fail(ctx context.Context, r fsm.DeliveryRef, f fsm.Failure) (fsm.Outcome, error)
	Park(ctx context.Context, r fsm.DeliveryRef, why fsm.BlockReason, wait time.Duration) (fsm.Outcome, error)
	Begin(ctx context.Context, r fsm.DeliveryRef, by string) (fsm.Outcome, error)
	Accept(ctx context.Context, r fsm.DeliveryRef) (fsm.Outcome, error)
	Finish(ctx context.Context, r fsm.DeliveryRef, seen []fsm.StreamTail) (fsm.Outcome, error)
	Deliver(ctx context.Context, r fsm.DeliveryRef, d fsm.Delivered) (fsm.Outcome, error)
	// ReleaseHeld makes the transition of the same name on all consumers of a subscription, as a reason to wait has
	// ended. An error may come after some transitions were made.
	ReleaseHeld(ctx context.Context, sub fsm.Subscription, ended fsm.BlockReason) (fsm.Outcome, error)
}

// EndpointStore keeps which endpoints are in trouble, until their subscription is deleted, and until when origins are
// left alone.
type EndpointStore interface {
	// Endpoints is this replica's view of them. The store updates it with the answers to its own calls at once, and
	// with the changes of other replicas within about a second.
	Endpoints() *cache.Endpoints
	// FailEndpoint, RecoverEndpoint and ReturnProbe are the transitions of the same name. The result changed says
	// whether the endpoint went down by this call, or is not down any more since. FailEndpoint is PauseOrigin, too.
	FailEndpoint(ctx context.Context, sub fsm.Subscription, f fsm.EndpointFailure) (changed bool, err error)
	RecoverEndpoint(ctx context.Context, sub fsm.Subscription) (changed bool, err error)
	ReturnProbe(ctx context.Context, sub fsm.Subscription, slot time.Time, sent bool) error
	// LongestWaiting returns the wake of a subscription whose next attempt has waited for longest, and since when it
	// waits. It considers only waits that began after a time. Where it looks, a wake without a failure comes before the
	// others. The result ok is false if no wake waits, or if none was found among the many of other subscriptions.
	LongestWaiting(
		ctx context.Context, sub fsm.Subscription, after time.Time,
	) (r fsm.DeliveryRef, since time.Time, ok bool, err error)
	// ProbeDelivery is the transition Probe, unless the consumer is in another wake. It says whether an attempt
	// has waited.
	ProbeDelivery(ctx context.Context, r fsm.DeliveryRef) (waited bool, err error)
	// ProbeEndpoint is the transition of the same name.
	ProbeEndpoint(ctx context.Context, sub fsm.Subscription, patience time.Duration) (fsm.Probe, error)
}
