package control

import (
	"context"
	"time"

	"reveille/fsm"
	"reveille/httpapi/refusal"
)

// Stats says how the deliveries of a subscription, or of all, have been going.
type Stats struct {
	Counts fsm.AttemptCounts
	// Pending and WaitingSince are as in fsm.Tally.
	Pending      int
	WaitingSince time.Time
	// AtLeast is true if not all consumers were looked at: Pending may be more, and WaitingSince earlier.
	AtLeast     bool
	DeadLetters int
}

// Stats returns the statistics of a subscription.
func (s *Service) Stats(ctx context.Context, sub fsm.Subscription) (st Stats, err error) {
	tallies, err := s.View.TallyConsumers(ctx, []fsm.Subscription{sub})
	if err != nil {
		return st, err
	}
	st.Pending, st.WaitingSince, st.AtLeast = tallies[0].Pending, tallies[0].WaitingSince, tallies[0].Partial
	if st.Counts, err = s.View.CountedAttempts(ctx, sub); err != nil {
		return st, err
	}
	letters, err := s.View.LettersOf(ctx, []string{sub.ID})
	for _, inPartition := range letters {
		st.DeadLetters += inPartition.Of[sub.ID]
	}
	return st, err
}

// Pending returns how many consumers of all subscriptions are pending, and since when the oldest waits (fsm.Tally).
func (s *Service) Pending(ctx context.Context) (pending int, waiting time.Time, err error) {
	if !principalOf(ctx).SeesAll() {
		return 0, waiting, refusal.New(fsm.CodeForbidden, "this request is only for those who may use all paths")
	}
	return s.View.CountPending(ctx)
}

// StatsOfAll returns the statistics of all subscriptions together.
func (s *Service) StatsOfAll(ctx context.Context) (st Stats, err error) {
	if st.Pending, st.WaitingSince, err = s.Pending(ctx); err != nil {
		return st, err
	}
	if st.Counts, err = s.View.AllCountedAttempts(ctx); err != nil {
		return st, err
	}
	letters, err := s.View.LettersOf(ctx, nil)
	for _, inPartition := range letters {
		st.DeadLetters += inPartition.All
	}
	return st, err
}
