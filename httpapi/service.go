// Package httpapi is what Reveille answers over HTTP. The API port has the subscription API and the callbacks of woken
// workers. If it is enabled, the API port also has a gateway to the stream server. The operator port has health,
// readiness and the operator's requests. The resources of both ports are in one table, Service.resources. Each dialect
// is a face, in a package below: native, operator, ojs.
//
// Requests are told apart by the raw path, percent-encoding included. The reason is that a consumer ID holds "%2F" and
// a stream path is what stands in the URL (webhook spec, Consumer Instance).
package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/fsm/router"
	"reveille/fsm/throttle"
	"reveille/fsm/token"
	"reveille/httpapi/control"
	"reveille/httpapi/fields"
	"reveille/httpapi/native"
	"reveille/httpapi/operator"
	"reveille/httpapi/web"
)

// MaxHeader is the size of a request's header, in bytes.
const MaxHeader = 64 << 10

// The defaults of Config, and the time-outs of the servers.
const (
	DefaultMaxStreams  = 1000
	DefaultBodyTimeout = 15 * time.Second
	DefaultMaxConns    = 10_000
	DefaultHeadTimeout = time.Second
	// DefaultOutboxRoll is as long as delivered events are kept by default.
	DefaultOutboxRoll = fsm.OutboxRetention

	readHeaderTimeout    = 10 * time.Second
	idleTimeout          = 2 * time.Minute
	operatorReadTimeout  = 30 * time.Second
	operatorWriteTimeout = 2 * time.Minute
)

// Config is what a Service needs of the rest of the program.
type Config struct {
	Store    Store
	Upstream Upstream
	Streams  Streams
	Outcomes *router.Router
	Targets  fields.Targets
	Tester   control.Tester
	// Rebuilder builds the requests of logged attempts again, for operators.
	Rebuilder control.Rebuilder
	// Consents is nil if no endpoint is asked for its consent.
	Consents control.Consents
	Health   operator.Health
	Tokens   *token.Tokens
	// Ready returns nil once the program can do its work, or the reason why not. It is asked by /readyz.
	Ready func(context.Context) error
	// Logger gets no token, no secret and no URL of a webhook.
	Logger *zap.Logger
	// ErrorLog gets what the HTTP libraries report about connections. Its texts may come from unknown clients. nil
	// drops them.
	ErrorLog *log.Logger
	// Metrics is the registry for the metrics; nil for none. MetricsPage, if set, answers at /metrics of the operator
	// port.
	Metrics     prometheus.Registerer
	MetricsPage http.Handler
	// Tracer gets the spans of callbacks; nil to make none.
	Tracer trace.TracerProvider

	// Gateway sends requests that are not for Reveille to the stream server. Without it they are answered 404.
	Gateway bool
	// UpstreamURL is the stream root: the gateway's path "/a" is "{root}/a" there. Its user, query and fragment are not
	// used. Required with Gateway.
	UpstreamURL *url.URL
	// UpstreamHost is the Host by which the gateway asks upstream. If it is empty, the host of UpstreamURL applies.
	UpstreamHost string
	// PublicURL is where clients find the gateway: a Location from upstream comes back below it. If it is nil, the
	// address that the client used applies.
	PublicURL *url.URL
	// UpstreamTransport sends the gateway's requests. Required with Gateway.
	UpstreamTransport http.RoundTripper
	// RegistryPath is the canonical path of the registry stream. Writes to it and below it concern no subscription. May
	// be empty.
	RegistryPath string

	// OJSStreams makes the API port serve the webhooks of Open Job Spec, for the streams of this pattern, in its
	// canonical form. Empty serves none.
	OJSStreams string
	// Outbox makes the API port take events for direct delivery, which go to streams below this canonical path. Empty
	// takes none.
	Outbox string
	// OutboxRoll is for how long new events of a target go to the same streams. 0 is DefaultOutboxRoll.
	OutboxRoll time.Duration
	// OutboxServer writes and reads these streams. Required with Outbox.
	OutboxServer control.OutboxServer
	// Notices tell operators what goes wrong; nil for none. New sets their Control and Writes.
	Notices *control.Notices
	// DeliveryLog is which attempts the delivery log has: the deliveries of Open Job Spec are read from it. Empty is
	// fsm.LogOff.
	DeliveryLog fsm.DeliveryLog

	// Origins are the web origins ("https://app.example.com") whose pages may use Reveille's own resources from a
	// browser; AnyOrigin allows all of them, but on the API port only. The operator port also answers at their hosts.
	Origins []string
	// OperatorAddr is the address that the operator port is set to listen on. The port answers at the host name in it,
	// even if that is a public one. May be empty.
	OperatorAddr string

	// AdminToken is what the operator port asks for, except for its probes and metrics. ReadToken is another one, for
	// those who may only look. Empty means that the port asks for nothing.
	AdminToken, ReadToken string

	// MaxStreamsPerConsumer bounds how many streams a consumer may be subscribed to. 0 is DefaultMaxStreams.
	MaxStreamsPerConsumer int
	// MaxConnections bounds the connections of the API port. 0 is DefaultMaxConns.
	MaxConnections int
	// BodyTimeout is how long the body of a subscription or a callback may take to arrive. 0 is DefaultBodyTimeout.
	BodyTimeout time.Duration
	// HeadTimeout is how long a callback waits for one answer of upstream before it goes on without. 0 is
	// DefaultHeadTimeout.
	HeadTimeout time.Duration
	// Clock judges the expiry of tokens. nil is time.Now.
	Clock func() time.Time
	// Version of the program, for /api/v1/version.
	Version string
	// LogLevel is the level that an operator may change at run time. The zero value is a level that nothing follows.
	LogLevel zap.AtomicLevel
	// Pprof makes the operator port answer with profiles of the program at /debug/pprof/.
	Pprof bool
}

