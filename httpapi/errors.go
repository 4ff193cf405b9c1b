package httpapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"
	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// refusalFor finds the answer to any error that a handler returns. An unknown error is logged and answered without its
// text, which is not for clients.
func (s *Service) refusalFor(err error) *refusal.Error {
	var r *refusal.Error
	var he *echo.HTTPError
	var conflict *fsm.ConflictError
	switch {
	case errors.As(err, &r):
		return r
	case errors.As(err, &conflict):
		return refusal.New(fsm.CodeSubscriptionConflict, "%v", conflict)
	case errors.Is(err, context.Canceled): // the store calls that unavailable as well
		return refusal.New(fsm.CodeUnavailable, "the client went away")
	case errors.Is(err, fsm.ErrStreamsUnknown):
		return refusal.New(fsm.CodeUnavailable, "%v", err)
	case errors.Is(err, fsm.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		s.unavailable.Log(s.log, s.cfg.Clock()).Warn("requests are answered with 503", zap.Error(err))
		return refusal.New(fsm.CodeUnavailable, "the request cannot be processed now; try again")
	case errors.As(err, &he) && he.Code == http.StatusNotFound:
		return refusal.New(fsm.CodeNotFound, "there is nothing at this path")
	}
	s.broken.Log(s.log, s.cfg.Clock()).Error("requests failed", zap.Error(err))
	return refusal.New(fsm.CodeInternal, "the request failed; the log has the reason")
}

// answerError is echo's error handler.
func (s *Service) answerError(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	web.WriteRefusal(c.Response(), s.refusalFor(err))
}
