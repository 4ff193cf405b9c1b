package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

const readyTimeout = 2 * time.Second

// newOperator has a route for each resource of the operator port. There is no authentication: the port is not for the
// public or for web pages.
func (s *Service) newOperator() *echo.Echo {
	e := s.newEcho()
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		if c.Response().Committed {
			return
		}
		r := s.refusalFor(err)
		if errors.Is(err, fsm.ErrUnavailable) { // an operator may know why
			r = refusal.New(fsm.CodeUnavailable, "%v", err)
		}
		web.WriteRefusal(c.Response(), r)
	}
	routes := map[string]web.Resource{}
	for _, res := range s.table {
		if res.Route != "" {
			routes[res.Route] = res
			// Not a route for each method: echo knows only some methods, and the resource answers all.
			e.RouteNotFound(res.Route, func(c echo.Context) error { return s.answer(c, res) })
		}
	}
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error { return s.guardOperator(c, routes[c.Path()], next) }
	})
	return e
}

// ready answers whether requests should be sent to this replica.
func (s *Service) ready(c echo.Context) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), readyTimeout)
	defer cancel()
	if err := s.cfg.Ready(ctx); err != nil {
		return refusal.New(fsm.CodeUnavailable, "not ready: %v", err)
	}
	web.WriteJSON(c.Response(), http.StatusOK, map[string]string{"status": "ready"})
	return nil
}

// fixed is a handler whose answer is always the same.
func fixed(name, value string) echo.HandlerFunc {
	return func(c echo.Context) error {
		web.WriteJSON(c.Response(), http.StatusOK, map[string]string{name: value})
		return nil
	}
}
