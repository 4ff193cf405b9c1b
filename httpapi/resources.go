package httpapi

import (
	"cmp"
	"errors"
	"net"
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/console"
	"reveille/httpapi/control"
	"reveille/httpapi/ojs"
	"reveille/httpapi/operator"
	"reveille/httpapi/outbox"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// resources is the table of both ports. The gateway, if there is one, gets all other requests on the API port.
func (s *Service) resources() []web.Resource {
	var table []web.Resource
	if s.cfg.OJSStreams != "" {
		table = (&ojs.Face{
			Control: s.control, Bodies: s.bodies, Fields: s.fields, Streams: s.cfg.OJSStreams,
			DeliveryLog: s.cfg.DeliveryLog, FromNoPage: s.fromNoPage,
		}).Resources()
	}
	if s.outbox != nil {
		table = append(table, (&outbox.Face{
			Outbox: s.outbox, Bodies: s.bodies, Targets: s.cfg.Targets, FromNoPage: s.fromNoPage,
		}).Resources()...)
	}
	table = append(table, s.native.Resources()...)
	table = append(table, web.Resource{Path: isReserved, Role: web.Anyone, Methods: web.All(reserved)})
	face := &operator.Face{
		Control: s.control, Offsets: s.cfg.Upstream, Health: s.cfg.Health,
		Bodies: s.bodies, WriteTimeout: operatorWriteTimeout, Ready: s.cfg.Ready, MetricsPage: s.cfg.MetricsPage,
		DeliveryLog: s.cfg.DeliveryLog, Outbox: s.outbox, Version: s.cfg.Version, LogLevel: s.cfg.LogLevel,
		Pprof: s.cfg.Pprof,
	}
	table = append(table, face.Resources()...)
	return append(table, (&console.Face{
		Operator: face, Refusal: s.operatorRefusal, Anywhere: s.cfg.AdminToken != "",
	}).Resources()...)
}

func isReserved(raw string) bool {
	_, err := fsm.CanonicalPath(raw)
	return errors.Is(err, fsm.ErrReservedPath)
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
	principal, err := s.permit(r, res.Needs(r.Method))
	if err != nil {
		challenge(header, r, err)
		return err
	}
	if res.Whole && !principal.SeesAll() {
		return refusal.New(fsm.CodeForbidden, "this request is only for those who may use all paths")
	}
	if i < 0 {
		header.Set("Allow", res.Allow())
		return refusal.New(fsm.CodeMethodNotAllowed, "%s", cmp.Or(res.Usage, "this path does not support this method"))
	}
	from, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		from = r.RemoteAddr
	}
	c.SetRequest(r.WithContext(control.As(r.Context(), principal, from)))
	return res.Methods[i].Handle(c)
}
