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
)

// DefaultPartitions is how many partitions a new database gets.
const DefaultPartitions = 64

// DefaultPoll is how often the list of subscriptions is checked for changes that no hint told of.
const DefaultPoll = time.Second

// The bounds of dead letters.
const (
	DefaultLetterRetention = 30 * 24 * time.Hour
	DefaultMaxLetters      = 100_000
)

// Options of a Store.
type Options struct {
	// Partitions, from 1 to 4096; fixed by the first program that uses the database. DefaultPartitions by default.
	Partitions int
	// Embedded says that the Redis is the one inside this process, whose version is its own affair.
	Embedded bool
	// Upstream is a name of the stream server that is no secret; a database is used with one only. "" for any.
	Upstream string
	// TokenKeys are fingerprints of the token keys that this replica has; none to leave them out of account.
	TokenKeys []string
	Timing    fsm.Timing
	Logger    *zap.Logger
	// Metrics is what the metrics are registered with; nil for nowhere.
	Metrics prometheus.Registerer
	// Poll is how often the list of subscriptions is checked for changes of other replicas that no hint told of, and
	// for deletions that somebody has left unfinished; DefaultPoll by default.
	Poll time.Duration
	// Lease is how long a replica that died keeps its partitions from the others; DefaultLease by default.
	Lease time.Duration
	// ReplicaID names this replica among those that share the database. One that is started again under its name goes
	// on with the leases it had; two that have the same by mistake do the same work twice. Drawn by chance by default.
	ReplicaID string
	// LetterRetention is how long dead letters are kept, and MaxLetters how many of a subscription, the latest;
	// DefaultLetterRetention and DefaultMaxLetters by default.
	LetterRetention time.Duration
	MaxLetters      int
	// DeliveryLog says which delivery attempts are kept for operators (deliverylog.go). Empty is fsm.LogOff.
	DeliveryLog fsm.DeliveryLog
	// Hinted is called with the hints of other replicas, from when Run is called. It must not block. May be nil.
	Hinted func(fsm.Hint)
	// Outcomes acts on what comes of clearing away the consumers of deleted subscriptions, and of calls that were
	// answered late, and tells of the attempts that DeliveryLog keeps; nil for nobody.
	Outcomes *fsm.Router
	// Untraced has outcomes leave out the wakes that ended with "done", of which only tracing makes use.
	Untraced bool
	// Outage is what the tasks of this process know together of a Redis that does not answer; nil for the store alone.
	Outage *fsm.Outage
	// Draw replaces chance and time, in tests; nil for real ones.
	Draw func() Draw

	// limits are usual, except in tests.
	limits limits
}

// Store keeps the state in Redis. It is safe for concurrent use.
type Store struct {
	rdb redis.UniversalClient
	// sharing is nil where each call goes alone.
	sharing *sharing
	keys    keys
	opts    Options
	draw    func() Draw
	catalog *fsm.Catalog
	// endpoints are those in trouble, as far as this replica knows; lookNow asks Run to read them.
	endpoints      *fsm.Endpoints
	lookNow        chan struct{}
	metrics        *metrics
	lettersDropped droppedLetters
	// log is nil if no attempts are kept.
	log *deliveryLog
	// refreshing holds one item while the catalog is read anew; refreshNow asks Run for it.
	refreshing, refreshNow chan struct{}
	// refreshBegun counts the times that the catalog was asked for, and refreshed is the last of them that has brought
	// it.
	refreshBegun, refreshed atomic.Int64
	// unreadable is what was logged of stored subscriptions that cannot be read.
	unreadable fsm.Trouble
	// unreadableStream is the same of records of streams.
	unreadableStream fsm.Trouble
	unanswered       unanswered
	// clearNow asks Run to remove what deleted subscriptions have left.
	clearNow chan struct{}

	// seen are the highest watermarks of the partitions that any script has returned (lua/lib.lua, fence).
	seen []atomic.Int64
	// versionSeen is the highest version of the list of subscriptions that was read.
	versionSeen atomic.Int64
	// endpointsSeen is that of the list of endpoints.
	endpointsSeen atomic.Int64

	ownership *fsm.Ownership
	replicas  *replicas
	place     place
	answers   answers
	hints     *hints
	// lasting is from when the database counts as one that is not new; nil while that is not known.
	lasting atomic.Pointer[time.Time]
	// alone is true while there is no other replica that hints could be for.
	alone atomic.Bool
}

