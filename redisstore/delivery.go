package redisstore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
)

// Due implements fsm.DeliveryStore.
func (s *Store) Due(ctx context.Context, partition, limit int) (fsm.Outcome, int, error) {
	r, err := newReply(s.run(ctx, scriptDue, partition, limit))
	if err != nil {
		return fsm.Outcome{}, 0, err
	}
	n := r.int()
	o := r.outcome()
	return o, int(n), r.bad
}

// NextDue implements fsm.DeliveryStore.
func (s *Store) NextDue(ctx context.Context) ([]time.Duration, error) {
	now, err := s.now(ctx)
	if err != nil {
		return nil, err
	}
	first := make([]*redis.ZSliceCmd, s.keys.partitions)
	pipe := s.rdb.Pipeline()
	for p := range first {
		first[p] = pipe.ZRangeWithScores(ctx, s.keys.due(p), 0, 0)
	}
	if _, err := pipe.Exec(ctx); wrap(err) != nil {
		return nil, wrap(err)
	}
	next := make([]time.Duration, len(first))
	for p, cmd := range first {
		next[p] = -1
		if z := cmd.Val(); len(z) > 0 {
			next[p] = max(0, time.UnixMilli(int64(z[0].Score)).Sub(now))
		}
	}
	return next, nil
}

// Fail implements fsm.DeliveryStore.
func (s *Store) Fail(ctx context.Context, r fsm.WakeRef, retryAfter time.Duration, retired bool) (fsm.Outcome, error) {
	return s.runOutcome(ctx, scriptFail, s.PartitionOf(r.Primary),
		r.Consumer, r.Epoch, r.WakeID, r.Attempt, retryAfter.Milliseconds(), flag(retired))
}

// Park implements fsm.DeliveryStore.
func (s *Store) Park(ctx context.Context, r fsm.WakeRef) error {
	_, err := s.runOutcome(ctx, scriptPark, s.PartitionOf(r.Primary), r.Consumer, r.Epoch, r.WakeID, r.Attempt)
	return err
}

// Begin implements fsm.DeliveryStore.
func (s *Store) Begin(ctx context.Context, r fsm.WakeRef) (fsm.Outcome, error) {
	return s.runOutcome(ctx, scriptBegin, s.PartitionOf(r.Primary), r.Consumer, r.Epoch, r.WakeID)
}

// Accept implements fsm.DeliveryStore.
func (s *Store) Accept(ctx context.Context, r fsm.WakeRef) error {
	_, err := s.runOutcome(ctx, scriptAccept, s.PartitionOf(r.Primary), r.Consumer, r.Epoch, r.WakeID)
	return err
}

// Finish implements fsm.DeliveryStore.
func (s *Store) Finish(ctx context.Context, r fsm.WakeRef, seen []fsm.StreamTail) (fsm.Outcome, error) {
	args := []any{r.Consumer, r.Epoch, r.WakeID, len(seen)}
	for _, t := range seen {
		args = append(args, t.Path, string(t.Tail))
	}
	return s.runOutcome(ctx, scriptFinish, s.PartitionOf(r.Primary), args...)
}
