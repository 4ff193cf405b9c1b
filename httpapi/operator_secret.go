package httpapi

import (
	"time"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/fields"
)

type rotatedSecret struct {
	Secret string `json:"webhook_secret"`
	// PreviousSignsUntil is left out without an overlap.
	PreviousSignsUntil time.Time `json:"previous_signs_until,omitzero"`
}

// rotateSecret gives a subscription a new secret, and shows it this once.
func (s *Service) rotateSecret(c echo.Context, id string) (any, error) {
	sub, err := s.rotate(c, id)
	return rotatedSecret{sub.Secret, sub.Previous.Until.UTC()}, err
}

func (s *Service) rotate(c echo.Context, id string) (fsm.Subscription, error) {
	o, err := s.bodies.Maybe(c)
	if err != nil {
		return fsm.Subscription{}, err
	}
	r, err := fields.ReadRotation(o)
	if err != nil {
		return fsm.Subscription{}, err
	}
	return s.control.Rotate(c.Request().Context(), id, r)
}
