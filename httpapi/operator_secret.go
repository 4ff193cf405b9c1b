package httpapi

import (
	"time"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/control"
	"reveille/httpapi/web"
)

// maxOverlap is the longest time that the previous secret goes on signing after a rotation.
const maxOverlap = 7 * 24 * time.Hour

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
	r, err := s.readRotation(c)
	if err != nil {
		return fsm.Subscription{}, err
	}
	return s.control.Rotate(c.Request().Context(), id, r)
}

// readRotation reads the body, which may be missing.
func (s *Service) readRotation(c echo.Context) (r fsm.Rotation, err error) {
	r = fsm.Rotation{Random: control.Random(32), Overlap: fsm.RotationOverlap}
	if c.Request().ContentLength == 0 {
		return r, nil
	}
	s.bodies.Limit(c)
	o, err := s.bodies.Object(c)
	if err != nil {
		return r, err
	}
	overlap, named, err := readDuration(o, "overlap", 0, maxOverlap)
	if err != nil {
		return r, err
	}
	if named {
		r.Overlap = overlap
	}
	if r.KeepPrevious, _, err = web.Optional[bool](o, "keep_previous", "true or false"); err != nil {
		return r, err
	}
	return r, o.Only("overlap", "keep_previous")
}
