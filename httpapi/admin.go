package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
	"go.uber.org/zap"

	"reveille/fsm"
)

const (
	// MaxNamed bounds how many streams one operator's request may name.
	MaxNamed = 10_000

	readyTimeout = 2 * time.Second
)

// newAdmin has the operator port's routes. Nothing here asks who the client is: the port is not for the public.
func (s *Service) newAdmin() *echo.Echo {
	e := s.newEcho()
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
	e.POST("/api/v1/streams", func(c echo.Context) error { return s.nameStreams(c, s.cfg.Streams.Name) })
	e.DELETE("/api/v1/streams", func(c echo.Context) error { return s.nameStreams(c, s.cfg.Streams.Forget) })
	e.POST("/api/v1/subscriptions/:id/resume", s.resume)
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

// nameStreams reads {"streams":["/a",…]} and does the same to all of them, or nothing if one of them is wrong.
func (s *Service) nameStreams(c echo.Context, do func(context.Context, []string) error) error {
	s.limitBody(c)
	o, err := s.readObject(c)
	if err != nil {
		return err
	}
	list, err := required[[]json.RawMessage](o, "streams", "an array of stream paths")
	if err != nil {
		return err
	}
	if len(list) > MaxNamed {
		return refuse(fsm.CodeInvalidRequest, "streams: at most %d can be named at a time", MaxNamed)
	}
	paths, err := readPaths(o, "streams", fsm.CanonicalPath, math.MaxInt)
	if err != nil {
		return err
	}
	if err := do(c.Request().Context(), paths); err != nil {
		return err
	}
	writeJSON(c.Response(), http.StatusOK, map[string]int{"streams": len(paths)})
	return nil
}

// resume lets a subscription's endpoint be delivered to again that had answered 410.
func (s *Service) resume(c echo.Context) error {
	ctx, id := c.Request().Context(), c.Param("id")
	if err := fsm.ValidateSubscriptionID(id); err != nil {
		return refuse(fsm.CodeInvalidSubscriptionID, "%v", err)
	}
	if err := s.cfg.Store.ResumeSubscription(ctx, id); errors.Is(err, fsm.ErrNotFound) {
		return refuse(fsm.CodeSubscriptionNotFound, "there is no subscription with this id")
	} else if err != nil {
		return err
	}
	s.log.Info("subscription resumed", zap.String("subscription", id))
	writeJSON(c.Response(), http.StatusOK, map[string]string{"subscription_id": id})
	return nil
}
