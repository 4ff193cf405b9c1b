package control

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/httpapi/refusal"
)

// Consents asks endpoints whether they agree to deliveries.
type Consents interface {
	// ConsentOf returns what the endpoint of a subscription has said.
	ConsentOf(sub fsm.Subscription) fsm.Consent
	// AskConsent asks the endpoint now. It returns fsm.ErrNoTurn if the endpoint was asked too often.
	AskConsent(ctx context.Context, sub fsm.Subscription) (fsm.Subscription, error)
	// GrantConsent notes the consent that came with a key. The key is used up. It returns fsm.ErrNotFound if no
	// subscription of this ID has that key now.
	GrantConsent(ctx context.Context, id, key string, rate int) (fsm.Subscription, error)
}

// Consent returns what the endpoint of a subscription has said about deliveries. It returns false if no endpoint is
// asked.
func (s *Service) Consent(sub fsm.Subscription) (fsm.Consent, bool) {
	if s.Consents == nil {
		return fsm.Consent{}, false
	}
	return s.Consents.ConsentOf(sub), true
}

// NoConsents refuses what is about consents if no endpoint is asked for one.
func NoConsents() error {
	return refusal.New(fsm.CodeNotImplemented, "endpoints are not asked for consent: REVEILLE_CONSENT is off")
}

// AskConsent asks the endpoint of a subscription for its consent now.
func (s *Service) AskConsent(ctx context.Context, id string) (fsm.Consent, error) {
	sub, found, err := s.Find(ctx, id)
	switch {
	case err != nil:
		return fsm.Consent{}, err
	case !found:
		return fsm.Consent{}, NoSubscription()
	case s.Consents == nil:
		return fsm.Consent{}, NoConsents()
	}
	sub, err = s.Consents.AskConsent(ctx, sub)
	if errors.Is(err, fsm.ErrNoTurn) {
		return fsm.Consent{}, refusal.New(fsm.CodeTooManyRequests, "%v; try again", err)
	}
	if err != nil {
		return fsm.Consent{}, known(err)
	}
	s.Did(ctx, fsm.Change{What: "consent asked for", Subscription: id}, zap.String("subscription", id))
	return s.Consents.ConsentOf(sub), nil
}
