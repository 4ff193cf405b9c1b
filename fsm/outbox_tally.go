package fsm

import "time"

const (
	// MaxOutboxHours is for how many hours the store counts what becomes of the events.
	MaxOutboxHours = 7 * 24
	// MaxOutboxCounts bounds the numbers that a partition keeps of one hour. What has no room counts for the provider
	// "(other)".
	MaxOutboxCounts = 4000
)

// OutboxTally counts what has become of events.
type OutboxTally struct {
	HandedOver, Delivered, Dead, Cancelled int64
	// Times has how long it took from the hand-over to the delivery.
	Times Times
}

// Add adds another tally.
func (t *OutboxTally) Add(o OutboxTally) {
	t.HandedOver += o.HandedOver
	t.Delivered += o.Delivered
	t.Dead += o.Dead
	t.Cancelled += o.Cancelled
	t.Times.Add(o.Times)
}

// OutboxHour is an hour, in hours since 1970, and a provider.
type OutboxHour struct {
	Hour     int64
	Provider string
}

// OutboxHourOf returns the hour of a time.
func OutboxHourOf(at time.Time) int64 { return at.UnixMilli() / time.Hour.Milliseconds() }

// OutboxCount counts the events of a partition by their present status.
type OutboxCount struct {
	Statuses map[OutboxStatus]int64
	// WaitingSince is since when the oldest event waits to be delivered (OutboxEvent.Begins); zero if there is none.
	WaitingSince time.Time
}
