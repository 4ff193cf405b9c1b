package redisstore

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.uber.org/zap"

	"reveille/fsm"
)

const (
	// boundLettersEvery is how often the store looks for dead letters that are too old or too many.
	boundLettersEvery = 10 * time.Second
	// droppedAtATime is how many dead letters one call drops at most, each with its replay. If a subscription has too
	// many letters, tooManyAtATime of them are dropped at most before a new count.
	droppedAtATime, tooManyAtATime = 50, 10_000
)

// droppedLetters counts the dead letters that were dropped because of the bounds.
type droppedLetters struct{ old, tooMany prometheus.Counter }

func newDroppedLetters(r prometheus.Registerer) droppedLetters {
	dropped := promauto.With(r).NewCounterVec(prometheus.CounterOpts{
		Name: "reveille_dead_letters_dropped_total",
		Help: "Dead letters that this replica has dropped, by cause (age: they were older than " +
			"REVEILLE_DEAD_LETTER_RETENTION; number: their subscription had more than REVEILLE_MAX_DEAD_LETTERS). " +
			"What an operator has discarded does not count.",
	}, []string{"cause"})
	return droppedLetters{dropped.WithLabelValues("age"), dropped.WithLabelValues("number")}
}

// boundLetters drops dead letters of this replica's partitions that are too old. The owner of the first partition also
// drops letters that are too many, in all partitions together.
func (s *Store) boundLetters(ctx context.Context) error {
	now, err := s.now(ctx)
	if err != nil {
		return err
	}
	old := fsm.LetterSpan{Through: now.Add(-s.opts.LetterRetention).UnixMicro()}
	dropped := 0
	for _, old.Partition = range s.ownership.Partitions() {
		n, err := s.dropAll(ctx, old)
		if dropped += n; err != nil {
			return err
		}
	}
	if dropped > 0 {
		s.lettersDropped.old.Add(float64(dropped))
		s.opts.Logger.Info("dead letters were dropped: they were older than REVEILLE_DEAD_LETTER_RETENTION",
			zap.Int("dead_letters", dropped))
	}
	if !s.ownership.Owns(0) {
		return nil
	}
	return s.boundNumber(ctx)
}

// dropAll drops the letters of a span.
func (s *Store) dropAll(ctx context.Context, span fsm.LetterSpan) (dropped int, err error) {
	for looked := droppedAtATime; looked == droppedAtATime; {
		w, out, err := s.DropDeadLetters(ctx, span, droppedAtATime)
		s.opts.Outcomes.Follow(out, fsm.Sighting{})
		if dropped, looked = dropped+w.Done, w.Looked; err != nil {
			return dropped, err
		}
	}
	return dropped, nil
}

// lettersOf is how many letters a subscription has in a partition.
type lettersOf struct{ partition, n int }

// boundNumber drops the oldest dead letters of each subscription that has more than the maximum. It ignores deleted
// subscriptions: their letters are removed anyway.
func (s *Store) boundNumber(ctx context.Context) error {
	if err := s.RefreshCatalog(ctx); err != nil {
		return err
	}
	for more := true; more; {
		more = false
		byPartition, err := s.CountDeadLetters(ctx)
		if err != nil {
			return err
		}
		bySubscription, last := map[string][]lettersOf{}, int64(0)
		for p, counts := range byPartition {
			last = max(last, counts.Last)
			for sub, n := range counts.Of {
				bySubscription[sub] = append(bySubscription[sub], lettersOf{p, n})
			}
		}
		for sub, letters := range bySubscription {
			excess := -s.opts.MaxLetters
			for _, of := range letters {
				excess += of.n
			}
			if _, listed := s.catalog.Get(sub); !listed || excess <= 0 {
				continue
			}
			more = more || excess > tooManyAtATime
			if err := s.dropOldest(ctx, sub, letters, min(excess, tooManyAtATime), last); err != nil {
				return err
			}
		}
	}
	return nil
}

// dropOldest drops the oldest letters of a subscription, as many as excess says, in any partition. Parameter last is
// the number of the latest letter of all.
func (s *Store) dropOldest(ctx context.Context, sub string, letters []lettersOf, excess int, last int64) error {
	through, err := s.oldest(ctx, sub, letters, excess, last)
	dropped, n := 0, 0
	for i := 0; err == nil && i < len(letters); i++ {
		n, err = s.dropAll(ctx, fsm.LetterSpan{Partition: letters[i].partition, Subscription: sub, Through: through})
		dropped += n
	}
	if dropped > 0 {
		s.lettersDropped.tooMany.Add(float64(dropped))
		s.opts.Logger.Warn("the oldest dead letters of a subscription were dropped: it has more than "+
			"REVEILLE_MAX_DEAD_LETTERS", zap.String("subscription", sub), zap.Int("dead_letters", dropped))
	}
	return err
}

// oldest returns the letter number up to which a subscription has n letters. Numbers are times, so a binary search
// finds it.
func (s *Store) oldest(ctx context.Context, sub string, letters []lettersOf, n int, last int64) (int64, error) {
	from, to := int64(0), last
	for from < to {
		middle, upto := from+(to-from)/2, 0
		for _, r := range s.pipeline(ctx, scriptLettersUpto, len(letters), func(i int) ([]string, []any) {
			p := letters[i].partition
			return s.keys.guard(p), s.arguments(p, sub, middle)
		}) {
			if upto += int(r.int()); r.bad != nil {
				return 0, r.bad
			}
		}
		if upto < n {
			from = middle + 1
		} else {
			to = middle
		}
	}
	return to, nil
}
