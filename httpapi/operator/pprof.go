package operator

import (
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/labstack/echo/v4"
)

// pprofPrefix is before the names of profiles of the running program, as in net/http/pprof.
const pprofPrefix = "/debug/pprof/"

// symbol answers a POST, which has the addresses in its body.
func (f *Face) symbol(c echo.Context) error {
	f.Bodies.Limit(c)
	pprof.Symbol(c.Response(), c.Request())
	return nil
}

// unhurried is for requests without a body that take as long as they ask for. The package net/http/pprof itself puts
// off the deadline for the answer. The deadline for the request would end the request's context, and with it the
// profile, though there is nothing left to read.
func unhurried(h http.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		_ = http.NewResponseController(c.Response()).SetReadDeadline(time.Time{}) // as in Bodies.Limit
		h(c.Response(), c.Request())
		return nil
	}
}
