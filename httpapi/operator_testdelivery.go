package httpapi

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"reveille/httpapi/web"
)

// testDelivery sends a synthetic event to a subscription's endpoint, and shows the result.
func (s *Service) testDelivery(c echo.Context, id string) (any, error) {
	if err := s.bodies.Nothing(c); err != nil {
		return nil, err
	}
	t, err := s.control.Test(c.Request().Context(), id)
	// The endpoint may have taken longer than the operator port's answer may take; as in Bodies.Limit.
	_ = http.NewResponseController(c.Response()).SetWriteDeadline(time.Now().Add(operatorWriteTimeout))
	return web.TestedOf(t), err
}
