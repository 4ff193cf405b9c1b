package httpapi

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// newAPI has one route: echo's own matching would see decoded paths, and only methods that it knows.
func (s *Service) newAPI() *echo.Echo {
	e := s.newEcho()
	e.RouteNotFound("/*", s.route)
	return e
}

// route decides whether a request is for Reveille or for the stream server. Reveille's own resources never go upstream,
// whatever the method.
func (s *Service) route(c echo.Context) error {
	r, path := c.Request(), web.RawPath(c.Request())
	if r.ContentLength == 0 {
		arrived(r.Context())
	}
	if own := s.own(r, path); own != nil {
		s.bodies.Limit(c)
		s.origins.mark(c.Response().Header(), r)
		return s.answer(c, *own)
	}
	if s.gateway == nil {
		return refusal.New(fsm.CodeNotFound, "there is nothing at this path")
	}
	path, stream, err := s.gateway.admit(r.Method, path)
	if err != nil {
		s.bodies.Limit(c)
		return err
	}
	if stream != "" && s.cfg.Store.Catalog().IsForOutbox(stream) { // by the setting of another replica
		s.bodies.Limit(c)
		return refusal.New(fsm.CodeNotFound, "there is nothing at this path")
	}
	s.gateway.serve(c.Response().Writer, r, path, stream)
	return nil
}

// own returns the resource of Reveille's own that a request is for, or nil.
func (s *Service) own(r *http.Request, path string) *web.Resource {
	for i := range s.table {
		if res := &s.table[i]; res.Route == "" && (res.Query == "" || web.QueryHas(r.URL.RawQuery, res.Query)) &&
			(res.Path == nil || res.Path(path)) {
			return res
		}
	}
	return nil
}

// reserved refuses the paths that the protocol keeps for itself.
func reserved(c echo.Context) error {
	_, err := fsm.CanonicalPath(web.RawPath(c.Request()))
	return refusal.New(fsm.CodeNotImplemented, "%v; it is not forwarded, and Reveille does not support it yet", err)
}
