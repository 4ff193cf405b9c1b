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

// route decides whom a request is for.
func (s *Service) route(c echo.Context) error {
	r, path := c.Request(), rawPath(c.Request())
	if r.ContentLength == 0 {
		arrived(r.Context())
	}
	if byID, many := queryHas(r.URL.RawQuery, "subscription"), queryHas(r.URL.RawQuery, "subscriptions"); byID || many {
		switch {
		case byID && r.Method == http.MethodPut:
			return s.createSubscription(c, path)
		case byID && r.Method == http.MethodGet:
			return s.getSubscription(c, path)
		case byID && r.Method == http.MethodDelete:
			return s.deleteSubscription(c, path)
		case many && r.Method == http.MethodGet:
			return s.listSubscriptions(c, path)
		}
	}
	if id, ok := strings.CutPrefix(path, callbackPrefix); ok && id != "" && !strings.Contains(id, "/") {
		if r.Method != http.MethodPost {
			c.Response().Header().Set("Allow", http.MethodPost)
			return refuse(fsm.CodeMethodNotAllowed, "a callback is a POST")
		}
		return s.callback(c, id)
	}
	if err := s.mangled(r, path); err != nil {
		return err
	}
	if s.gateway == nil {
		return refuse(fsm.CodeNotFound, "there is nothing at this path")
	}
	s.gateway.serve(c.Response().Writer, r, path)
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
