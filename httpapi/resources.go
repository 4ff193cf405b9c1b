package httpapi

import (
	"cmp"
	"errors"
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/ojs"
	"reveille/httpapi/operator"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// resources is the table of both ports. The gateway, if there is one, gets all other requests on the API port.
func (s *Service) resources() []web.Resource {
	var table []web.Resource
	if s.cfg.OJSStreams != "" {
		table = (&ojs.Face{
			Control: s.control, Store: s.cfg.Store, Bodies: s.bodies, Fields: s.fields, Streams: s.cfg.OJSStreams,
			DeliveryLog: s.cfg.DeliveryLog, FromNoPage: s.fromNoPage,
		}).Resources()
	}
	table = append(table, s.native.Resources()...)
	table = append(table, web.Resource{Path: isReserved, Role: web.Anyone, Methods: web.All(reserved)})
	return append(table, s.operatorFace().Resources()...)
}

func isReserved(raw string) bool {
	_, err := fsm.CanonicalPath(raw)
	return errors.Is(err, fsm.ErrReservedPath)
}

// permit says who has a role. It returns why a request may not use what needs the role, or nil.
func permit(_ *http.Request, needed web.Role) error {
	if needed == web.Anyone {
		return nil
	}
	return refusal.New(fsm.CodeForbidden, "this request needs the role %q", needed)
}

// answer answers a request for a resource of either port. The port has set who may read the answer (CORS).
func (s *Service) answer(c echo.Context, res web.Resource) error {
	r, header := c.Request(), c.Response().Header()
	i := slices.IndexFunc(res.Methods, func(m web.Method) bool { return m.Name == r.Method || m.Name == web.Every })
	if i < 0 && r.Method == http.MethodOptions { // before the role is asked for: a preflight shows none
		header.Set("Allow", res.Allow())
		s.origins.preflight(header, r, res.Allow())
		header.Set("Cache-Control", "no-store")
		return c.NoContent(http.StatusNoContent)
	}
	if err := s.permit(r, res.Role); err != nil {
		return err
	}
	if i < 0 {
		header.Set("Allow", res.Allow())
		return refusal.New(fsm.CodeMethodNotAllowed, "%s", cmp.Or(res.Usage, "this path does not support this method"))
	}
	return res.Methods[i].Handle(c)
}

func (s *Service) operatorFace() *operator.Face {
	return &operator.Face{
		Control: s.control, Store: s.cfg.Store, Streams: s.cfg.Streams, Offsets: s.cfg.Upstream, Health: s.cfg.Health,
		Bodies: s.bodies, WriteTimeout: operatorWriteTimeout, Ready: s.cfg.Ready, MetricsPage: s.cfg.MetricsPage,
		DeliveryLog: s.cfg.DeliveryLog, Version: s.cfg.Version, LogLevel: s.cfg.LogLevel, Pprof: s.cfg.Pprof,
	}
}
