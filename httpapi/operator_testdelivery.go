package httpapi

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
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
func (s *Service) testDelivery(c echo.Context, id string) (any, error) {
	if err := s.bodies.Nothing(c); err != nil {
		return nil, err
	}
	t, err := s.control.Test(c.Request().Context(), id)
	// The endpoint may have taken longer than the operator port's answer may take; as in Bodies.Limit.
	_ = http.NewResponseController(c.Response()).SetWriteDeadline(time.Now().Add(operatorWriteTimeout))
	return testedBody{
		Success: t.Failure == "", StatusCode: t.Status, ResponseTimeMS: t.Took.Milliseconds(),
		ResponseBody: string(t.Body), Error: t.Failure,
	}, err
}
