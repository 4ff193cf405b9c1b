package redisstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
)

// answers says whether Redis answers, as the heartbeats find.
type answers struct {
	mu    sync.Mutex
	asked bool
	down  bool
	since time.Time
}

// note stores how a heartbeat went.
func (a *answers) note(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if down := errors.Is(err, fsm.ErrUnavailable); !a.asked || down != a.down {
		a.asked, a.down, a.since = true, down, time.Now()
	}
}

// Answers says whether Redis answered the latest heartbeat of this replica. It also returns since when that is so, by
// the replica's clock, or zero before the first heartbeat.
func (s *Store) Answers() (up bool, since time.Time) {
	s.answers.mu.Lock()
	defer s.answers.mu.Unlock()
	return s.answers.asked && !s.answers.down, s.answers.since
}

// ReplicaID names this replica among the replicas that share the database.
func (s *Store) ReplicaID() string { return s.opts.ReplicaID }

// Replicas returns the replicas that are alive or have partitions leased, in the order of their IDs. It also returns
// how many partitions no replica has leased. It reads one key of each partition. If Redis does not answer, the error
// wraps fsm.ErrUnavailable.
func (s *Store) Replicas(ctx context.Context) (all []fsm.ReplicaStatus, unowned int, err error) {
	set, err := s.replicaSet(ctx, lookOnly, 0, false)
	if err != nil {
		return nil, 0, err
	}
	leased := map[string]int{}
	for from := 0; from < s.keys.partitions; from += countBatch {
		cmds := make([]*redis.StringCmd, min(countBatch, s.keys.partitions-from))
		pipe := s.rdb.Pipeline()
		for i := range cmds {
			cmds[i] = pipe.Get(ctx, s.keys.lease(from+i))
		}
		_, _ = pipe.Exec(ctx) // each command has its own error
		for _, cmd := range cmds {
			owner, err := cmd.Result()
			switch {
			case err == nil:
				leased[owner]++
			case errors.Is(err, redis.Nil):
				unowned++
			default:
				return nil, 0, wrap(err)
			}
		}
	}
	for i, id := range set.live {
		all = append(all, fsm.ReplicaStatus{ID: id, Alive: true, Since: set.since[i], Partitions: leased[id]})
		delete(leased, id)
	}
	for id, n := range leased {
		all = append(all, fsm.ReplicaStatus{ID: id, Partitions: n})
	}
	slices.SortFunc(all, func(a, b fsm.ReplicaStatus) int { return cmp.Compare(a.ID, b.ID) })
	return all, unowned, nil
}
