package redisstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
)

// fewConsumers is how many consumers a subscription may have to be removed by the call that deletes it.
const fewConsumers = 200

// DeleteSubscription implements fsm.SubscriptionStore. It takes the subscription off the list and then tells every
// partition, in one round trip. From then on its consumers are gone for every script, and no script makes one. This
// call removes them if they are few; else the replica that owns their partition does (clear).
//
// Each step leaves a record of what is yet to be done, so a crash in between leaves no consumer behind: the list
// remembers which generations the partitions were not told of, and a partition remembers of which generations it has
// consumers to remove.
func (s *Store) DeleteSubscription(ctx context.Context, id string) error {
	var version int64
	var generations []string
	r := s.call(ctx, scriptDeleteSubscription,
		append([]string{
			s.keys.subscriptions(), s.keys.version(), s.keys.backfills(), s.keys.changes(), s.keys.dropping(),
		}, s.keys.listOfEndpoints()...),
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
		signal(s.clearNow)
		return nil
	}
	return s.drop(ctx, left)
}

// dropping is a deleted subscription that has consumers left in a partition.
type dropping struct {
	partition      int
	id, generation string
	left           int64
}

// markDeleted tells all partitions of a generation that is not on a version of the list any more, and removes its
// delivery log. It then notes that they were told, and returns where the generation has consumers left.
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
		err = wrap(s.rdb.Unlink(ctx, s.keys.deliveryLog(id, generation)).Err())
	}
	if err != nil {
		return nil, err
	}
	return left, wrap(s.rdb.HDel(ctx, s.keys.dropping(), generation).Err())
}

// drop removes the consumers that deleted subscriptions have left, some of each at a time, until there are none.
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

// dropped reads the reply of scriptDrop: how many consumers are left.
func (s *Store) dropped(r *reply) (left int64) {
	r.list(func(l *reply) {
		left = l.int()
		s.opts.Outcomes.Follow(l.outcome(), fsm.Sighting{})
	})
	return left
}

// clear removes what deleted subscriptions have left in the partitions that this replica owns. If it owns the first
// partition, it also tells all partitions of the deletions that were cut short. While it removes, it leaves Redis as
// much time for others as it takes.
func (s *Store) clear(ctx context.Context) error {
	owned := s.ownership.Partitions()
	if slices.Contains(owned, 0) {
		untold, err := s.rdb.HGetAll(ctx, s.keys.dropping()).Result()
		if err = wrap(err); err != nil {
			return err
		}
		version := int64(0)
		if len(untold) > 0 { // they are off the list, as it is now
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
	_, _ = pipe.Exec(ctx) // each has its own error
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
		if !s.ownership.Owns(d.partition) { // its owner goes on
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Since(began)):
		}
	}
}
