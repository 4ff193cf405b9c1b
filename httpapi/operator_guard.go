package httpapi

import (
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
)

// guardOperator keeps web pages from the operator port, which asks nobody who they are: a browser on the operator's
// machine would send their requests along.
func (s *Service) guardOperator(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if path := r.URL.Path; path == "/healthz" || path == "/readyz" {
			return next(c)
		}
		origin := r.Header.Get("Origin")
		listed := s.origins.listed[origin]
		if !listed && (foreign(r, origin) || s.rebound(r)) {
			s.limitBody(c)
			return refuse(fsm.CodeForbidden, "requests of web pages are refused here; to allow your own page, add "+
				"its origin to REVEILLE_CORS_ORIGINS")
		}
		if listed {
			header := c.Response().Header()
			s.origins.answerTo(header, origin)
			if r.Method == http.MethodOptions {
				s.origins.preflight(header, r, "GET, POST, PUT, DELETE")
				return c.NoContent(http.StatusNoContent)
			}
		}
		if strings.HasPrefix(r.URL.Path, "/api/") && r.ContentLength != 0 && !isJSON(r.Header.Get("Content-Type")) {
			s.limitBody(c)
			return refuse(fsm.CodeUnsupportedMediaType, "the body must be JSON with Content-Type: application/json")
		}
		return next(c)
	}
}

// foreign says whether a page of another origin sent a request. A link that is followed is fine: it only reads.
func foreign(r *http.Request, origin string) bool {
	if origin != "" {
		u, err := url.Parse(origin)
		return err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host) || !private(r.Host)
	}
	site := r.Header.Get("Sec-Fetch-Site")
	followed := r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate"
	return (site == "cross-site" || site == "same-site") && !followed
}

// rebound says whether a request came to this machine by a name that a stranger's DNS may have led here: the page of
// that name is then of the same origin, and its reads carry none.
func (s *Service) rebound(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok || private(r.Host) {
		return false
	}
	at, err := netip.ParseAddrPort(local.String())
	return err == nil && at.Addr().Unmap().IsLoopback() && !s.origins.hasHost(r.Host)
}

// private says whether a Host is one that no stranger can have: an address, or a name that public DNS does not hold.
func private(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil || !strings.Contains(host, ".") {
		return true
	}
	for _, domain := range []string{".localhost", ".local", ".internal", ".svc"} {
		if strings.HasSuffix(host, domain) {
			return true
		}
	}
	return false
}

func isJSON(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && kind == "application/json"
}