// Service answers both ports. It is safe for concurrent use and has no goroutine of its own but Run.
type Service struct {
	cfg     Config
	log     *zap.Logger
	metrics *metrics
	gateway *gateway
	origins origins
	bodies  web.Bodies
	control *control.Service
	fields  fields.Reader
	native  *native.Face
	// outbox is nil without direct deliveries.
	outbox *control.Outbox
	// operatorName is the host name of Config.OperatorAddr; empty for none.
	operatorName string
	api          *echo.Echo
	operator     *echo.Echo
	// table has the resources of both ports. permit returns the principal of a request, if it has the role that a
	// resource needs.
	table  []web.Resource
	permit func(r *http.Request, needed fsm.Role) (fsm.Principal, error)
	// unavailable and broken are what was logged about requests that were answered with 503 and 500.
	unavailable, broken throttle.Trouble
}

// New returns a Service, or an error that names the field of the Config that is missing or out of bounds.
func New(cfg Config) (*Service, error) {
	missing := map[string]bool{
		"Store": cfg.Store == nil, "Upstream": cfg.Upstream == nil, "Streams": cfg.Streams == nil,
		"Outcomes": cfg.Outcomes == nil, "Targets": cfg.Targets == nil, "Tokens": cfg.Tokens == nil,
		"Tester": cfg.Tester == nil, "Rebuilder": cfg.Rebuilder == nil, "Health": cfg.Health == nil,
		"Ready": cfg.Ready == nil, "Logger": cfg.Logger == nil, "UpstreamURL": cfg.Gateway && cfg.UpstreamURL == nil,
		"UpstreamTransport": cfg.Gateway && cfg.UpstreamTransport == nil,
		"OutboxServer":      cfg.Outbox != "" && cfg.OutboxServer == nil,
	}
	for field, is := range missing {
		if is {
			return nil, fmt.Errorf("httpapi: Config.%s is missing", field)
		}
	}
	if cfg.MaxStreamsPerConsumer < 0 || cfg.MaxConnections < 0 || cfg.BodyTimeout < 0 || cfg.HeadTimeout < 0 {
		return nil, errors.New("httpapi: MaxStreamsPerConsumer, MaxConnections, BodyTimeout and HeadTimeout " +
			"of Config cannot be negative")
	}
	cfg.MaxStreamsPerConsumer = cmp.Or(cfg.MaxStreamsPerConsumer, DefaultMaxStreams)
	cfg.MaxConnections = cmp.Or(cfg.MaxConnections, DefaultMaxConns)
	cfg.BodyTimeout = cmp.Or(cfg.BodyTimeout, DefaultBodyTimeout)
	cfg.HeadTimeout = cmp.Or(cfg.HeadTimeout, DefaultHeadTimeout)
	cfg.LogLevel = cmp.Or(cfg.LogLevel, zap.NewAtomicLevel())
	cfg.ErrorLog = cmp.Or(cfg.ErrorLog, log.New(io.Discard, "", 0))
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	s := &Service{
		cfg: cfg, log: cfg.Logger, metrics: newMetrics(cfg.Metrics),
		bodies:  web.Bodies{Timeout: cfg.BodyTimeout, Arrived: arrived},
		fields:  fields.Reader{Targets: cfg.Targets, Offsets: cfg.Upstream},
		origins: newOrigins(cfg.Origins), operatorName: hostname(cfg.OperatorAddr),
		permit: permits(cfg.AdminToken, cfg.ReadToken),
	}
	s.control = &control.Service{
		View: control.NewView(cfg.Store, cfg.Streams), Upstream: cfg.Upstream, Tester: cfg.Tester,
		Rebuilder: cfg.Rebuilder, Consents: cfg.Consents,
		Differences: fields.Differences,
		Outcomes:    cfg.Outcomes, Clock: cfg.Clock, Log: cfg.Logger,
	}
	s.native = native.New(native.Config{
		Control: s.control, Store: cfg.Store, Streams: cfg.Streams, Upstream: cfg.Upstream, Tokens: cfg.Tokens,
		Bodies: s.bodies, Fields: s.fields, MaxStreams: cfg.MaxStreamsPerConsumer, HeadTimeout: cfg.HeadTimeout,
		Refusal: s.refusalFor, Metrics: cfg.Metrics, Tracer: cfg.Tracer,
	})
	if cfg.Gateway {
		s.gateway = newGateway(cfg, s.metrics)
	}
	if cfg.Outbox != "" {
		s.outbox = &control.Outbox{
			Control: s.control, Store: cfg.Store, Server: cfg.OutboxServer, Writes: cfg.Streams, Root: cfg.Outbox,
			Roll: cmp.Or(cfg.OutboxRoll, DefaultOutboxRoll),
		}
	}
	if cfg.Notices != nil {
		cfg.Notices.Control, cfg.Notices.Writes = s.control, cfg.Streams
	}
	s.table = s.resources()
	s.api, s.operator = s.newAPI(), s.newOperator()
	return s, nil
}

