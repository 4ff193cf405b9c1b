package httpapi

import (
	"cmp"
	"errors"
	"net/http"
	"net/http/pprof" // adds itself to http.DefaultServeMux, which nothing here serves
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/ojs"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// resources is the table of both ports. The gateway, if there is one, gets all other requests on the API port.
func (s *Service) resources() []web.Resource {
	var table []web.Resource
	if s.cfg.OJSStreams != "" {
		table = (&ojs.Face{
			Control: s.control, Store: s.cfg.Store, Bodies: s.bodies, Fields: s.fields, Streams: s.cfg.OJSStreams,
			DeliveryLog: s.cfg.DeliveryLog, FromNoPage: s.fromNoPage, Log: s.log,
		}).Resources()
	}
	table = append(table, []web.Resource{
		{
			Query: "subscription", Role: web.Anyone,
			Methods: web.Read(s.getSubscription).And(http.MethodPut, s.createSubscription).
				And(http.MethodPatch, s.changeSubscription).And(http.MethodDelete, s.deleteSubscription),
			Usage: "?subscription=ID names a subscription: PUT creates it, GET reads it, PATCH changes it, " +
				"DELETE deletes it; a write to a stream has no such query",
		},
		{
			Query: "subscriptions", Role: web.Anyone, Methods: web.Read(s.listSubscriptions),
			Usage: "GET with ?subscriptions lists subscriptions; ?subscription=ID names one of them",
		},
		{Path: isCallback, Role: web.Anyone, Methods: web.Post(s.callback), Usage: "a callback is a POST"},
		{Path: isBelowCallbacks, Role: web.Anyone, Methods: web.All(s.mangled)},
		{Path: isReserved, Role: web.Anyone, Methods: web.All(reserved)},

		{Route: "/healthz", Role: web.Anyone, Unguarded: true, Methods: web.Get(fixed("status", "ok"))},
		{Route: "/readyz", Role: web.Anyone, Unguarded: true, Methods: web.Get(s.ready)},
		{Route: "/api/v1/version", Role: web.Anyone, Methods: web.Get(fixed("version", s.cfg.Version))},
		{Route: "/api/v1/status", Role: web.Anyone, Methods: web.Get(s.showStatus)},
		{Route: "/api/v1/streams", Role: web.Anyone, Methods: web.Get(s.showStreams).
			And(http.MethodPost, s.nameStreams("streams named", s.cfg.Streams.Name)).
			And(http.MethodDelete, s.nameStreams("streams forgotten", s.cfg.Streams.Forget))},
		{Route: "/api/v1/subscriptions", Role: web.Anyone, Methods: web.Get(s.showSubscriptions)},
		{Route: "/api/v1/subscriptions/:id", Role: web.Anyone, Methods: web.Get(s.showSubscription)},
		{
			Route: "/api/v1/subscriptions/:id/deliveries", Role: web.Anyone,
			Methods: web.Get(s.showDeliveries),
		},
		{
			Route: "/api/v1/subscriptions/:id/pause", Role: web.Anyone,
			Methods: web.Post(s.onConsumers("subscription paused", s.control.Pause)),
		},
		{
			Route: "/api/v1/subscriptions/:id/resume", Role: web.Anyone,
			Methods: web.Post(s.onConsumers("subscription resumed", s.control.Resume)),
		},
		{
			Route: "/api/v1/subscriptions/:id/retry", Role: web.Anyone,
			Methods: web.Post(s.onConsumers("subscription retried", s.control.Retry)),
		},
		{
			Route: "/api/v1/subscriptions/:id/rotate-secret", Role: web.Anyone,
			Methods: web.Post(onSubscription(s.rotateSecret)),
		},
		{
			Route: "/api/v1/subscriptions/:id/test", Role: web.Anyone,
			Methods: web.Post(onSubscription(s.testDelivery)),
		},
		{Route: "/api/v1/subscriptions/:id/replay", Role: web.Anyone, Methods: web.Post(s.replaySpan)},
		{Route: "/api/v1/replays", Role: web.Anyone, Methods: web.Get(s.showReplays)},
		{Route: "/api/v1/replays/cancel", Role: web.Anyone, Methods: web.Post(s.cancelReplays)},
		{Route: "/api/v1/consumers", Role: web.Anyone, Methods: web.Get(s.showConsumers)},
		{Route: consumerPrefix + "*", Role: web.Anyone, Methods: web.Get(s.showConsumer)},
		{Route: "/api/v1/dead-letters", Role: web.Anyone, Methods: web.Get(s.showLetters)},
		{Route: "/api/v1/dead-letters/discard", Role: web.Anyone, Methods: web.Post(s.discardLetters)},
		{Route: "/api/v1/dead-letters/replay", Role: web.Anyone, Methods: web.Post(s.replayLetters)},
		{Route: "/api/v1/dead-letters/:id/replay", Role: web.Anyone, Methods: web.Post(s.replayLetter)},
		{Route: "/api/v1/dead-letters/:id", Role: web.Anyone, Methods: web.Get(s.showLetter).
			And(http.MethodDelete, s.discardLetter)},
		{Route: "/api/v1/log-level", Role: web.Anyone, Methods: web.Get(s.getLogLevel).
			And(http.MethodPut, s.setLogLevel)},
	}...)
	if page := s.cfg.MetricsPage; page != nil {
		table = append(table,
			web.Resource{Route: "/metrics", Role: web.Anyone, Methods: web.Get(echo.WrapHandler(page))})
	}
	if s.cfg.Pprof {
		table = append(table, []web.Resource{
			{Route: pprofPrefix + "*", Role: web.Anyone, Methods: web.Get(unhurried(pprof.Index))},
			{Route: pprofPrefix + "cmdline", Role: web.Anyone, Methods: web.Get(unhurried(pprof.Cmdline))},
			{Route: pprofPrefix + "profile", Role: web.Anyone, Methods: web.Get(unhurried(pprof.Profile))},
			{Route: pprofPrefix + "trace", Role: web.Anyone, Methods: web.Get(unhurried(pprof.Trace))},
			{Route: pprofPrefix + "symbol", Role: web.Anyone, Methods: web.Get(unhurried(pprof.Symbol)).
				And(http.MethodPost, s.symbol)},
		}...)
	}
	return table
}

// isCallback says whether a path belongs to a callback: it has a consumer ID, which holds no slash, below the prefix.
func isCallback(raw string) bool {
	id, ok := strings.CutPrefix(raw, callbackPrefix)
	return ok && id != "" && !strings.Contains(id, "/")
}

func isBelowCallbacks(raw string) bool {
	canonical, _ := fsm.CanonicalPath(raw) // empty for a path that no stream can have
	return strings.HasPrefix(raw, callbackPrefix) || strings.HasPrefix(canonical, callbackPrefix)
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
