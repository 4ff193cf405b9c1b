package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/httpapi/paging"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// replaysAtATime bounds the dead letters that one call of the store looks at for a replay.
const replaysAtATime = 50

// replayBody says how many dead letters are queued for a replay, and how many cannot be replayed.
type replayBody struct {
	Queued  int `json:"queued"`
	Refused int `json:"refused,omitempty"`
	// Next is where the same request goes on, if there was no time for all letters.
	Next string `json:"next,omitempty"`
}

const refusedReplay = "its stream or its subscription is gone, or is another one of its name by now"

// replayLetter replays one dead letter.
func (s *Service) replayLetter(c echo.Context) error {
	if err := s.bodies.Nothing(c); err != nil {
		return err
	}
	l, err := s.letter(c)
	if err != nil {
		return err
	}
	if err := s.replayOne(c.Request().Context(), l.ID); err != nil {
		return err
	}
	return s.answerReplay(c, l.Subscription, replayBody{Queued: 1})
}

func (s *Service) replayOne(ctx context.Context, id fsm.LetterID) error {
	work, out, err := s.cfg.Store.ReplayDeadLetters(ctx, id.Only(), 1)
	s.cfg.Outcomes.Follow(out, fsm.Sighting{})
	switch {
	case err != nil:
		return err
	case work.Refused > 0:
		return refusal.New(fsm.CodeReplayRefused, "the dead letter cannot be replayed: %s", refusedReplay)
	case work.Done == 0:
		return refusal.New(fsm.CodeNotFound, "there is no dead letter with this id (any more)")
	}
	return nil
}

// replayLetters replays the dead letters that a subscription has now.
func (s *Service) replayLetters(c echo.Context) error {
	which, err := s.readWhichLetters(c)
	if err != nil {
		return err
	}
	work, next, err := s.workLetters(c.Request().Context(), which,
		letterWork{do: s.cfg.Store.ReplayDeadLetters, atATime: replaysAtATime})
	if err != nil {
		return err
	}
	return s.answerReplay(c, which.subscription, replayBody{Queued: work.Done, Refused: work.Refused, Next: next})
}

func (s *Service) answerReplay(c echo.Context, subscription string, body replayBody) error {
	s.log.Info("dead letters are replayed", zap.String("subscription", subscription),
		zap.Int("dead_letters", body.Queued), zap.Int("refused", body.Refused))
	web.WriteJSON(c.Response(), http.StatusAccepted, body)
	return nil
}

// replayPrefix begins the ID of a span that is replayed.
const replayPrefix = "rp_"

// spanBody is a span of a stream that is replayed.
type spanBody struct {
	ID           string `json:"replay_id"`
	Subscription string `json:"subscription_id"`
	Stream       string `json:"stream"`
	From         string `json:"from"`
	To           string `json:"to"`
}

