package redisstore

import (
	"context"

	"reveille/fsm"
)

// ReplayDeadLetters implements control.ReplayStore.
func (s *Store) ReplayDeadLetters(
	ctx context.Context, span fsm.LetterSpan, most int,
) (fsm.LetterWork, fsm.Outcome, error) {
	return s.letterWork(ctx, scriptReplayLetters, span, most)
}

// ReplaySpan implements control.ReplayStore.
func (s *Store) ReplaySpan(
	ctx context.Context, c fsm.ConsumerRef, born int64, span fsm.ReplaySpan,
) (number int64, o fsm.Outcome, err error) {
	r := s.run(ctx, scriptReplaySpan, s.PartitionOf(c.Home), c.ID, born, string(span.From), string(span.To))
	number, o = r.int(), r.outcome()
	switch err = r.err(); {
	case err != nil:
		return 0, o, err
	case number == 0:
		return 0, o, fsm.ErrNotFound
	case number < 0:
		return 0, o, fsm.ErrTooManyReplays
	}
	return number, o, nil
}

// ReplayQueues implements control.ReplayStore.
func (s *Store) ReplayQueues(
	ctx context.Context, partition int, subscription, after string, most int,
) (queues []fsm.ReplayQueue, err error) {
	r := s.run(ctx, scriptReplayQueues, partition, subscription, after, most)
	r.each(func(l *reply) {
		l.list(func(l *reply) {
			queues = append(queues, fsm.ReplayQueue{
				Consumer: l.text(), Subscription: l.text(), Stream: l.text(),
				Waiting: int(l.int()), Done: int(l.int()), Number: l.int(), Span: l.yes(),
				At: fsm.Offset(l.text()), To: fsm.Offset(l.text()),
				Attempt: int(l.int()), FirstFailure: moment(l.int()), LastError: l.text(),
			})
		})
	})
	return queues, r.err()
}

// CancelReplays implements control.ReplayStore.
func (s *Store) CancelReplays(ctx context.Context, c fsm.ConsumerRef) (n int, o fsm.Outcome, err error) {
	r := s.run(ctx, scriptCancelReplays, s.PartitionOf(c.Home), c.ID)
	n, o = int(r.int()), r.outcome()
	return n, o, r.err()
}
