package redisstore

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/fsm/bell"
	"reveille/fsm/cache"
	"reveille/fsm/router"
	"reveille/fsm/throttle"
)

// DefaultPartitions is how many partitions a new database gets.
const DefaultPartitions = 64

// DefaultPoll is the default of Options.Poll.
const DefaultPoll = time.Second

// The bounds of dead letters.
const (
	DefaultLetterRetention = 30 * 24 * time.Hour
	DefaultMaxLetters      = 100_000
)

// Options configures a Store.
type Options struct {
	// Partitions is how many there are, 1 to 4096. The first program that uses the database fixes it. DefaultPartitions
	// by default.
	Partitions int
	// Embedded says that the Redis is the one inside this process. Its version is not checked.
	Embedded bool
	// Upstream is a name of the stream server that is no secret. A database works with one stream server only. An empty
	// name allows any.
	Upstream string
	// TokenKeys are fingerprints of the token keys that this replica has. If there are none, token keys are not
	// compared.
	TokenKeys []string
	Timing    fsm.Timing
	Logger    *zap.Logger
	// Metrics is where the metrics are registered; nil for nowhere.
	Metrics prometheus.Registerer
	// Poll is how often the store looks for changes of subscriptions that no hint told of, and for unfinished
	// deletions. DefaultPoll by default.
	Poll time.Duration
	// Lease is how long a dead replica keeps its partitions from the others; DefaultLease by default.
	Lease time.Duration
	// ReplicaID names this replica among the replicas that share the database. A replica that restarts under its name
	// goes on with its leases. Two replicas with the same name by mistake do the same work twice. A random name by
	// default.
	ReplicaID string
	// LetterRetention is how long dead letters are kept. MaxLetters is how many a subscription keeps, the latest ones.
	// DefaultLetterRetention and DefaultMaxLetters by default.
	LetterRetention time.Duration
	MaxLetters      int
	// Outbox says that events are handed over for direct delivery: the store drops those that are delivered in time.
	Outbox bool
	// DeliveryLog says which delivery attempts are kept for operators (deliverylog.go). Empty is fsm.LogOff.
	DeliveryLog fsm.DeliveryLog
	// LoggedAnswers says of which of them the log has the beginning of the answer. Empty is fsm.LogOff.
	LoggedAnswers fsm.DeliveryLog
	// Hinted gets the hints of other replicas, once Run is called. It must not block. It may be nil.
	Hinted func(fsm.Hint)
	// Outcomes follows the outcomes of the store's own work: removals of consumers and dead letters, and calls that
	// were answered late. It also reports the attempts. If it is nil, such outcomes are dropped.
	Outcomes *router.Router
	// Untraced leaves the wakes that ended with "done" out of outcomes, because only tracing uses them.
	Untraced bool
	// Outage is what all tasks of this process know of a Redis that does not answer. If it is nil, the store has its
	// own.
	Outage *throttle.Outage
	// Draw replaces chance and time in tests; nil for the real ones.
	Draw func() Draw

	// limits are usual, except in tests.
	limits limits
}

// Store keeps the state in Redis. It is safe for concurrent use.
type Store struct {
	rdb     redis.UniversalClient
	scripts *scriptClient
	// sharing is nil if each call goes alone.
	sharing *sharing
	keys    keys
	opts    Options
	draw    func() Draw
	catalog *cache.Catalog
	// endpoints are the endpoints in trouble that this replica knows of. lookNow asks Run to read them.
	endpoints      *cache.Endpoints
	lookNow        bell.Bell
	metrics        *metrics
	lettersDropped droppedLetters
	// log is nil if no attempts are kept.
	log     *logWriter
	counter *counter
	// refreshing holds one item while the catalog is read. refreshNow asks Run to read it.
	refreshing chan struct{}
	refreshNow bell.Bell
	// refreshBegun counts the reads of the catalog that have begun. refreshed is the latest read that succeeded.
	refreshBegun, refreshed atomic.Int64
	// unreadable has what was logged of stored subscriptions that cannot be read.
	unreadable throttle.Trouble
	// unreadableStream is the same for records of streams.
	unreadableStream throttle.Trouble
	unanswered       unanswered
	// clearNow asks Run to remove what deleted subscriptions have left.
	clearNow bell.Bell

	// fixed are the settings that each script gets (fixedSettings).
	fixed string
	// seen are the highest watermarks of the partitions that scripts have returned (lua/library/fence.lua).
	seen []atomic.Int64
	// versionSeen is the highest version of the list of subscriptions that was read.
	versionSeen atomic.Int64
	// endpointsSeen is the same for the list of endpoints.
	endpointsSeen atomic.Int64

	ownership *cache.Ownership
	replicas  *replicas
	place     place
	answers   answers
	hints     *hints
	// lasting is when the database stops being new; nil while that is not known.
	lasting atomic.Pointer[time.Time]
	// alone is true while there is no other replica to get hints.
	alone atomic.Bool
}

