package httpapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"
	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// onSubscription handles an operator's request that does something to one subscription. The function do reads the body,
// and returns the answer and the fields of the log line. It returns fsm.ErrNotFound if there is no such subscription.
func (s *Service) onSubscription(
	did string, do func(c echo.Context, id string) (body any, fields []zap.Field, err error),
) echo.HandlerFunc {
	return func(c echo.Context) error {
		id := c.Param("id")
		if err := fsm.ValidateSubscriptionID(id); err != nil {
			return refusal.New(fsm.CodeInvalidSubscriptionID, "%v", err)
		}
		body, fields, err := do(c, id)
		if errors.Is(err, fsm.ErrNotFound) {
			return noSubscription()
		} else if err != nil {
			return err
		}
		s.log.Info(did, append([]zap.Field{zap.String("subscription", id)}, fields...)...)
		web.WriteJSON(c.Response(), http.StatusOK, body)
		return nil
	}
}

// doneToConsumers says to how many consumers of a subscription something was done.
type doneToConsumers struct {
	ID        string `json:"subscription_id"`
	Consumers int    `json:"consumers"`
}

// onConsumers handles a request without fields that does something to the consumers of a subscription. The function do
// returns their number.
func (s *Service) onConsumers(did string, do func(ctx context.Context, id string) (int, error)) echo.HandlerFunc {
	return s.onSubscription(did, func(c echo.Context, id string) (any, []zap.Field, error) {
		if err := s.bodies.Nothing(c); err != nil {
			return nil, nil, err
		}
		n, err := do(c.Request().Context(), id)
		return doneToConsumers{id, n}, []zap.Field{zap.Int("consumers", n)}, err
	})
}

// pause stops new delivery attempts of a subscription until it is resumed. It returns how many consumers it has.
func (s *Service) pause(ctx context.Context, id string) (consumers int, err error) {
	sub, err := s.cfg.Store.ChangeSubscription(ctx, id, func(now fsm.Subscription) (fsm.Subscription, error) {
		now.Paused = true
		return now, nil
	})
	if err != nil {
		return 0, err
	}
	counts, err := s.cfg.Store.CountConsumers(ctx, []fsm.Subscription{sub})
	if err != nil {
		return 0, err
	}
	for _, n := range counts[0] {
		consumers += n
	}
	return consumers, nil
}

// resume ends a pause. It also delivers again to an endpoint that answered 410, and to consumers that were given up. It
// returns how many consumers waited for that.
func (s *Service) resume(ctx context.Context, id string) (consumers int, err error) {
	n, out, err := s.cfg.Store.ResumeSubscription(ctx, id)
	s.cfg.Outcomes.Follow(out, fsm.Sighting{}) // an error may have come after some were resumed
	return n, err
}

// paused says whether the subscription of a consumer is paused.
func (s *Service) paused(c fsm.Consumer) bool {
	sub, ok := s.cfg.Store.Catalog().Get(c.Subscription)
	return ok && sub.Generation == c.Generation && sub.Paused
}
