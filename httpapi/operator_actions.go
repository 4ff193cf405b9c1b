package httpapi

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"
	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// onSubscription handles an operator's request that does something to one subscription. The function do reads the body,
// and returns the answer.
func onSubscription(do func(c echo.Context, id string) (body any, err error)) echo.HandlerFunc {
	return func(c echo.Context) error {
		id := c.Param("id")
		if err := fsm.ValidateSubscriptionID(id); err != nil {
			return refusal.New(fsm.CodeInvalidSubscriptionID, "%v", err)
		}
		body, err := do(c, id)
		if err != nil {
			return err
		}
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
	return onSubscription(func(c echo.Context, id string) (any, error) {
		if err := s.bodies.Nothing(c); err != nil {
			return nil, err
		}
		n, err := do(c.Request().Context(), id)
		if err == nil {
			s.log.Info(did, zap.String("subscription", id), zap.Int("consumers", n))
		}
		return doneToConsumers{id, n}, err
	})
}
