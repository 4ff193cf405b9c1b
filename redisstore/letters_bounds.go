package redisstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.uber.org/zap"

	"reveille/fsm"
)

const (
	// boundLettersEvery is how often dead letters are looked at that are too old or too many.
	boundLettersEvery = 10 * time.Second
	// droppedAtATime bounds the dead letters that are listed or dropped at a time.
	droppedAtATime = 500
)

// droppedLetters counts the dead letters that the bounds have cost.
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

// boundLetters drops dead letters that are too old, in the partitions of this replica, and those that are too many. One
// replica sees to the number: it takes all partitions together.
func (s *Store) boundLetters(ctx context.Context) error {
	now, err := s.now(ctx)
	if err != nil {
		return err
	}
	through := now.Add(-s.opts.LetterRetention).UnixMicro()
	dropped := 0
	for _, p := range s.ownership.Partitions() {
		for n := droppedAtATime; n == droppedAtATime; dropped += n {
			if n, err = s.DropDeadLetters(ctx, fsm.LetterSpan{Partition: p, Through: through}, n); err != nil {
				return err
			}
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

// boundNumber drops the oldest dead letters of each subscription that has more than it may.
func (s *Store) boundNumber(ctx context.Context) error {
	byPartition, err := s.CountDeadLetters(ctx)
	if err != nil {
		return err
	}
	total := map[string]int{}
	for _, counts := range byPartition {
		for sub, n := range counts {
			total[sub] += n
		}
	}
	for sub, n := range total {
		dropped, err := 0, error(nil)
		for some := 1; err == nil && some > 0 && n-dropped > s.opts.MaxLetters; dropped += some {
			some, err = s.dropOldest(ctx, sub, byPartition, min(n-dropped-s.opts.MaxLetters, droppedAtATime))
		}
		if dropped > 0 {
			s.lettersDropped.tooMany.Add(float64(dropped))
			s.opts.Logger.Warn("the oldest dead letters of a subscription were dropped: it has more than "+
				"REVEILLE_MAX_DEAD_LETTERS", zap.String("subscription", sub), zap.Int("dead_letters", dropped))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// dropOldest drops the oldest dead letters of a subscription, whichever partitions they are in.
func (s *Store) dropOldest(ctx context.Context, sub string, byPartition []map[string]int, excess int) (int, error) {
	var oldest []fsm.LetterID
	for p, counts := range byPartition {
		if counts[sub] == 0 {
			continue
		}
		all := fsm.LetterSpan{Partition: p, Subscription: sub, Through: fsm.MaxLetterNumber}
		list, err := s.DeadLetters(ctx, all, excess)
		if err != nil {
			return 0, err
		}
		for _, l := range list {
			oldest = append(oldest, l.ID)
		}
		slices.SortFunc(oldest, func(a, b fsm.LetterID) int { return cmp.Compare(a.Number, b.Number) })
		oldest = oldest[:min(len(oldest), excess)]
	}
	through := map[int]int64{}
	for _, id := range oldest {
		through[id.Partition] = max(through[id.Partition], id.Number)
	}
	dropped := 0
	for p, last := range through {
		n, err := s.DropDeadLetters(ctx, fsm.LetterSpan{Partition: p, Subscription: sub, Through: last}, excess)
		dropped += n
		if err != nil {
			return dropped, err
		}
	}
	return dropped, nil
}
