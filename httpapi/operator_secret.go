package httpapi

import (
	"slices"
	"time"

	"github.com/labstack/echo/v4"
	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/httpapi/refusal"
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
func (s *Service) rotateSecret(c echo.Context, id string) (any, []zap.Field, error) {
	sub, fields, err := s.rotate(c, id)
	return rotatedSecret{sub.Secret, sub.Previous.Until.UTC()}, fields, err
}

func (s *Service) rotate(c echo.Context, id string) (rotated fsm.Subscription, fields []zap.Field, err error) {
	ctx := c.Request().Context()
	r, err := s.readRotation(c)
	if err != nil {
		return rotated, nil, err
	}
	if err := s.cfg.Store.RefreshCatalog(ctx); err != nil {
		return rotated, nil, err
	}
	if sub, ok := s.cfg.Store.Catalog().Get(id); ok && !slices.Contains(fsm.Signatures, sub.Signature) {
		return rotated, nil, refusal.New(fsm.CodeNotImplemented,
			"this version does not know the signature scheme %q of the subscription",
			web.Clipped(string(sub.Signature)))
	}
	rotated, err = s.cfg.Store.RotateSecret(ctx, id, r)
	return rotated, []zap.Field{zap.Duration("overlap", r.Overlap)}, err
}

// readRotation reads the body, which may be missing.
func (s *Service) readRotation(c echo.Context) (r fsm.Rotation, err error) {
	r = fsm.Rotation{Random: random(32), Overlap: fsm.RotationOverlap}
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
