package redisstore

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
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

// OtherReplicas implements control.NoticeStore.
func (s *Store) OtherReplicas() (live []string, lost map[string]time.Time) {
	s.replicas.mu.Lock()
	defer s.replicas.mu.Unlock()
	return slices.Clone(s.replicas.live), maps.Clone(s.replicas.lost)
}

// Leads implements control.NoticeStore.
func (s *Store) Leads(ctx context.Context) (bool, error) {
	owner, err := s.rdb.Get(ctx, s.keys.lease(0)).Result()
	return owner == s.opts.ReplicaID, wrap(err)
}

// Troubles implements control.NoticeStore. No transition depends on what is noted, so no script uses it.
func (s *Store) Troubles(ctx context.Context) (map[string]fsm.Trouble, error) {
	all, err := s.rdb.HGetAll(ctx, s.keys.troubles()).Result()
	if err != nil {
		return nil, wrap(err)
	}
	troubles := make(map[string]fsm.Trouble, len(all))
	for key, text := range all {
		millis, told, _ := strings.Cut(text, " ")
		since, _ := strconv.ParseInt(millis, 10, 64) // what cannot be read begins anew
		troubles[key] = fsm.Trouble{Since: moment(since), Told: told == "told"}
	}
	return troubles, nil
}

// NoteTroubles implements control.NoticeStore.
func (s *Store) NoteTroubles(ctx context.Context, begun, noted map[string]fsm.Trouble, over []string) error {
	pipe := s.rdb.TxPipeline()
	if len(over) > 0 {
		pipe.HDel(ctx, s.keys.troubles(), over...)
	}
	for key, t := range begun {
		pipe.HSetNX(ctx, s.keys.troubles(), key, troubleText(t))
	}
	for key, t := range noted {
		pipe.HSet(ctx, s.keys.troubles(), key, troubleText(t))
	}
	if pipe.Len() == 0 {
		return nil
	}
	_, err := pipe.Exec(ctx)
	return wrap(err)
}

func troubleText(t fsm.Trouble) string {
	text := strconv.FormatInt(millisOf(t.Since), 10)
	if t.Told {
		text += " told"
	}
	return text
}