// New returns a Store on a client of Connect, which bounds how long a command takes. The caller closes the client.
func New(rdb redis.UniversalClient, opts Options) *Store {
	opts.Partitions = cmp.Or(opts.Partitions, DefaultPartitions)
	opts.Logger = cmp.Or(opts.Logger, zap.NewNop())
	opts.Lease = cmp.Or(opts.Lease, DefaultLease)
	opts.Poll = cmp.Or(opts.Poll, DefaultPoll)
	opts.LetterRetention = cmp.Or(opts.LetterRetention, DefaultLetterRetention)
	opts.MaxLetters = cmp.Or(opts.MaxLetters, DefaultMaxLetters)
	opts.ReplicaID = cmp.Or(opts.ReplicaID, randomDraw().Nonce)
	opts.limits = cmp.Or(opts.limits, usual)
	opts.Outage = cmp.Or(opts.Outage, &throttle.Outage{})
	follows := opts.Outcomes != nil
	opts.Outcomes = cmp.Or(opts.Outcomes, router.New())
	client := &scriptClient{rdb: rdb, log: opts.Logger, limits: opts.limits}
	client.refused.Store(opts.Embedded)
	s := &Store{
		rdb: rdb, scripts: client, sharing: newSharing(client), opts: opts, fixed: fixedSettings(opts),
		draw: opts.Draw, catalog: cache.NewCatalog(),
		keys: keys{partitions: opts.Partitions}, refreshing: make(chan struct{}, 1), refreshNow: bell.New(),
		endpoints: cache.NewEndpoints(), lookNow: bell.New(),
		clearNow: bell.New(), seen: make([]atomic.Int64, opts.Partitions),
		ownership: cache.NewOwnership(opts.Partitions), metrics: newMetrics(opts.Metrics),
		lettersDropped: newDroppedLetters(opts.Metrics),
		unanswered:     unanswered{kept: follows, ready: bell.New()},
	}
	s.replicas, s.hints = newReplicas(s, opts.ReplicaID), newHints(s, randomDraw().Nonce)
	s.alone.Store(true)
	if s.draw == nil {
		s.draw = randomDraw
	}
	if opts.DeliveryLog.Takes(fsm.AttemptFailed) {
		s.log = newLogWriter(s)
		opts.Outcomes.Observe(router.Observer{Attempt: s.log.attempted})
	}
	s.counter = newCounter(s)
	opts.Outcomes.Observe(router.Observer{Attempt: s.counter.attempted})
	if opts.Metrics != nil {
		opts.Metrics.MustRegister(newCensus(s))
	}
	return s
}

// Ping returns nil if the store answers.
func (s *Store) Ping(ctx context.Context) error { return wrap(s.rdb.Ping(ctx).Err()) }

// Run does the store's own work until ctx is done. It takes a share of the partitions and keeps the catalog up to date.
// It also finishes deletions that were cut short, bounds the dead letters, repeats unanswered calls, and writes the
// delivery log and the statistics. Resign and the last delivery attempt should come before ctx is done. Calls may still
// be made after Run.
func (s *Store) Run(ctx context.Context) error {
	var loops sync.WaitGroup
	// Each loop has its own goroutine, because removing the consumers of a large subscription takes a while.
	loops.Go(func() {
		s.repeat(ctx, s.opts.Poll, s.clearNow, s.clear, "removal of consumers")
	})
	loops.Go(func() {
		s.repeat(ctx, s.opts.Poll, s.refreshNow, s.RefreshCatalog, "list of subscriptions")
	})
	loops.Go(func() {
		s.repeat(ctx, s.opts.Poll, s.lookNow, s.readEndpoints, "list of endpoints")
	})
	loops.Go(func() {
		s.repeat(ctx, boundLettersEvery, nil, s.boundLetters, "bounds of dead letters")
	})
	loops.Go(func() {
		s.repeat(ctx, s.opts.Poll, nil, s.resumeLost, "resumption after a loss")
	})
	if s.opts.Outbox {
		loops.Go(func() { s.repeat(ctx, expireEventsEvery, nil, s.expireEvents, "expiry of delivered events") })
	}
	loops.Go(func() { s.repeatUnanswered(ctx) })
	loops.Go(func() { s.replicas.run(ctx) })
	loops.Go(func() { s.hints.send(ctx) })
	loops.Go(func() { s.hints.receive(ctx) })
	loops.Go(func() { s.dropOthers(ctx, dropOthersEvery) })
	if s.log != nil {
		loops.Go(func() { s.log.run(ctx) })
		loops.Go(func() { s.log.runIndex(ctx) })
	}
	loops.Go(func() { s.counter.run(ctx) })
	loops.Wait()
	if s.sharing != nil {
		s.sharing.stop()
	}
	return nil
}

// Resign gives this replica's partitions to the others at once, and for good. Without it, the others wait until its
// leases run out.
func (s *Store) Resign(ctx context.Context) error { return s.replicas.resign(ctx) }

// Ownership is what this replica works for.
func (s *Store) Ownership() *cache.Ownership { return s.ownership }

// repeat calls do at an interval, and whenever now asks for it, until ctx is done. During an outage it also calls do
// when another task works again. An outage is logged once when it begins and once when it ends, whichever task notices
// it.
func (s *Store) repeat(
	ctx context.Context, interval time.Duration, now <-chan struct{}, do func(context.Context) error, task string,
) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	outage := s.opts.Outage
	for {
		err := do(ctx)
		if ctx.Err() != nil {
			return
		}
		var mended <-chan struct{}
		if err != nil {
			if outages, log := outage.Failed(task, time.Now()); log {
				s.opts.Logger.Error("redis does not answer; watching and delivering wait", zap.Int("times", outages),
					zap.String("task", task), zap.Error(err))
			}
			mended = outage.Mended()
		} else if lasted, log := outage.Worked(task, time.Now()); log {
			s.opts.Logger.Info("redis answers again", zap.Duration("outage", lasted))
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-now:
		case <-mended:
		}
	}
}

// subOf names a subscription in one of its generations.
type subOf struct{ id, generation string }

// knows says whether this replica knows the subscription.
func (s *Store) knows(of subOf) bool {
	sub, there := s.catalog.Get(of.id)
	return there && sub.Generation == of.generation
}

// now returns the time by the store's clock.
func (s *Store) now(ctx context.Context) (time.Time, error) {
	if d := s.draw(); !d.Now.IsZero() {
		return d.Now, nil
	}
	t, err := s.rdb.Time(ctx).Result()
	return t, wrap(err)
}
