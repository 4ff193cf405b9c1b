package redisstore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
)

// DuePartitions implements control.OutboxStore. It goes by the clock of this replica, and DueEvents by that of Redis.
func (s *Store) DuePartitions(ctx context.Context) (due []int, err error) {
	owned := s.ownership.Partitions()
	cmds, pipe := make([]*redis.ZSliceCmd, len(owned)), s.rdb.Pipeline()
	for i, p := range owned {
		cmds[i] = pipe.ZRangeWithScores(ctx, s.keys.delayed(p), 0, 0)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, p := range owned {
		first, failed := cmds[i].Result()
		if failed = wrap(failed); failed != nil {
			err = failed
		} else if len(first) > 0 && int64(first[0].Score) <= time.Now().Add(time.Second).UnixMilli() {
			due = append(due, p)
		}
	}
	return due, err
}

// DueEvents implements control.OutboxStore.
func (s *Store) DueEvents(ctx context.Context, partition, most int) (ids []string, err error) {
	r := s.run(ctx, scriptDueEvents, partition, most)
	r.each(func(l *reply) { ids = append(ids, l.text()) })
	return ids, r.err()
}

// ReleaseEvent implements control.OutboxStore.
func (s *Store) ReleaseEvent(ctx context.Context, id, lost string) error {
	partition, err := fsm.OutboxPartition(id, s.keys.partitions)
	if err != nil {
		return err
	}
	r := s.run(ctx, scriptReleaseEvent, partition, id, lost)
	r.yes()
	return r.err()
}
