package httpapi

import (
	"errors"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/httpapi/refusal"
)

// testedBody is the result of a test delivery.
type testedBody struct {
	Success bool `json:"success"`
	// StatusCode is 0 without an answer of the endpoint.
	StatusCode     int    `json:"status_code"`
	ResponseTimeMS int64  `json:"response_time_ms"`
	ResponseBody   string `json:"response_body"`
	Error          string `json:"error,omitempty"`
}

// testDelivery sends a synthetic event to a subscription's endpoint, and shows the result.
func (s *Service) testDelivery(c echo.Context, id string) (any, []zap.Field, error) {
	ctx := c.Request().Context()
	if err := s.bodies.Nothing(c); err != nil {
		return nil, nil, err
	}
	if err := s.cfg.Store.RefreshCatalog(ctx); err != nil {
		return nil, nil, err
	}
	sub, found := s.cfg.Store.Catalog().Get(id)
	if !found {
		return nil, nil, fsm.ErrNotFound
	}
	t, err := s.cfg.Tester.Test(ctx, sub)
	// The endpoint may have taken longer than the operator port's answer may take; as in limitBody.
	_ = http.NewResponseController(c.Response()).SetWriteDeadline(time.Now().Add(operatorWriteTimeout))
	if errors.Is(err, fsm.ErrTesting) {
		return nil, nil, refusal.New(fsm.CodeTooManyRequests,
			"this replica has a test delivery of this subscription under "+
				"way, or many of others; try again")
	}
	return testedBody{
		Success: t.Failure == "", StatusCode: t.Status, ResponseTimeMS: t.Took.Milliseconds(),
		ResponseBody: string(t.Body), Error: t.Failure,
	}, []zap.Field{zap.Int("status", t.Status), zap.String("reason", t.Failure)}, err
}
