package redisstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
)

// fewConsumers bounds how many consumers and dead letters DeleteSubscription removes itself.
const fewConsumers = 200

// DeleteSubscription implements control.Store. It takes the subscription off the list. Then it tells every
// partition, in one round trip. From then on, the consumers are gone for every script, and no script makes a new one.
// If few consumers and dead letters are left, this call removes them. Otherwise the replica that owns their partition
// does (clear).
//
// Each step stores the work that is left, so a crash in between leaves no consumer behind. The list remembers which
// generations the partitions were not told of. Each partition remembers the generations whose consumers it has to
// remove.
func (s *Store) DeleteSubscription(ctx context.Context, id string) error {
	var version int64
	var generations []string
	r := s.call(ctx, scriptDeleteSubscription,
		slices.Concat([]string{
			s.keys.subscriptions(), s.keys.version(), s.keys.backfills(), s.keys.changes(), s.keys.dropping(),
		}, s.keys.listOfEndpoints(), []string{s.keys.logged()}),
		id, s.versionSeen.Load(), versionDraw(), s.endpointsSeen.Load())
	r.list(func(l *reply) {
		version = l.int()
		l.each(func(untold *reply) { generations = append(generations, untold.text()) })
	})
	if r.bad != nil {
		return r.bad
	}
	var left []dropping
	for _, generation := range generations {
		some, err := s.markDeleted(ctx, id, generation, version)
		if err != nil {
			return err
		}
		left = append(left, some...)
	}
	s.hints.tellSubscriptions()
	if err := s.RefreshCatalog(ctx); err != nil {
		return err
	}
	sum := int64(0)
	for _, d := range left {
		sum += d.left
	}
	if sum > fewConsumers {
		s.clearNow.Ring()
		return nil
	}
	return s.drop(ctx, left)
}

// dropping is a deleted subscription that has consumers or dead letters left in a partition.
type dropping struct {
	partition      int
	id, generation string
	left           int64
}

// markDeleted tells all partitions that a generation is no longer on a version of the list, and removes its delivery
// log and its statistics. It then stores that they were told. It returns where the generation has consumers or dead
// letters left.
func (s *Store) markDeleted(
	ctx context.Context, id, generation string, version int64,
) (left []dropping, err error) {
	for p, r := range s.pipeline(ctx, scriptMarkDeleted, s.keys.partitions, func(p int) ([]string, []any) {
		return s.keys.guard(p), s.arguments(p, id, generation, version)
	}) {
		if n := r.int(); n > 0 {
			left = append(left, dropping{partition: p, id: id, generation: generation, left: n})
		}
		err = errors.Join(err, r.bad)
	}
	if err == nil {
		err = s.forgetAttempts(ctx, subOf{id, generation})
	}
	if err != nil {
		return nil, err
	}
	return left, wrap(s.rdb.HDel(ctx, s.keys.dropping(), generation).Err())
}

// forgetAttempts removes what is kept of a subscription's attempts.
func (s *Store) forgetAttempts(ctx context.Context, of subOf) error {
	now, err := s.now(ctx)
	if err != nil {
		return err
	}
	names := append(s.keys.counted(of, now), s.keys.deliveryLog(of.id, of.generation))
	return wrap(s.rdb.Unlink(ctx, names...).Err())
}

// drop removes what deleted subscriptions have left in partitions, some of each at a time, until nothing is left.
func (s *Store) drop(ctx context.Context, left []dropping) error {
	for len(left) > 0 {
		var failure error
		still := left[:0]
		for i, r := range s.pipeline(ctx, scriptDrop, len(left), func(i int) ([]string, []any) {
			p := left[i].partition
			return s.keys.guard(p), s.arguments(p, left[i].id, left[i].generation)
		}) {
			if n := s.dropped(r); r.bad != nil {
				failure = r.bad
			} else if n > 0 {
				still = append(still, left[i])
			}
		}
		if failure != nil {
			return failure
		}
		left = still
	}
	return nil
}

// dropped reads the reply of scriptDrop and follows its outcome. It returns how much is left.
func (s *Store) dropped(r *reply) (left int64) {
	left = r.int()
	s.opts.Outcomes.Follow(r.outcome(), fsm.Sighting{})
	return left
}

// clear removes what deleted subscriptions have left in the partitions that this replica owns. The owner of the first
// partition also tells all partitions of deletions that were cut short. After each call clear pauses for as long as the
// call took, so that Redis has time for others.
func (s *Store) clear(ctx context.Context) error {
	owned := s.ownership.Partitions()
	if slices.Contains(owned, 0) {
		untold, err := s.rdb.HGetAll(ctx, s.keys.dropping()).Result()
		if err = wrap(err); err != nil {
			return err
		}
		version := int64(0)
		if len(untold) > 0 { // the list no longer has them
			if version, err = s.Version(ctx); err != nil {
				return err
			}
		}
		for generation, id := range untold {
			if _, err := s.markDeleted(ctx, id, generation, version); err != nil {
				return err
			}
		}
	}
	cmds := make([]*redis.MapStringStringCmd, len(owned))
	pipe := s.rdb.Pipeline()
	for i, p := range owned {
		cmds[i] = pipe.HGetAll(ctx, s.keys.droppingIn(p))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	var failure error
	for i, p := range owned {
		if err := wrap(cmds[i].Err()); err != nil {
			failure = err
			continue
		}
		for generation, id := range cmds[i].Val() {
			if err := s.clearSlowly(ctx, dropping{partition: p, id: id, generation: generation}); err != nil {
				failure = err
			}
		}
	}
	return failure
}

func (s *Store) clearSlowly(ctx context.Context, d dropping) error {
	for {
		began := time.Now()
		r := s.run(ctx, scriptDrop, d.partition, d.id, d.generation)
		if left := s.dropped(r); r.bad != nil || left == 0 {
			return r.bad
		}
		if !s.ownership.Owns(d.partition) { // the new owner continues
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Since(began)):
		}
	}
}
