package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/httpapi/refusal"
)

// Rewound says where a consumer has gone back to in a stream: From was acknowledged before.
type Rewound struct {
	Subscription, Consumer, Stream string
	From, To                       fsm.Offset
}

// Rewind has the consumer of a primary stream read one of its streams again, from an offset. Whoever works for the
// consumer is fenced off: it gets another wake. Only the consumers of workers are rewound; what is pushed is replayed.
func (s *Service) Rewind(ctx context.Context, id, primary, path string, to fsm.Offset) (r Rewound, err error) {
	sub, err := s.Subscription(ctx, id)
	switch {
	case err != nil:
		return r, err
	case sub.Mode != fsm.ModeWake:
		return r, refusal.New(fsm.CodeReplayRefused,
			"the events of this subscription are pushed: replay them from the offset on instead")
	}
	consumer, err := s.consumerOf(ctx, id, primary)
	if err != nil {
		return r, err
	}
	link, linked := consumer.Links[path]
	switch {
	case consumer.State == fsm.InQuarantine:
		return r, refusal.New(fsm.CodeReplayRefused, "the consumer is in quarantine: resume the subscription first")
	case !linked:
		return r, refusal.New(fsm.CodeNotFound, "the consumer is not subscribed to the stream %s", path)
	case link.Acked.Other(to):
		return r, refusal.New(fsm.CodeInvalidRequest, "to: the offset is of an earlier stream of that name")
	case !link.Acked.After(to):
		return r, notBack("up to " + link.Acked.Value())
	}
	if err := s.Upstream.Readable(ctx, path, to); err != nil {
		return r, unread("to", err)
	}
	from, out, err := s.View.Rewind(ctx, sub, consumer.Ref(), path, to)
	s.Outcomes.Follow(out, fsm.Sighting{})
	r = Rewound{Subscription: id, Consumer: consumer.ID, Stream: path, From: cmp.Or(from, link.Acked), To: to}
	did := fsm.Change{
		What: "consumer rewound", Subscription: id, About: consumer.ID + " in " + path,
		Before: acked(r.From), After: acked(to),
	}
	switch {
	case errors.Is(err, fsm.ErrNotFound):
		return r, noConsumerOf(primary)
	case errors.Is(err, fsm.ErrNotBefore): // it has changed since
		return r, notBack("less by now")
	case err != nil:
		s.Note(ctx, InPart(did))
		return r, err
	}
	s.Did(ctx, did, zap.String("subscription", id), zap.String("consumer", consumer.ID), zap.String("stream", path),
		zap.String("from", r.From.Value()), zap.String("to", to.Value()))
	return r, nil
}

func notBack(acked string) error {
	return refusal.New(fsm.CodeInvalidRequest,
		"to: a consumer only goes back, and this one has acknowledged the stream %s", acked)
}

// acked is a consumer's field, for the audit.
func acked(at fsm.Offset) json.RawMessage {
	raw, _ := json.Marshal(map[string]string{"acked": at.Value()}) // texts cannot fail
	return raw
}
