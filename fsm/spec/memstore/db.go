package memstore

import (
	"cmp"
	"context"
	"crypto/sha1" // as the scripts do; a wake id is no secret
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"sync"
	"time"

	"reveille/fsm"
	"reveille/fsm/router"
	"reveille/fsm/spec"
)

// Options of a DB.
type Options struct {
	// Partitions is 1 by default.
	Partitions int
	// Timing is DefaultTiming by default.
	Timing fsm.Timing
	// Batch bounds how many items one call returns where a list is read in batches. If it is 0, only the caller's bound
	// applies.
	Batch int
	// Draw gives each call its randomness and time. Zero fields are filled from the clock, a counter, and the
	// incarnation that the DB is in.
	Draw func() Draw
	// Outcomes gets the outcomes of removing the consumers of deleted subscriptions; nil if they are dropped.
	Outcomes *router.Router
}

// DefaultTiming is the default timing of the program.
var DefaultTiming = fsm.Timing{
	Waking: 10 * time.Second, Request: 30 * time.Second, Liveness: 45 * time.Second, GoneGrace: 30 * time.Second,
	GCAfter: 72 * time.Hour,
}

// Draw is the randomness and the time of a call.
type Draw struct {
	Now time.Time
	// Nonce is the source of wake IDs.
	Nonce string
	// Jitter of retry delays.
	Jitter fsm.Jitter
	// Incarnation of the store (spec.Fence).
	Incarnation string
}

// Call is one call of a replica. The deletion of a subscription is a "DeleteSubscription", and a "Drop" for each
// partition.
type Call struct {
	Replica string
	Method  string
	Args    []any
}

// Hooks are called around each call, without a lock. The caller gets their error. An error of Before keeps the call
// from taking effect, and an error of After loses its reply.
type Hooks struct {
	Before, After func(Call) error
}

// DB is the database that replicas share. It is safe for concurrent use.
type DB struct {
	opts Options

	mu       sync.Mutex
	state    state
	replicas []*Store
	hooks    Hooks
	down     bool
	calls    map[string]int
	nonces   int
	// stamp is the latest stamp of records, and listed the latest version of the list of subscriptions. No loss takes
	// them back.
	stamp, listed int64
	incarnations  int
	changed       chan struct{}
}

// state is the content of the database, which it may lose.
type state struct {
	partitions []*partition
	subs       map[string]fsm.Subscription
	version    int64
	backfills  map[string]backfill
	// dropping has the IDs, by generation, of deleted subscriptions whose consumers are not removed yet.
	dropping map[string]string
	registry fsm.RegistryPlace
	// registryRead is true once the registry was read to its end.
	registryRead bool
	// endpoints are the endpoints in trouble, by the generation of their subscription. Their list has the version
	// endpointsVersion.
	endpoints        map[string]fsm.EndpointState
	endpointsVersion int64
	// pauses is until when origins are left alone. It is of the same version.
	pauses map[string]time.Time
	// paces are what is kept of limits, by name.
	paces map[string]spec.Pace
	// places are the replica set: until when each replica that Runs counts as alive.
	places map[string]time.Time
	// logs are the delivery logs, by the generation of their subscription, the oldest entry first.
	logs map[string][]fsm.LoggedAttempt
	// counts are the statistics, by the generation of their subscription, and counted those of all.
	counts  map[string]fsm.AttemptTally
	counted fsm.AttemptTally
	// changes are those of the audit, the oldest first.
	changes []fsm.Change
	// reserved are the idempotency keys.
	reserved map[string]fsm.OutboxKey
	outbox   fsm.OutboxConfig
	// crowd is how many further events are dead in each partition.
	crowd int64
	// unnoted is until when subscriptions count as older than unnoted writes.
	unnoted time.Time
}

// New returns an empty DB.
func New(opts Options) *DB {
	opts.Partitions = cmp.Or(opts.Partitions, 1)
	opts.Timing = cmp.Or(opts.Timing, DefaultTiming)
	opts.Batch = cmp.Or(opts.Batch, math.MaxInt)
	db := &DB{opts: opts, calls: map[string]int{}, changed: make(chan struct{}), incarnations: 1, state: state{
		subs: map[string]fsm.Subscription{}, backfills: map[string]backfill{}, dropping: map[string]string{},
		registry: fsm.RegistryPlace{Offset: fsm.Start}, places: map[string]time.Time{},
		endpoints: map[string]fsm.EndpointState{}, pauses: map[string]time.Time{}, paces: map[string]spec.Pace{},
		logs: map[string][]fsm.LoggedAttempt{}, counts: map[string]fsm.AttemptTally{},
		reserved: map[string]fsm.OutboxKey{}, outbox: fsm.DefaultOutboxConfig,
	}}
	for range opts.Partitions {
		db.state.partitions = append(db.state.partitions, newPartition())
	}
	return db
}

// SetHooks replaces the hooks.
func (db *DB) SetHooks(h Hooks) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.hooks = h
}

// SetDown makes every call fail with fsm.ErrUnavailable, or ends that.
func (db *DB) SetDown(down bool) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.down = down
}

// SetTiming replaces the times that transitions depend on.
func (db *DB) SetTiming(t fsm.Timing) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.opts.Timing = t
}

// SetBatch replaces Options.Batch.
func (db *DB) SetBatch(n int) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.opts.Batch = n
}

// Calls counts the calls of a method; of "", all calls.
func (db *DB) Calls(method string) int {
	db.mu.Lock()
	defer db.mu.Unlock()
	if method != "" {
		return db.calls[method]
	}
	n := 0
	for _, c := range db.calls {
		n += c
	}
	return n
}

