package control

import (
	"context"
	"time"

	"reveille/fsm"
)

// OutboxStats says how the events are, and what has become of events.
type OutboxStats struct {
	// Statuses are how many events there are now. WaitingSince is since when the oldest of them waits to be delivered;
	// zero if none does.
	Statuses     map[fsm.OutboxStatus]int64
	WaitingSince time.Time
	// From is the beginning of the first of the hours.
	From      time.Time
	Total     fsm.OutboxTally
	Hours     map[int64]fsm.OutboxTally
	Providers map[string]fsm.OutboxTally
}

// Stats counts all events that there are, and what has become of events in the last hours; the present hour is one of
// them. An empty provider is all of them.
func (o *Outbox) Stats(ctx context.Context, hours int, provider string) (OutboxStats, error) {
	last := fsm.OutboxHourOf(o.Control.Clock())
	first := last - int64(hours) + 1
	s := OutboxStats{
		From: time.UnixMilli(first * time.Hour.Milliseconds()), Statuses: map[fsm.OutboxStatus]int64{},
		Hours: map[int64]fsm.OutboxTally{}, Providers: map[string]fsm.OutboxTally{},
	}
	for p := range o.Store.Partitions() {
		now, err := o.Store.CountEvents(ctx, p)
		if err != nil {
			return s, err
		}
		for status, n := range now.Statuses {
			s.Statuses[status] += n
		}
		if since := now.WaitingSince; !since.IsZero() && (s.WaitingSince.IsZero() || since.Before(s.WaitingSince)) {
			s.WaitingSince = since
		}
		of, err := o.Store.OutboxHours(ctx, p, first, last)
		if err != nil {
			return s, err
		}
		for h, tally := range of {
			if provider == "" || provider == h.Provider {
				s.Total.Add(tally)
				add(s.Hours, h.Hour, tally)
				add(s.Providers, h.Provider, tally)
			}
		}
	}
	return s, nil
}

func add[K comparable](to map[K]fsm.OutboxTally, key K, tally fsm.OutboxTally) {
	sum := to[key]
	sum.Add(tally)
	to[key] = sum
}
