package tailer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"reveille/fsm"
	"reveille/tailer/discovery"
	"reveille/tailer/upstream"
)

// The ways to watch a stream.
const (
	ModeLongPoll = "long-poll"
	ModeSSE      = "sse"
)

// Store is what the tailer needs of the store.
type Store interface {
	fsm.StreamStore
	fsm.SubscriptionStore
	fsm.ReplicaStore
}

// Outcomes acts on what a transition asks for. seen is what the store was told of.
type Outcomes interface {
	Follow(o fsm.Outcome, seen fsm.Sighting)
}

// Config of a Tailer. A zero duration or number means its default.
type Config struct {
	// UpstreamURL is the stream root; it may carry a path. Required. Headers are sent with every request to it.
	UpstreamURL *url.URL
	Headers     http.Header
	// TLS is for an https: upstream; nil to trust what the system does. HTTPS negotiates HTTP/2. For plain HTTP, set H2C.
	TLS *tls.Config
	H2C bool
	// Dial replaces connections by TCP to upstream; nil for these.
	Dial upstream.Dial
	// Dialect is the stream server's, one of package upstream's (DialectAuto). SigningKey is what Reveille's own
	// requests are signed with where the dialect has such a thing; empty if they are not to be.
	Dialect    string
	SigningKey string
	// Store, Outcomes and Logger are required.
	Store    Store
	Outcomes Outcomes
	Logger   *zap.Logger
	// Metrics is what the metrics are registered with; nil for nowhere.
	Metrics prometheus.Registerer
	// Mode is ModeLongPoll (default) or ModeSSE.
	Mode string
	// Check is how long a live request may be silent before the stream is first looked at with HEAD (5 s).
	Check time.Duration
	// MaxLive bounds the live requests (10,000); SweepRate is how many streams beyond them are
	// looked at in a second (500).
	MaxLive   int
	SweepRate int
	// GoneGrace is how long the store keeps the consumers of a stream that is gone (30 s); a thirtieth of it is how
	// soon such a stream is first asked for again.
	GoneGrace time.Duration
	// Registry is the path of the registry stream; empty if upstream has none.
	Registry string
	// Names are streams that are known from the start.
	Names []string

	// HeadTimeout bounds a HEAD with its retries (3 s), Silence a live request without a sign of life (70 s).
	HeadTimeout time.Duration
	Silence     time.Duration
	// PaceMin and PaceMax bound the pause between two looks at a stream whose consumers are all busy (50 ms, 1 s).
	PaceMin, PaceMax time.Duration
	// BackoffMin is the delay after a first failure on a stream (100 ms); it grows up to Check.
	BackoffMin time.Duration
	// TTLFast is how soon a stream with a time to live is looked at again after an event (250 ms).
	TTLFast time.Duration
	// Spread is how long the return of an upstream that was down is spread over (1 s).
	Spread time.Duration
	// WatchEvery is how often the store is asked for newly watched streams (1 s), Resync how often for all of them, for
	// all records, and for backfills that nobody works at (10 s, less often if that takes long).
	WatchEvery time.Duration
	Resync     time.Duration
	// AwaitMin is how soon a stream that does not exist yet is asked for again at first (1 s).
	AwaitMin time.Duration
	// WriteFor, LookEvery and TailEvery are discovery's; their defaults, too.
	WriteFor, LookEvery, TailEvery time.Duration
	// ClosedCheck is how often a closed stream is looked at, should it have been deleted, or have expired,
	// past the gateway (1 h).
	ClosedCheck time.Duration
	// BackfillWait is how long Subscribe waits for the backfill to end (250 ms).
	BackfillWait time.Duration
}

func (c *Config) setDefaults() {
	for d, def := range map[*time.Duration]time.Duration{
		&c.Check: 5 * time.Second, &c.GoneGrace: 30 * time.Second, &c.HeadTimeout: 3 * time.Second,
		&c.Silence: 70 * time.Second, &c.PaceMin: 50 * time.Millisecond, &c.PaceMax: time.Second,
		&c.BackoffMin: 100 * time.Millisecond, &c.TTLFast: 250 * time.Millisecond, &c.Spread: time.Second,
		&c.WatchEvery: time.Second, &c.Resync: 10 * time.Second, &c.AwaitMin: time.Second,
		&c.BackfillWait: 250 * time.Millisecond, &c.ClosedCheck: time.Hour,
	} {
		if *d == 0 {
			*d = def
		}
	}
	if c.MaxLive == 0 {
		c.MaxLive = 10_000
	}
	if c.SweepRate == 0 {
		c.SweepRate = 500
	}
	if c.Mode == "" {
		c.Mode = ModeLongPoll
	}
}

