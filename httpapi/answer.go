package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"

	"github.com/labstack/echo/v4"
	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/fsm/cache"
)

// refusal is the error of a request that is answered with a code.
type refusal struct {
	code    fsm.Code
	message string
}

func (r *refusal) Error() string { return string(r.code) + ": " + r.message }

func refuse(code fsm.Code, format string, args ...any) error {
	return &refusal{code: code, message: fmt.Sprintf(format, args...)}
}

// refusalFor finds the answer to any error that a handler returns. An unknown error is logged and answered without its
// text, which is not for clients.
func (s *Service) refusalFor(err error) *refusal {
	var r *refusal
	var he *echo.HTTPError
	var conflict *fsm.ConflictError
	switch {
	case errors.As(err, &r):
		return r
	case errors.As(err, &conflict):
		return &refusal{fsm.CodeSubscriptionConflict, conflict.Error()}
	case errors.Is(err, context.Canceled): // the store calls that unavailable as well
		return &refusal{fsm.CodeUnavailable, "the client went away"}
	case errors.Is(err, fsm.ErrStreamsUnknown):
		return &refusal{fsm.CodeUnavailable, err.Error()}
	case errors.Is(err, fsm.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		if times, log := s.unavailable.Happened(s.cfg.Clock()); log {
			s.log.Warn("requests are answered with 503", zap.Int("times", times), zap.Error(err))
		}
		return &refusal{fsm.CodeUnavailable, "the request cannot be processed now; try again"}
	case errors.As(err, &he) && he.Code == http.StatusNotFound:
		return &refusal{fsm.CodeNotFound, "there is nothing at this path"}
	}
	if times, log := s.broken.Happened(s.cfg.Clock()); log {
		s.log.Error("requests failed", zap.Int("times", times), zap.Error(err))
	}
	return &refusal{fsm.CodeInternal, "the request failed; the log has the reason"}
}

// errorBody is the "error" of an answer (webhook spec, Error Responses).
type errorBody struct {
	Code    fsm.Code `json:"code"`
	Message string   `json:"message"`
}

// answerError is echo's error handler.
func (s *Service) answerError(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	writeRefusal(c.Response(), s.refusalFor(err))
}

func writeRefusal(w http.ResponseWriter, r *refusal) {
	markRefused(w, r.code)
	writeJSON(w, r.code.Status(), map[string]errorBody{"error": {r.code, r.message}})
}

// markRefused sets the headers that go with a code.
func markRefused(w http.ResponseWriter, code fsm.Code) {
	if code == fsm.CodeUnavailable {
		w.Header().Set("Retry-After", "1")
	}
}

// writeJSON answers. Reveille's own answers are true for the moment only, so no cache may keep them.
func writeJSON(w http.ResponseWriter, status int, body any) {
	answerHeader(w, status)
	_ = encode(w, body) // fails only if the client is gone
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

// listed returns the bodies of the subscriptions for which shown is true.
func listed[T any](
	c *cache.Catalog, body func(fsm.Subscription) T, shown func(fsm.Subscription) bool,
) iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, sub := range c.All() {
			if shown(sub) && !yield(body(sub)) {
				return
			}
		}
	}
}

// writeList answers with a list of any length. Only one entry at a time is in memory, because a client may read slowly.
func writeList[T any](w http.ResponseWriter, list iter.Seq[T]) {
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
