package httpapi

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// guardOperator keeps web pages from the operator port. A browser on the operator's machine would otherwise send the
// pages' requests along. A page that has pointed its own name here has no token, so what asks for one needs no such
// guard. The argument res is the resource of the request, or the zero value if there is none.
func (s *Service) guardOperator(c echo.Context, res web.Resource, next echo.HandlerFunc) error {
	r := c.Request()
	if res.Unguarded {
		return next(c)
	}
	origin := r.Header.Get("Origin")
	listed, api := s.origins.listed[origin], strings.HasPrefix(r.URL.Path, "/api/")
	_, _, password := r.BasicAuth() // which a browser adds by itself, and asks nobody
	switch {
	case s.cfg.AdminToken != "" && listed && api && password && foreign(r, origin):
		s.bodies.Limit(c)
		return refusal.New(fsm.CodeForbidden, "a page of another origin must send its token as a bearer token")
	case listed:
		s.origins.answerTo(c.Response().Header(), origin)
	case !s.isOperatorHost(r.Host) && (s.cfg.AdminToken == "" || res.Role == web.Anyone || res.Role == ""):
		s.bodies.Limit(c)
		return refusal.New(fsm.CodeForbidden, "%s is not a host of the operator port: a web page could have pointed "+
			"that name here (DNS rebinding); use an IP address or an internal name, or add http://%[1]s to "+
			"REVEILLE_CORS_ORIGINS", refusal.Clipped(r.Host))
	case foreign(r, origin):
		s.bodies.Limit(c)
		return refusal.New(fsm.CodeForbidden, "requests of web pages are refused here; to allow your own page, add "+
			"its origin to REVEILLE_CORS_ORIGINS")
	}
	if api {
		if err := web.CheckJSON(r); err != nil {
			s.bodies.Limit(c)
			return err
		}
	}
	return next(c)
}

// fromNoPage refuses web pages that may not use the API port. For a PUT, a PATCH and a DELETE, a browser asks first. It
// sends these POSTs without asking.
func (s *Service) fromNoPage(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if origin := r.Header.Get("Origin"); !s.origins.any && !s.origins.listed[origin] && foreign(r, origin) {
			return refusal.New(fsm.CodeForbidden,
				"requests of web pages are refused here; to allow your own page, add "+
					"its origin to REVEILLE_CORS_ORIGINS")
		}
		return next(c)
	}
}

// isOperatorHost says whether the operator port answers requests for a host. A foreign page can point its own name at
// any address that the browser reaches, not just at the browser's own machine. To the browser, the port is then part of
// that page's origin, and the page reads every answer.
func (s *Service) isOperatorHost(host string) bool {
	return private(host) || s.origins.hasHost(host) ||
		s.operatorName != "" && hostname(host) == s.operatorName
}

// foreign says whether a page of another origin sent a request. A link that a user follows is fine: it only reads.
func foreign(r *http.Request, origin string) bool {
	if origin != "" {
		u, err := url.Parse(origin)
		return err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host)
	}
	site := r.Header.Get("Sec-Fetch-Site")
	followed := r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate"
	return (site == "cross-site" || site == "same-site") && !followed
}

// private says whether no foreign page can have a Host. It is an address, or a name that public DNS does not hold.
func private(host string) bool {
	name := hostname(host)
	if _, err := netip.ParseAddr(name); err == nil || !strings.Contains(name, ".") {
		return true
	}
	for _, domain := range []string{".localhost", ".local", ".internal", ".svc"} {
		if strings.HasSuffix(name, domain) {
			return true
		}
	}
	return false
}

// hostname is a Host without its port, in one form.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
}
