package httpapi

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
)

const callbackPrefix = "/callback/"

// newAPI has one route: echo's own matching would see decoded paths, and only methods that it knows.
func (s *Service) newAPI() *echo.Echo {
	e := s.newEcho()
	e.RouteNotFound("/*", s.route)
	return e
}

// route decides whether a request is for Reveille or for the stream server. Reveille's own resources never go upstream,
// whatever the method.
func (s *Service) route(c echo.Context) error {
	r, path := c.Request(), rawPath(c.Request())
	if r.ContentLength == 0 {
		arrived(r.Context())
	}
	if own := s.own(r, path); own != nil {
		s.limitBody(c)
		return own.answer(c, s.origins)
	}
	if s.gateway == nil {
		return refuse(fsm.CodeNotFound, "there is nothing at this path")
	}
	stream, err := s.gateway.admit(r.Method, path)
	if err != nil {
		s.limitBody(c)
		return err
	}
	s.gateway.serve(c.Response().Writer, r, path, stream)
	return nil
}

// own returns the resource of Reveille's own that a request is for, or nil.
func (s *Service) own(r *http.Request, path string) *resource {
	byID, list := queryHas(r.URL.RawQuery, "subscription"), queryHas(r.URL.RawQuery, "subscriptions")
	callback, isCallback := strings.CutPrefix(path, callbackPrefix)
	canonical, err := fsm.CanonicalPath(path)
	switch {
	case byID:
		return s.subscriptionAt(path)
	case list:
		return s.subscriptionsAt(path)
	case isCallback && callback != "" && !strings.Contains(callback, "/"):
		return &resource{
			methods: []method{{http.MethodPost, func(c echo.Context) error { return s.callback(c, callback) }}},
			usage:   "a callback is a POST",
		}
	case isCallback, strings.HasPrefix(canonical, callbackPrefix):
		return refusing(func() error { return s.mangled(r, path) })
	case errors.Is(err, fsm.ErrReservedPath):
		return refusing(func() error {
			return refuse(fsm.CodeNotImplemented, "%v; it is not forwarded, and Reveille does not support it yet", err)
		})
	}
	return nil
}

// rawPath is the path as the client wrote it. url.URL cannot be asked for that: it encodes the whole path anew if there
// is a byte in it that should have been encoded, and a "%2F" elsewhere is then a slash.
func rawPath(r *http.Request) string {
	if strings.HasPrefix(r.RequestURI, "/") {
		path, _, _ := strings.Cut(r.RequestURI, "?")
		return path
	}
	return r.URL.EscapedPath() // the client named the host as well, as it would for a proxy
}

// queryHas says whether a query has a key, with any value.
func queryHas(query, key string) bool {
	return len(queryValues(query, key)) > 0
}

// queryValues returns the values of a key, not decoded. A pair that url.ParseQuery would drop as malformed counts: a
// request with a misspelt subscription must not turn into one for the stream server.
func queryValues(query, key string) []string {
	var values []string
	for pair := range strings.SplitSeq(query, "&") {
		k, v, _ := strings.Cut(pair, "=")
		if decoded, err := url.QueryUnescape(k); err == nil && decoded == key {
			values = append(values, v)
		}
	}
	return values
}
