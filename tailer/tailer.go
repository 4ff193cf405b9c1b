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
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	lru "github.com/hashicorp/golang-lru/v2"

	"reveille/fsm"
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

// Config of a Tailer. A zero duration or number means its default.
type Config struct {
	// UpstreamURL is the stream root; it may carry a path. Required. Headers are sent with every request to it.
	UpstreamURL *url.URL
	Headers     http.Header
	// TLS is for an https: upstream; nil to trust what the system does. H2C says that upstream speaks HTTP/2 without TLS. With TLS it is asked, and needs no setting.
	TLS *tls.Config
	H2C bool
	// Store, Deliverer and Logger are required.
	Store     Store
	Deliverer fsm.Deliverer
	Logger    *zap.Logger
	// Metrics is what the metrics are registered with; nil for nowhere.
	Metrics prometheus.Registerer
	// Tracer gets the spans of observations that woke somebody, and WakeEnded is told of wakes that are over. nil: nobody is.
	Tracer    trace.TracerProvider
	WakeEnded func([]fsm.WakeEnd)
	// Mode is ModeLongPoll (default) or ModeSSE.
	Mode string
	// Check is how long a live request may be silent before the stream is first looked at with HEAD (5 s).
	Check time.Duration
	// MaxLive bounds the live requests (10,000); SweepRate is how many streams beyond them are looked at in a second (500).
	MaxLive   int
	SweepRate int
	// GoneGrace is how long the store keeps the consumers of a stream that is gone (30 s); a thirtieth of it is how soon
	// such a stream is first asked for again.
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
	// all awaited ones and for backfills that nobody works at (10 s, less often if that takes long).
	WatchEvery time.Duration
	Resync     time.Duration
	// AwaitMin is how soon a stream that does not exist yet is asked for again at first (1 s).
	AwaitMin time.Duration
	// Confirm is how long after a stream was linked the store is asked whether it still knows that (5 s): longer than it takes
	// until a change is on disk and at the replicas.
	Confirm time.Duration
	// ClosedCheck is how often a closed stream is looked at, should it have been deleted, or have expired, past the gateway (1 h).
	ClosedCheck time.Duration
	// BackfillWait is how long Subscribed waits for the backfill to end (250 ms).
	BackfillWait time.Duration
}

