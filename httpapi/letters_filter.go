package httpapi

import (
	"context"
	"time"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/paging"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// workTimeout bounds the time of one request that works through many dead letters. The next request goes on.
const workTimeout = 10 * time.Second

// whichLetters says which dead letters a request is about, by subscription, stream and time. An empty filter matches
// all.
type whichLetters struct {
	subscription, stream string
	// from and through bound the numbers of the letters; first and last bound their partitions.
	from, through int64
	first, last   int
	// at is where an earlier request has ended.
	at paging.Place
}

// letterWork is what a call of the store does with dead letters, and to how many at a time. It begins with the first
// letters of a partition, or with the last.
type letterWork struct {
	do         func(context.Context, fsm.LetterSpan, int) (fsm.LetterWork, fsm.Outcome, error)
	atATime    int
	fromTheEnd bool
}

// letterFields are the fields of a request that is about many dead letters.
var letterFields = []string{"subscription", "stream", "since", "until", "cursor"}

// whichLetters reads the filters of a request.
func (s *Service) whichLetters(get func(string) string) (w whichLetters, err error) {
	w = whichLetters{
		subscription: get("subscription"), through: fsm.MaxLetterNumber, last: s.cfg.Store.Partitions() - 1,
	}
	if w.subscription != "" {
		if err := fsm.ValidateSubscriptionID(w.subscription); err != nil {
			return w, refusal.New(fsm.CodeInvalidSubscriptionID, "subscription: %v", err)
		}
	}
	if stream := get("stream"); stream != "" {
		if w.stream, err = fsm.CanonicalPath(stream); err != nil {
			return w, refusal.New(fsm.CodeInvalidPath, "stream: %v", err)
		}
		w.last = s.cfg.Store.PartitionOf(w.stream)
		w.first = w.last
	}
	for _, bound := range []struct {
		name   string
		number *int64
		less   int64
	}{{"since", &w.from, 0}, {"until", &w.through, 1}} {
		at, err := readTime(bound.name, get(bound.name))
		if err != nil {
			return w, err
		}
		if !at.IsZero() {
			*bound.number = at.UnixMicro() - bound.less
		}
	}
	return w, nil
}

// readWhichLetters reads the body of a request that changes dead letters. The body must name a subscription that
// exists, or that has left some.
func (s *Service) readWhichLetters(c echo.Context) (w whichLetters, err error) {
	s.bodies.Limit(c)
	o, err := s.bodies.Object(c)
	if err != nil {
		return w, err
	}
	if err := o.Only(letterFields...); err != nil {
		return w, err
	}
	said := map[string]string{}
	for _, name := range letterFields {
		if said[name], _, err = web.Optional[string](o, name, "a text"); err != nil {
			return w, err
		}
	}
	if _, err := web.Required[string](o, "subscription", "a subscription id"); err != nil {
		return w, err
	}
	if w, err = s.whichLetters(func(name string) string { return said[name] }); err != nil {
		return w, err
	}
	if cursor := said["cursor"]; cursor != "" {
		w.at, err = paging.ReadPlace(cursor, s.cfg.Store.Partitions())
	}
	w.at.Partition = max(w.at.Partition, w.first)
	return w, err
}

// span is what lies behind a place in a partition, through a number.
func (w whichLetters) span(at paging.Place, through int64) fsm.LetterSpan {
	return fsm.LetterSpan{
		Partition: at.Partition, Subscription: w.subscription, Stream: w.stream,
		From: max(w.from, at.Seq+1), Through: min(w.through, through),
	}
}

// workLetters works through the dead letters that there are now. If there was no time for all of them, next is where
// the same request goes on; otherwise it is empty.
func (s *Service) workLetters(
	ctx context.Context, which whichLetters, work letterWork,
) (sum fsm.LetterWork, next string, err error) {
	began := s.cfg.Clock()
	counts, err := s.cfg.Store.CountDeadLetters(ctx)
	if err != nil {
		return sum, "", err
	}
	if err := s.hasLetters(ctx, which.subscription, counts); err != nil {
		return sum, "", err
	}
	for at := which.at; at.Partition <= which.last; at = (paging.Place{Partition: at.Partition + 1}) {
		// Letters that come meanwhile are not among them.
		through := counts[at.Partition].Last
		for looked := 1; looked > 0 && counts[at.Partition].Of[which.subscription] > 0; {
			if s.cfg.Clock().Sub(began) > workTimeout {
				return sum, at.String(), nil
			}
			span := which.span(at, through)
			if work.fromTheEnd && at.Seq > 0 {
				span = which.span(paging.Place{Partition: at.Partition}, min(through, at.Seq-1))
			}
			w, out, err := work.do(ctx, span, work.atATime)
			s.cfg.Outcomes.Follow(out, fsm.Sighting{}) // an error may have come after some were worked on
			if err != nil {
				return sum, "", err
			}
			sum.Done, sum.Refused = sum.Done+w.Done, sum.Refused+w.Refused
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
	_, err := s.subscriptionsOf(ctx, subscription)
	return err
}
