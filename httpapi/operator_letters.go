package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
	"go.uber.org/zap"

	"reveille/fsm"
)

const (
	// lettersAtATime bounds the dead letters that one call of the store lists or drops.
	lettersAtATime = 500
	// discardTimeout bounds the time of one request that discards all dead letters of a subscription.
	discardTimeout = 10 * time.Second
)

// letterBody is a dead letter as an operator sees it.
type letterBody struct {
	ID           string `json:"id"`
	Subscription string `json:"subscription_id"`
	Stream       string `json:"stream"`
	Consumer     string `json:"consumer_id"`
	// DeliveryID is what the receiver tells the delivery by; it names the events, too.
	DeliveryID string `json:"delivery_id,omitempty"`
	// From is the offset that the events are read from, Skip how many others a read from there shows before them (of a
	// stream that is not JSON, bytes), and Events how many there are.
	From   string `json:"from"`
	Skip   int64  `json:"skip,omitempty"`
	Events int64  `json:"events"`
	// Attempts counts those that were made. The other fields are about the last one.
	Attempts   int    `json:"attempts"`
	Class      string `json:"class,omitempty"`
	Reason     string `json:"reason"`
	StatusCode int    `json:"status_code,omitempty"`
	// ResponseBody is how the body of the answer began.
	ResponseBody string     `json:"response_body,omitempty"`
	FailingSince *time.Time `json:"failing_since,omitempty"`
	DeadAt       time.Time  `json:"dead_at"`
}

type lettersBody struct {
	DeadLetters []letterBody `json:"dead_letters"`
	// Next is the cursor of the next page; empty at the end.
	Next string `json:"next,omitempty"`
}

func letterBodyOf(l fsm.DeadLetter) letterBody {
	from, skip := l.From.Split()
	return letterBody{
		ID: l.ID.String(), Subscription: l.Subscription, Stream: l.Stream, Consumer: l.Consumer,
		DeliveryID: l.DeliveryID, From: from.Value(), Skip: skip, Events: l.Events,
		Attempts: l.Attempts, Class: l.Class, Reason: l.Reason, StatusCode: l.Status, ResponseBody: l.Answer,
		FailingSince: shown(l.FirstFailure), DeadAt: l.DeadAt.UTC(),
	}
}

// showLetters lists dead letters, partition by partition, so that those of a stream are in the order in which they
// came.
func (s *Service) showLetters(c echo.Context) error {
	query := c.QueryParams()
	p, err := s.readPage(query, "subscription", "stream")
	if err != nil {
		return err
	}
	subscription, stream := query.Get("subscription"), query.Get("stream")
	if subscription != "" {
		if err := fsm.ValidateSubscriptionID(subscription); err != nil {
			return refuse(fsm.CodeInvalidSubscriptionID, "subscription: %v", err)
		}
	}
	last := s.cfg.Store.Partitions() - 1
	if stream != "" {
		if stream, err = fsm.CanonicalPath(stream); err != nil {
			return refuse(fsm.CodeInvalidPath, "stream: %v", err)
		}
		last = s.cfg.Store.PartitionOf(stream)
		p.from.Partition = max(p.from.Partition, last)
	}
	ctx, cancel := context.WithTimeout(c.Request().Context(), pageTimeout)
	defer cancel()
	body, at, looked := lettersBody{DeadLetters: []letterBody{}}, p.from, 0
	for ; at.Partition <= last; at = (place{Partition: at.Partition + 1}) {
		for more := true; more; {
			span := fsm.LetterSpan{
				Partition: at.Partition, Subscription: subscription, From: at.Seq + 1, Through: fsm.MaxLetterNumber,
			}
			list, err := s.cfg.Store.DeadLetters(ctx, span, lettersAtATime)
			if err != nil {
				return err
			}
			for _, l := range list {
				if len(body.DeadLetters) == p.limit || looked == maxPageCost {
					body.Next = at.String()
					writeJSON(c.Response(), http.StatusOK, body)
					return nil
				}
				looked++
				at.Seq = l.ID.Number
				if stream == "" || stream == l.Stream {
					body.DeadLetters = append(body.DeadLetters, letterBodyOf(l))
				}
			}
			more = len(list) == lettersAtATime
		}
	}
	writeJSON(c.Response(), http.StatusOK, body)
	return nil
}

// letter returns the dead letter that a path names.
func (s *Service) letter(c echo.Context) (fsm.DeadLetter, error) {
	id, err := fsm.ParseLetterID(c.Param("id"), s.cfg.Store.Partitions())
	if err != nil {
		return fsm.DeadLetter{}, refuse(fsm.CodeInvalidRequest, "%v", err)
	}
	list, err := s.cfg.Store.DeadLetters(c.Request().Context(), id.Only(), 1)
	if err == nil && len(list) == 0 {
		err = refuse(fsm.CodeNotFound, "there is no dead letter with this id (any more)")
	}
	if err != nil {
		return fsm.DeadLetter{}, err
	}
	return list[0], nil
}

func (s *Service) showLetter(c echo.Context) error {
	l, err := s.letter(c)
	if err != nil {
		return err
	}
	writeJSON(c.Response(), http.StatusOK, letterBodyOf(l))
	return nil
}

// discardLetter drops one dead letter.
func (s *Service) discardLetter(c echo.Context) error {
	l, err := s.letter(c)
	if err != nil {
		return err
	}
	if _, err := s.cfg.Store.DropDeadLetters(c.Request().Context(), l.ID.Only(), 1); err != nil {
		return err
	}
	s.log.Info("dead letters discarded", zap.String("subscription", l.Subscription), zap.Int("dead_letters", 1))
	writeJSON(c.Response(), http.StatusOK, discardedBody{Discarded: 1})
	return nil
}

type discardedBody struct {
	Discarded int `json:"discarded"`
	// More is true if there was no time for all of them: the same request goes on.
	More bool `json:"more,omitempty"`
}

// discardLetters drops the dead letters that a subscription has now. The subscription may be deleted.
func (s *Service) discardLetters(c echo.Context) error {
	s.limitBody(c)
	o, err := s.readObject(c)
	if err != nil {
		return err
	}
	if err := o.only("subscription"); err != nil {
		return err
	}
	id, err := required[string](o, "subscription", "a subscription id")
	if err != nil {
		return err
	}
	if err := fsm.ValidateSubscriptionID(id); err != nil {
		return refuse(fsm.CodeInvalidSubscriptionID, "subscription: %v", err)
	}
	ctx, began := c.Request().Context(), s.cfg.Clock()
	counts, err := s.cfg.Store.CountDeadLetters(ctx)
	if err != nil {
		return err
	}
	var body discardedBody
	for partition, had := range counts {
		for left := had[id]; left > 0; {
			if body.More = s.cfg.Clock().Sub(began) > discardTimeout; body.More {
				break
			}
			span := fsm.LetterSpan{Partition: partition, Subscription: id, Through: fsm.MaxLetterNumber}
			n, err := s.cfg.Store.DropDeadLetters(ctx, span, min(left, lettersAtATime))
			if err != nil {
				return err
			}
			if body.Discarded += n; n == 0 {
				break
			}
			left -= n
		}
	}
	s.log.Info("dead letters discarded", zap.String("subscription", id), zap.Int("dead_letters", body.Discarded))
	writeJSON(c.Response(), http.StatusOK, body)
	return nil
}
