package control

import (
	"context"
	"errors"
	"slices"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/httpapi/refusal"
)

// Pause stops new delivery attempts of a subscription until it is resumed. It returns how many consumers it has.
func (s *Service) Pause(ctx context.Context, id string) (consumers int, err error) {
	sub, err := s.View.ChangeSubscription(ctx, id, func(now fsm.Subscription) (fsm.Subscription, error) {
		now.Paused = true
		return now, nil
	})
	if err != nil {
		return 0, known(err)
	}
	counts, err := s.View.CountConsumers(ctx, []fsm.Subscription{sub})
	if err != nil {
		s.Note(ctx, fsm.Change{What: "subscription paused", Subscription: id}) // it is
		return 0, known(err)
	}
	for _, n := range counts[0] {
		consumers += n
	}
	return s.done(ctx, "subscription paused", id, consumers, nil)
}

// done notes what was done to the consumers of a subscription. An error may have come after some.
func (s *Service) done(ctx context.Context, did, id string, consumers int, err error) (int, error) {
	switch {
	case err == nil || consumers > 0:
		s.Did(ctx, fsm.Change{What: did, Subscription: id, Count: consumers},
			zap.String("subscription", id), zap.Int("consumers", consumers))
	case errors.Is(err, fsm.ErrUnavailable):
		s.Note(ctx, InPart(fsm.Change{What: did, Subscription: id}))
	}
	return consumers, known(err)
}

// Resume ends a pause. It also delivers again to an endpoint that answered 410, and to consumers that were given up. It
// returns how many consumers waited for that.
func (s *Service) Resume(ctx context.Context, id string) (consumers int, err error) {
	if _, err := s.mustFind(ctx, id); err != nil {
		return 0, err
	}
	n, out, err := s.View.store.ResumeSubscription(ctx, id)
	s.Outcomes.Follow(out, fsm.Sighting{}) // an error may have come after some were resumed
	return s.done(ctx, "subscription resumed", id, n, err)
}

// Retry makes the deliveries of a subscription that wait for a later attempt due now, and returns how many.
func (s *Service) Retry(ctx context.Context, id string) (consumers int, err error) {
	if _, err := s.mustFind(ctx, id); err != nil {
		return 0, err
	}
	n, err := s.View.store.RetrySubscription(ctx, id)
	return s.done(ctx, "subscription retried", id, n, err)
}

// Paused says whether the subscription of a consumer is paused.
func (s *Service) Paused(ctx context.Context, c fsm.Consumer) bool {
	sub, ok := s.View.Subscription(ctx, c.Subscription)
	return ok && sub.Generation == c.Generation && sub.Paused
}

// Rotate gives a subscription a new secret.
func (s *Service) Rotate(ctx context.Context, id string, r fsm.Rotation) (fsm.Subscription, error) {
	sub, err := s.mustFind(ctx, id)
	if err != nil {
		return sub, err
	}
	if !slices.Contains(fsm.Signatures, sub.Signature) {
		return sub, refusal.New(fsm.CodeNotImplemented,
			"this version does not know the signature scheme %q of the subscription",
			refusal.Clipped(string(sub.Signature)))
	}
	rotated, err := s.View.store.RotateSecret(ctx, id, r)
	if err != nil {
		return rotated, known(err)
	}
	s.Did(ctx, fsm.Change{What: "secret rotated", Subscription: id},
		zap.String("subscription", id), zap.Duration("overlap", r.Overlap))
	return rotated, nil
}

// Test sends a synthetic event to a subscription's endpoint.
func (s *Service) Test(ctx context.Context, id string) (t fsm.TestDelivery, err error) {
	sub, err := s.mustFind(ctx, id)
	if err != nil {
		return t, err
	}
	t, err = s.Tester.Test(ctx, sub)
	switch {
	case errors.Is(err, fsm.ErrTesting):
		return t, refusal.New(fsm.CodeTooManyRequests, "this replica has a test delivery of this subscription under "+
			"way, or many of others; try again")
	case err != nil:
		return t, known(err)
	}
	s.Did(ctx, fsm.Change{What: "test delivery", Subscription: id},
		zap.String("subscription", id), zap.Int("status", t.Status), zap.String("reason", t.Failure))
	return t, nil
}