var _ fsm.Store = (*Store)(nil)

// New returns a Store on a client that stays the caller's to close.
func New(rdb redis.UniversalClient, opts Options) *Store {
	opts.Partitions = cmp.Or(opts.Partitions, DefaultPartitions)
	opts.Logger = cmp.Or(opts.Logger, zap.NewNop())
	opts.Lease = cmp.Or(opts.Lease, DefaultLease)
	opts.Poll = cmp.Or(opts.Poll, DefaultPoll)
	opts.LetterRetention = cmp.Or(opts.LetterRetention, DefaultLetterRetention)
	opts.MaxLetters = cmp.Or(opts.MaxLetters, DefaultMaxLetters)
	opts.ReplicaID = cmp.Or(opts.ReplicaID, randomDraw().Nonce)
	opts.limits = cmp.Or(opts.limits, usual)
	opts.Outage = cmp.Or(opts.Outage, &fsm.Outage{})
	follows := opts.Outcomes != nil
	opts.Outcomes = cmp.Or(opts.Outcomes, fsm.NewRouter())
	s := &Store{
		rdb: rdb, sharing: newSharing(rdb, opts.limits.call), opts: opts, draw: opts.Draw, catalog: fsm.NewCatalog(),
		keys: keys{partitions: opts.Partitions}, refreshing: make(chan struct{}, 1), refreshNow: make(chan struct{}, 1),
		endpoints: fsm.NewEndpoints(), lookNow: make(chan struct{}, 1),
		clearNow: make(chan struct{}, 1), seen: make([]atomic.Int64, opts.Partitions),
		ownership: fsm.NewOwnership(opts.Partitions), metrics: newMetrics(opts.Metrics),
		lettersDropped: newDroppedLetters(opts.Metrics),
		unanswered:     unanswered{kept: follows, ready: make(chan struct{}, 1)},
	}
	s.replicas, s.hints = newReplicas(s, opts.ReplicaID), newHints(s, randomDraw().Nonce)
	s.alone.Store(true)
	if s.draw == nil {
		s.draw = randomDraw
	}
	if opts.DeliveryLog.Takes(fsm.AttemptFailed) {
		s.log = newDeliveryLog(s)
		opts.Outcomes.Observe(fsm.Observer{Attempt: s.log.attempted})
	}
	if opts.Metrics != nil {
		opts.Metrics.MustRegister(newCensus(s))
	}
	return s
}

// Ping implements fsm.Store.
func (s *Store) Ping(ctx context.Context) error { return wrap(s.rdb.Ping(ctx).Err()) }

// Run takes part in sharing out the partitions, keeps the catalog up to date, finishes deletions that were cut short,
// and writes the delivery log, until ctx is done. Resign and the last delivery attempt should come before that. Calls
// may still be made after it.
func (s *Store) Run(ctx context.Context) error {
	var loops sync.WaitGroup
	// Apart from each other: the consumers of a large subscription take a while to remove.
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
	loops.Go(func() { s.repeatUnanswered(ctx) })
	loops.Go(func() { s.replicas.run(ctx) })
	loops.Go(func() { s.hints.send(ctx) })
	loops.Go(func() { s.hints.receive(ctx) })
	if s.log != nil {
		loops.Go(func() { s.log.run(ctx) })
	}
	loops.Wait()
	if s.sharing != nil {
		s.sharing.stop()
	}
	return nil
}

// Resign gives this replica's partitions to the others at once, and for good. Without it they wait
// until its leases run out.
func (s *Store) Resign(ctx context.Context) error { return s.replicas.resign(ctx) }

// Ownership implements fsm.PartitionStore.
func (s *Store) Ownership() *fsm.Ownership { return s.ownership }

// repeat calls do at an interval, when it is asked for, and during an outage when another task works again, until ctx
// is done. An outage is logged once when it begins and once when it is over, whichever task it is.
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

// signal leaves word on a channel that holds one; a word that is there already is enough.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// now returns the time by the store's clock.
func (s *Store) now(ctx context.Context) (time.Time, error) {
	if d := s.draw(); !d.Now.IsZero() {
		return d.Now, nil
	}
	t, err := s.rdb.Time(ctx).Result()
	return t, wrap(err)
}
