package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
)

const readyTimeout = 2 * time.Second

// newAdmin has the operator port's routes. There is no authentication: the port is not for the public, nor for web
// pages.
func (s *Service) newAdmin() *echo.Echo {
	e := s.newEcho()
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		if c.Response().Committed {
			return
		}
		r := s.refusalFor(err)
		if errors.Is(err, fsm.ErrUnavailable) { // an operator may know why
			r = &refusal{fsm.CodeUnavailable, err.Error()}
		}
		writeRefusal(c.Response(), r)
	}
	e.Pre(s.guardOperator)
	e.GET("/healthz", func(c echo.Context) error {
		writeJSON(c.Response(), http.StatusOK, map[string]string{"status": "ok"})
		return nil
	})
	e.GET("/readyz", s.ready)
	if s.cfg.MetricsPage != nil {
		e.GET("/metrics", echo.WrapHandler(s.cfg.MetricsPage))
	}
	e.GET("/api/v1/version", func(c echo.Context) error {
		writeJSON(c.Response(), http.StatusOK, map[string]string{"version": s.cfg.Version})
		return nil
	})
	e.POST("/api/v1/streams", func(c echo.Context) error {
		return s.nameStreams(c, "streams named", s.cfg.Streams.Name)
	})
	e.DELETE("/api/v1/streams", func(c echo.Context) error {
		return s.nameStreams(c, "streams forgotten", s.cfg.Streams.Forget)
	})
	e.GET("/api/v1/streams", s.showStreams)
	e.GET("/api/v1/subscriptions", s.showSubscriptions)
	e.GET("/api/v1/subscriptions/:id", s.showSubscription)
	e.POST("/api/v1/subscriptions/:id/resume", s.resume)
	e.GET("/api/v1/consumers", s.showConsumers)
	e.GET(consumerPrefix+"*", s.showConsumer)
	e.GET("/api/v1/log-level", s.getLogLevel)
	e.PUT("/api/v1/log-level", s.setLogLevel)
	if s.cfg.Pprof {
		s.addPprof(e)
	}
	return e
}

// ready answers whether requests should be sent to this replica.
func (s *Service) ready(c echo.Context) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), readyTimeout)
	defer cancel()
	if err := s.cfg.Ready(ctx); err != nil {
		return refuse(fsm.CodeUnavailable, "not ready: %v", err)
	}
	writeJSON(c.Response(), http.StatusOK, map[string]string{"status": "ready"})
	return nil
}
