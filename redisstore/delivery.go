package redisstore

import (
	"context"
	"errors"
	"time"

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
	dropped, silent := int(r.int()), r.int()
	s.metrics.ended(scriptDue, o.Removed-dropped)
	s.metrics.ended(scriptDrop, dropped)
	s.metrics.silent.Add(float64(silent))
	return o, int(n), r.bad
}

// NextDue implements fsm.DeliveryStore. A single server is asked once for all; one that refuses that, because something is wrong with
// a partition, is asked for each, as nodes of a cluster are.
func (s *Store) NextDue(ctx context.Context, partitions []int) ([]time.Duration, error) {
	now := s.draw().millis()
	if s.sharing != nil && len(partitions) > 0 {
		next, err := s.nextDueOfAll(ctx, partitions, now)
		if err == nil || errors.Is(err, fsm.ErrUnavailable) {
			return next, err
		}
	}
	replies := s.pipeline(ctx, scriptNextDue, len(partitions), func(i int) ([]string, []any) {
		return []string{s.keys.due(partitions[i])}, []any{now}
	})
	next := make([]time.Duration, len(partitions))
	var failure error
	for i, r := range replies {
		l := r.list()
		next[i] = untilDue(l)
		if err := errors.Join(r.bad, l.bad); err != nil {
			failure = err
			next[i] = -1
		}
	}
	return next, failure
}

func (s *Store) nextDueOfAll(ctx context.Context, partitions []int, now int64) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	keys := make([]string, len(partitions))
	for i, p := range partitions {
		keys[i] = s.keys.due(p)
	}
	r, err := newReply(s.call(ctx, scriptNextDue, keys, now))
	if err != nil {
		return nil, err
	}
	next := make([]time.Duration, len(partitions))
	for i := range next {
		next[i] = untilDue(r)
	}
	return next, r.bad
}

func untilDue(r *reply) time.Duration {
	millis := r.int()
	if millis < 0 {
		return -1
	}
	return time.Duration(millis) * time.Millisecond
}

// Fail implements fsm.DeliveryStore.
func (s *Store) Fail(ctx context.Context, r fsm.WakeRef, f fsm.Failure) (fsm.Outcome, error) {
	return s.runOutcome(ctx, scriptFail, s.PartitionOf(r.Primary), r.Consumer, r.Epoch, r.WakeID, r.Attempt,
		f.RetryAfter.Milliseconds(), flag(f.Retired), f.Reason[:min(len(f.Reason), fsm.MaxReason)])
}

// Park implements fsm.DeliveryStore.
func (s *Store) Park(ctx context.Context, r fsm.WakeRef, wait time.Duration) error {
	_, err := s.runOutcome(ctx, scriptPark, s.PartitionOf(r.Primary), r.Consumer, r.Epoch, r.WakeID, r.Attempt, wait.Milliseconds())
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
