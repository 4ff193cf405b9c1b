// Package operator is the face of the operator port: what an operator, a probe and Prometheus ask for.
package operator

import (
	"context"
	"net/http"
	"net/http/pprof" // adds itself to http.DefaultServeMux, which nothing here serves
	"net/url"
	"time"

	"github.com/labstack/echo/v4"
	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/httpapi/control"
	"reveille/httpapi/fields"
	"reveille/httpapi/paging"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

const readyTimeout = 2 * time.Second

// Health is the health of the program's parts, for an operator.
type Health interface {
	// ReplicaID names the replica that is asked.
	ReplicaID() string
	// Replicas returns the replicas that are alive or have partitions leased, and how many partitions no replica has
	// leased.
	Replicas(ctx context.Context) (all []fsm.ReplicaStatus, unowned int, err error)
	// Answers says whether Redis answers, as this replica last found, and since when it does or does not; zero if that
	// is not known.
	Answers() (up bool, since time.Time)
	StreamServer() fsm.StreamServerStatus
}

// Face answers the operator port. The zero values of MetricsPage, Outbox and Pprof mean none; all other fields are
// required.
type Face struct {
	Control *control.Service
	Offsets fields.Offsets
	Health  Health
	Bodies  web.Bodies
	// WriteTimeout is how long an answer of the port may take.
	WriteTimeout time.Duration
	// Ready returns nil once the program can do its work, or the reason why not.
	Ready func(context.Context) error
	// MetricsPage answers at /metrics.
	MetricsPage http.Handler
	DeliveryLog fsm.DeliveryLog
	// Outbox is nil without direct deliveries.
	Outbox  *control.Outbox
	Version string
	// LogLevel is the level that an operator may change at run time.
	LogLevel zap.AtomicLevel
	// Pprof adds profiles of the program.
	Pprof bool
}

// Resources are the resources of the port.
func (f *Face) Resources() []web.Resource {
	const one = "/api/v1/subscriptions/:id"
	list := func(page web.Page, known ...string) web.Methods {
		return web.Get(web.List(f.Control.View.Partitions(), page, known...))
	}
	table := []web.Resource{
		{Route: "/healthz", Role: web.Anyone, Unguarded: true, Methods: web.Get(fixed("status", "ok"))},
		{Route: "/readyz", Role: web.Anyone, Unguarded: true, Methods: web.Get(f.ready)},
		{Route: "/api/v1/version", Role: web.RoleRead, Methods: web.Get(fixed("version", f.Version))},
		{Route: "/api/v1/status", Role: web.RoleRead, Methods: web.Get(f.showStatus)},
		{Route: "/api/v1/streams", Role: web.RoleRead, Methods: list(f.showStreams, "watched").
			And(http.MethodPost, f.nameStreams("streams named", f.Control.View.Name)).
			And(http.MethodDelete, f.nameStreams("streams forgotten", f.Control.View.Forget))},
		{
			Route: "/api/v1/subscriptions", Role: web.RoleRead,
			Methods: list(pageOf(f.Subscriptions), "failing", "consent"),
		},
		{Route: one, Role: web.RoleRead, Methods: web.Get(f.showSubscription)},
		{
			Route: one + "/deliveries", Role: web.RoleRead,
			Methods: list(f.showDeliveries, deliveryFilters...),
		},
		{Route: one + "/deliveries/:delivery/request", Role: web.RoleOperate, Methods: web.Get(f.showRequest)},
		{
			Route: "/api/v1/deliveries", Role: web.RoleRead,
			Methods: list(pageOf(f.Deliveries), append([]string{"subscription"}, deliveryFilters...)...),
		},
		{
			Route: "/api/v1/audit", Role: web.RoleRead, Whole: true,
			Methods: list(pageOf(f.Audit), "subscription", "since", "until"),
		},
		{Route: "/api/v1/stats", Role: web.RoleRead, Whole: true, Methods: web.Get(f.showAllStats)},
		{Route: one + "/stats", Role: web.RoleRead, Methods: web.Get(f.showStats)},
		{Route: "/api/v1/find", Role: web.RoleRead, Methods: web.Get(f.find)},
		{Route: one + "/pause", Role: web.RoleOperate, Methods: web.Post(f.onConsumers(f.Control.Pause))},
		{Route: one + "/resume", Role: web.RoleOperate, Methods: web.Post(f.onConsumers(f.Control.Resume))},
		{Route: one + "/retry", Role: web.RoleOperate, Methods: web.Post(f.onConsumers(f.Control.Retry))},
		{Route: one + "/rotate-secret", Role: web.RoleOperate, Methods: web.Post(onSubscription(f.rotateSecret))},
		{Route: one + "/consent", Role: web.RoleOperate, Methods: web.Post(onSubscription(f.askConsent))},
		{Route: one + "/test", Role: web.RoleOperate, Methods: web.Post(onSubscription(f.testDelivery))},
		{Route: one + "/replay", Role: web.RoleOperate, Methods: web.Post(f.replaySpan)},
		{Route: one + "/rewind", Role: web.RoleOperate, Methods: web.Post(f.rewind)},
		{Route: "/api/v1/replays", Role: web.RoleRead, Methods: list(pageOf(f.Replays), "subscription", "stream")},
		{Route: "/api/v1/replays/cancel", Role: web.RoleOperate, Methods: web.Post(f.cancelReplays)},
		{Route: "/api/v1/consumers", Role: web.RoleRead, Methods: list(pageOf(f.Consumers), "subscription", "state")},
		{Route: consumerPrefix + "*", Role: web.RoleRead, Methods: web.Get(f.showConsumer)},
		{
			Route: "/api/v1/dead-letters", Role: web.RoleRead,
			Methods: list(pageOf(f.Letters), "subscription", "stream", "since", "until"),
		},
		{Route: "/api/v1/dead-letters/discard", Role: web.RoleOperate, Methods: web.Post(f.discardLetters)},
		{Route: "/api/v1/dead-letters/replay", Role: web.RoleOperate, Methods: web.Post(f.replayLetters)},
		{Route: "/api/v1/dead-letters/:id/replay", Role: web.RoleOperate, Methods: web.Post(f.replayLetter)},
		{Route: "/api/v1/dead-letters/:id", Role: web.RoleRead, Methods: web.Get(f.showLetter).
			And(http.MethodDelete, f.discardLetter)},
		{Route: "/api/v1/log-level", Role: web.RoleRead, Whole: true, Methods: web.Get(f.getLogLevel).
			And(http.MethodPut, f.setLogLevel)},
	}
	if page := f.MetricsPage; page != nil {
		table = append(table,
			web.Resource{Route: "/metrics", Role: web.Anyone, Whole: true, Methods: web.Get(echo.WrapHandler(page))})
	}
	if f.Pprof {
		profile := func(name string, methods web.Methods) web.Resource {
			return web.Resource{Route: pprofPrefix + name, Role: web.RoleOperate, Whole: true, Methods: methods}
		}
		table = append(table,
			profile("*", web.Get(unhurried(pprof.Index))),
			profile("cmdline", web.Get(unhurried(pprof.Cmdline))),
			profile("profile", web.Get(unhurried(pprof.Profile))),
			profile("trace", web.Get(unhurried(pprof.Trace))),
			profile("symbol", web.Get(unhurried(pprof.Symbol)).And(http.MethodPost, f.symbol)),
		)
	}
	return table
}

// pageOf makes a page of what goes by the query alone.
func pageOf[T any](read func(context.Context, url.Values, paging.Page) (T, error)) web.Page {
	return func(ctx context.Context, c echo.Context, p paging.Page) (any, error) {
		return read(ctx, c.QueryParams(), p)
	}
}

// ready answers whether requests should be sent to this replica.
func (f *Face) ready(c echo.Context) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), readyTimeout)
	defer cancel()
	if err := f.Ready(ctx); err != nil {
		return refusal.New(fsm.CodeUnavailable, "not ready: %v", err)
	}
	return web.Answer(c, http.StatusOK, map[string]string{"status": "ready"}, nil)
}

// fixed is a handler whose answer is always the same.
func fixed(name, value string) echo.HandlerFunc {
	return func(c echo.Context) error {
		return web.Answer(c, http.StatusOK, map[string]string{name: value}, nil)
	}
}
