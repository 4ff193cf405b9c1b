package memstore

import (
	"context"
	"time"

	"reveille/fsm"
)

// PutCounted counts attempts of a subscription. They are in the latest minute and in the latest hour.
func (db *DB) PutCounted(sub fsm.Subscription, attempts ...fsm.Attempt) {
	db.edit(func(t *tx) {
		sum, all := fsm.AttemptTally{}, fsm.AttemptTally{}
		sum.Add(t.counts[sub.Generation])
		all.Add(t.counted)
		for _, a := range attempts {
			sum.Count(a)
			all.Count(a)
		}
		t.counts[sub.Generation], t.counted = sum, all
	})
}

// CountedAttempts implements control.Store.
func (s *Store) CountedAttempts(ctx context.Context, sub fsm.Subscription) (c fsm.AttemptCounts, err error) {
	err = s.do(ctx, func(t *tx) { c = t.justNow(t.counts[sub.Generation]) }, "CountedAttempts", sub)
	return c, err
}

// AllCountedAttempts implements control.Store.
func (s *Store) AllCountedAttempts(ctx context.Context) (c fsm.AttemptCounts, err error) {
	err = s.do(ctx, func(t *tx) { c = t.justNow(t.counted) }, "AllCountedAttempts")
	return c, err
}

func (t *tx) justNow(latest fsm.AttemptTally) fsm.AttemptCounts {
	c := fsm.AttemptCounts{
		Minutes: make([]fsm.AttemptTally, fsm.CountedMinutes), Hours: make([]fsm.AttemptTally, fsm.CountedHours),
		Now: t.now(),
	}
	c.Minutes[fsm.CountedMinutes-1], c.Hours[fsm.CountedHours-1] = latest, latest
	return c
}

// CountPending implements control.Store.
func (s *Store) CountPending(ctx context.Context) (pending int, waiting time.Time, err error) {
	err = s.do(ctx, func(t *tx) {
		all := fsm.Tally{}
		for _, sub := range t.subs {
			for _, p := range t.partitions {
				all.Add(p.tally(sub, t.now()))
			}
		}
		pending, waiting = all.Pending, all.WaitingSince
	}, "CountPending")
	return pending, waiting, err
}
