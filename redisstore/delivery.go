package redisstore

import (
	"context"
	"errors"
	"strconv"
	"time"

	"reveille/fsm"
)

// Due implements dispatcher.DeliveryStore. The caller must follow the outcome of every script. So if a script fails
// after others have acted on consumers, Due returns their outcome and no error.
func (s *Store) Due(ctx context.Context, partition, limit int) (o fsm.Outcome, n int, err error) {
	for more := true; more && n < limit; {
		r := s.run(ctx, scriptDue, partition, limit-n, millis(s.opts.Timing.Open()))
		acted := r.int()
		more = r.yes()
		o.Add(r.outcome())
		switch {
		case r.bad == nil:
			n += int(acted)
		case n == 0:
			return o, 0, r.bad
		default:
			return o, n, nil
		}
	}
	return o, n, nil
}

// NextDue implements dispatcher.DeliveryStore. It asks a single server once for all partitions. If the server refuses
// because the data of a partition is faulty, NextDue asks for each partition separately. On a cluster it always does
// that.
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
		next[i] = -1
		r.list(func(l *reply) { next[i] = untilDue(l) })
		if r.bad != nil {
			failure, next[i] = r.bad, -1
		}
	}
	return next, failure
}

func (s *Store) nextDueOfAll(ctx context.Context, partitions []int, now int64) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.limits.all)
	defer cancel()
	keys := make([]string, len(partitions))
	for i, p := range partitions {
		keys[i] = s.keys.due(p)
	}
	next := make([]time.Duration, len(partitions))
	r := s.call(ctx, scriptNextDue, keys, now)
	r.list(func(l *reply) {
		for i := range next {
			next[i] = untilDue(l)
		}
	})
	if r.bad != nil {
		return nil, r.bad
	}
	return next, nil
}

func untilDue(r *reply) time.Duration {
	millis := r.int()
	if millis < 0 {
		return -1
	}
	return time.Duration(millis) * time.Millisecond
}

// Fail implements dispatcher.DeliveryStore.
func (s *Store) Fail(ctx context.Context, r fsm.DeliveryRef, f fsm.Failure) (fsm.Outcome, error) {
	return s.runOutcome(ctx, scriptFail, s.PartitionOf(r.Consumer.Home), r.Consumer.ID, r.Epoch, r.WakeID, r.Handed,
		f.RetryAfter.Milliseconds(), flag(f.Retired), f.Reason[:min(len(f.Reason), fsm.MaxReason)],
		f.Profile.String(), f.Span, string(f.To), string(f.Within), string(f.Tail), f.Event, f.Status)
}

// Park implements dispatcher.DeliveryStore.
func (s *Store) Park(
	ctx context.Context, r fsm.DeliveryRef, why fsm.BlockReason, wait time.Duration,
) (fsm.Outcome, error) {
	return s.runOutcome(ctx, scriptPark, s.PartitionOf(r.Consumer.Home), r.Consumer.ID, r.Epoch, r.WakeID, r.Handed,
		r.Attempt, wait.Milliseconds(), string(why))
}

// Begin implements dispatcher.DeliveryStore.
func (s *Store) Begin(ctx context.Context, r fsm.DeliveryRef, by string) (fsm.Outcome, error) {
	return s.runOutcome(ctx, scriptBegin, s.PartitionOf(r.Consumer.Home), r.Consumer.ID, r.Epoch, r.WakeID, r.Handed,
		r.Attempt, by)
}

// Accept implements dispatcher.DeliveryStore.
func (s *Store) Accept(ctx context.Context, r fsm.DeliveryRef) (fsm.Outcome, error) {
	return s.runOutcome(ctx, scriptAccept, s.PartitionOf(r.Consumer.Home), r.Consumer.ID, r.Epoch, r.WakeID)
}

// Finish implements dispatcher.DeliveryStore.
func (s *Store) Finish(ctx context.Context, r fsm.DeliveryRef, seen []fsm.StreamTail) (fsm.Outcome, error) {
	args := []any{r.Consumer.ID, r.Epoch, r.WakeID, len(seen)}
	for _, t := range seen {
		args = append(args, t.Path, string(t.Tail))
	}
	return s.runOutcome(ctx, scriptFinish, s.PartitionOf(r.Consumer.Home), args...)
}

// Deliver implements dispatcher.DeliveryStore.
func (s *Store) Deliver(ctx context.Context, r fsm.DeliveryRef, d fsm.Delivered) (fsm.Outcome, error) {
	out := ""
	if d.Unsent {
		out = strconv.Itoa(r.Handed)
	}
	why := ""
	if d.Dead != nil {
		why = d.Dead.Reason[:min(len(d.Dead.Reason), fsm.MaxReason)]
	}
	return s.runOutcome(ctx, scriptDeliver, s.PartitionOf(r.Consumer.Home), r.Consumer.ID, r.Epoch, r.WakeID,
		d.Path, string(d.To), string(d.Tail), d.Profile.String(), string(d.Within), writeLetter(d.Dead), out,
		d.Event, why, d.Status, r.Owner)
}

// ReleaseHeld implements dispatcher.DeliveryStore.
func (s *Store) ReleaseHeld(
	ctx context.Context, sub fsm.Subscription, ended fsm.BlockReason,
) (o fsm.Outcome, err error) {
	err = s.ofSubscription(ctx, scriptReleaseHeld, sub, func(l *reply) { o.Add(l.outcome()) }, string(ended))
	return o, err
}
