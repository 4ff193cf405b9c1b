package httpapi

import (
	"net/http"
	"net/http/pprof" // adds itself to http.DefaultServeMux, which nothing here serves
	"time"

	"github.com/labstack/echo/v4"
)

const pprofPrefix = "/debug/pprof/"

// addPprof has the operator port answer with profiles of the running program, as net/http/pprof does.
func (s *Service) addPprof(e *echo.Echo) {
	for name, handler := range map[string]http.HandlerFunc{
		"*": pprof.Index, "cmdline": pprof.Cmdline, "profile": pprof.Profile,
		"symbol": pprof.Symbol, "trace": pprof.Trace,
	} {
		e.GET(pprofPrefix+name, unhurried(handler))
	}
	e.POST(pprofPrefix+"symbol", func(c echo.Context) error {
		s.limitBody(c)
		pprof.Symbol(c.Response(), c.Request())
		return nil
	})
}

// unhurried is for requests without a body that take as long as they ask for. net/http/pprof puts off the deadline for
// the answer by itself; that for the request would end the request's context, and with it the profile, though there is
// nothing left to read.
func unhurried(h http.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		_ = http.NewResponseController(c.Response()).SetReadDeadline(time.Time{}) // as in limitBody
		h(c.Response(), c.Request())
		return nil
	}
}
