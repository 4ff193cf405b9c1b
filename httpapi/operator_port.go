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
			r = &refusal{fsm.CodeUnavailable, err.Error()}
		}
		writeRefusal(c.Response(), r)
	}
	routes := map[string]resource{}
	for _, res := range s.table {
		if res.port == operator {
			routes[res.route] = res
			// Not a route for each method: echo knows only some methods, and the resource answers all.
			e.RouteNotFound(res.route, func(c echo.Context) error { return s.answer(c, res) })
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
		return refuse(fsm.CodeUnavailable, "not ready: %v", err)
	}
	writeJSON(c.Response(), http.StatusOK, map[string]string{"status": "ready"})
	return nil
}

// fixed is a handler whose answer is always the same.
func fixed(name, value string) echo.HandlerFunc {
	return func(c echo.Context) error {
		writeJSON(c.Response(), http.StatusOK, map[string]string{name: value})
		return nil
	}
}