func (c *Config) check() error {
	switch {
	case c.UpstreamURL == nil || c.UpstreamURL.Host == "" ||
		c.UpstreamURL.Scheme != "http" && c.UpstreamURL.Scheme != "https":
		return errors.New("tailer: UpstreamURL must be an absolute http: or https: URL")
	case c.Store == nil || c.Outcomes == nil || c.Logger == nil:
		return errors.New("tailer: Store, Outcomes and Logger are required")
	case c.Mode != ModeLongPoll && c.Mode != ModeSSE:
		return fmt.Errorf("tailer: Mode is %q, expected %q or %q", c.Mode, ModeLongPoll, ModeSSE)
	case c.MaxLive < 1 || c.SweepRate < 1:
		return errors.New("tailer: MaxLive and SweepRate must be at least 1")
	}
	c.Names = slices.Clone(c.Names)
	for i, name := range c.Names {
		p, err := fsm.CanonicalPath(name)
		if err != nil {
			return fmt.Errorf("tailer: Names: %q: %w", name, err)
		}
		c.Names[i] = p
	}
	if c.Registry == "" {
		return nil
	}
	p, err := fsm.CanonicalPath(c.Registry)
	if err != nil {
		return fmt.Errorf("tailer: Registry: %q: %w", c.Registry, err)
	}
	c.Registry = p
	return nil
}

// Tailer finds streams and watches them. It is fsm.Upstream and fsm.Streams.
type Tailer struct {
	*upstream.Client
	cfg   Config
	rules rules
	log   *zap.Logger
	store Store

	metrics *metrics
	health  *upstream.Health
	slots   *slots
	sweep   *upstream.Rate
	limiter *upstream.Limiter
	watches *watches

	discovery *discovery.Discovery
	writes    *writes
	// untold is what was logged of a store that did not take what was seen, unwritten of writes, restarted of
	// tails that moved back.
	untold, unwritten, restarted fsm.Trouble
	// ended is true once Run takes in no more.
	ended atomic.Bool
}

// New returns a Tailer that does nothing until Run; its fsm.Upstream methods work at once.
func New(cfg Config) (*Tailer, error) {
	cfg.setDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	t := &Tailer{
		Client: upstream.New(upstream.Config{
			URL: cfg.UpstreamURL, Headers: cfg.Headers, TLS: cfg.TLS, H2C: cfg.H2C, Dial: cfg.Dial,
			HeadTimeout: cfg.HeadTimeout, Dialect: cfg.Dialect, SigningKey: cfg.SigningKey,
			Logger: cfg.Logger, Metrics: cfg.Metrics,
		}),
		cfg: cfg, log: cfg.Logger, store: cfg.Store,
		metrics: newMetrics(cfg.Metrics),
		slots:   newSlots(cfg.MaxLive), sweep: upstream.NewRate(cfg.SweepRate), limiter: upstream.NewLimiter(),
	}
	t.rules = rules{&t.cfg, upstream.Jitter}
	t.watches, t.writes = newWatches(t), newWrites(t)
	t.health = upstream.NewHealth(upstream.HealthConfig{
		Logger: cfg.Logger, Metrics: cfg.Metrics, Shown: t.Shown, Back: t.watches.lookSoon, Spread: cfg.Spread,
		BackoffMin: cfg.BackoffMin, BackoffMax: cfg.Check,
	})
	var err error
	t.discovery, err = discovery.New(discovery.Config{
		Store: t.store, Upstream: asker{t}, Watcher: voider{t.watches}, Outcomes: cfg.Outcomes, Logger: cfg.Logger,
		Registry: cfg.Registry, Names: cfg.Names, GoneGrace: cfg.GoneGrace, RetryMin: cfg.BackoffMin,
		RetryMax: cfg.Check, AwaitMin: cfg.AwaitMin, WriteFor: cfg.WriteFor,
		LookEvery: cfg.LookEvery, Resync: cfg.Resync, BackfillWait: cfg.BackfillWait, TailEvery: cfg.TailEvery,
		RegistryCheck: cfg.Check,
	})
	return t, err
}

// Run discovers and watches until the context ends, which is no error.
func (t *Tailer) Run(ctx context.Context) error {
	defer t.Close()
	defer context.AfterFunc(ctx, func() { t.ended.Store(true) })()
	g, ctx := errgroup.WithContext(ctx)
	prober := upstream.Prober{
		Client: t.Client, Logger: t.log, Down: t.health.IsDown,
		Backoff: upstream.Backoff{Min: time.Second, Max: 30 * time.Second},
	}
	g.Go(func() error { return prober.Run(ctx) })
	if !t.waitLoaded(ctx) {
		return g.Wait()
	}
	for _, run := range []func(context.Context) error{
		t.watches.Run, t.writes.Run, t.discovery.Run,
	} {
		g.Go(func() error { return run(ctx) })
	}
	return g.Wait()
}

