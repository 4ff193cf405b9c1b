package discovery

import (
	"cmp"
	"context"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"reveille/fsm"
	"reveille/fsm/router"
	"reveille/fsm/throttle"
	"reveille/tailer/upstream"
)

// Upstream asks the stream server. Every answer is newer than the call.
type Upstream interface {
	// Look asks in turn with Reveille's other requests. It waits while upstream is down.
	Look(ctx context.Context, path string) (fsm.StreamInfo, error)
	// LookNow is Look, but fails while upstream is down.
	LookNow(ctx context.Context, path string) (fsm.StreamInfo, error)
	// HeadAnew asks at once.
	HeadAnew(ctx context.Context, path string) (fsm.StreamInfo, error)
	// Registry reads the registry stream from an offset: by a long-poll if live, otherwise what there is.
	Registry(ctx context.Context, path string, from fsm.Offset, live bool, cursor string) (*upstream.Answer, error)
	// Outages counts how often upstream went down.
	Outages() int64
}

// Watcher watches the streams that consumers are subscribed to, and tells the store where they end. Only Tell waits for
// the store.
type Watcher interface {
	// Watch starts to watch a stream for the consumers of a partition.
	Watch(partition int, path string)
	// Invalidate voids earlier 404s: the watch of the stream hides no consumers for a 404 from before the call.
	Invalidate(path string)
	// Knew says whether a stream is watched and existed at some time, as far as this replica knows.
	Knew(path string) bool
	// Look makes the watch of a stream look at it now, and tell the store the tail.
	Look(path string)
	// Deleted says that the store removed the consumers of a stream, because it was deleted or forgotten.
	Deleted(path string)
	// Tell tells the store the tail after a write through the gateway, in each partition that watches the stream. If
	// the stream is subscribed, that includes its home partition. Then linked is false if the store has no consumer of
	// the stream there. anew says that the stream was reconciled just now.
	Tell(ctx context.Context, seen fsm.Sighting, subscribed, anew bool) (linked bool, err error)
}

// Config of a Discovery. Only Registry, Names and Max are optional. A zero duration means its default.
type Config struct {
	Store    Store
	Upstream Upstream
	Watcher  Watcher
	Outcomes *router.Router
	Logger   *zap.Logger
	// Registry is the canonical path of the registry stream; empty if upstream has none.
	Registry string
	// Names are canonical paths of streams that are known from the start.
	Names []string
	// Max bounds the streams that wait, and the streams that are remembered as linked; 0 for the default bounds.
	Max int

	// GoneGrace is how long upstream must keep saying that a stream is gone before Reveille believes it (30 s).
	GoneGrace time.Duration
	// RetryMin and RetryMax bound the delay until a failed path is tried again (100 ms, 5 s). AwaitMin is the first
	// delay until Reveille asks again for a stream that does not exist yet (1 s).
	RetryMin, RetryMax, AwaitMin time.Duration
	// WriteFor is how long a stream is awaited after a write to it went upstream (3 min). A longer write is noted
	// again. No fact proves that a replica will never end a write that it began.
	WriteFor time.Duration
	// LookEvery is how often Reveille looks at a stream on record without writes (24 h). Such a stream may be deleted
	// past Reveille while no replica watches it, and nothing reports that.
	LookEvery time.Duration
	// Resync is how often the records are scanned (10 s, less often if that takes long).
	Resync time.Duration
	// BackfillWait is how long the creator of a subscription waits for its backfill (250 ms).
	BackfillWait time.Duration
	// TailEvery is how often, at most, the tail of a stream without consumers is put on record (5 s). That saves store
	// calls. At worst a later subscription begins earlier than it could.
	TailEvery time.Duration
	// RegistryCheck is how long a read of the registry stream may be silent before the stream is looked at (5 s).
	RegistryCheck time.Duration
	// RegistryProof is how often Reveille proves that the registry stream is the one it read, without another reason to
	// (1 min). Another stream may take its place within a live request. It goes unseen for no longer than that.
	RegistryProof time.Duration
}