func (c *Config) setDefaults() {
	for d, def := range map[*time.Duration]time.Duration{
		&c.Check: 5 * time.Second, &c.GoneGrace: 30 * time.Second, &c.HeadTimeout: 3 * time.Second, &c.Silence: 70 * time.Second,
		&c.PaceMin: 50 * time.Millisecond, &c.PaceMax: time.Second, &c.BackoffMin: 100 * time.Millisecond,
		&c.TTLFast: 250 * time.Millisecond, &c.Spread: time.Second, &c.WatchEvery: time.Second,
		&c.Resync: 10 * time.Second, &c.AwaitMin: time.Second, &c.BackfillWait: 250 * time.Millisecond,
		&c.Confirm: 5 * time.Second, &c.ClosedCheck: time.Hour,
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
	case c.UpstreamURL == nil || c.UpstreamURL.Host == "" || c.UpstreamURL.Scheme != "http" && c.UpstreamURL.Scheme != "https":
		return errors.New("tailer: UpstreamURL must be an absolute http: or https: URL")
	case c.Store == nil || c.Deliverer == nil || c.Logger == nil:
		return errors.New("tailer: Store, Deliverer and Logger are required")
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
	*client
	cfg   Config
	log   *zap.Logger
	store Store

	traces  *tracing
	health  *health
	slots   *slots
	sweep   *rate
	room    *room
	watches *watches

	linked    *lru.Cache[string, linked]
	deletes   *lru.Cache[string, deletes]
	removed   *lru.Cache[string, time.Time]
	any       fsm.Pattern
	writes    *writes
	awaited   *awaited
	backfills *backfills
	registry  *registry
	confirms  *confirms
	// untold is what was logged of a store that did not take what was seen, unwritten of writes, unlinked of streams that were to be
	// linked before a write, restarted of tails that moved back.
	untold, unwritten, unlinked, restarted fsm.Trouble
	// ended is true once Run takes in no more.
	ended atomic.Bool
}

const (
	// linkedMax is how many streams are remembered as known and linked, deletesMax how many as just deleted or forgotten.
	linkedMax, deletesMax = 100_000, 10_000
)

// New returns a Tailer that does nothing until Run; its fsm.Upstream methods work at once.
func New(cfg Config) (*Tailer, error) {
	cfg.setDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	t := &Tailer{
		client: newClient(cfg), cfg: cfg, log: cfg.Logger, store: cfg.Store,
		traces: newTracing(cfg.Tracer, cfg.WakeEnded),
		slots:  newSlots(cfg.MaxLive), sweep: newRate(cfg.SweepRate), room: newRoom(),
	}
	var err error
	if t.linked, err = lru.New[string, linked](linkedMax); err != nil {
		return nil, fmt.Errorf("tailer: %w", err)
	}
	if t.deletes, err = lru.New[string, deletes](deletesMax); err != nil {
		return nil, fmt.Errorf("tailer: %w", err)
	}
	if t.removed, err = lru.New[string, time.Time](deletesMax); err != nil {
		return nil, fmt.Errorf("tailer: %w", err)
	}
	if t.any, err = fsm.ParsePattern("/**"); err != nil {
		return nil, fmt.Errorf("tailer: %w", err)
	}
	t.watches, t.writes, t.awaited = newWatches(t), newWrites(t), newAwaited(t)
	t.health = newHealth(cfg, t.watches.lookSoon)
	t.backfills, t.registry, t.confirms = newBackfills(t), &registry{t: t}, &confirms{t: t}
	t.show(cfg.Metrics)
	return t, nil
}

// Run discovers and watches until the context ends, which is no error.
func (t *Tailer) Run(ctx context.Context) error {
	defer t.client.close()
	defer context.AfterFunc(ctx, func() { t.ended.Store(true) })()
	if !t.waitLoaded(ctx) {
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, run := range []func(context.Context) error{
		t.watches.Run, t.writes.Run, t.awaited.Run, t.backfills.Run, t.registry.Run, t.confirms.Run,
	} {
		g.Go(func() error { return run(ctx) })
	}
	return g.Wait()
}

// waitLoaded returns when the subscriptions have been read: without them nothing that is discovered could be linked.
func (t *Tailer) waitLoaded(ctx context.Context) bool {
	for !t.store.Catalog().Loaded() {
		changed := t.store.Catalog().Changed()
		if !t.store.Catalog().Loaded() && !sleepOr(ctx, t.cfg.WatchEvery, changed) {
			return false
		}
	}
	return ctx.Err() == nil
}

// live makes one live request of the mode that is set and calls take with what it shows. An error of take ends it and is returned.
func (t *Tailer) live(
	ctx context.Context, l *line, path string, from fsm.Offset, cursor string, take func(event) error,
) error {
	if t.cfg.Mode == ModeSSE {
		return t.sse(ctx, l, path, from, cursor, take)
	}
	return t.poll(ctx, l, path, from, cursor, take)
}

// look is a HEAD by one of the tailer's own loops: it waits while upstream is down, and for its turn among the others.
func (t *Tailer) look(ctx context.Context, path string) (fsm.StreamInfo, error) {
	for {
		done, probes, err := t.health.enter(ctx, path)
		if err != nil {
			return fsm.StreamInfo{}, err
		}
		leave, err := t.room.enter(ctx)
		if err != nil {
			done(err)
			return fsm.StreamInfo{}, err
		}
		began := time.Now()
		if !probes && t.health.isDown() { // it came down while this one waited for its turn
			leave(noAnswer)
			continue
		}
		info, err := t.Head(ctx, path)
		if err == nil {
			leave(time.Since(began))
		} else {
			leave(noAnswer)
		}
		done(err)
		return info, err
	}
}

// settleSeen is settle after an event that was seen.
func (t *Tailer) settleSeen(s sight, o fsm.Outcome, seen fsm.Sighting) {
	for i := range o.Wakes {
		o.Wakes[i].Seen = seen
	}
	t.settle(s, o)
}

// settle does what a transition in the store asked for that came of what it was told.
func (t *Tailer) settle(s sight, o fsm.Outcome) {
	t.traces.followed(s, o)
	if len(o.Wakes) > 0 {
		t.cfg.Deliverer.Deliver(o.Wakes)
	}
	t.Idle(o.Idle)
}

// restart is for a stream whose tail has moved back.
func (t *Tailer) restart(ctx context.Context, w *watch, partition int, was, tail fsm.Offset) error {
	if times, log := t.restarted.Happened(time.Now()); log {
		t.log.Info("the tail moved back: a new stream under an old name", zap.String("stream", w.path),
			zap.String("was", was.Value()), zap.String("tail", tail.Value()), zap.Int("times", times))
	}
	return t.insist(ctx, "restart", zap.String("stream", w.path), func() error {
		s := telling(w.path, tail)
		o, err := t.store.Restart(ctx, partition, w.path, was, tail)
		if err == nil {
			w.distrust(partition)
			t.settle(s, o)
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
			w.rested()
			w.rouse()
		}
		if w == nil || !t.store.Ownership().Owns(t.store.PartitionOf(path)) {
			t.store.Hint(fsm.Hint{Kind: fsm.HintIdle, Path: path})
		}
	}
}

// Gone is fsm.Streams'. The stream's loop may have missed that it was away, and a closed one has none: only a loop that tells the
// store the tail again shows the consumers.
func (t *Tailer) Gone(path string) {
	home := t.store.PartitionOf(path)
	if !t.store.Ownership().Owns(home) {
		t.store.Hint(fsm.Hint{Kind: fsm.HintGone, Path: path})
		return
	}
	t.watches.watch(home, path)
	t.watches.doubt(path)
}

// Hinted is to be called with the hints of other replicas. What is not this replica's to do is left to the one that it is for.
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
			w.rested()
			w.rouse()
		}
	case fsm.HintGone:
		if t.store.Ownership().Owns(t.store.PartitionOf(h.Path)) {
			t.Gone(h.Path)
		}
	case fsm.HintDeleted:
		t.noteDelete(h.Path)
	case fsm.HintRemoved:
		t.removedElsewhere(h.Path)
	case fsm.HintWritten:
		if t.store.Ownership().Owns(t.store.PartitionOf(h.Path)) {
			t.fallBack(h.Path)
		}
	}
}
