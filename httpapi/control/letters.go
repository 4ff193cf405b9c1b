package control

import (
	"context"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/httpapi/paging"
	"reveille/httpapi/refusal"
)

const (
	// workTimeout bounds the time of one call that works through many dead letters. The next call goes on.
	workTimeout = 10 * time.Second
	// How many dead letters one call of the store lists, or looks at for a replay.
	lettersAtATime, replayedAtATime = 200, 50
	// DiscardedAtATime is how many dead letters one call of the store drops.
	DiscardedAtATime = 50
)

// Letters says which dead letters a request is about. An empty filter matches all.
type Letters struct {
	Subscription, Stream string
	// From and Through bound the numbers of the letters; First and Last bound their partitions.
	From, Through int64
	First, Last   int
	// At is where an earlier request has ended.
	At paging.Place
}

// LettersOf are the letters of a subscription, or all.
func (s *Service) LettersOf(subscription string) Letters {
	return Letters{Subscription: subscription, Through: fsm.MaxLetterNumber, Last: s.View.Partitions() - 1}
}

// InPartitionOf limits letters to the partition of a stream.
func (s *Service) InPartitionOf(which Letters, stream string) Letters {
	which.Last = s.View.PartitionOf(stream)
	which.First = which.Last
	return which
}

// span is what lies behind a place in a partition, through a number.
func (which Letters) span(at paging.Place, through int64) fsm.LetterSpan {
	return fsm.LetterSpan{
		Partition: at.Partition, Subscription: which.Subscription, Stream: which.Stream,
		From: max(which.From, at.Seq+1), Through: min(which.Through, through),
	}
}

// ListLetters calls a function with each dead letter behind a place, partition by partition, so that the letters of a
// stream come in the order in which they came. It ends when the function returns false, or after as many calls as one
// page may cost. The result next is the cursor of where it then goes on.
func (s *Service) ListLetters(
	ctx context.Context, which Letters, at paging.Place, f func(fsm.DeadLetter) bool,
) (next string, err error) {
	for looked := 0; at.Partition <= which.Last; at = (paging.Place{Partition: at.Partition + 1}) {
		for more := true; more; {
			list, err := s.View.DeadLetters(ctx, which.span(at, fsm.MaxLetterNumber), lettersAtATime)
			if err != nil {
				return "", err
			}
			for _, l := range list {
				if looked == paging.MaxCost || !f(l) {
					return at.String(), nil
				}
				looked++
				at.Seq = l.ID.Number
			}
			more = len(list) == lettersAtATime
		}
	}
	return "", nil
}

// Letter returns the dead letter of an ID.
func (s *Service) Letter(ctx context.Context, text string) (fsm.DeadLetter, error) {
	id, err := fsm.ParseLetterID(text, s.View.Partitions())
	if err != nil {
		return fsm.DeadLetter{}, refusal.New(fsm.CodeInvalidRequest, "%v", err)
	}
	list, err := s.View.DeadLetters(ctx, id.Only(), 1)
	if err == nil && len(list) == 0 {
		err = noLetter()
	}
	if err != nil {
		return fsm.DeadLetter{}, err
	}
	return list[0], nil
}

func noLetter() error {
	return refusal.New(fsm.CodeNotFound, "there is no dead letter with this id (any more)")
}

// DiscardLetter drops one dead letter.
func (s *Service) DiscardLetter(ctx context.Context, l fsm.DeadLetter) error {
	work, out, err := s.View.DropDeadLetters(ctx, l.ID.Only(), 1)
	s.Outcomes.Follow(out, fsm.Sighting{})
	if err != nil {
		return err
	}
	s.discarded(ctx, l.Subscription, l.ID.String()+" of "+l.Stream, work.Done)
	return nil
}

// DiscardLetters drops the dead letters that there are now. If there was no time for all of them, next is where the
// same request goes on.
func (s *Service) DiscardLetters(ctx context.Context, which Letters) (discarded int, next string, err error) {
	work, next, err := s.work(ctx, which, letterWork{s.View.DropDeadLetters, DiscardedAtATime, true})
	s.discarded(ctx, which.Subscription, which.Stream, work.Done) // an error may have come after some
	if err != nil {
		return 0, "", err
	}
	return work.Done, next, nil
}

