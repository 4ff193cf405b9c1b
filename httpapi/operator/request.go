package operator

import (
	"context"
	"encoding/base64"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/paging"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// RequestBody is the request of an attempt as an operator sees it.
type RequestBody struct {
	Subscription string `json:"subscription_id"`
	// Delivery is the ID of the delivery, or of the wake. ID names the attempt.
	Delivery string `json:"delivery_id"`
	ID       string `json:"id"`
	Attempt  int    `json:"attempt"`
	// SentAt is when the request was sent.
	SentAt time.Time `json:"sent_at"`
	Method string    `json:"method"`
	// URL has the webhook's origin alone.
	URL string `json:"url"`
	// Headers are in the order of their names.
	Headers []HeaderBody `json:"headers"`
	// Body is the body as text. If it is no valid UTF-8, BodyBase64 has its bytes instead.
	Body       string `json:"body"`
	BodyBase64 string `json:"body_base64,omitempty"`
	// Bytes is the length of the whole body. BodyCut is true if Body is only its beginning.
	Bytes   int       `json:"bytes"`
	BodyCut bool      `json:"body_cut,omitempty"`
	AsOf    time.Time `json:"as_of"`
}

// HeaderBody is a header of a request.
type HeaderBody struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// showRequest shows the request of a delivery's attempt: of the latest one, or of the one that is named.
func (f *Face) showRequest(c echo.Context) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), paging.Timeout)
	defer cancel()
	if err := web.OnlyParams(c, "attempt"); err != nil {
		return err
	}
	body, err := f.Request(ctx, c.Param("id"), c.Param("delivery"), c.QueryParam("attempt"))
	if refused := new(refusal.Error); errors.As(err, &refused) && refused.Code == fsm.CodeTooManyRequests {
		c.Response().Header().Set("Retry-After", "1") // a request takes about as long
	}
	return web.Answer(c, http.StatusOK, body, err)
}

// Request returns the request of an attempt (control.Service.Request).
func (f *Face) Request(ctx context.Context, id, delivery, attempt string) (b RequestBody, err error) {
	if attempt != "" && !fsm.ValidLogID(attempt) {
		return b, refusal.New(fsm.CodeInvalidRequest, "attempt must be the id of an attempt in the delivery log")
	}
	r, a, err := f.Control.Request(ctx, id, delivery, attempt)
	if err != nil {
		return b, err
	}
	b = RequestBody{
		Subscription: id, Delivery: a.DeliveryID, ID: a.ID, Attempt: a.Attempt, SentAt: r.At.UTC(), Method: r.Method,
		URL: r.URL, Headers: []HeaderBody{}, Bytes: r.Size, BodyCut: r.Cut, AsOf: f.Control.Clock().UTC(),
	}
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		b.Headers = append(b.Headers, HeaderBody{name, strings.Join(r.Header[name], ", ")})
	}
	if b.Body = string(r.Body); !utf8.Valid(r.Body) {
		b.Body, b.BodyBase64 = "", base64.StdEncoding.EncodeToString(r.Body)
	}
	return b, nil
}
