package control

import (
	"context"
	"encoding/hex"
	"errors"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/httpapi/refusal"
)

// streamTimeout bounds how long the creation or the change of a subscription waits for the metadata of the stream.
const streamTimeout = 2 * time.Second

// NoSubscription refuses an ID that no subscription has.
func NoSubscription() error {
	return refusal.New(fsm.CodeSubscriptionNotFound, "there is no subscription with this id")
}

// known makes an error of the store a refusal, if it says that there is no such subscription.
func known(err error) error {
	if errors.Is(err, fsm.ErrNotFound) {
		return NoSubscription()
	}
	return err
}

// Find returns the subscription of an ID, whichever replica created it.
func (s *Service) Find(ctx context.Context, id string) (sub fsm.Subscription, found bool, err error) {
	if err := s.View.RefreshCatalog(ctx); err != nil {
		return sub, false, err
	}
	sub, found = s.View.Subscription(ctx, id)
	return sub, found, nil
}

// mustFind is Find that refuses an ID that no subscription has.
func (s *Service) mustFind(ctx context.Context, id string) (fsm.Subscription, error) {
	sub, found, err := s.Find(ctx, id)
	if err == nil && !found {
		err = NoSubscription()
	}
	return sub, err
}

// Subscription returns the subscription of an ID.
func (s *Service) Subscription(ctx context.Context, id string) (fsm.Subscription, error) {
	if err := fsm.ValidateSubscriptionID(id); err != nil {
		return fsm.Subscription{}, refusal.New(fsm.CodeInvalidSubscriptionID, "subscription: %v", err)
	}
	return s.mustFind(ctx, id)
}

// Subscriptions returns the subscription of an ID, or all if it is empty.
func (s *Service) Subscriptions(ctx context.Context, id string) ([]fsm.Subscription, error) {
	if id != "" {
		sub, err := s.Subscription(ctx, id)
		return []fsm.Subscription{sub}, err
	}
	err := s.View.RefreshCatalog(ctx)
	all, _ := s.View.Subscriptions(ctx)
	return all, err
}

// Subscribe stores a subscription that may be new, with its own secret.
func (s *Service) Subscribe(
	ctx context.Context, sub fsm.Subscription,
) (stored fsm.Subscription, created bool, err error) {
	if !principalOf(ctx).SeesPattern(sub.Pattern) { // before anything is said of its stream
		return sub, false, refusal.New(fsm.CodeForbidden,
			"the pattern is not within the paths that this request may use")
	}
	if !s.View.seesSubscription(ctx, sub.ID) {
		if err := s.checkStream(ctx, sub); err != nil {
			return sub, false, err
		}
	}
	sub.Secret = sub.Signature.NewSecret(Random(32))
	sub.Generation = hex.EncodeToString(Random(16))
	stored, created, err = s.View.subscribe(ctx, sub)
	if created {
		s.Log.Info("subscription created", zap.String("subscription", sub.ID), zap.String("pattern", sub.Pattern))
		s.Outcomes.Subscribed(stored, true)
		s.noteSubscription(ctx, "subscription created", fsm.Subscription{}, stored)
	}
	return stored, created, err
}

// Change stores a change of a subscription that was found. The function asked may be called more than once.
func (s *Service) Change(
	ctx context.Context, named fsm.Subscription, asked func(fsm.Subscription) (fsm.Subscription, error),
) (fsm.Subscription, error) {
	if changed, err := asked(named); err == nil && !changed.Filter.Equal(named.Filter) {
		if err := s.checkStream(ctx, changed); err != nil {
			return changed, err
		}
	}
	type change struct{ was, is fsm.Subscription }
	var tried []change
	stored, err := s.View.ChangeSubscription(ctx, named.ID,
		func(now fsm.Subscription) (fsm.Subscription, error) {
			if now.Pattern != named.Pattern { // deleted since, and made anew with this one
				return now, fsm.ErrNotFound
			}
			is, err := asked(now)
			tried = append(tried, change{now, is})
			return is, err
		})
	if err != nil {
		return stored, known(err)
	}
	s.Log.Info("subscription changed", zap.String("subscription", stored.ID))
	// The last one may have found what the first one has led to, because the reply was lost.
	if last := tried[len(tried)-1]; !s.noteSubscription(ctx, "subscription changed", last.was, last.is) {
		s.noteSubscription(ctx, "subscription changed", tried[0].was, tried[0].is)
	}
	return stored, nil
}

// checkStream refuses a filter for a stream that is not JSON, if the pattern names only this stream and it exists. For
// all other streams the deliveries show it.
func (s *Service) checkStream(ctx context.Context, sub fsm.Subscription) error {
	if pattern, _ := fsm.ParsePattern(sub.Pattern); sub.Filter.IsZero() || !pattern.Literal() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, streamTimeout)
	defer cancel()
	if info, err := s.Upstream.Head(ctx, sub.Pattern); err == nil && info.NotJSON {
		return refusal.New(fsm.CodeStreamNotJSON,
			"the stream is not JSON: events and filter, which look into its events, must be left out")
	}
	return nil
}

// Delete deletes the subscription of an ID, which a face has looked for (Find). A missing one is what the client wants.
// The store is asked all the same: an earlier request may have been cut short before all of the consumers were gone.
func (s *Service) Delete(ctx context.Context, id string) error {
	sub, found := s.View.Subscription(ctx, id)
	if !found && !principalOf(ctx).SeesAll() {
		return nil
	}
	err := s.View.store.DeleteSubscription(ctx, id)
	switch {
	case !found:
	case err == nil:
		s.Log.Info("subscription deleted", zap.String("subscription", id))
		s.Outcomes.Subscribed(sub, false)
		s.noteSubscription(ctx, "subscription deleted", sub, fsm.Subscription{})
	case errors.Is(err, fsm.ErrUnavailable):
		s.Note(ctx, InPart(fsm.Change{What: "subscription deleted", Subscription: id}))
	}
	return err
}
