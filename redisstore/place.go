package redisstore

import (
	"context"
	"slices"
	"sync"
	"time"

	"reveille/fsm"
)

// place is this replica's place in the replica set, and whether the other replicas can tell by it that there may be
// unnoted writes (fsm.ReplicaStore): those of a replica whose place has lapsed are never ruled out.
type place struct {
	mu sync.Mutex
	// taken is true from the first heartbeat that succeeded until the replica resigns.
	taken bool
	// lapses is when the place has lapsed for sure, if no heartbeat succeeds any more. A heartbeat that failed may have
	// arrived, or may yet arrive. Heartbeats that tell of unnoted writes do not count.
	lapses time.Time
	// unnoted is true while this replica has such writes; changes counts how often that began or ended.
	unnoted bool
	changes int
	// announced is true once a heartbeat has told of them.
	announced bool
	// clock is the time by Redis's clock in its latest answer, which was asked for at asked and took this long.
	clock, asked time.Time
	took         time.Duration
}

// SetUnnoted implements fsm.ReplicaStore.
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

// MayWriteUnnoted implements fsm.ReplicaStore.
func (s *Store) MayWriteUnnoted() bool {
	p := &s.place
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.announced || p.taken && time.Now().After(p.lapses)
}

// UnnotedThrough implements fsm.ReplicaStore.
func (s *Store) UnnotedThrough(ctx context.Context) (int64, error) {
	set, err := s.replicaSet(ctx, lookOnly, 0, false)
	return set.unnotedThrough, err
}

// Join takes this replica's place in the replica set, which must come before the first write that passes through it.
// An error wraps fsm.ErrUnavailable.
func (s *Store) Join(ctx context.Context) error {
	_, err := s.keepPlace(ctx)
	return err
}

// keepPlace makes one heartbeat of the replica set.
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
	for range 2 { // once more if the server's clock was set ahead, or is another server's
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

// leavePlace gives the place up for good. From then on this replica may have no place that lapses, so none of its
// unnoted writes may pass.
func (s *Store) leavePlace(ctx context.Context) error {
	p := &s.place
	p.mu.Lock()
	unnoted := p.unnoted
	p.taken, p.announced = false, false
	p.mu.Unlock()
	_, err := s.replicaSet(ctx, leave, 0, unnoted)
	return err
}

// replicaSet is what its script returns.
type replicaSet struct {
	live []string
	// left are those that have resigned within the last hour, in no order.
	left []string
	// since is since when each of them is alive without a break; zero if that is not known.
	since []time.Time
	// now is the server's time; asked is when this replica asked for it.
	now, asked time.Time
	// unnotedThrough is what UnnotedThrough returns.
	unnotedThrough int64
}

// Values that replicaSet takes in place of a time.
const (
	leave    = 0
	lookOnly = -1
)

// replicaSet says until when this replica is alive, in ms by the server's clock, and for how long from now at most. It
// also says whether this replica has unnoted writes.
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
	if caller.Err() == nil { // otherwise it was the caller who ended it
		s.answers.note(r.bad)
	}
	if r.bad == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.clock, p.asked, p.took = set.now, set.asked, time.Since(set.asked)
	}
	return set, r.bad
}
