package httpapi

import (
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
		s.origins.mark(c.Response().Header(), r)
		return s.answer(c, *own)
	}
	if s.gateway == nil {
		return refuse(fsm.CodeNotFound, "there is nothing at this path")
	}
	path, stream, err := s.gateway.admit(r.Method, path)
	if err != nil {
		s.limitBody(c)
		return err
	}
	s.gateway.serve(c.Response().Writer, r, path, stream)
	return nil
}

// own returns the resource of Reveille's own that a request is for, or nil.
func (s *Service) own(r *http.Request, path string) *resource {
	for i := range s.table {
		if res := &s.table[i]; res.port == api && (res.query == "" || queryHas(r.URL.RawQuery, res.query)) &&
			(res.path == nil || res.path(path)) {
			return res
		}
	}
	return nil
}

// reserved refuses the paths that the protocol keeps for itself.
func reserved(c echo.Context) error {
	_, err := fsm.CanonicalPath(rawPath(c.Request()))
	return refuse(fsm.CodeNotImplemented, "%v; it is not forwarded, and Reveille does not support it yet", err)
}

// rawPath is the path as the client wrote it. The type url.URL cannot give it: if one byte should have been encoded, it
// encodes the whole path anew. A "%2F" elsewhere then becomes a slash.
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

// queryValues returns the values of a key, not decoded. A pair that url.ParseQuery would drop as malformed also counts.
// Otherwise a request with a misspelt subscription would go to the stream server.
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
