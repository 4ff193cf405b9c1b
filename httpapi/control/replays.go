package control

import (
	"context"
	"errors"
	"math"
	"strings"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/httpapi/paging"
	"reveille/httpapi/refusal"
)

// replayPrefix begins the ID of a span that is replayed.
const replayPrefix = "rp_"

// Replay is a span of a stream that is replayed.
type Replay struct {
	ID                   string
	Subscription, Stream string
	From, To             fsm.Offset
}

// ReplaySpan delivers the events of a stream again that lie between two offsets. Without the second one, they go up to
// the end of the stream.
func (s *Service) ReplaySpan(ctx context.Context, id, path string, from, to fsm.Offset) (r Replay, err error) {
	consumer, err := s.replayer(ctx, id, path)
	if err != nil {
		return r, err
	}
	switch tail := consumer.Links[path].Tail; {
	case to == "":
		to = tail
	case to.Ahead(tail): // a span has events of the past; they are dead if the stream has lost them
		return r, refusal.New(fsm.CodeInvalidRequest,
			"to: it lies behind the end of the stream, which is %q as far as is known", tail.Value())
	}
	if !to.After(from) {
		return r, refusal.New(fsm.CodeInvalidRequest, "to: no event lies between these offsets")
	}
	end, err := s.Upstream.Locate(ctx, path, from, to)
	if err != nil {
		return r, unread("from and to", err)
	}
	span := fsm.ReplaySpan{From: from, To: end}
	number, out, err := s.View.ReplaySpan(ctx, consumer.Ref(), consumer.Born, span)
	s.Outcomes.Follow(out, fsm.Sighting{})
	switch {
	case errors.Is(err, fsm.ErrNotFound):
		return r, noConsumerOf(path)
	case errors.Is(err, fsm.ErrTooManyReplays):
		return r, refusal.New(fsm.CodeTooManyRequests,
			"%d spans of this stream wait for their replay, which is as many as may be", fsm.MaxReplaySpans)
	case err != nil:
		return r, err
	}
	r = Replay{
		ID:           s.ReplayID(fsm.ReplayQueue{Stream: path, Number: number, Span: true}),
		Subscription: consumer.Subscription, Stream: path, From: from, To: to,
	}
	about := r.ID + " of " + path
	s.Did(ctx, fsm.Change{What: "a span of a stream is replayed", Subscription: r.Subscription, About: about},
		zap.String("subscription", r.Subscription), zap.String("stream", path), zap.String("from", from.Value()),
		zap.String("to", to.Value()))
	return r, nil
}

// unread returns what a client is told if the stream server does not show what lies behind the offsets in some fields.
func unread(fields string, err error) error {
	switch {
	case errors.Is(err, fsm.ErrOffset):
		return refusal.New(fsm.CodeInvalidRequest, "%s: %v", fields, err)
	case errors.Is(err, fsm.ErrNoStream):
		return refusal.New(fsm.CodeReplayRefused, "the stream server has no such stream (any more)")
	}
	return refusal.New(fsm.CodeUpstreamUnavailable,
		"the stream server does not show what lies behind the offset: %v", err)
}

// replayer returns the consumer of a stream whose events a subscription gets pushed.
func (s *Service) replayer(ctx context.Context, id, path string) (fsm.Consumer, error) {
	sub, err := s.Subscription(ctx, id)
	switch {
	case err != nil:
		return fsm.Consumer{}, err
	case sub.Mode != fsm.ModePush:
		return fsm.Consumer{}, refusal.New(fsm.CodeReplayRefused,
			"the workers of this subscription read the stream themselves: rewind its consumer instead")
	}
	return s.consumerOf(ctx, id, path)
}

// consumerOf returns the consumer that a subscription has for a stream.
func (s *Service) consumerOf(ctx context.Context, id, path string) (fsm.Consumer, error) {
	consumer, err := s.View.Consumer(ctx, fsm.RefOf(id, path))
	if errors.Is(err, fsm.ErrNotFound) {
		err = noConsumerOf(path)
	}
	return consumer, err
}

func noConsumerOf(path string) error {
	return refusal.New(fsm.CodeNotFound, "the subscription has no consumer of the stream %s", path)
}

// ReplayID is the ID of a replay. A dead letter has its own ID; a span gets one.
func (s *Service) ReplayID(q fsm.ReplayQueue) string {
	id := fsm.LetterID{Partition: s.View.PartitionOf(q.Stream), Number: q.Number}.String()
	if q.Span {
		return replayPrefix + id[len(fsm.LetterPrefix):]
	}
	return id
}

// PartitionOfReplay returns the partition of the span that the ID of a replay names. ok is false if the text is no such
// ID.
func (s *Service) PartitionOfReplay(id string) (partition int, ok bool) {
	rest, ok := strings.CutPrefix(id, replayPrefix)
	letter, err := fsm.ParseLetterID(fsm.LetterPrefix+rest, s.View.Partitions())
	return letter.Partition, ok && err == nil
}

// queuesAtATime bounds the replay queues that one call of the store lists.
const queuesAtATime = 100

// ListReplays calls a function with each replay queue behind a place, by partition and consumer, until the function
// returns false, or it has looked at as many queues as one page may. The result next is the cursor of where it then
// goes on. Of the filters, those for the number have no effect.
func (s *Service) ListReplays(
	ctx context.Context, which Letters, at paging.Place, f func(fsm.ReplayQueue) (bool, error),
) (next string, err error) {
	return s.eachReplay(ctx, which, at, paging.MaxCost, f)
}

// eachReplay is ListReplays, and looks at so many queues.
func (s *Service) eachReplay(
	ctx context.Context, which Letters, at paging.Place, most int, f func(fsm.ReplayQueue) (bool, error),
) (next string, err error) {
	for looked := 0; at.Partition <= which.Last; at = (paging.Place{Partition: at.Partition + 1}) {
		for more := true; more; {
			list, err := s.View.ReplayQueues(ctx, at.Partition, which.Subscription, at.After, queuesAtATime)
			if err != nil {
				return "", err
			}
			for _, q := range list {
				if looked++; looked > most {
					return at.String(), nil
				}
				if which.Stream == "" || which.Stream == q.Stream {
					if goOn, err := f(q); err != nil || !goOn {
						return at.String(), err
					}
				}
				at.After = q.Consumer
			}
			more = len(list) == queuesAtATime
		}
	}
	return "", nil
}

// CancelReplays ends the replays of a subscription, or of one of its streams, and returns how many dead letters and
// spans are not replayed any more. Dead letters stay.
func (s *Service) CancelReplays(ctx context.Context, which Letters) (cancelled int, err error) {
	if _, err := s.Subscriptions(ctx, which.Subscription); err != nil {
		return 0, err
	}
	at := paging.Place{Partition: which.First}
	_, err = s.eachReplay(ctx, which, at, math.MaxInt, func(q fsm.ReplayQueue) (bool, error) {
		n, out, err := s.View.CancelReplays(ctx, fsm.ConsumerRef{ID: q.Consumer, Home: q.Stream})
		s.Outcomes.Follow(out, fsm.Sighting{})
		cancelled += n
		return true, err
	})
	if cancelled > 0 { // an error may have come after some
		s.Did(ctx, fsm.Change{
			What: "replays cancelled", Subscription: which.Subscription, About: which.Stream, Count: cancelled,
		}, zap.String("subscription", which.Subscription), zap.Int("replays", cancelled))
	}
	if err != nil {
		return 0, err
	}
	return cancelled, nil
}
