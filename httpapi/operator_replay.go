package httpapi

import (
	"net/http"

	"github.com/labstack/echo/v4"
	"go.uber.org/zap"

	"reveille/fsm"
)

// replaysAtATime bounds the dead letters that one call of the store looks at to have them replayed.
const replaysAtATime = 50

// replayBody says of how many dead letters the events are to be delivered again, and of how many they cannot be.
type replayBody struct {
	Queued  int `json:"queued"`
	Refused int `json:"refused,omitempty"`
	// More is true if there was no time for all of them. Next is where the same request goes on.
	More bool   `json:"more,omitempty"`
	Next string `json:"next,omitempty"`
}

const refusedReplay = "its stream or its subscription is gone, or is another one of its name by now"

// replayLetter has one dead letter replayed.
func (s *Service) replayLetter(c echo.Context) error {
	if err := s.readNothing(c); err != nil {
		return err
	}
	l, err := s.letter(c)
	if err != nil {
		return err
	}
	replay, out, err := s.cfg.Store.ReplayDeadLetters(c.Request().Context(), l.ID.Only(), 1)
	s.cfg.Outcomes.Follow(out, fsm.Sighting{})
	switch {
	case err != nil:
		return err
	case replay.Refused > 0:
		return refuse(fsm.CodeReplayRefused, "the dead letter cannot be replayed: %s", refusedReplay)
	case replay.Queued == 0:
		return refuse(fsm.CodeNotFound, "there is no dead letter with this id (any more)")
	}
	s.logReplay(l.Subscription, replayBody{Queued: replay.Queued})
	writeJSON(c.Response(), http.StatusAccepted, replayBody{Queued: replay.Queued})
	return nil
}

// replayLetters has the dead letters replayed that a subscription has, partition by partition.
func (s *Service) replayLetters(c echo.Context) error {
	s.limitBody(c)
	o, err := s.readObject(c)
	if err != nil {
		return err
	}
	if err := o.only("subscription", "next"); err != nil {
		return err
	}
	id, err := required[string](o, "subscription", "a subscription id")
	if err != nil {
		return err
	}
	if err := fsm.ValidateSubscriptionID(id); err != nil {
		return refuse(fsm.CodeInvalidSubscriptionID, "subscription: %v", err)
	}
	from, _, err := optional[string](o, "next", "the next of an earlier answer")
	if err != nil {
		return err
	}
	var at fsm.LetterID
	if from != "" {
		if at, err = fsm.ParseLetterID(from, s.cfg.Store.Partitions()); err != nil {
			return refuse(fsm.CodeInvalidRequest, "next must be the next of an earlier answer")
		}
	}
	ctx, began := c.Request().Context(), s.cfg.Clock()
	counts, err := s.cfg.Store.CountDeadLetters(ctx)
	if err != nil {
		return err
	}
	var body replayBody
	for ; at.Partition < s.cfg.Store.Partitions() && !body.More; at = (fsm.LetterID{Partition: at.Partition + 1}) {
		for left := counts[at.Partition][id]; left > 0; { // what dies meanwhile is not among them
			if body.More = s.cfg.Clock().Sub(began) > discardTimeout && at.Number > 0; body.More {
				body.Next = at.String()
				break
			}
			span := fsm.LetterSpan{
				Partition: at.Partition, Subscription: id, From: at.Number + 1, Through: fsm.MaxLetterNumber,
			}
			replay, out, err := s.cfg.Store.ReplayDeadLetters(ctx, span, min(left, replaysAtATime))
			s.cfg.Outcomes.Follow(out, fsm.Sighting{})
			if err != nil {
				return err
			}
			body.Queued, body.Refused = body.Queued+replay.Queued, body.Refused+replay.Refused
			looked := replay.Queued + replay.Refused
			if at.Number = replay.Last; looked == 0 {
				break
			}
			left -= looked
		}
	}
	s.logReplay(id, body)
	writeJSON(c.Response(), http.StatusAccepted, body)
	return nil
}

func (s *Service) logReplay(subscription string, body replayBody) {
	s.log.Info("dead letters are replayed", zap.String("subscription", subscription),
		zap.Int("dead_letters", body.Queued), zap.Int("refused", body.Refused))
}
