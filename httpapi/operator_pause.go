package httpapi

import (
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"
	"go.uber.org/zap"

	"reveille/fsm"
)

// pauseBody says what was paused: all consumers that the subscription has.
type pauseBody struct {
	ID        string `json:"subscription_id"`
	Consumers int    `json:"consumers"`
}

// pause has no delivery attempt of a subscription begin until it is resumed.
func (s *Service) pause(c echo.Context) error {
	ctx, id := c.Request().Context(), c.Param("id")
	if err := fsm.ValidateSubscriptionID(id); err != nil {
		return refuse(fsm.CodeInvalidSubscriptionID, "%v", err)
	}
	if err := s.readNothing(c); err != nil {
		return err
	}
	before := false
	sub, err := s.cfg.Store.ChangeSubscription(ctx, id, func(now fsm.Subscription) (fsm.Subscription, error) {
		before, now.Paused = now.Paused, true
		return now, nil
	})
	if errors.Is(err, fsm.ErrNotFound) {
		return noSubscription()
	} else if err != nil {
		return err
	}
	if !before {
		s.log.Info("subscription paused", zap.String("subscription", id))
	}
	counts, err := s.cfg.Store.CountConsumers(ctx, []fsm.Subscription{sub})
	if err != nil {
		return err
	}
	body := pauseBody{ID: id}
	for _, n := range counts[0] {
		body.Consumers += n
	}
	writeJSON(c.Response(), http.StatusOK, body)
	return nil
}

// paused says whether the subscription of a consumer is paused.
func (s *Service) paused(c fsm.Consumer) bool {
	sub, ok := s.cfg.Store.Catalog().Get(c.Subscription)
	return ok && sub.Generation == c.Generation && sub.Paused
}
