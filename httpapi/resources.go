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
)

// resource is one of Reveille's own resources: where it is, what it answers, and to whom.
type resource struct {
	port port
	// route is the path on the operator port, in echo's notation.
	route string
	// query and path say which requests on the API port are for it: with this key in the query, and with such a raw
	// path. Either may be unset. The first resource of the table that matches answers.
	query string
	path  func(raw string) bool
	// role is who may use it; on the operator port, unguarded resources answer web pages too, and at any host.
	role      role
	unguarded bool
	methods   methods
	// usage is the answer to other methods.
	usage string
}

type port int

const (
	api port = iota
	operator
)

// role is who may use a resource. The zero value is no role: a resource without one is refused to all.
type role string

const anyone role = "anyone"

type method struct {
	name   string
	handle echo.HandlerFunc
}

// methods are in the order in which Allow names them.
type methods []method

// every is the name of a method that stands for all of them, OPTIONS included.
const every = "*"

func get(h echo.HandlerFunc) methods  { return methods{{http.MethodGet, h}} }
func post(h echo.HandlerFunc) methods { return methods{{http.MethodPost, h}} }

// resources is the table of both ports. The gateway, if there is one, gets all other requests on the API port.
func (s *Service) resources() []resource {
	table := append(s.ojsResources(), []resource{
		{port: api, query: "subscription", role: anyone, methods: methods{
			{http.MethodGet, s.getSubscription},
			{http.MethodHead, s.getSubscription},
			{http.MethodPut, s.createSubscription},
			{http.MethodPatch, s.changeSubscription},
			{http.MethodDelete, s.deleteSubscription},
		}, usage: "?subscription=ID names a subscription: PUT creates it, GET reads it, PATCH changes it, " +
			"DELETE deletes it; a write to a stream has no such query"},
		{port: api, query: "subscriptions", role: anyone, methods: methods{
			{http.MethodGet, s.listSubscriptions},
			{http.MethodHead, s.listSubscriptions},
		}, usage: "GET with ?subscriptions lists subscriptions; ?subscription=ID names one of them"},
		{port: api, path: isCallback, role: anyone, methods: post(s.callback), usage: "a callback is a POST"},
		{port: api, path: isBelowCallbacks, role: anyone, methods: methods{{every, s.mangled}}},
		{port: api, path: isReserved, role: anyone, methods: methods{{every, reserved}}},

		{port: operator, route: "/healthz", role: anyone, unguarded: true, methods: get(fixed("status", "ok"))},
		{port: operator, route: "/readyz", role: anyone, unguarded: true, methods: get(s.ready)},
		{port: operator, route: "/api/v1/version", role: anyone, methods: get(fixed("version", s.cfg.Version))},
		{port: operator, route: "/api/v1/status", role: anyone, methods: get(s.showStatus)},
		{port: operator, route: "/api/v1/streams", role: anyone, methods: methods{
			{http.MethodGet, s.showStreams},
			{http.MethodPost, s.nameStreams("streams named", s.cfg.Streams.Name)},
			{http.MethodDelete, s.nameStreams("streams forgotten", s.cfg.Streams.Forget)},
		}},
		{port: operator, route: "/api/v1/subscriptions", role: anyone, methods: get(s.showSubscriptions)},
		{port: operator, route: "/api/v1/subscriptions/:id", role: anyone, methods: get(s.showSubscription)},
		{
			port: operator, route: "/api/v1/subscriptions/:id/deliveries", role: anyone,
			methods: get(s.showDeliveries),
		},
		{
			port: operator, route: "/api/v1/subscriptions/:id/pause", role: anyone,
			methods: post(s.onConsumers("subscription paused", s.pause)),
		},
		{
			port: operator, route: "/api/v1/subscriptions/:id/resume", role: anyone,
			methods: post(s.onConsumers("subscription resumed", s.resume)),
		},
		{
			port: operator, route: "/api/v1/subscriptions/:id/retry", role: anyone,
			methods: post(s.onConsumers("subscription retried", s.cfg.Store.RetrySubscription)),
		},
		{
			port: operator, route: "/api/v1/subscriptions/:id/rotate-secret", role: anyone,
			methods: post(s.onSubscription("secret rotated", s.rotateSecret)),
		},
		{
			port: operator, route: "/api/v1/subscriptions/:id/test", role: anyone,
			methods: post(s.onSubscription("test delivery", s.testDelivery)),
		},
		{port: operator, route: "/api/v1/subscriptions/:id/replay", role: anyone, methods: post(s.replaySpan)},
		{port: operator, route: "/api/v1/replays", role: anyone, methods: get(s.showReplays)},
		{port: operator, route: "/api/v1/replays/cancel", role: anyone, methods: post(s.cancelReplays)},
		{port: operator, route: "/api/v1/consumers", role: anyone, methods: get(s.showConsumers)},
		{port: operator, route: consumerPrefix + "*", role: anyone, methods: get(s.showConsumer)},
		{port: operator, route: "/api/v1/dead-letters", role: anyone, methods: get(s.showLetters)},
		{port: operator, route: "/api/v1/dead-letters/discard", role: anyone, methods: post(s.discardLetters)},
		{port: operator, route: "/api/v1/dead-letters/replay", role: anyone, methods: post(s.replayLetters)},
		{port: operator, route: "/api/v1/dead-letters/:id/replay", role: anyone, methods: post(s.replayLetter)},
		{port: operator, route: "/api/v1/dead-letters/:id", role: anyone, methods: methods{
			{http.MethodGet, s.showLetter},
			{http.MethodDelete, s.discardLetter},
		}},
		{port: operator, route: "/api/v1/log-level", role: anyone, methods: methods{
			{http.MethodGet, s.getLogLevel},
			{http.MethodPut, s.setLogLevel},
		}},
	}...)
	if page := s.cfg.MetricsPage; page != nil {
		table = append(table,
			resource{port: operator, route: "/metrics", role: anyone, methods: get(echo.WrapHandler(page))})
	}
	if s.cfg.Pprof {
		table = append(table, []resource{
			{port: operator, route: pprofPrefix + "*", role: anyone, methods: get(unhurried(pprof.Index))},
			{port: operator, route: pprofPrefix + "cmdline", role: anyone, methods: get(unhurried(pprof.Cmdline))},
			{port: operator, route: pprofPrefix + "profile", role: anyone, methods: get(unhurried(pprof.Profile))},
			{port: operator, route: pprofPrefix + "trace", role: anyone, methods: get(unhurried(pprof.Trace))},
			{port: operator, route: pprofPrefix + "symbol", role: anyone, methods: methods{
				{http.MethodGet, unhurried(pprof.Symbol)},
				{http.MethodPost, s.symbol},
			}},
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
func permit(_ *http.Request, needed role) error {
	if needed == anyone {
		return nil
	}
	return refuse(fsm.CodeForbidden, "this request needs the role %q", needed)
}

// answer answers a request for a resource of either port. The port has set who may read the answer (CORS).
func (s *Service) answer(c echo.Context, res resource) error {
	r, header := c.Request(), c.Response().Header()
	i := slices.IndexFunc(res.methods, func(m method) bool { return m.name == r.Method || m.name == every })
	if i < 0 && r.Method == http.MethodOptions { // before the role is asked for: a preflight shows none
		header.Set("Allow", res.allow())
		s.origins.preflight(header, r, res.allow())
		header.Set("Cache-Control", "no-store")
		return c.NoContent(http.StatusNoContent)
	}
	if err := s.permit(r, res.role); err != nil {
		return err
	}
	if i < 0 {
		header.Set("Allow", res.allow())
		return refuse(fsm.CodeMethodNotAllowed, "%s", cmp.Or(res.usage, "this path does not support this method"))
	}
	return res.methods[i].handle(c)
}

func (res resource) allow() string {
	names := make([]string, 0, len(res.methods))
	for _, m := range res.methods {
		names = append(names, m.name)
	}
	return strings.Join(names, ", ")
}