// replaySpan delivers the events of a stream again that lie between two offsets.
func (s *Service) replaySpan(c echo.Context) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), paging.Timeout)
	defer cancel()
	s.bodies.Limit(c)
	o, err := s.bodies.Object(c)
	if err != nil {
		return err
	}
	if err := o.Only("stream", "from", "to"); err != nil {
		return err
	}
	path, err := web.Required[string](o, "stream", "the path of a stream")
	if err != nil {
		return err
	}
	if path, err = fsm.CanonicalPath(path); err != nil {
		return refusal.New(fsm.CodeInvalidPath, "stream: %v", err)
	}
	var bounds [2]fsm.Offset
	for i, name := range []string{"from", "to"} {
		text, named, err := web.Optional[string](o, name, `"-1" or an offset of the stream`)
		switch {
		case err != nil:
			return err
		case !named && name == "from":
			return refusal.New(fsm.CodeInvalidRequest, `from is missing: it must be "-1" or an offset of the stream`)
		case !named:
			continue
		}
		if bounds[i], err = s.cfg.Upstream.ParseOffset(text); err != nil {
			return refusal.New(fsm.CodeInvalidRequest, "%s: %v", name, err)
		}
	}
	from, to := bounds[0], bounds[1]
	consumer, err := s.replayer(ctx, c.Param("id"), path)
	if err != nil {
		return err
	}
	switch tail := consumer.Links[path].Tail; {
	case to == "":
		to = tail
	case to.Ahead(tail): // a span has events of the past; they are dead if the stream has lost them
		return refusal.New(fsm.CodeInvalidRequest,
			"to: it lies behind the end of the stream, which is %q as far as is known", tail.Value())
	}
	if !to.After(from) {
		return refusal.New(fsm.CodeInvalidRequest, "to: no event lies between these offsets")
	}
	end, err := s.cfg.Upstream.Locate(ctx, path, from, to)
	switch {
	case errors.Is(err, fsm.ErrOffset):
		return refusal.New(fsm.CodeInvalidRequest, "from and to: %v", err)
	case errors.Is(err, fsm.ErrNoStream):
		return refusal.New(fsm.CodeReplayRefused, "the stream server has no such stream (any more)")
	case err != nil:
		return refusal.New(fsm.CodeUpstreamUnavailable,
			"the stream server does not show where the offsets lie: %v", err)
	}
	span := fsm.ReplaySpan{From: from, To: end}
	number, out, err := s.cfg.Store.ReplaySpan(ctx, consumer.Ref(), consumer.Born, span)
	s.cfg.Outcomes.Follow(out, fsm.Sighting{})
	switch {
	case errors.Is(err, fsm.ErrNotFound):
		return noConsumerOf(path)
	case errors.Is(err, fsm.ErrTooManyReplays):
		return refusal.New(fsm.CodeTooManyRequests,
			"%d spans of this stream wait for their replay, which is as many as may be", fsm.MaxReplaySpans)
	case err != nil:
		return err
	}
	body := spanBody{
		ID:           s.replayID(fsm.ReplayQueue{Stream: path, Number: number, Span: true}),
		Subscription: consumer.Subscription, Stream: path, From: from.Value(), To: to.Value(),
	}
	s.log.Info("a span of a stream is replayed", zap.String("subscription", body.Subscription),
		zap.String("stream", path), zap.String("from", body.From), zap.String("to", body.To))
	web.WriteJSON(c.Response(), http.StatusAccepted, body)
	return nil
}

// replayer returns the consumer of a stream whose events a subscription gets pushed.
func (s *Service) replayer(ctx context.Context, id, path string) (fsm.Consumer, error) {
	subs, err := s.subscriptionsOf(ctx, id)
	switch {
	case err != nil:
		return fsm.Consumer{}, err
	case subs[0].Mode != fsm.ModePush:
		return fsm.Consumer{}, refusal.New(fsm.CodeReplayRefused,
			"the workers of this subscription read the stream themselves: only events that are pushed are replayed")
	}
	consumer, err := s.cfg.Store.Consumer(ctx, fsm.ConsumerRef{ID: fsm.ConsumerID(id, path), Home: path})
	if errors.Is(err, fsm.ErrNotFound) {
		err = noConsumerOf(path)
	}
	return consumer, err
}

func noConsumerOf(path string) error {
	return refusal.New(fsm.CodeNotFound, "the subscription has no consumer of the stream %s", path)
}

// replayID is the ID of a replay. A dead letter has its own ID; a span gets one.
func (s *Service) replayID(q fsm.ReplayQueue) string {
	id := fsm.LetterID{Partition: s.cfg.Store.PartitionOf(q.Stream), Number: q.Number}.String()
	if q.Span {
		return replayPrefix + id[len(fsm.LetterPrefix):]
	}
	return id
}

// queueBody is the replay queue of a consumer.
type queueBody struct {
	Subscription string `json:"subscription_id"`
	Stream       string `json:"stream"`
	Consumer     string `json:"consumer_id"`
	// Waiting counts the replays that are not over. Done counts the finished ones since the queue was last empty.
	Waiting int `json:"waiting"`
	Done    int `json:"done"`
	// UnderWay is the dead letter, or the span, that is replayed now.
	UnderWay string `json:"under_way,omitempty"`
	// At is the offset that its events are read from now. A read from there shows Skip others before them. The replay
	// ends behind the first ToSkip events that a read from To shows.
	At           string     `json:"at,omitempty"`
	Skip         int64      `json:"skip,omitempty"`
	To           string     `json:"to,omitempty"`
	ToSkip       int64      `json:"to_skip,omitempty"`
	Attempt      int        `json:"attempt,omitempty"`
	FailingSince *time.Time `json:"failing_since,omitempty"`
	LastError    string     `json:"last_error,omitempty"`
}

