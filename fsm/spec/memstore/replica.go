package memstore

import (
	"context"
	"slices"
	"sync"
	"time"

	"reveille/fsm"
	"reveille/fsm/bell"
	"reveille/fsm/cache"
)

// poll is how often Run looks for changes that no hint reported.
const poll = time.Second

// Store is one replica's way to a DB: a store with a catalog and an ownership of its own.
type Store struct {
	db        *DB
	id        string
	catalog   *cache.Catalog
	endpoints *cache.Endpoints
	ownership *cache.Ownership
	// bases are the Base values of the partitions' fences, as of the last look at them; guarded by db.mu.
	bases []int64
	// hinted asks Run to deliver hints, and beat asks it for a heartbeat.
	hinted, beat bell.Bell

	// dead and stale are guarded by db.mu.
	dead, stale bool

	mu    sync.Mutex
	sent  []fsm.Hint
	inbox []fsm.Hint
	place place
}

// Replica returns a new replica that owns some partitions. It knows the subscriptions.
func (db *DB) Replica(id string, partitions ...int) *Store {
	db.mu.Lock()
	defer db.mu.Unlock()
	s := &Store{
		db: db, id: id, catalog: cache.NewCatalog(), endpoints: cache.NewEndpoints(),
		ownership: cache.NewOwnership(db.opts.Partitions), bases: make([]int64, db.opts.Partitions),
		hinted: bell.New(), beat: bell.New(),
	}
	db.replicas = append(db.replicas, s)
	s.own(partitions)
	for n, p := range db.state.partitions {
		s.bases[n] = p.fence.Base
	}
	s.readSubscriptions()
	s.readEndpoints(db.begin().now())
	return s
}

// Own makes the replica the owner of just these partitions.
func (s *Store) Own(partitions ...int) {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	s.own(partitions)
}

// own leases partitions, which notes their incarnation; db.mu is held.
func (s *Store) own(partitions []int) {
	t := s.db.begin()
	for _, p := range partitions {
		t.fence(t.partitions[p])
	}
	s.ownership.Replace(partitions)
}

// SetStale keeps the catalog and the endpoints from following what other replicas do, or ends that. Only RefreshCatalog
// and this replica's own calls bring a stale catalog up to date.
func (s *Store) SetStale(stale bool) {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	s.stale = stale
}

// Kill ends the replica: all that it tries from now on fails and has no effect.
func (s *Store) Kill() {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	s.dead = true
	s.db.replicas = without(s.db.replicas, s)
}

func without(list []*Store, s *Store) []*Store {
	return slices.DeleteFunc(slices.Clone(list), func(other *Store) bool { return other == s })
}

// Ownership is what this replica works for.
func (s *Store) Ownership() *cache.Ownership { return s.ownership }

// Hint implements discovery.ReplicaStore. The other replicas get it when they Run.
func (s *Store) Hint(h fsm.Hint) {
	s.mu.Lock()
	s.sent = append(s.sent, h)
	s.mu.Unlock()
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if s.dead {
		return
	}
	for _, other := range s.db.replicas {
		if other != s {
			other.receive(h)
		}
	}
}

func (s *Store) receive(h fsm.Hint) {
	s.mu.Lock()
	s.inbox = append(s.inbox, h)
	s.mu.Unlock()
	s.hinted.Ring()
}

// Hints returns the hints that this replica has sent.
func (s *Store) Hints() []fsm.Hint {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]fsm.Hint(nil), s.sent...)
}

// Run keeps this replica's place in the replica set, and hands the other replicas' hints to hinted. It follows the list
// of subscriptions, and finishes deletions that were cut short. It runs until the context ends, which is no error.
func (s *Store) Run(ctx context.Context, hinted func(fsm.Hint)) error {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	_ = s.Join(ctx) // as long as it fails, it is tried again
	for {
		select {
		case <-ctx.Done():
			s.leavePlace(context.WithoutCancel(ctx))
			return nil
		case <-s.hinted:
			s.mu.Lock()
			inbox := s.inbox
			s.inbox = nil
			s.mu.Unlock()
			for _, h := range inbox {
				hinted(h)
			}
		case <-s.beat:
			_ = s.Join(ctx)
		case <-ticker.C:
			_ = s.Join(ctx)
			_ = s.RefreshCatalog(ctx) // one that fails is tried again
			_ = s.finishDeletions(ctx)
		}
	}
}

// Ping returns nil if the store answers.
func (s *Store) Ping(ctx context.Context) error {
	return s.call(ctx, func(*tx) error { return nil }, "Ping")
}
