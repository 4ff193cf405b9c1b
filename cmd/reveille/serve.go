package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"reveille/dispatcher"
	"reveille/fsm"
	"reveille/fsm/router"
	"reveille/fsm/throttle"
	"reveille/httpapi"
	"reveille/httpapi/control"
	"reveille/httpapi/ojs"
	"reveille/httpapi/web"
	"reveille/redisstore"
	"reveille/tailer"
	"reveille/tailer/discovery"
	"reveille/tailer/upstream"
)

// The parts stop one after the other, all within 30 s. Watching stops at once, deliveries in flight within
// deliveryGrace, then the ports within portGrace. So workers can call back until the end.
const (
	deliveryGrace = 15 * time.Second
	portGrace     = 5 * time.Second
	// redisRetry is the pause between two attempts to reach Redis at the start.
	redisRetry = 500 * time.Millisecond
	// resignTime bounds the call at a stop that gives the partitions to the other replicas.
	resignTime = 2 * time.Second
)

func serve(ctx context.Context, s settings, warnings []string, log *zap.Logger, level zap.AtomicLevel) error {
	for _, w := range warnings {
		log.Warn(w)
	}
	warnOfFiles(s, log)
	warnOfOrigin(s, log)
	traces, err := newTracing(ctx, s.otel, replicaID(s.ListenAddr), log.Named("traces"))
	if err != nil {
		return err
	}
	defer traces.stop(ctx)
	redisstore.LogTo(log.Named("redis"))
	rdb, closeRedis, err := redisstore.Connect(s.RedisURL, s.redisCA)
	if err != nil {
		return s.blame(err)
	}
	defer func() { _ = closeRedis() }()
	p, err := assemble(s, rdb, log, level, newRegistry(), traces)
	if err != nil {
		return err
	}
	apiPort, err := listen(ctx, "LISTEN_ADDR", s.ListenAddr)
	if err != nil {
		return err
	}
	operatorPort, err := listen(ctx, "OPERATOR_ADDR", s.OperatorAddr)
	if err != nil {
		return errors.Join(err, apiPort.Close())
	}
	return p.run(ctx, apiPort, operatorPort)
}

func listen(ctx context.Context, name, addr string) (net.Listener, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s_%s=%q: the address is in use by another program", prefix, name, addr)
	case err != nil:
		return nil, &settingError{
			name: prefix + "_" + name, value: addr,
			expected: "an address to listen on (" + err.Error() + ")",
		}
	}
	return ln, nil
}

// program holds the parts and what /readyz reports.
type program struct {
	settings   settings
	log        *zap.Logger
	store      *redisstore.Store
	tailer     *tailer.Tailer
	dispatcher *dispatcher.Dispatcher
	api        *httpapi.Service
	// events is nil if no events are published.
	events  *ojs.Publisher
	notices *control.Notices
	// checked is true once Redis was found fit. stopping is true once the program was told to stop.
	checked, stopping atomic.Bool
	// unfit is why Redis was not fit at the last check.
	unfit atomic.Pointer[error]
}

