package web

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/paging"
	"reveille/httpapi/refusal"
)

// ErrorBody is the "error" of an answer (webhook spec, Error Responses).
type ErrorBody struct {
	Code    fsm.Code `json:"code"`
	Message string   `json:"message"`
}

// WriteRefusal answers with a refusal.
func WriteRefusal(w http.ResponseWriter, r *refusal.Error) {
	MarkRefused(w, r.Code)
	WriteJSON(w, Status(r.Code), map[string]ErrorBody{"error": {Code: r.Code, Message: r.Message}})
}

// MarkRefused sets the headers that go with a code.
func MarkRefused(w http.ResponseWriter, code fsm.Code) {
	if code == fsm.CodeUnavailable {
		w.Header().Set("Retry-After", "1")
	}
}

// WriteJSON answers. Reveille's own answers are true for the moment only, so no cache may keep them.
func WriteJSON(w http.ResponseWriter, status int, body any) {
	answerHeader(w, status)
	_ = encode(w, body) // fails only if the client is gone
}

// Answer answers a request, unless an error says why not.
func Answer(c echo.Context, status int, body any, err error) error {
	if err == nil {
		WriteJSON(c.Response(), status, body)
	}
	return err
}

// Page returns a page of a list. Its time is paging.Timeout.
type Page func(ctx context.Context, c echo.Context, p paging.Page) (body any, err error)

// List answers a list of what lies in some partitions, page by page. known are the other keys that its query may have.
func List(partitions int, page Page, known ...string) echo.HandlerFunc {
	return func(c echo.Context) error {
		p, err := paging.Read(c.QueryParams(), partitions, known...)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(c.Request().Context(), paging.Timeout)
		defer cancel()
		body, err := page(ctx, c, p)
		return Answer(c, http.StatusOK, body, err)
	}
}

// NoContent answers 204.
func NoContent(c echo.Context) error {
	c.Response().Header().Set("Cache-Control", "no-store")
	return c.NoContent(http.StatusNoContent)
}

func answerHeader(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
}

func encode(w io.Writer, body any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(body)
}

// Listed returns the bodies of the subscriptions for which shown is true.
func Listed[T any](
	all []fsm.Subscription, body func(fsm.Subscription) T, shown func(fsm.Subscription) bool,
) iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, sub := range all {
			if shown(sub) && !yield(body(sub)) {
				return
			}
		}
	}
}

// WriteList answers with a list of any length. Only one entry at a time is in memory, because a client may read slowly.
func WriteList[T any](w http.ResponseWriter, list iter.Seq[T]) {
	answerHeader(w, http.StatusOK)
	between := `{"subscriptions":[`
	for body := range list {
		if _, err := io.WriteString(w, between); err != nil || encode(w, body) != nil {
			return // the client is gone
		}
		between = ","
	}
	if between != "," {
		_, _ = io.WriteString(w, between)
	}
	_, _ = io.WriteString(w, "]}\n")
}

// Time is a time in an answer; nil, which is left out, if it is not known.
func Time(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// Tested is the result of a test delivery.
type Tested struct {
	Success bool `json:"success"`
	// StatusCode is 0 without an answer of the endpoint.
	StatusCode     int    `json:"status_code"`
	ResponseTimeMS int64  `json:"response_time_ms"`
	ResponseBody   string `json:"response_body"`
	Error          string `json:"error,omitempty"`
}

// TestedOf shows the result of a test delivery.
func TestedOf(t fsm.TestDelivery) Tested {
	return Tested{
		Success: t.Failure == "", StatusCode: t.Status, ResponseTimeMS: t.Took.Milliseconds(),
		ResponseBody: string(t.Body), Error: t.Failure,
	}
}