func (s *Service) discarded(ctx context.Context, subscription, about string, n int) {
	if n == 0 {
		return
	}
	s.Did(ctx, fsm.Change{What: "dead letters discarded", Subscription: subscription, About: about, Count: n},
		zap.String("subscription", subscription), zap.Int("dead_letters", n))
}

// ReplayLetter queues one dead letter for its replay.
func (s *Service) ReplayLetter(ctx context.Context, l fsm.DeadLetter) error {
	work, out, err := s.View.ReplayDeadLetters(ctx, l.ID.Only(), 1)
	s.Outcomes.Follow(out, fsm.Sighting{})
	switch {
	case err != nil:
		return err
	case work.Refused > 0:
		return refusal.New(fsm.CodeReplayRefused, "the dead letter cannot be replayed: its stream or its subscription "+
			"is gone, or is another one of its name by now")
	case work.Done == 0:
		return noLetter()
	}
	s.replayed(ctx, l.Subscription, l.ID.String()+" of "+l.Stream, work)
	return nil
}

// ReplayLetters queues the dead letters that there are now for their replay, as DiscardLetters drops them.
func (s *Service) ReplayLetters(ctx context.Context, which Letters) (sum fsm.LetterWork, next string, err error) {
	sum, next, err = s.work(ctx, which, letterWork{s.View.ReplayDeadLetters, replayedAtATime, false})
	s.replayed(ctx, which.Subscription, which.Stream, sum) // an error may have come after some
	return sum, next, err
}

func (s *Service) replayed(ctx context.Context, subscription, about string, work fsm.LetterWork) {
	if work.Done == 0 && work.Refused == 0 {
		return
	}
	s.Did(ctx,
		fsm.Change{What: "dead letters are replayed", Subscription: subscription, About: about, Count: work.Done},
		zap.String("subscription", subscription), zap.Int("dead_letters", work.Done), zap.Int("refused", work.Refused))
}

// letterWork is what a call of the store does with dead letters, and to how many at a time. It begins with the first
// letters of a partition, or with the last.
type letterWork struct {
	do         func(context.Context, fsm.LetterSpan, int) (fsm.LetterWork, fsm.Outcome, error)
	atATime    int
	fromTheEnd bool
}

// work works through the dead letters that there are now, or were when the request began that it goes on with.
func (s *Service) work(
	ctx context.Context, which Letters, work letterWork,
) (sum fsm.LetterWork, next string, err error) {
	began := s.Clock()
	counts, err := s.View.LettersOf(ctx, []string{which.Subscription})
	if err != nil {
		return sum, "", err
	}
	if err := s.hasLetters(ctx, which.Subscription, counts); err != nil {
		return sum, "", err
	}
	// Letters that come meanwhile are not among them, nor those that came since the request that this one goes on with.
	last := which.At.Through
	if last == 0 {
		for _, c := range counts {
			last = max(last, c.Last)
		}
	}
	for at := which.At; at.Partition <= which.Last; at = (paging.Place{Partition: at.Partition + 1}) {
		through := min(last, counts[at.Partition].Last)
		for looked := 1; looked > 0 && counts[at.Partition].Of[which.Subscription] > 0; {
			if s.Clock().Sub(began) > workTimeout {
				at.Through = last
				return sum, at.String(), nil
			}
			span := which.span(at, through)
			if work.fromTheEnd && at.Seq > 0 {
				span = which.span(paging.Place{Partition: at.Partition}, min(through, at.Seq-1))
			}
			w, out, err := work.do(ctx, span, work.atATime)
			s.Outcomes.Follow(out, fsm.Sighting{}) // an error may have come after some were worked on
			sum.Done, sum.Refused = sum.Done+w.Done, sum.Refused+w.Refused
			if err != nil {
				return sum, "", err
			}
			if looked = w.Looked; looked > 0 {
				at.Seq = w.Last
			}
		}
	}
	return sum, "", nil
}

// hasLetters refuses a subscription that does not exist and has left no dead letters: its name is misspelt.
func (s *Service) hasLetters(ctx context.Context, subscription string, counts []fsm.LetterCounts) error {
	for _, c := range counts {
		if c.Of[subscription] > 0 {
			return nil
		}
	}
	_, err := s.Subscriptions(ctx, subscription)
	return err
}