func assemble(
	s settings, rdb redis.UniversalClient, log *zap.Logger, level zap.AtomicLevel, metrics registry, traces *tracing,
) (*program, error) {
	p := &program{settings: s, log: log}
	tracer := traces.forParts()
	outcomes := router.New(
		router.Observer{Transition: newConsumersGone(metrics, log.Named("consumers")).followed},
		router.Observer{Transition: newWakesEnded(metrics).followed}, traces.observer(),
	)
	outage := &throttle.Outage{}
	p.store = redisstore.New(rdb, redisstore.Options{
		Partitions: s.Partitions, Embedded: s.RedisURL == redisstore.Embedded, Upstream: s.UpstreamName,
		Logger: log.Named("redis"), ReplicaID: replicaID(s.ListenAddr), TokenKeys: s.tokens.Fingerprints(),
		Outcomes: outcomes, Outage: outage, Metrics: metrics, Untraced: tracer == nil,
		LetterRetention: s.DeadLetterRetention, MaxLetters: s.MaxDeadLetters, DeliveryLog: s.DeliveryLog,
		LoggedAnswers: s.DeliveryLogBodies,
		Outbox:        s.Outbox != "",
		Hinted:        func(h fsm.Hint) { p.tailer.Hinted(h) }, // from when the store runs
		Timing: fsm.Timing{
			Waking: s.WakingTimeout, Request: s.WebhookTimeout, Liveness: s.LivenessTimeout,
			GoneGrace: s.StreamGoneGrace, GCAfter: s.GCAfter,
		},
	})
	p.store.Catalog().KeepForOutbox(s.Outbox)
	var err error
	p.dispatcher, err = dispatcher.New(dispatcher.Config{
		Store: p.store, Outcomes: outcomes, Tokens: s.tokens, PublicURL: s.PublicURL,
		UserAgent: "Reveille/" + programVersion(), Logger: log.Named("dispatcher"), Outage: outage,
		KeepAnswers:    s.DeliveryLogBodies == fsm.LogAll && s.DeliveryLog == fsm.LogAll,
		RequestTimeout: s.WebhookTimeout, ConnectionAge: s.WebhookConnectionAge, WakingTimeout: s.WakingTimeout,
		MaxInFlight:                s.MaxInFlight,
		MaxInFlightPerSubscription: s.MaxInFlightPerSubscription, MaxQueued: s.MaxQueuedWakes, MaxRate: s.MaxRate,
		Consent: s.Consent, Origin: s.Origin, UnconsentedRate: s.UnconsentedRate,
		ShutdownGrace: deliveryGrace, LogSummary: s.LogSummary, Metrics: metrics,
		AllowInsecure: s.AllowInsecureWebhooks,
		AllowCIDRs:    s.WebhookAllowCIDRs, ProxyFromEnvironment: s.WebhookProxyFromEnv, Tracer: tracer,
		ReadBatch: func(
			ctx context.Context, reader, path string, at, end fsm.Offset, events int, span int64,
			matches func([]byte) bool,
		) (fsm.Batch, error) {
			return p.tailer.Upstream().ReadBatch(ctx, reader, path, at, end, events, span, matches)
		},
	})
	if err != nil {
		return nil, err
	}
	p.tailer, err = tailer.New(tailer.Config{
		Upstream: upstream.Config{
			URL: s.upstream, H2C: s.UpstreamH2C, Headers: http.Header(s.UpstreamHeaders),
			Dialect: s.UpstreamDialect, SigningKey: s.UpstreamSigningKey, TailMode: s.TailMode,
		},
		Discovery: discovery.Config{Registry: s.RegistryStream, Names: s.Streams},
		Store:     p.store, Outcomes: outcomes, Logger: log.Named("tailer"), Metrics: metrics,
		Check: s.TailCheck, ClosedCheck: s.ClosedCheck, MaxLive: s.TailMaxLive,
		SweepRate: s.TailSweepRate, GoneGrace: s.StreamGoneGrace,
	})
	if err != nil {
		return nil, err
	}
	outcomes.Connect(p.dispatcher, p.tailer)
	if s.EventsStream != "" {
		p.events = ojs.NewPublisher(ojs.PublisherConfig{
			Stream: s.EventsStream, Source: s.PublicURL, Catalog: p.store.Catalog(), Server: p.tailer.Upstream(),
			Writes: p.tailer.Discovery(), Logger: log.Named("events"), Metrics: metrics,
		})
		outcomes.Observe(p.events.Observer())
	}
	p.notices = &control.Notices{
		Store: p.store, Server: p.tailer.Upstream(), Stream: s.EventsStream, Source: s.PublicURL,
		Webhook: s.NoticeWebhook, Check: p.dispatcher.CheckTarget, After: s.NoticeAfter, Letters: s.NoticeLetters,
	}
	outcomes.Observe(p.notices.Observer())
	var consents control.Consents
	if s.Consent != fsm.ConsentOff {
		consents = p.dispatcher
	}
	p.api, err = httpapi.New(httpapi.Config{
		Store: p.store, Upstream: p.tailer.Upstream(), Streams: p.tailer.Discovery(), Outcomes: outcomes,
		Targets: p.dispatcher, Tester: p.dispatcher, Rebuilder: p.dispatcher, Consents: consents,
		Health:       health{p.store, p.tailer},
		Tokens:       s.tokens,
		UpstreamURL:  s.upstream,
		UpstreamHost: http.Header(s.UpstreamHeaders).Get("Host"), PublicURL: s.public,
		UpstreamTransport: upstream.NewGatewayTransport(s.UpstreamH2C), Gateway: s.Gateway,
		AdminToken: s.AdminToken, ReadToken: s.ReadToken,
		Origins: s.Origins, RegistryPath: s.RegistryStream, Metrics: metrics,
		MetricsPage: scrapes(metrics, log.Named("metrics")), MaxStreamsPerConsumer: s.MaxStreamsPerConsumer,
		MaxConnections: s.MaxConnections, Logger: log.Named("api"), ErrorLog: newRemarks(log.Named("api")).logger(),
		Version: programVersion(), Ready: p.ready,
		LogLevel: level, Pprof: s.Pprof, Tracer: tracer, OperatorAddr: s.OperatorAddr,
		OJSStreams: when(s.OJS, s.OJSStreams), DeliveryLog: s.DeliveryLog, Outbox: s.Outbox,
		OutboxServer: p.tailer.Upstream(), OutboxRoll: s.OutboxRoll, Notices: p.notices,
	})
	return p, err
}

// health has what the operator's status shows.
type health struct {
	*redisstore.Store
	tailer *tailer.Tailer
}

