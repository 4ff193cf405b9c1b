package dispatcher

import (
	"cmp"
	"container/list"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/fsm/bell"
	"reveille/fsm/router"
	"reveille/fsm/span"
	"reveille/fsm/throttle"
	"reveille/fsm/token"
)

// BatchReader reads at most so many events of a stream from a position on, and none behind an end unless that is empty.
// span is the Span of the batch that an attempt before has had, 0 without one: no more of the stream is looked at. If
// matches is not nil, the batch has only events of JSON that it is true of, and may have none though the stream goes on
// behind it.
//
// A reader that comes back for those behind the last ones gets them sooner; it reads one stream, and what is made anew
// has another reader. The error wraps fsm.ErrNoStream if there is no such stream.
type BatchReader func(
	ctx context.Context, reader, path string, at, end fsm.Offset, events int, span int64,
	matches func(event []byte) bool,
) (fsm.Batch, error)

// Config of a Dispatcher. Store, Outcomes, Tokens and PublicURL are required; a zero in any other field is its default.
type Config struct {
	Store    Store
	Outcomes *router.Router
	Tokens   *token.Tokens
	// PublicURL is what callback URLs begin with.
	PublicURL string
	// ReadBatch is nil if no subscription has fsm.ModePush.
	ReadBatch BatchReader
	// UserAgent of the requests; default "Reveille".
	UserAgent string
	Logger    *zap.Logger
	// Outage is what the tasks of this process know together of a store that does not answer; nil for the dispatcher
	// alone.
	Outage *throttle.Outage
	// Metrics is what the metrics are registered with; nil for nowhere.
	Metrics prometheus.Registerer
	// Tracer gets the spans of delivery attempts; nil to make none.
	Tracer trace.TracerProvider
	// Clock dates signatures and tokens; default time.Now.
	Clock func() time.Time

	// RequestTimeout bounds one request, its answer's body included (webhook spec, Webhook Request
	// Timeout); default 30 s.
	RequestTimeout time.Duration
	// KeepAnswers has observers get the beginning of the answer of a 2xx, too (fsm.Attempt.Answer).
	KeepAnswers bool
	// ConnectionAge is how long a connection to a webhook is used; then the next one is made to what its host's name
	// resolves to by then. Default 1 min; up to a quarter less, so that not all hosts get new ones at once.
	ConnectionAge time.Duration
	// WakingTimeout is the store's (fsm.Timing): the deadline that an attempt is handed out with. Default 10 s.
	WakingTimeout time.Duration
	// MaxInFlight bounds the requests in flight; default 1024.
	MaxInFlight int
	// MaxInFlightPerSubscription bounds those of one subscription and must be less than MaxInFlight; default 64.
	MaxInFlightPerSubscription int
	// MaxQueued bounds the wakes that wait for a slot; one beyond it is given back and comes again later. Default
	// 100,000.
	MaxQueued int
	// MaxRate is how many requests a minute an endpoint gets at most, up to fsm.MaxRate; 0 for any.
	MaxRate int
	// Consent says what an endpoint gets that has not agreed to deliveries; default fsm.ConsentOff. With
	// fsm.ConsentAsk, it gets UnconsentedRate requests a minute; default 60. Endpoints are asked that often for consent
	// at most. Origin is the DNS name that they are asked by; required unless Consent is off.
	Consent         fsm.ConsentMode
	UnconsentedRate int
	Origin          string
	// DueInterval is how often deadlines are looked at when none is known to be sooner; default 200 ms.
	DueInterval time.Duration
	// LogSummary is how often the log says how many deliveries were taken, if there were any; 0 for never.
	LogSummary time.Duration
	// ShutdownGrace is how long requests in flight may go on after Run's context ended; default 20 s. The results of
	// those that end then are reported within another reportGrace.
	ShutdownGrace time.Duration

	// AllowInsecure allows http: and targets on this machine and in private networks.
	AllowInsecure bool
	// AllowCIDRs are ranges that wakes may be sent to although they are not public. A cloud metadata address is allowed
	// only by a prefix of just that address.
	AllowCIDRs []netip.Prefix
	// ProxyFromEnvironment uses HTTP_PROXY, HTTPS_PROXY and NO_PROXY, which are ignored otherwise. A proxy resolves
	// names by itself: what a target's name means there cannot be judged here.
	ProxyFromEnvironment bool

	// For tests: the resolver of host names, where proxies are known from, and how long a wake waits until the store is
	// told.
	resolver  *net.Resolver
	proxy     func(*http.Request) (*url.URL, error)
	parkAfter time.Duration
}

