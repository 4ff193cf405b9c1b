package control

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"reveille/fsm"
	"reveille/httpapi/refusal"
)

// Rebuilder builds the requests of attempts again.
type Rebuilder interface {
	// Rebuild builds the request of a logged attempt of a subscription again, and sends nothing. born is the Born of
	// the consumer that the subscription has for the stream now; it counts only for a push. The error is an
	// *fsm.NotRebuiltError that says why it cannot be built now, or that of the context.
	Rebuild(ctx context.Context, sub fsm.Subscription, born int64, a fsm.LoggedAttempt) (fsm.SentRequest, error)
}

// Request returns the request of an attempt of a delivery, and the attempt. It is the one with the given log ID, or the
// latest one if that is empty. The events come from their stream.
func (s *Service) Request(
	ctx context.Context, id, delivery, attempt string,
) (r fsm.SentRequest, a fsm.LoggedAttempt, err error) {
	sub, err := s.Subscription(ctx, id)
	if err != nil {
		return r, a, err
	}
	if a, err = s.loggedAttempt(ctx, sub, delivery, attempt); err != nil {
		return r, a, err
	}
	born := int64(0)
	if sub.Mode == fsm.ModePush {
		consumer, err := s.View.Consumer(ctx, fsm.RefOf(sub.ID, a.Stream))
		switch {
		case errors.Is(err, fsm.ErrNotFound):
			return r, a, refusal.New(fsm.CodeEventsGone,
				"the subscription has no consumer of the stream any more: the stream was deleted, or is not known")
		case err != nil:
			return r, a, err
		}
		born = consumer.Born
	}
	r, err = s.Rebuilder.Rebuild(ctx, sub, born, a)
	if not := new(fsm.NotRebuiltError); errors.As(err, &not) {
		err = refusal.New(not.Code, "%s", not.Why)
	}
	return r, a, err
}

// loggedAttempt finds an attempt in the delivery log. Of a wake, the principal must see every stream that it names.
func (s *Service) loggedAttempt(
	ctx context.Context, sub fsm.Subscription, delivery, attempt string,
) (found fsm.LoggedAttempt, err error) {
	err = s.ListAttempts(ctx, []fsm.Subscription{sub}, fsm.LoggedAttempt{}, time.Time{},
		func(a fsm.LoggedAttempt) bool {
			if a.DeliveryID == delivery && a.ID == cmp.Or(attempt, a.ID) {
				found = a
			}
			return found.ID == ""
		})
	sees := principalOf(ctx).Sees
	hidden := !sees(found.Stream) || slices.ContainsFunc(found.Extent.Streams, func(s fsm.WokenStream) bool {
		return !sees(s.Path)
	})
	if err == nil && (found.ID == "" || hidden) {
		err = refusal.New(fsm.CodeNotFound, "the delivery log has no such attempt of this delivery (any more)")
	}
	return found, err
}