// StreamServer implements operator.Health.
func (h health) StreamServer() fsm.StreamServerStatus { return h.tailer.Status() }

// ready answers /readyz.
func (p *program) ready(ctx context.Context) error {
	switch {
	case p.stopping.Load():
		return errors.New("the program is stopping")
	case !p.checked.Load():
		if err := p.unfit.Load(); err != nil {
			return fmt.Errorf("waiting for redis: %w", *err)
		}
		return errors.New("redis has not answered yet")
	case !p.store.Catalog().Loaded():
		return errors.New("the subscriptions have not been read yet")
	}
	if err := p.store.Ping(ctx); err != nil {
		return err
	}
	return p.tailer.Discovery().Ready(ctx)
}

// gate answers 503 until Redis was found fit. A client must not wait for that. The program must not write to a database
// that was set up otherwise.
func (p *program) gate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.checked.Load() {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(web.Status(fsm.CodeUnavailable))
		_, _ = fmt.Fprintf(w,
			`{"error":{"code":%q,"message":"the program has just started and waits for redis, try again"}}`+"\n",
			fsm.CodeUnavailable)
	})
}

// run starts the parts and stops them in order once ctx is done or one of them has failed.
func (p *program) run(ctx context.Context, apiPort, operatorPort net.Listener) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	// Deliveries in flight need these parts after the end of ctx.
	background := context.WithoutCancel(ctx)
	ports, closePorts := context.WithCancel(background)
	defer closePorts()
	state, closeState := context.WithCancel(background)
	defer closeState()

	var work, rest errgroup.Group
	start := func(g *errgroup.Group, ctx context.Context, part func(context.Context) error) {
		g.Go(func() error {
			defer end()
			return part(ctx)
		})
	}
	// The ports answer from the start, the API with 503. The other parts wait until Redis was found fit.
	api := p.api.APIServer(apiPort.Addr().String())
	api.Handler = p.gate(api.Handler)
	start(&rest, ports, func(ctx context.Context) error { return servePort(ctx, api, p.api.Listen(apiPort)) })
	start(&rest, ports, func(ctx context.Context) error {
		return servePort(ctx, p.api.OperatorServer(operatorPort.Addr().String()), operatorPort)
	})
	err := p.check(ctx)
	if err == nil && ctx.Err() == nil {
		p.checked.Store(true)
		start(&rest, state, p.store.Run)
		if p.events != nil { // events go on until the last delivery is over
			start(&rest, state, p.events.Run)
		}
		start(&rest, state, p.notices.Run)
		start(&work, ctx, p.dispatcher.Run)
		start(&work, ctx, p.tailer.Run)
		start(&work, ctx, p.api.Run)
		p.log.Info("started", zap.String("version", programVersion()), zap.String("api", apiPort.Addr().String()),
			zap.String("operator", operatorPort.Addr().String()))
		<-ctx.Done()
		p.log.Info("stopping: no new work; waiting for requests in flight")
		p.resign(background)
	}
	p.stopping.Store(true)
	end()
	err = errors.Join(err, work.Wait())
	closePorts()
	closeState()
	err = errors.Join(err, rest.Wait())
	p.api.Close()
	p.log.Info("stopped")
	return err
}

// resign gives the partitions to the other replicas, so that they take over at once.
func (p *program) resign(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, resignTime)
	defer cancel()
	if err := p.store.Resign(ctx); err != nil {
		p.log.Warn("the partitions could not be released; other replicas take them when the leases expire",
			zap.Error(err))
	}
}

// replicaID stays the same after a crash and a restart. No other running program has it. It is the host's name (in
// Kubernetes, the pod's name) and the address of the API port.
func replicaID(listenAddr string) string {
	host, err := os.Hostname()
	if err != nil {
		host = rand.Text()
	}
	return host + "/" + listenAddr
}

// check waits for Redis and returns an error if it is not fit.
func (p *program) check(ctx context.Context) error {
	for said := false; ; {
		err := p.store.Check(ctx)
		if err == nil {
			err = p.store.Join(ctx)
		}
		if err == nil || ctx.Err() != nil {
			return nil
		}
		p.unfit.Store(&err)
		if !errors.Is(err, fsm.ErrUnavailable) {
			return p.settings.blame(err)
		}
		if !said {
			said = true
			p.log.Warn("redis does not answer; the start waits for it", zap.Error(err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(redisRetry):
		}
	}
}

// servePort serves until ctx is done, then lets requests end for portGrace.
func servePort(ctx context.Context, server *http.Server, ln net.Listener) error {
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), portGrace)
		defer cancel()
		err := server.Shutdown(grace)
		if errors.Is(err, context.DeadlineExceeded) {
			// Long-polls and event streams through the gateway do not end by themselves. Their clients reconnect.
			err = server.Close()
		}
		stopped <- err
	}()
	if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", ln.Addr(), err)
	}
	return <-stopped
}