// waitLoaded returns when the subscriptions have been read: without them nothing that is discovered could be linked.
func (t *Tailer) waitLoaded(ctx context.Context) bool {
	for !t.store.Catalog().Loaded() {
		changed := t.store.Catalog().Changed()
		if !t.store.Catalog().Loaded() && !upstream.SleepOr(ctx, t.cfg.WatchEvery, changed) {
			return false
		}
	}
	return ctx.Err() == nil
}

// live makes one live request of the mode that is set and calls take with what it shows. An error of take
// ends it and is returned.
func (t *Tailer) live(
	ctx context.Context, conn *upstream.Conn, path string, from fsm.Offset, cursor string,
	take func(upstream.Event) error,
) error {
	if t.cfg.Mode == ModeSSE {
		return t.SSE(ctx, conn, path, from, cursor, take)
	}
	return t.Poll(ctx, conn, path, from, cursor, take)
}

// look asks for a stream in turn with Reveille's other requests, and waits while upstream is down. head is the request.
func (t *Tailer) look(
	ctx context.Context, path string, head func(context.Context, string) (fsm.StreamInfo, error),
) (fsm.StreamInfo, error) {
	for {
		done, probes, err := t.health.Enter(ctx, path)
		if err != nil {
			return fsm.StreamInfo{}, err
		}
		release, err := t.limiter.Acquire(ctx)
		if err != nil {
			done(err)
			return fsm.StreamInfo{}, err
		}
		began := time.Now()
		if !probes && t.health.IsDown() { // it came down while this one waited for its turn
			release(upstream.NoAnswer)
			continue
		}
		info, err := head(ctx, path)
		if err == nil {
			release(time.Since(began))
		} else {
			release(upstream.NoAnswer)
		}
		done(err)
		return info, err
	}
}

// telling is a sighting of a stream that the store is told of now.
func telling(path string, tail fsm.Offset) fsm.Sighting {
	return fsm.Sighting{Told: time.Now(), Path: path, Tail: tail}
}

// restart is for a stream whose tail has moved back.
func (t *Tailer) restart(ctx context.Context, path string, partition int, was, tail fsm.Offset) error {
	if times, log := t.restarted.Happened(time.Now()); log {
		t.log.Info("the tail moved back: a new stream under an old name", zap.String("stream", path),
			zap.String("was", was.Value()), zap.String("tail", tail.Value()), zap.Int("times", times))
	}
	return t.insist(ctx, "restart", zap.String("stream", path), func() error {
		s := telling(path, tail)
		o, err := t.store.Restart(ctx, partition, path, was, tail)
		if err == nil {
			t.cfg.Outcomes.Follow(o, s)
		}
		return err
	})
}

// Watch is fsm.Streams'.
func (t *Tailer) Watch(primary string, paths []string) {
	for _, path := range paths {
		t.watches.watch(t.store.PartitionOf(primary), path)
	}
}

// Idle is fsm.Streams'.
func (t *Tailer) Idle(paths []string) {
	for _, path := range paths {
		w := t.watches.find(path)
		if w != nil {
			w.step(&input{kind: inputRested})
			t.slots.touch(w)
		}
		if w == nil || !t.store.Ownership().Owns(t.store.PartitionOf(path)) {
			t.store.Hint(fsm.Hint{Kind: fsm.HintIdle, Path: path})
		}
	}
}

// Gone is fsm.Streams'. The stream's loop may have missed that it was away, and a closed one has none: only a loop that
// tells the store the tail again shows the consumers.
func (t *Tailer) Gone(path string) {
	home := t.store.PartitionOf(path)
	if !t.store.Ownership().Owns(home) {
		t.store.Hint(fsm.Hint{Kind: fsm.HintGone, Path: path})
		return
	}
	t.watches.watch(home, path)
	t.watches.refresh(path)
}

// Hinted is to be called with the hints of other replicas. What is not this replica's to do is left to
// the one that it is for.
func (t *Tailer) Hinted(h fsm.Hint) {
	if path, err := fsm.CanonicalPath(h.Path); err != nil || path != h.Path {
		return
	}
	switch h.Kind {
	case fsm.HintWatch:
		if t.store.Ownership().Owns(h.Partition) {
			t.watches.watch(h.Partition, h.Path)
		}
	case fsm.HintIdle:
		if w := t.watches.find(h.Path); w != nil {
			w.step(&input{kind: inputRested})
			t.slots.touch(w)
		}
	case fsm.HintGone:
		if t.store.Ownership().Owns(t.store.PartitionOf(h.Path)) {
			t.Gone(h.Path)
		}
	case fsm.HintRemoved:
		t.discovery.RemovedElsewhere(h.Path)
	case fsm.HintLook:
		if t.store.Ownership().Owns(t.store.PartitionOf(h.Path)) {
			t.watches.refresh(h.Path)
			t.discovery.Enqueue(h.Path, discovery.Evidence{})
		}
	}
}
