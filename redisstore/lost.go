package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
)

// resumeLost sees to the partitions of this replica that may have lost resumptions.
func (s *Store) resumeLost(ctx context.Context) (failure error) {
	owned := s.ownership.Partitions()
	cmds, pipe := make([]*redis.StringCmd, len(owned)), s.rdb.Pipeline()
	for i, p := range owned {
		cmds[i] = pipe.HGet(ctx, s.keys.metaOf(p), "unresumed")
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, p := range owned {
		base, err := cmds[i].Result()
		if err = wrap(err); err == nil && base != "" {
			err = s.resumeAgain(ctx, p, base)
		}
		if err != nil {
			failure = err
		}
	}
	return failure
}

// resumeAgain makes up for what a partition may have lost. The argument base is that of its epochs since the loss.
func (s *Store) resumeAgain(ctx context.Context, partition int, base string) error {
	out, err := s.ResumeLost(ctx, partition)
	s.opts.Outcomes.Follow(out, fsm.Sighting{})
	if err != nil {
		return err
	}
	r := s.run(ctx, scriptEndLoss, partition, base)
	r.yes()
	return r.bad
}

// ResumeLost resumes subscriptions in one partition, as nobody has asked for. The partition may have lost that a
// resumption or a consent has reached its consumers, which would wait on for what has come.
func (s *Store) ResumeLost(ctx context.Context, partition int) (o fsm.Outcome, err error) {
	if err := s.RefreshCatalog(ctx); err != nil {
		return o, err
	}
	var subs []fsm.Subscription
	var there []*redis.IntCmd
	pipe := s.rdb.Pipeline()
	for _, sub := range s.catalog.All() {
		if sub.MayHaveResumed() {
			subs, there = append(subs, sub), append(there, pipe.Exists(ctx, s.keys.consumersOf(sub, partition)))
		}
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, sub := range subs {
		n, err := there[i].Result()
		if err = wrap(err); err == nil && n > 0 {
			err = s.eachBatch(ctx, scriptResume, partition, func(l *reply) {
				_ = l.int()
				o.Add(l.outcome())
			}, sub.ID, sub.Generation, flag(true))
		}
		if err != nil {
			return o, err
		}
	}
	return o, nil
}