// API returns the handler of the API port. It must see requests as they came: no prefix stripped, no path cleaned.
func (s *Service) API() http.Handler { return s.api }

// Operator returns the handler of the operator port.
func (s *Service) Operator() http.Handler { return s.operator }

// APIServer returns the server of the API port, not started. It must serve a listener of Listen. It has no WriteTimeout
// and no ReadTimeout, because reads that wait for events and long uploads pass through it. The bodies that Reveille
// itself reads have Config.BodyTimeout, and each piece of an answer has writeTimeout.
func (s *Service) APIServer(addr string) *http.Server {
	return &http.Server{
		Addr: addr, Handler: s.API(), ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: MaxHeader, ErrorLog: s.cfg.ErrorLog, ConnContext: keepConn, ConnState: noteState,
	}
}

// OperatorServer returns the server of the operator port, not started.
func (s *Service) OperatorServer(addr string) *http.Server {
	return &http.Server{
		Addr: addr, Handler: s.Operator(), ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: operatorReadTimeout,
		WriteTimeout: operatorWriteTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: MaxHeader,
		ErrorLog: s.cfg.ErrorLog,
	}
}

// Run does what no request asks for, until ctx is done: it has delayed events delivered.
func (s *Service) Run(ctx context.Context) error {
	if s.outbox != nil {
		return s.outbox.Run(ctx)
	}
	<-ctx.Done()
	return nil
}

// Close closes the idle connections to upstream. It is called after the servers were shut down.
func (s *Service) Close() {
	if s.gateway != nil {
		(&http.Client{Transport: s.gateway.transport}).CloseIdleConnections()
	}
}

func (s *Service) newEcho() *echo.Echo {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.HTTPErrorHandler = s.answerError
	e.Logger.SetOutput(s.cfg.ErrorLog.Writer())
	return e
}