const (
	// reportTimeout bounds how long the result of one attempt is offered to a store that is not available.
	reportTimeout = 10 * time.Second
	// reportGrace bounds it when the program stops.
	reportGrace = 5 * time.Second
	// maxInFlightBytes bounds what the wakes in flight take of the memory: a wake can name a thousand streams.
	maxInFlightBytes = 256 << 20
	// parkers is how many calls to Park may be under way at once.
	parkers = 8
	// parkAfter is how long a wake waits for a free slot before the store is told of it; less if the deadline that it
	// was handed out with would be near.
	parkAfter = time.Second
	// parkTime is how long a wake that waits for a free slot is left alone before another replica may take it: well
	// over the time that a request may stay open.
	parkTime = time.Minute
	// handBackTime bounds how long a program that stops takes to hand back the wakes that wait.
	handBackTime = 5 * time.Second
	// forgetEvery is how often what is known of deleted subscriptions is dropped at least, forgetPause the
	// least time in between.
	forgetEvery = time.Minute
	forgetPause = time.Second
)

func (c *Config) setDefaults() error {
	switch {
	case c.Store == nil, c.Outcomes == nil, c.Tokens == nil:
		return errors.New("dispatcher: Store, Outcomes and Tokens are required")
	case c.PublicURL == "":
		return errors.New("dispatcher: PublicURL is required")
	}
	c.PublicURL = strings.TrimRight(c.PublicURL, "/")
	c.UserAgent = cmp.Or(c.UserAgent, "Reveille")
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 30*time.Second)
	c.ConnectionAge = cmp.Or(c.ConnectionAge, time.Minute)
	c.WakingTimeout = cmp.Or(c.WakingTimeout, 10*time.Second)
	c.parkAfter = cmp.Or(c.parkAfter, min(parkAfter, c.WakingTimeout/4))
	c.MaxInFlight = cmp.Or(c.MaxInFlight, 1024)
	c.MaxInFlightPerSubscription = cmp.Or(c.MaxInFlightPerSubscription, 64)
	c.MaxQueued = cmp.Or(c.MaxQueued, 100_000)
	c.Consent = cmp.Or(c.Consent, fsm.ConsentOff)
	c.UnconsentedRate = cmp.Or(c.UnconsentedRate, 60)
	if c.Consent != fsm.ConsentOff && !fsm.IsDNSName(c.Origin) {
		return errors.New("dispatcher: Origin is not a DNS name")
	}
	c.DueInterval = cmp.Or(c.DueInterval, 200*time.Millisecond)
	c.ShutdownGrace = cmp.Or(c.ShutdownGrace, 20*time.Second)
	c.Logger = cmp.Or(c.Logger, zap.NewNop())
	c.Outage = cmp.Or(c.Outage, &throttle.Outage{})
	c.resolver = cmp.Or(c.resolver, net.DefaultResolver)
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.proxy == nil {
		c.proxy = http.ProxyFromEnvironment
	}
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"RequestTimeout", int64(c.RequestTimeout)},
		{"ConnectionAge", int64(c.ConnectionAge)},
		{"WakingTimeout", int64(c.WakingTimeout)},
		{"MaxInFlightPerSubscription", int64(c.MaxInFlightPerSubscription)},
		{"MaxQueued", int64(c.MaxQueued)},
		{"MaxRate", int64(c.MaxRate)},
		{"UnconsentedRate", int64(c.UnconsentedRate)},
		{"DueInterval", int64(c.DueInterval)},
		{"ShutdownGrace", int64(c.ShutdownGrace)},
	} {
		if n.value < 0 {
			return fmt.Errorf("dispatcher: %s must not be negative", n.name)
		}
	}
	if c.MaxInFlightPerSubscription >= c.MaxInFlight {
		return fmt.Errorf("dispatcher: MaxInFlightPerSubscription (%d) must be less than MaxInFlight (%d)",
			c.MaxInFlightPerSubscription, c.MaxInFlight)
	}
	return nil
}

// Dispatcher delivers wakes. It is safe for concurrent use.
type Dispatcher struct {
	cfg     Config
	log     *zap.Logger
	guard   *guard
	sender  *sender
	stages  stages
	kinds   map[fsm.Mode]kind
	outage  *outage
	metrics *metrics
	rates   *rates
	asks    *asks
	// deliveries is the observer that logs them.
	deliveries *deliveryLog
	losses     *losses
	traces     tracing

	// requests is the context of every request, reports that of every call to the store about one. Both outlive the
	// context of Run for a bounded time.
	requests, reports             context.Context
	cancelRequests, cancelReports context.CancelFunc
	// attempts counts those that hold slots, and what hands back waiting wakes at a stop.
	attempts sync.WaitGroup
	// pool are the goroutines that make attempts, idle is how many of them wait for work.
	pool sync.WaitGroup
	idle atomic.Int32
	work chan func() bool

	// Each of these wakes the goroutines that work through what waits: toParkNow and toPark, unlisted, toAsk, and back.
	parkReady, unlistedReady, askReady, backReady bell.Bell
	// name is what the store knows this process by, as it asks for attempts (Begin).
	name string

	mu      sync.Mutex
	stopped bool
	slots   *slots
	// toParkNow are wakes that the store is to be told of at once; toPark are those that it is to be told of if they
	// wait for long, in the order of their times.
	toParkNow, toPark list.List
	// toAsk are wakes for which the store did not answer as their turn had come, in the order of their times. back are
	// those that are not kept. begun counts the wakes that the store was asked for.
	toAsk list.List
	back  []wakeBack
	begun int
	// unlisted are wakes of subscriptions that the catalog does not hold (yet).
	unlisted []fsm.Delivery
	// tests are the subscriptions that have a test delivery in flight.
	tests map[string]struct{}
	// rebuilding has an entry for each request that is built again.
	rebuilding chan struct{}
	// dropped is what was logged of wakes beyond MaxQueued, unreported of results that the store did not take, broken
	// of errors of the store other than an outage, unreadable of events that could not be read.
	dropped, unreported, broken, unreadable throttle.Trouble
}

var _ router.Deliverer = (*Dispatcher)(nil)

// New returns a Dispatcher, or an error that names the field of the Config that is wrong. Its Run must be called.
func New(cfg Config) (*Dispatcher, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	m := newMetrics(cfg.Metrics, maxLabels)
	d := &Dispatcher{
		cfg:           cfg,
		metrics:       m,
		log:           cfg.Logger,
		deliveries:    newDeliveryLog(cfg.Logger, cfg.Clock),
		losses:        &losses{log: cfg.Logger, now: cfg.Clock, counter: m.notKept},
		guard:         newGuard(cfg.AllowInsecure, cfg.AllowCIDRs, cfg.resolver),
		outage:        &outage{cfg.Outage, cfg.Logger, cfg.Clock},
		traces:        tracing{span.New(cfg.Tracer, "reveille/dispatcher")},
		parkReady:     make(bell.Bell, parkers),
		unlistedReady: bell.New(),
		askReady:      bell.New(),
		backReady:     bell.New(),
		name:          rand.Text(),
		work:          make(chan func() bool),
		tests:         map[string]struct{}{},
		rebuilding:    make(chan struct{}, maxRebuilding),
		slots:         newSlots(cfg.MaxInFlight, cfg.MaxInFlightPerSubscription, cfg.MaxQueued, maxInFlightBytes, m),
	}
	d.rates = newRates(d)
	d.asks = newAsks()
	d.watch(cfg.Metrics)
	cfg.Outcomes.Observe(router.Observer{Attempt: m.attempted})
	cfg.Outcomes.Observe(router.Observer{Attempt: d.deliveries.attempted})
	d.sender, d.stages, d.kinds = newSender(cfg, d.guard), d.newStages(), d.newKinds()
	d.requests, d.cancelRequests = context.WithCancel(context.Background())
	d.reports, d.cancelReports = context.WithCancel(context.Background())
	return d, nil
}

// CheckTarget returns an error that says why wakes may not be sent to a URL, in one sentence that begins with
// "webhook" (webhook spec, SSRF Prevention). It may ask the resolver, for 2 s at most.
func (d *Dispatcher) CheckTarget(ctx context.Context, url string) error {
	return d.guard.checkTarget(ctx, url)
}

// Run acts on deadlines and works through what waits, until its context ends. Then no new work is taken, what waits is
// handed back to the store, and requests in flight get ShutdownGrace to end and to be reported. It returns nil.
func (d *Dispatcher) Run(ctx context.Context) error {
	var workers sync.WaitGroup
	workers.Go(func() { d.runTimers(ctx) })
	workers.Go(func() { d.runUnlisted(ctx) })
	workers.Go(func() { d.runForget(ctx) })
	workers.Go(func() { d.runProbes(ctx) })
	if d.cfg.Consent != fsm.ConsentOff {
		workers.Go(func() { d.runConsents(ctx) })
	}
	if d.cfg.LogSummary > 0 {
		workers.Go(func() { d.runSummary(ctx) })
	}
	workers.Go(func() { d.runAsker(ctx) })
	workers.Go(func() { d.runBack(ctx) })
	for range parkers {
		workers.Go(func() { d.runParker(ctx) })
	}
	<-ctx.Done()
	waiting := append(d.rates.stop(), d.stop()...)
	workers.Wait()
	waiting = append(waiting, d.takeBack()...)
	d.attempts.Go(func() { d.handBack(waiting) })
	d.drain()
	d.sender.pool.close()
	d.deliveries.flush(true)
	d.losses.sum()
	return nil
}

// runSummary logs now and then what the deliveries have come to, and at the end.
func (d *Dispatcher) runSummary(ctx context.Context) {
	for bell.Sleep(ctx, d.cfg.LogSummary) {
		d.deliveries.sum()
	}
	d.deliveries.sum()
}

// stop has no new attempts begin, and returns those that wait.
func (d *Dispatcher) stop() (waiting []fsm.DeliveryRef) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
	for _, w := range d.unlisted {
		waiting = append(waiting, w.Ref())
	}
	waiting = append(waiting, d.slots.clear()...)
	for e := d.toAsk.Front(); e != nil; e = e.Next() {
		waiting = append(waiting, e.Value.(*item).ref)
	}
	d.toParkNow.Init()
	d.toPark.Init()
	d.toAsk.Init()
	d.unlisted = nil
	return waiting
}

// drain waits for the attempts in flight: first for their requests, then for what is to be reported of them.
func (d *Dispatcher) drain() {
	grace := time.AfterFunc(d.cfg.ShutdownGrace, d.cancelRequests)
	last := time.AfterFunc(d.cfg.ShutdownGrace+reportGrace, d.cancelReports)
	d.attempts.Wait()
	grace.Stop()
	last.Stop()
	d.cancelRequests()
	d.cancelReports()
	d.pool.Wait()
}

// runForget drops what is kept of subscriptions that are gone, and logs the events that were lost.
func (d *Dispatcher) runForget(ctx context.Context) {
	tick := time.NewTicker(forgetEvery)
	defer tick.Stop()
	catalog := d.cfg.Store.Catalog()
	for bell.Sleep(ctx, forgetPause) {
		changed := catalog.Changed()
		listed := func(k laneKey) bool {
			sub, ok := catalog.Get(k.id)
			return ok && sub.Generation == k.generation
		}
		d.mu.Lock()
		d.slots.forget(listed)
		d.mu.Unlock()
		d.deliveries.forget(listed)
		d.deliveries.flush(false)
		d.losses.sum()
		d.sender.pool.sweep()
		d.rates.forget()
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-tick.C:
		}
	}
}