func (c *Config) setDefaults() {
	c.GoneGrace = cmp.Or(c.GoneGrace, 30*time.Second)
	c.RetryMin = cmp.Or(c.RetryMin, 100*time.Millisecond)
	c.RetryMax = cmp.Or(c.RetryMax, 5*time.Second)
	c.AwaitMin = cmp.Or(c.AwaitMin, time.Second)
	c.WriteFor = cmp.Or(c.WriteFor, 3*time.Minute)
	c.LookEvery = cmp.Or(c.LookEvery, 24*time.Hour)
	c.Resync = cmp.Or(c.Resync, 10*time.Second)
	c.BackfillWait = cmp.Or(c.BackfillWait, 250*time.Millisecond)
	c.TailEvery = cmp.Or(c.TailEvery, 5*time.Second)
	c.RegistryCheck = cmp.Or(c.RegistryCheck, 5*time.Second)
	c.RegistryProof = cmp.Or(c.RegistryProof, time.Minute)
}

// Discovery finds out which streams exist and links them to the subscriptions that match them.
type Discovery struct {
	cfg      Config
	log      *zap.Logger
	store    Store
	up       Upstream
	watcher  Watcher
	outcomes *router.Router

	queue     *queue
	memory    *memory
	pending   *pending
	backfills *backfills
	registry  *registry
	// unhandled limits the log lines about writes that could not be handled. The same goes for unnoted (writes that
	// could not be noted before) and unread (lists that could not be read).
	unhandled, unnoted, unread throttle.Trouble
}

// New returns a Discovery that does nothing until Run.
func New(cfg Config) (*Discovery, error) {
	cfg.setDefaults()
	d := &Discovery{
		cfg: cfg, log: cfg.Logger, store: cfg.Store, up: cfg.Upstream, watcher: cfg.Watcher, outcomes: cfg.Outcomes,
		queue: newQueue(cmp.Or(cfg.Max, queueMax)),
	}
	var err error
	if d.memory, err = newMemory(d.store, cmp.Or(cfg.Max, memoryMax)); err != nil {
		return nil, err
	}
	d.pending, d.backfills, d.registry = newPending(d.store.SetUnnoted), newBackfills(d), &registry{d: d}
	return d, nil
}

// Run discovers until the context ends, which is no error.
func (d *Discovery) Run(ctx context.Context) error {
	defer func() { d.leave(d.queue.close()...) }()
	g, ctx := errgroup.WithContext(ctx)
	for _, run := range []func(context.Context){
		func(ctx context.Context) { d.queue.work(ctx, &d.queue.urgent, urgentWorkers, d.tick) },
		func(ctx context.Context) { d.queue.work(ctx, &d.queue.other, workers, d.tick) },
		d.scan, d.renewWrites, d.watchLosses, d.backfills.run, d.registry.run,
	} {
		g.Go(func() error {
			run(ctx)
			return nil
		})
	}
	return g.Wait()
}

// Tracked says whether a canonical path may name a stream of interest. The empty path names no stream.
func (d *Discovery) Tracked(path string) bool { return path != "" && path != d.cfg.Registry }

// Watch starts to watch streams for a consumer. The consumer lives in the partition of its primary stream.
func (d *Discovery) Watch(primary string, paths []string) {
	for _, path := range paths {
		d.watcher.Watch(d.store.PartitionOf(primary), path)
	}
}

// Enqueue makes a worker reconcile a path soon. If the queue is full, it drops the path. The scan finds it again if it
// is on record.
func (d *Discovery) Enqueue(path string, e Evidence) {
	if d.Tracked(path) {
		d.queue.add(path, e, time.Now())
	}
}

// Confirm reconciles a stream soon, unless it is on record and linked already.
func (d *Discovery) Confirm(path string) { d.Enqueue(path, Evidence{confirm: true, known: true}) }

// Remember remembers a stream, as long as there is room. If the store ever loses its latest changes, the stream is
// confirmed.
func (d *Discovery) Remember(path string) { d.memory.note(path) }

// Do reconciles a path and returns after the first try, with its error.
func (d *Discovery) Do(ctx context.Context, path string, e Evidence) error {
	if !d.Tracked(path) {
		return nil
	}
	e.urgent = true
	return d.queue.do(ctx, path, e)
}

// Held counts, by kind, what memory holds until it comes to an end by itself.
func (d *Discovery) Held() map[string]int {
	d.backfills.mu.Lock()
	defer d.backfills.mu.Unlock()
	return map[string]int{
		"paths": d.queue.len(), "writes": len(d.pending.paths()), "backfills": len(d.backfills.running),
	}
}
