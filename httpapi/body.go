package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
)

// maxNamedFields bounds how many unknown fields a refusal names.
const maxNamedFields = 5

// limitBody starts the time that a request's body has. It is called before any check, because the server also reads the
// rest of a refused request's body. The deadline is the kernel's, so it goes by the real clock.
func (s *Service) limitBody(c echo.Context) {
	// An error says that the writer is no connection; then no body can trickle in.
	_ = http.NewResponseController(c.Response().Writer).SetReadDeadline(time.Now().Add(s.cfg.BodyTimeout))
}

// readObject reads a request's body: one JSON object of at most MaxBody bytes.
func (s *Service) readObject(c echo.Context) (object, error) {
	w, r := c.Response().Writer, c.Request()
	tooLarge := refuse(fsm.CodeBodyTooLarge, "the body is larger than %d bytes", MaxBody)
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
		return nil, refuse(fsm.CodeInvalidRequest, "the body did not arrive within %v", s.cfg.BodyTimeout)
	case err != nil:
		return nil, refuse(fsm.CodeInvalidRequest, "the body ended early or is malformed")
	}
	arrived(r.Context())
	// From here on the connection is only read to notice that the client goes away.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	return parseObject(body)
}

// readJSON is readObject for a body that must declare itself JSON.
func (s *Service) readJSON(c echo.Context) (object, error) {
	if err := checkJSON(c.Request()); err != nil {
		return nil, err
	}
	return s.readObject(c)
}

// checkJSON refuses a body that does not declare itself JSON. A web page can send a body of another type to a server of
// another origin without a preflight (Fetch standard, CORS-safelisted request-header).
func checkJSON(r *http.Request) error {
	if r.ContentLength != 0 && !isJSON(r.Header.Get("Content-Type")) {
		return refuse(fsm.CodeUnsupportedMediaType, "the body must be JSON with Content-Type: application/json")
	}
	return nil
}

// isJSON says whether a content type is JSON, or a format on top of it such as a merge patch.
func isJSON(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil &&
		(kind == "application/json" || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json"))
}

// object is a JSON object, field by field. Names match exactly, unlike in a Go struct. If a name comes twice, the last
// one counts.
type object map[string]json.RawMessage

func parseObject(body []byte) (object, error) {
	switch {
	case !utf8.Valid(body) || !json.Valid(body):
		return nil, refuse(fsm.CodeInvalidRequest, "the body is not JSON")
	case bytes.TrimLeft(body, " \t\r\n")[0] != '{':
		return nil, refuse(fsm.CodeInvalidRequest, "the body is not a JSON object")
	}
	var o object
	if err := json.Unmarshal(body, &o); err != nil {
		return nil, refuse(fsm.CodeInvalidRequest, "the body is not a JSON object")
	}
	return o, nil
}

// value decodes one JSON value of a body. It refuses null for every type.
func value[T any](raw json.RawMessage, name, want string) (T, error) {
	var v T
	if isNull(raw) || json.Unmarshal(raw, &v) != nil {
		return v, refuse(fsm.CodeInvalidRequest, "%s must be %s", name, want)
	}
	return v, nil
}

// optional decodes a field. If the field is absent or null, ok is false.
func optional[T any](o object, name, want string) (v T, ok bool, err error) {
	raw, found := o[name]
	if !found || isNull(raw) {
		return v, false, nil
	}
	v, err = value[T](raw, name, want)
	return v, err == nil, err
}

// required decodes a field that must be there.
func required[T any](o object, name, want string) (T, error) {
	v, ok, err := optional[T](o, name, want)
	if err == nil && !ok {
		err = refuse(fsm.CodeInvalidRequest, "%s is missing: it must be %s", name, want)
	}
	return v, err
}

// under names the fields of an object by their place in the body, such as retry.max. A null field stands for the
// default and is left out.
func (o object) under(name string) object {
	named := make(object, len(o))
	for field, raw := range o {
		if !isNull(raw) {
			named[name+"."+field] = raw
		}
	}
	return named
}

// only refuses an object with unknown fields. Otherwise a misspelt field would be ignored silently.
func (o object) only(known ...string) error {
	var unknown []string
	for name := range o {
		if !slices.Contains(known, name) {
			unknown = append(unknown, strconv.Quote(clipped(name)))
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	if more := len(unknown) - maxNamedFields; more > 0 {
		unknown = append(unknown[:maxNamedFields], fmt.Sprintf("and %d more", more))
	}
	allowed := "known are " + strings.Join(known, ", ")
	if len(known) == 0 {
		allowed = "this request has none"
	}
	return refuse(fsm.CodeInvalidRequest, "unknown field %s; %s", strings.Join(unknown, ", "), allowed)
}

// clipped bounds a name that an answer repeats.
func clipped(name string) string {
	const most = 64
	if len(name) > most {
		return strings.ToValidUTF8(name[:most], "") + "…"
	}
	return name
}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }
