package tailer

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"reveille/fsm"
	"reveille/fsm/router"
	"reveille/fsm/throttle"
	"reveille/tailer/discovery"
	"reveille/tailer/upstream"
)

// Config of a Tailer. A zero duration or number means its default.
type Config struct {
	// Upstream configures the client of the stream server, Discovery how streams are found. New sets the fields that
	// both share with the Tailer.
	Upstream  upstream.Config
	Discovery discovery.Config
	// Store, Outcomes and Logger are required.
	Store    Store
	Outcomes *router.Router
	Logger   *zap.Logger
	// Metrics registers the metrics; nil for no metrics.
	Metrics prometheus.Registerer
	// Check is how long a live request may be silent before the first HEAD checks it (5 s).
	Check time.Duration
	// CheckSoon replaces Check for the first HEAD after a live request has begun, and after each event (250 ms). It
	// applies only where upstream has missed appends.
	CheckSoon time.Duration
	// MaxLive bounds the live requests (10,000). SweepRate is how many of the other streams get a HEAD in a second
	// (500).
	MaxLive   int
	SweepRate int
	// GoneGrace is how long the store keeps the consumers of a stream that is gone (30 s). Reveille first asks for the
	// stream again after a thirtieth of it.
	GoneGrace time.Duration

	// Silence bounds a live request without a sign of life (70 s).
	Silence time.Duration
	// PaceMin and PaceMax bound the pause between two looks at a stream whose consumers are all busy (50 ms, 1 s).
	PaceMin, PaceMax time.Duration
	// BackoffMin is the delay after a first failure on a stream (100 ms); it grows up to Check.
	BackoffMin time.Duration
	// TTLFast is how soon a stream with a time to live is looked at again after an event (250 ms).
	TTLFast time.Duration
	// Spread is the time over which waiting requests go on, after an upstream that was down is back (1 s).
	Spread time.Duration
	// WatchEvery is how often the store is asked for newly watched streams (1 s). Resync is how often it is asked for
	// all of them, for all records, and for backfills without progress (10 s). It is less often if that takes long.
	WatchEvery time.Duration
	Resync     time.Duration
	// ClosedCheck is how often a closed stream is looked at (1 h): it may have been deleted past the gateway, or may
	// have expired. If a setting or a pattern names the stream, that is every six times Check, if that is more often.
	ClosedCheck time.Duration

	// jitter spreads requests that would come at the same time.
	jitter func(time.Duration) time.Duration
}

func (c *Config) setDefaults() {
	c.Check = cmp.Or(c.Check, 5*time.Second)
	c.CheckSoon = cmp.Or(c.CheckSoon, 250*time.Millisecond)
	c.GoneGrace = cmp.Or(c.GoneGrace, 30*time.Second)
	c.Upstream.HeadTimeout = cmp.Or(c.Upstream.HeadTimeout, 3*time.Second)
	c.Silence = cmp.Or(c.Silence, 70*time.Second)
	c.PaceMin = cmp.Or(c.PaceMin, 50*time.Millisecond)
	c.PaceMax = cmp.Or(c.PaceMax, time.Second)
	c.BackoffMin = cmp.Or(c.BackoffMin, 100*time.Millisecond)
	c.TTLFast = cmp.Or(c.TTLFast, 250*time.Millisecond)
	c.Spread = cmp.Or(c.Spread, time.Second)
	c.WatchEvery = cmp.Or(c.WatchEvery, time.Second)
	c.Resync = cmp.Or(c.Resync, 10*time.Second)
	c.ClosedCheck = cmp.Or(c.ClosedCheck, time.Hour)
	c.MaxLive, c.SweepRate = cmp.Or(c.MaxLive, 10_000), cmp.Or(c.SweepRate, 500)
	c.jitter = upstream.Jitter
}

// Tailer finds streams and watches them.
type Tailer struct {
	cfg       Config
	log       *zap.Logger
	store     watchStore
	upstream  *asker
	discovery *discovery.Discovery

	watched *prometheus.GaugeVec
	missed  prometheus.Counter
	slots   slots
	sweep   *upstream.Rate
	watches *watches
	// untold limits the log lines about tails that the store did not take, restarted those about streams that were
	// created again.
	untold, restarted throttle.Trouble
}

// New returns a Tailer that does nothing until Run; Upstream works at once.
func New(cfg Config) (*Tailer, error) {
	cfg.setDefaults()
	cfg.Upstream.Logger, cfg.Upstream.Metrics = cfg.Logger, cfg.Metrics
	t := &Tailer{
		cfg: cfg, log: cfg.Logger, store: cfg.Store,
		upstream: &asker{Client: upstream.New(cfg.Upstream), limiter: upstream.NewLimiter()},
		watched:  newWatched(cfg.Metrics), missed: newMissed(cfg.Metrics),
		slots: slots{max: cfg.MaxLive}, sweep: upstream.NewRate(cfg.SweepRate),
	}
	t.watches = &watches{t: t, byPath: map[string]*watch{}}
	t.upstream.health = t.upstream.NewHealth(
		upstream.Backoff{Min: cfg.BackoffMin, Max: cfg.Check}, cfg.Spread, t.watches.lookSoon,
	)
	d := cfg.Discovery
	d.Store, d.Upstream, d.Watcher, d.Outcomes, d.Logger = cfg.Store, t.upstream, t.watches, cfg.Outcomes, cfg.Logger
	d.GoneGrace, d.Resync, d.RetryMin, d.RetryMax = cfg.GoneGrace, cfg.Resync, cfg.BackoffMin, cfg.Check
	d.RegistryCheck = cfg.Check
	var err error
	t.discovery, err = discovery.New(d)
	return t, err
}

// Upstream returns the client of the stream server, for other parts that send requests to it.
func (t *Tailer) Upstream() *upstream.Client { return t.upstream.Client }

// Status returns what an operator sees of the stream server.
func (t *Tailer) Status() fsm.StreamServerStatus { return t.upstream.health.Status() }

// Discovery returns the part that knows which streams exist. Clients and operators report streams to it.
func (t *Tailer) Discovery() *discovery.Discovery { return t.discovery }

// Run discovers and watches streams until the context ends, which is no error.
func (t *Tailer) Run(ctx context.Context) error {
	defer t.upstream.Close()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return t.upstream.KeepProbing(ctx, t.upstream.health.IsDown) })
	// Without the subscriptions, discovery could link nothing.
	for catalog := t.store.Catalog(); !catalog.Loaded(); {
		changed := catalog.Changed()
		if !catalog.Loaded() && !upstream.SleepOr(ctx, t.cfg.WatchEvery, changed) {
			return g.Wait()
		}
	}
	for _, run := range []func(context.Context) error{t.watches.Run, t.discovery.Run} {
		g.Go(func() error { return run(ctx) })
	}
	return g.Wait()
}

// Idle handles consumers of these streams that came to rest. Their next events wake them.
func (t *Tailer) Idle(paths []string) {
	for _, path := range paths {
		if !t.watches.stir(path, inputRested) || !t.owns(path) {
			t.store.Hint(fsm.Hint{Kind: fsm.HintIdle, Path: path})
		}
	}
}

// Hidden handles a stream whose consumers were hidden. Its watch may have missed the absence, and a closed stream's
// watch rests. The consumers show again only when a watch tells the store the tail again.
func (t *Tailer) Hidden(path string) {
	if !t.owns(path) {
		t.store.Hint(fsm.Hint{Kind: fsm.HintGone, Path: path})
		return
	}
	t.watches.Watch(t.store.PartitionOf(path), path)
	t.watches.Look(path)
}

// owns says whether this replica works for the consumers that patterns made for a stream.
func (t *Tailer) owns(path string) bool { return t.store.Ownership().Owns(t.store.PartitionOf(path)) }

// Hinted acts on a hint of another replica. It ignores a hint that is meant for a third one.
func (t *Tailer) Hinted(h fsm.Hint) {
	path, err := fsm.CanonicalPath(h.Path)
	switch {
	case err != nil || path != h.Path:
	case h.Kind == fsm.HintRemoved:
		t.discovery.RemovedElsewhere(path)
	case h.Kind == fsm.HintForgotten:
		t.discovery.ForgottenElsewhere(path)
	case h.Kind == fsm.HintIdle:
		t.watches.stir(path, inputRested)
	case h.Kind == fsm.HintWatch && t.store.Ownership().Owns(h.Partition):
		t.watches.Watch(h.Partition, path)
	case h.Kind == fsm.HintGone && t.owns(path):
		t.Hidden(path)
	case h.Kind == fsm.HintLook && t.owns(path):
		t.watches.Look(path)
		t.discovery.Enqueue(path, discovery.Evidence{})
	}
}
