package memstore

import (
	"context"
	"time"

	"reveille/fsm/spec"
)

const (
	// lease is how long a replica counts as alive after its last heartbeat. After that, it may go on with unnoted
	// writes for as long as away.
	lease = 6 * time.Second
	away  = time.Hour
)

// place is a replica's place in the replica set. A replica that does not Run has none, and lets unnoted writes pass at
// once.
type place struct {
	runs, left bool
	unnoted    bool
	// announced is true once a heartbeat has told the store of unnoted writes. The place lapses at lapses if none does.
	announced bool
	lapses    time.Time
}

// SetUnnoted implements discovery.ReplicaStore.
func (s *Store) SetUnnoted(some bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if some == s.place.unnoted {
		return
	}
	s.place.unnoted, s.place.announced = some, false
	s.beat.Ring()
}

// MayWriteUnnoted implements discovery.ReplicaStore.
func (s *Store) MayWriteUnnoted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.place.left && (!s.place.runs || s.place.announced || time.Now().After(s.place.lapses))
}

// UnnotedThrough implements discovery.ReplicaStore.
func (s *Store) UnnotedThrough(ctx context.Context) (version int64, err error) {
	err = s.do(ctx, func(t *tx) {
		t.lapse()
		if !t.unnoted.IsZero() {
			version = spec.VersionsThrough(t.unnoted.UnixMilli())
		}
	}, "UnnotedThrough")
	return version, err
}

// lapse takes the replicas that no longer count as alive out of the set.
func (t *tx) lapse() {
	for id, till := range t.places {
		if !till.After(t.now()) {
			delete(t.places, id)
			t.older(t.now().Add(away))
		}
	}
}

// older makes subscriptions count as older than unnoted writes until a time.
func (t *tx) older(till time.Time) {
	if till.After(t.unnoted) {
		t.unnoted = till
	}
}

// Join takes this replica's place in the replica set, and keeps it once it Runs.
func (s *Store) Join(ctx context.Context) error {
	s.mu.Lock()
	unnoted := s.place.unnoted
	s.place.runs = true
	if !unnoted {
		s.place.lapses = time.Now().Add(lease)
	}
	s.mu.Unlock()
	err := s.do(ctx, func(t *tx) {
		t.lapse()
		t.places[s.id] = t.now().Add(lease)
		if unnoted {
			t.older(t.now().Add(lease))
		}
	}, "Beat", unnoted)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.place.announced = s.place.unnoted && (s.place.announced || unnoted && err == nil)
	return err
}

// leavePlace gives the place up. If the call fails, the place lapses.
func (s *Store) leavePlace(ctx context.Context) {
	s.mu.Lock()
	unnoted := s.place.unnoted
	s.place.left = true
	s.mu.Unlock()
	_ = s.do(ctx, func(t *tx) {
		t.lapse()
		delete(t.places, s.id)
		if unnoted {
			t.older(t.now().Add(away))
		}
	}, "Leave")
}
