package redisstore

import (
	"context"
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

// NextDue implements fsm.DeliveryStore.
func (s *Store) NextDue(ctx context.Context, partitions []int) ([]time.Duration, error) {
	now := s.draw().millis()
	replies := s.pipeline(ctx, scriptNextDue, len(partitions), func(i int) ([]string, []any) {
		return []string{s.keys.due(partitions[i])}, []any{now}
	})
	next := make([]time.Duration, len(partitions))
	var failure error
	for i, r := range replies {
		millis := r.int()
		switch {
		case r.bad != nil:
			failure = r.bad
			next[i] = -1
		case millis < 0:
			next[i] = -1
		default:
			next[i] = time.Duration(millis) * time.Millisecond
		}
	}
	return next, failure
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