// Changed returns a channel that is closed after the next call.
func (db *DB) Changed() <-chan struct{} {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.changed
}

// Snapshot is the state of a DB at a moment.
type Snapshot struct{ state state }

// Snapshot returns the present state.
func (db *DB) Snapshot() Snapshot {
	db.mu.Lock()
	defer db.mu.Unlock()
	return Snapshot{db.state.clone()}
}

// Restore makes the database lose what has changed since a snapshot, begins another incarnation, and tells the
// replicas.
func (db *DB) Restore(s Snapshot) {
	db.Lose(s)
	db.CountLoss()
}

// Lose does the same as Restore, but does not tell the replicas: they may act for a moment before they find out.
func (db *DB) Lose(s Snapshot) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.state = s.state.clone()
	db.incarnations++
}

// Restart begins another incarnation of the database. It loses nothing, but no replica can know that.
func (db *DB) Restart() { db.Lose(db.Snapshot()) }

// CountLoss tells all replicas of the partitions that began another incarnation, as their next heartbeats would.
func (db *DB) CountLoss() {
	db.mu.Lock()
	defer db.mu.Unlock()
	t := db.begin()
	for n, p := range db.state.partitions {
		t.fence(p)
		for _, s := range db.replicas {
			if p.fence.Base > s.bases[n] {
				s.bases[n] = p.fence.Base
				s.ownership.CountLoss(n)
			}
		}
	}
}

func (s state) clone() state {
	partitions := make([]*partition, len(s.partitions))
	for i, p := range s.partitions {
		partitions[i] = p.clone()
	}
	s.partitions = partitions
	s.subs, s.backfills, s.dropping = maps.Clone(s.subs), maps.Clone(s.backfills), maps.Clone(s.dropping)
	s.places, s.endpoints = maps.Clone(s.places), maps.Clone(s.endpoints)
	s.logs, s.paces, s.pauses = maps.Clone(s.logs), maps.Clone(s.paces), maps.Clone(s.pauses)
	s.reserved = maps.Clone(s.reserved)
	return s
}

// tx is one call at work. The DB is locked.
type tx struct {
	db *DB
	*state
	draw Draw
	// asked is when the call was made, by the process's clock.
	asked time.Time
	// refresh brings the replicas' catalogs and endpoints up to date after the call.
	refresh bool
}

// begin returns the tx of a call; db.mu is held.
func (db *DB) begin() *tx {
	var d Draw
	if db.opts.Draw != nil {
		d = db.opts.Draw()
	}
	if d.Now.IsZero() {
		d.Now = time.Now()
	}
	if d.Nonce == "" {
		db.nonces++
		d.Nonce = fmt.Sprint(db.nonces)
	}
	if d.Incarnation == "" {
		d.Incarnation = fmt.Sprint("incarnation ", db.incarnations)
	}
	return &tx{db: db, state: &db.state, draw: d}
}

// now returns the time by the store's clock, which counts milliseconds.
func (t *tx) now() time.Time { return time.UnixMilli(t.draw.Now.UnixMilli()) }

func (t *tx) env(p *partition, consumer string) spec.Env {
	sum := sha1.Sum([]byte(t.draw.Nonce + consumer))
	return spec.Env{
		Now: t.now(), WakeID: "w_" + hex.EncodeToString(sum[:])[:20], Jitter: t.draw.Jitter,
		Timing: t.db.opts.Timing, Base: p.fence.In(t.draw.Incarnation, t.now()).Base,
	}
}

// fence notes the incarnation that a partition is in.
func (t *tx) fence(p *partition) { p.fence = p.fence.In(t.draw.Incarnation, t.now()) }

// errDead is the cause of the errors that a killed replica gets.
var errDead = errors.New("the replica is dead")

// call carries out one call of a replica, unless the hooks, the database's state or the context prevent it.
func (s *Store) call(ctx context.Context, f func(*tx) error, method string, args ...any) error {
	db, c, asked := s.db, Call{Replica: s.id, Method: method, Args: args}, time.Now()
	db.mu.Lock()
	hooks := db.hooks
	db.mu.Unlock()
	if hooks.Before != nil {
		if err := hooks.Before(c); err != nil {
			s.count(method)
			return err
		}
	}
	if err := s.carryOut(ctx, f, method, asked); err != nil {
		return err
	}
	if hooks.After != nil {
		return hooks.After(c)
	}
	return nil
}

// do is call for what does not fail by itself.
func (s *Store) do(ctx context.Context, f func(*tx), method string, args ...any) error {
	return s.call(ctx, func(t *tx) error {
		f(t)
		return nil
	}, method, args...)
}

func (s *Store) count(method string) {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	s.db.counted(method)
}

// counted counts a call and wakes the waiters on Changed; db.mu is held.
func (db *DB) counted(method string) {
	db.calls[method]++
	close(db.changed)
	db.changed = make(chan struct{})
}

func (s *Store) carryOut(ctx context.Context, f func(*tx) error, method string, asked time.Time) error {
	db := s.db
	db.mu.Lock()
	defer db.mu.Unlock()
	defer db.counted(method)
	switch {
	case s.dead:
		return fmt.Errorf("%w: %w", fsm.ErrUnavailable, errDead)
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", fsm.ErrUnavailable, ctx.Err())
	case db.down:
		return fsm.ErrUnavailable
	}
	t := db.begin()
	t.asked = asked
	if err := f(t); err != nil {
		return err
	}
	if t.refresh {
		for _, r := range db.replicas {
			if r == s || !r.stale {
				r.readSubscriptions()
				r.readEndpoints(t.now())
			}
		}
	}
	return nil
}
