package redisstore

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/fsm/bell"
)

const (
	// DefaultLease is how long a replica counts as alive and owns its partitions after its last heartbeat. A dead
	// replica is replaced after this time and one more beat.
	DefaultLease = 6 * time.Second
	// beats is how many heartbeats a lease lasts.
	beats = 6
	// clockTolerance is how far the clocks of a replica and of Redis may differ before the replica logs a warning.
	clockTolerance = 30 * time.Second
	// rememberLost is how long a replica remembers another one that was lost, so that operators can be told although
	// they cannot be told at once.
	rememberLost = 24 * time.Hour
)

// replicas keeps this replica in the replica set and leases its share of the partitions. Rendezvous hashing spreads the
// partitions: when a replica comes or goes, only its own share moves.
//
// replica_set.lua says who is alive. If a replica dies, its place there lapses, and its leases do. At the next beat,
// responsible names the heirs of its partitions, and lease.lua grants them their leases. The tailer and the timers
// follow the change of ownership.
//
// A lease does not fence anything: each transition does that by itself. A lease only keeps two replicas from doing the
// same work. So a replica that cannot reach Redis goes on with the partitions that it has.
type replicas struct {
	s  *Store
	id string
	// beatNow asks for a beat at once.
	beatNow bell.Bell

	// resigning is done once the replica resigns. That ends a beat that is under way.
	resigning     context.Context
	beginToResign context.CancelFunc

	// count is the number of live replicas.
	count atomic.Int64

	// mu is held during a beat and while the replica resigns.
	mu       sync.Mutex
	resigned bool
	live     []string
	// silent are the replicas whose places lapsed without a resignation, and since when by Redis's clock. A replica
	// that is silent for the length of a lease is lost. cutOff is true while Redis does not answer: meanwhile all
	// places lapse.
	silent map[string]time.Time
	cutOff bool
	// lost are the replicas that were lost within rememberLost and have not come back, and since when they were silent.
	lost  map[string]time.Time
	owned map[int]bool
	// bases are the bases of the partitions' epochs. If a base rises, Redis may have lost its latest changes.
	bases map[int]int64
	// wrongTime is true while the clocks differ by more than clockTolerance.
	wrongTime bool
	// otherKeys is true while the other replicas have none of this replica's token keys.
	otherKeys bool
}

func newReplicas(s *Store, id string) *replicas {
	r := &replicas{
		s: s, id: id, beatNow: bell.New(), owned: map[int]bool{}, bases: map[int]int64{},
		silent: map[string]time.Time{}, lost: map[string]time.Time{},
	}
	r.resigning, r.beginToResign = context.WithCancel(context.Background())
	return r
}

// run beats until ctx is done.
func (r *replicas) run(ctx context.Context) {
	r.s.repeat(ctx, r.s.opts.Lease/beats, r.beatNow, func(ctx context.Context) error {
		err := r.beat(ctx)
		if r.resigning.Err() != nil { // the resignation ended the beat: that is no outage
			return nil
		}
		return err
	}, "heartbeat")
}

// soon makes the next beat come at once.
func (r *replicas) soon() { r.beatNow.Ring() }

// beat makes one heartbeat.
func (r *replicas) beat(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	// After a resignation has ended a beat, one more beat may get the lock before the resignation does.
	if r.resigned || r.resigning.Err() != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.resigning, cancel)()
	set, err := r.s.keepPlace(ctx)
	if err == nil {
		r.noteSet(set)
		r.noteTime(set.now, set.asked)
	} else if r.cutOff = true; r.live == nil {
		return err
	}
	r.noteTokenKeys(ctx)
	// This replica also asks for its partitions that another replica has not given back yet. It only looks at the rest:
	// Redis may have lost what this replica remembers of them.
	var ask, release, look []int
	for p := range r.s.keys.partitions {
		switch {
		case responsible(r.live, p) == r.id:
			ask = append(ask, p)
		case r.owned[p]:
			release = append(release, p)
		default:
			look = append(look, p)
		}
	}
	if leaseErr := r.lease(ctx, ask, r.s.opts.Lease); err == nil {
		err = leaseErr
	}
	had := len(r.owned)
	if leaseErr := r.lease(ctx, release, 0); err == nil {
		err = leaseErr
	}
	r.publish()
	if leaseErr := r.lease(ctx, look, -1); err == nil {
		err = leaseErr
	}
	if len(r.owned) < had { // not if none could be given back: replicas must not keep each other busy
		r.s.hints.tellReplicas()
	}
	return err
}

// noteSet stores the replica set that Redis returned. It logs the replicas that have joined, left, fallen silent, come
// back, or are lost.
func (r *replicas) noteSet(set replicaSet) {
	live := slices.Sorted(slices.Values(set.live))
	if r.cutOff { // the others may have been cut off as well: they get another lease's time
		for id := range r.silent {
			r.silent[id] = set.now
		}
		r.cutOff = false
	}
	var joined, left, silent, back []string
	for _, id := range without(live, r.live) {
		if _, was := r.silent[id]; was {
			back = append(back, id)
		} else {
			joined = append(joined, id)
		}
		delete(r.silent, id)
	}
	for _, id := range without(r.live, live) {
		silent = append(silent, id)
		r.silent[id] = set.now
	}
	for _, id := range set.left {
		if _, is := r.silent[id]; is {
			left = append(left, id)
			delete(r.silent, id)
		}
	}
	silent = without(silent, left)
	if r.live == nil {
		r.s.hints.tellReplicas() // so that the others release its share
	}
	if len(joined)+len(left)+len(silent)+len(back) > 0 {
		slices.Sort(left)
		r.s.opts.Logger.Info("replica set changed", zap.String("this", r.id), zap.Strings("replicas", live),
			zap.Strings("joined", joined), zap.Strings("left", left), zap.Strings("silent", silent),
			zap.Strings("back", back))
	}
	for _, id := range live {
		delete(r.lost, id)
	}
	r.live = live
	r.count.Store(int64(len(live)))
	r.s.alone.Store(len(live) == 1)
	r.noteLost(set.now)
}

