package httpapi

import (
	"errors"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// newOperator has a route for each resource of the operator port.
func (s *Service) newOperator() *echo.Echo {
	e := s.newEcho()
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		if c.Response().Committed {
			return
		}
		web.WriteRefusal(c.Response(), s.operatorRefusal(err))
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

// operatorRefusal is what an operator is told of an error. It says why Redis does not answer.
func (s *Service) operatorRefusal(err error) *refusal.Error {
	r := s.refusalFor(err)
	if errors.Is(err, fsm.ErrUnavailable) {
		r = refusal.New(fsm.CodeUnavailable, "%v", err)
	}
	return r
}
