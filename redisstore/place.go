package redisstore

import (
	"context"
	"slices"
	"sync"
	"time"

	"reveille/fsm"
)

// place is this replica's place in the replica set. It also shows the other replicas that there may be unnoted writes
// (discovery.ReplicaStore). If a place has lapsed, they assume that its replica may still make such writes.
type place struct {
	mu sync.Mutex
	// taken is true from the first heartbeat that succeeds until the replica resigns.
	taken bool
	// lapses is when the place lapses for sure if no further heartbeat succeeds. A heartbeat that failed may have
	// arrived, or may arrive later. Heartbeats that report unnoted writes do not count.
	lapses time.Time
	// unnoted is true while this replica has such writes. changes counts how often this began or ended.
	unnoted bool
	changes int
	// announced is true once a heartbeat has reported them.
	announced bool
	// clock is the time in Redis's latest answer. This replica asked for it at asked, and the answer took this long.
	clock, asked time.Time
	took         time.Duration
}

// SetUnnoted implements discovery.ReplicaStore.
func (s *Store) SetUnnoted(some bool) {
	p := &s.place
	p.mu.Lock()
	defer p.mu.Unlock()
	if some == p.unnoted {
		return
	}
	p.unnoted, p.announced = some, false
	p.changes++
	if some {
		s.replicas.soon()
	}
}

// MayWriteUnnoted implements discovery.ReplicaStore.
func (s *Store) MayWriteUnnoted() bool {
	p := &s.place
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.announced || p.taken && time.Now().After(p.lapses)
}

// UnnotedThrough implements discovery.ReplicaStore.
func (s *Store) UnnotedThrough(ctx context.Context) (int64, error) {
	set, err := s.replicaSet(ctx, lookOnly, 0, false)
	return set.unnotedThrough, err
}

// Join takes this replica's place in the replica set. It must come before the first write that passes through this
// replica. If Redis does not answer, the error wraps fsm.ErrUnavailable.
func (s *Store) Join(ctx context.Context) error {
	_, err := s.keepPlace(ctx)
	return err
}

// keepPlace sends one heartbeat to the replica set.
func (s *Store) keepPlace(ctx context.Context) (set replicaSet, err error) {
	p := &s.place
	p.mu.Lock()
	known := !p.asked.IsZero()
	p.mu.Unlock()
	if !known {
		if _, err := s.replicaSet(ctx, lookOnly, 0, false); err != nil {
			return set, err
		}
	}
	for range 2 { // a second time if the server's clock was set ahead, or is another server's
		p.mu.Lock()
		unnoted, changes := p.unnoted, p.changes
		till := p.clock.Add(time.Since(p.asked) + s.opts.Lease)
		if !unnoted {
			p.lapses = time.Now().Add(s.opts.Lease + p.took)
		}
		p.mu.Unlock()
		set, err = s.replicaSet(ctx, till.UnixMilli(), s.opts.Lease, unnoted)
		if err != nil {
			return set, err
		}
		if slices.Contains(set.live, s.opts.ReplicaID) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.taken = true
			p.announced = p.unnoted && (p.announced || unnoted && changes == p.changes)
			return set, nil
		}
	}
	return set, fsm.ErrUnavailable
}

// leavePlace gives the place up for good. From then on, the replica has no place that could lapse. So it must not pass
// any unnoted write.
func (s *Store) leavePlace(ctx context.Context) error {
	p := &s.place
	p.mu.Lock()
	unnoted := p.unnoted
	p.taken, p.announced = false, false
	p.mu.Unlock()
	_, err := s.replicaSet(ctx, leave, 0, unnoted)
	return err
}

// replicaSet is the reply of replica_set.lua.
type replicaSet struct {
	live []string
	// left are replicas that have resigned, in no order. It has the resignations of the last hour, at most 1,000, and
	// maybe older ones.
	left []string
	// since is since when each live replica is alive without a break; zero if that is not known.
	since []time.Time
	// now is the server's time; asked is when this replica asked for it.
	now, asked time.Time
	// unnotedThrough is what UnnotedThrough returns.
	unnotedThrough int64
}

// These values take the place of a time in calls of replicaSet.
const (
	leave    = 0
	lookOnly = -1
)

// replicaSet reports until when this replica is alive (till, in ms by the server's clock), and at most how long from
// now. It also reports whether this replica has unnoted writes.
func (s *Store) replicaSet(
	ctx context.Context, till int64, most time.Duration, unnoted bool,
) (set replicaSet, err error) {
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, s.opts.limits.all)
	defer cancel()
	p := &s.place
	p.mu.Lock()
	started := !p.taken
	p.mu.Unlock()
	set.asked = time.Now()
	r := s.call(ctx, scriptReplicaSet,
		[]string{s.keys.replicas(), s.keys.unnoted(), s.keys.left(), s.keys.aliveSince()},
		s.opts.ReplicaID, till, most.Milliseconds(), flag(unnoted), flag(started))
	r.list(func(l *reply) {
		set.now = time.UnixMilli(l.int())
		l.each(func(replicas *reply) { set.live = append(set.live, replicas.text()) })
		set.unnotedThrough = l.int()
		l.each(func(replicas *reply) { set.left = append(set.left, replicas.text()) })
		l.each(func(since *reply) { set.since = append(set.since, moment(since.int())) })
		if len(set.since) != len(set.live) {
			l.fail("times of other replicas")
		}
	})
	if caller.Err() == nil { // otherwise the caller ended it
		s.answers.note(r.bad)
	}
	if r.bad == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.clock, p.asked, p.took = set.now, set.asked, time.Since(set.asked)
	}
	return set, r.bad
}