// noteLost reports replicas that were silent for the length of a lease although Redis answers.
func (r *replicas) noteLost(now time.Time) {
	maps.DeleteFunc(r.lost, func(_ string, since time.Time) bool { return now.Sub(since) > rememberLost })
	for id, since := range r.silent {
		if now.Sub(since) < r.s.opts.Lease {
			continue
		}
		delete(r.silent, id)
		r.lost[id] = since
		r.s.metrics.replicasLost.Inc()
		r.s.opts.Logger.Warn("a replica was lost: it did not say that it stops, and does not come back",
			zap.String("replica", id), zap.Duration("silent_for", now.Sub(since)))
	}
}

// without returns the members of a list that another list does not have.
func without(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(m string) bool { return slices.Contains(other, m) })
}

// noteTokenKeys renews the note of this replica's token keys. It logs when the other replicas stop sharing them, or
// share one again.
func (r *replicas) noteTokenKeys(ctx context.Context) {
	shared, err := r.s.noteTokenKeys(ctx, r.s.opts.Lease)
	if err != nil || shared == !r.otherKeys {
		return
	}
	r.otherKeys = !shared
	if r.otherKeys {
		r.s.opts.Logger.Error("other replicas have different token keys; workers get 401 at random until " +
			"REVEILLE_TOKEN_KEY is the same on all replicas")
	} else {
		r.s.opts.Logger.Info("the other replicas have the token key of this one again")
	}
}

// noteTime compares the server's time with this replica's time when it asked.
func (r *replicas) noteTime(now, asked time.Time) {
	off := now.Sub(asked)
	if late := time.Since(asked); off > 0 {
		off = max(0, off-late) // the server read its clock at most this much later
	}
	if wrong := off.Abs() > clockTolerance; wrong != r.wrongTime {
		r.wrongTime = wrong
		if wrong {
			r.s.opts.Logger.Warn("the clocks of this replica and of redis differ; workers refuse wakes that are "+
				"signed by a clock that is off by more than five minutes", zap.Duration("redis_is_ahead_by", off))
		} else {
			r.s.opts.Logger.Info("the clocks of this replica and of redis agree again")
		}
	}
}

// lease takes the leases of partitions. It gives them back if ttl is 0, and only looks if ttl is negative. A partition
// whose call fails stays as it is.
func (r *replicas) lease(ctx context.Context, partitions []int, ttl time.Duration) (failure error) {
	var lossy []int
	for i, res := range r.s.leases(ctx, r.id, partitions, ttl) {
		p := partitions[i]
		if res.err != nil {
			failure = res.err
			continue
		}
		if was, had := r.bases[p]; had && res.base > was {
			lossy = append(lossy, p)
			r.s.ownership.CountLoss(p)
		}
		r.bases[p] = res.base
		if ttl < 0 {
			continue
		}
		if res.granted {
			r.owned[p] = true
		} else {
			delete(r.owned, p)
		}
	}
	if len(lossy) > 0 {
		r.s.opts.Logger.Warn("redis was restarted or failed over and may have lost its latest changes; epochs jump "+
			"ahead",
			zap.Ints("partitions", lossy))
	}
	return failure
}

func (r *replicas) publish() {
	owned := make([]int, 0, len(r.owned))
	for p := range r.owned {
		owned = append(owned, p)
	}
	slices.Sort(owned)
	r.s.ownership.Replace(owned)
}

// resign gives everything back, for good, so that the other replicas take over at once.
func (r *replicas) resign(ctx context.Context) error {
	r.beginToResign()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.resigned {
		return nil
	}
	r.resigned = true
	owned := slices.Clone(r.s.ownership.Partitions())
	clear(r.owned)
	r.publish()
	err := r.s.leavePlace(ctx)
	if _, keysErr := r.s.noteTokenKeys(ctx, 0); err == nil {
		err = keysErr
	}
	if leaseErr := r.lease(ctx, owned, 0); err == nil {
		err = leaseErr
	}
	r.s.hints.publish(ctx, fsm.Hint{Kind: hintReplicas})
	return err
}

// responsible returns the replica that should own a partition.
func responsible(live []string, partition int) (id string) {
	var most uint64
	for _, replica := range live {
		if weight := xxhash.Sum64String(strconv.Itoa(partition) + " " + replica); id == "" || weight > most {
			id, most = replica, weight
		}
	}
	return id
}

type leaseResult struct {
	granted bool
	base    int64
	err     error
}

// leases calls lease.lua for partitions. It takes their leases, gives them back if ttl is 0, or only looks if ttl is
// negative.
func (s *Store) leases(ctx context.Context, id string, partitions []int, ttl time.Duration) []leaseResult {
	replies := s.pipeline(ctx, scriptLease, len(partitions), func(i int) ([]string, []any) {
		return s.keys.guard(partitions[i]), s.arguments(partitions[i], id, ttl.Milliseconds())
	})
	results := make([]leaseResult, len(partitions))
	for i, r := range replies {
		results[i] = leaseResult{granted: r.yes(), base: r.int()}
		results[i].err = r.bad
	}
	return results
}
