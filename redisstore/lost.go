package redisstore

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
)

// resumeLost sees to the partitions of this replica that may have lost resumptions.
func (s *Store) resumeLost(ctx context.Context) error {
	owned := s.ownership.Partitions()
	cmds, pipe := make([]*redis.StringCmd, len(owned)), s.rdb.Pipeline()
	for i, p := range owned {
		cmds[i] = pipe.HGet(ctx, s.keys.metaOf(p), "unresumed")
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, p := range owned {
		base, err := cmds[i].Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err = wrap(err); err != nil {
			return err
		}
		out, err := s.ResumeLost(ctx, p)
		s.opts.Outcomes.Follow(out, fsm.Sighting{})
		if err != nil {
			return err
		}
		if r := s.run(ctx, scriptEndLoss, p, base); !r.yes() && r.bad != nil {
			return r.bad
		}
	}
	return nil
}

// ResumeLost resumes subscriptions in one partition, as nobody has asked for. The partition may have lost that a
// resumption or a consent has reached its consumers, which would wait on for what has come.
func (s *Store) ResumeLost(ctx context.Context, partition int) (o fsm.Outcome, err error) {
	if err := s.RefreshCatalog(ctx); err != nil {
		return o, err
	}
	for _, sub := range s.catalog.All() {
		if !sub.MayHaveResumed() {
			continue
		}
		err := s.eachBatch(ctx, scriptResume, partition, func(l *reply) {
			_ = l.int()
			o.Add(l.outcome())
		}, sub.ID, sub.Generation, flag(true))
		if err != nil {
			return o, err
		}
	}
	return o, nil
}