type queuesBody struct {
	Replays []queueBody `json:"replays"`
	// Next is the cursor of the next page; empty at the end.
	Next string `json:"next,omitempty"`
}

// showReplays lists the replay queues, by partition and consumer.
func (s *Service) showReplays(c echo.Context) error {
	query := c.QueryParams()
	p, err := paging.Read(query, s.cfg.Store.Partitions(), "subscription", "stream")
	if err != nil {
		return err
	}
	which, err := s.whichLetters(query.Get)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request().Context(), paging.Timeout)
	defer cancel()
	p.From.Partition = max(p.From.Partition, which.first)
	body := queuesBody{Replays: []queueBody{}}
	body.Next, err = s.queues(ctx, which, p.From, func(q fsm.ReplayQueue) (bool, error) {
		if len(body.Replays) == p.Limit {
			return false, nil
		}
		at, skip := q.At.Split()
		to, toSkip := q.To.Split()
		b := queueBody{
			Subscription: q.Subscription, Stream: q.Stream, Consumer: q.Consumer, Waiting: q.Waiting, Done: q.Done,
			At: at.Value(), Skip: skip, To: to.Value(), ToSkip: toSkip, Attempt: q.Attempt,
			FailingSince: web.Time(q.FirstFailure), LastError: q.LastError,
		}
		if q.Number != 0 {
			b.UnderWay = s.replayID(q)
		}
		body.Replays = append(body.Replays, b)
		return true, nil
	})
	if err != nil {
		return err
	}
	web.WriteJSON(c.Response(), http.StatusOK, body)
	return nil
}

// queuesAtATime bounds the replay queues that one call of the store lists.
const queuesAtATime = 100

// queues calls a function with each replay queue behind a place, until the function returns false. The result next is
// where it then goes on.
func (s *Service) queues(
	ctx context.Context, which whichLetters, at paging.Place, f func(fsm.ReplayQueue) (bool, error),
) (next string, err error) {
	for ; at.Partition <= which.last; at = (paging.Place{Partition: at.Partition + 1}) {
		for more := true; more; {
			list, err := s.cfg.Store.ReplayQueues(ctx, at.Partition, which.subscription, at.After, queuesAtATime)
			if err != nil {
				return "", err
			}
			for _, q := range list {
				if which.stream == "" || which.stream == q.Stream {
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

type cancelledBody struct {
	// Cancelled counts the dead letters and spans that are not replayed any more.
	Cancelled int `json:"cancelled"`
}

// cancelReplays ends the replays of a subscription, or of one of its streams if the request names one. Dead letters
// stay.
func (s *Service) cancelReplays(c echo.Context) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), paging.Timeout)
	defer cancel()
	s.bodies.Limit(c)
	o, err := s.bodies.Object(c)
	if err != nil {
		return err
	}
	if err := o.Only("subscription", "stream"); err != nil {
		return err
	}
	subscription, err := web.Required[string](o, "subscription", "a subscription id")
	if err != nil {
		return err
	}
	stream, _, err := web.Optional[string](o, "stream", "the path of a stream")
	if err != nil {
		return err
	}
	said := map[string]string{"subscription": subscription, "stream": stream}
	which, err := s.whichLetters(func(name string) string { return said[name] })
	if err != nil {
		return err
	}
	if _, err := s.subscriptionsOf(ctx, subscription); err != nil {
		return err
	}
	var body cancelledBody
	_, err = s.queues(ctx, which, paging.Place{Partition: which.first}, func(q fsm.ReplayQueue) (bool, error) {
		n, out, err := s.cfg.Store.CancelReplays(ctx, fsm.ConsumerRef{ID: q.Consumer, Home: q.Stream})
		s.cfg.Outcomes.Follow(out, fsm.Sighting{})
		body.Cancelled += n
		return true, err
	})
	if err != nil {
		return err
	}
	s.log.Info("replays cancelled", zap.String("subscription", subscription), zap.Int("replays", body.Cancelled))
	web.WriteJSON(c.Response(), http.StatusOK, body)
	return nil
}
