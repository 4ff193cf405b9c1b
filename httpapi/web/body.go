package web

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/refusal"
)

// MaxBody is the size of a body of a subscription, a callback or an operator's request, in bytes.
const MaxBody = 1 << 20

// Bodies reads the bodies of requests.
type Bodies struct {
	// Timeout is how long a body may take to arrive.
	Timeout time.Duration
	// Arrived is called with the context of a request whose body has been read.
	Arrived func(context.Context)
}

// Limit starts the time that a request's body has. It is called before any check, because the server also reads the
// rest of a refused request's body. The deadline is the kernel's, so it goes by the real clock.
func (b Bodies) Limit(c echo.Context) {
	// An error says that the writer is no connection; then no body can trickle in.
	_ = http.NewResponseController(c.Response().Writer).SetReadDeadline(time.Now().Add(b.Timeout))
}

// Object reads a request's body: one JSON object of at most MaxBody bytes.
func (b Bodies) Object(c echo.Context) (Object, error) {
	w, r := c.Response().Writer, c.Request()
	tooLarge := refusal.New(fsm.CodeBodyTooLarge, "the body is larger than %d bytes", MaxBody)
	if r.ContentLength > MaxBody {
		return nil, tooLarge
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	var mbe *http.MaxBytesError
	switch {
	case errors.As(err, &mbe):
		return nil, tooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		return nil, refusal.New(fsm.CodeInvalidRequest, "the body did not arrive within %v", b.Timeout)
	case err != nil:
		return nil, refusal.New(fsm.CodeInvalidRequest, "the body ended early or is malformed")
	}
	b.Arrived(r.Context())
	// From here on the connection is only read to notice that the client goes away.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	return parseObject(body)
}

// JSON is Object for a body that must declare itself JSON.
func (b Bodies) JSON(c echo.Context) (Object, error) {
	if err := CheckJSON(c.Request()); err != nil {
		return nil, err
	}
	return b.Object(c)
}

// CheckJSON refuses a body that does not declare itself JSON. A web page can send a body of another type to a server of
// another origin without a preflight (Fetch standard, CORS-safelisted request-header).
func CheckJSON(r *http.Request) error {
	if r.ContentLength != 0 && !declaresJSON(r.Header.Get("Content-Type")) {
		return refusal.New(fsm.CodeUnsupportedMediaType, "the body must be JSON with Content-Type: application/json")
	}
	return nil
}

// declaresJSON says whether a content type is JSON, or a format on top of it such as a merge patch (RFC 6839).
func declaresJSON(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil &&
		(kind == "application/json" || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json"))
}

// Fields is Object with a time for the body to arrive, for a request that has only the known fields.
func (b Bodies) Fields(c echo.Context, known ...string) (Object, error) {
	b.Limit(c)
	o, err := b.Object(c)
	if err != nil {
		return nil, err
	}
	return o, o.Only(known...)
}

// Maybe is Object with a time for the body to arrive, for a request that needs none: nil if there is none.
func (b Bodies) Maybe(c echo.Context) (Object, error) {
	if c.Request().ContentLength == 0 {
		return nil, nil
	}
	b.Limit(c)
	return b.Object(c)
}

// Nothing reads the body of a request that has no fields: none, or an empty object.
func (b Bodies) Nothing(c echo.Context) error {
	o, err := b.Maybe(c)
	if err != nil {
		return err
	}
	return o.Only()
}
