package operator

import (
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/fields"
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
		return web.Answer(c, http.StatusOK, body, err)
	}
}

// doneToConsumers says to how many consumers of a subscription something was done.
type doneToConsumers struct {
	ID        string `json:"subscription_id"`
	Consumers int    `json:"consumers"`
}

// onConsumers handles a request without fields that does something to the consumers of a subscription. The function do
// returns their number.
func (f *Face) onConsumers(do func(ctx context.Context, id string) (int, error)) echo.HandlerFunc {
	return onSubscription(func(c echo.Context, id string) (any, error) {
		if err := f.Bodies.Nothing(c); err != nil {
			return nil, err
		}
		n, err := do(c.Request().Context(), id)
		return doneToConsumers{id, n}, err
	})
}

type rotatedSecret struct {
	Secret string `json:"webhook_secret"`
	// PreviousSignsUntil is left out without an overlap.
	PreviousSignsUntil time.Time `json:"previous_signs_until,omitzero"`
}

// rotateSecret gives a subscription a new secret, and shows it this once.
func (f *Face) rotateSecret(c echo.Context, id string) (any, error) {
	r, err := fields.ReadRotation(c, f.Bodies)
	if err != nil {
		return nil, err
	}
	sub, err := f.Control.Rotate(c.Request().Context(), id, r)
	return rotatedSecret{sub.Secret, sub.Previous.Until.UTC()}, err
}

type consentNow struct {
	ID      string         `json:"subscription_id"`
	Consent fields.Consent `json:"consent"`
}

// askConsent asks a subscription's endpoint for its consent, and shows what came of it.
func (f *Face) askConsent(c echo.Context, id string) (any, error) {
	if err := f.Bodies.Nothing(c); err != nil {
		return nil, err
	}
	consent, err := f.Control.AskConsent(c.Request().Context(), id)
	return consentNow{id, fields.ConsentOf(consent)}, err
}

// testDelivery sends a synthetic event to a subscription's endpoint, and shows the result.
func (f *Face) testDelivery(c echo.Context, id string) (any, error) {
	if err := f.Bodies.Nothing(c); err != nil {
		return nil, err
	}
	t, err := f.Control.Test(c.Request().Context(), id)
	// The endpoint may have taken longer than the operator port's answer may take; as in Bodies.Limit.
	_ = http.NewResponseController(c.Response()).SetWriteDeadline(time.Now().Add(f.WriteTimeout))
	return web.TestedOf(t), err
}
