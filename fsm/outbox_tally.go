package fsm

import (
	"maps"
	"math"
	"slices"
	"time"
)

const (
	// MaxOutboxHours is for how many hours the store counts what becomes of the events.
	MaxOutboxHours = 7 * 24
	// MaxOutboxCounts bounds the numbers that a partition keeps of one hour. What has no room counts as OutboxOthers.
	MaxOutboxCounts = 4000
	// OutboxOthers is the provider of what has no room.
	OutboxOthers = "(other)"
)

// OutboxTally counts what has become of events.
type OutboxTally struct {
	HandedOver, Delivered, Dead, Cancelled int64
	// Times counts the delivered events by their OutboxBucket: how long it took from the hand-over to the delivery.
	Times map[int]int64
}

// Add adds another tally.
func (t *OutboxTally) Add(o OutboxTally) {
	t.HandedOver += o.HandedOver
	t.Delivered += o.Delivered
	t.Dead += o.Dead
	t.Cancelled += o.Cancelled
	for bucket, n := range o.Times {
		if t.Times == nil {
			t.Times = map[int]int64{}
		}
		t.Times[bucket] += n
	}
}

// Percentile returns the time that a share of the delivered events, from 0 to 1, has not exceeded. It is up to 1/16 too
// long, and 0 if there are none.
func (t OutboxTally) Percentile(share float64) time.Duration {
	all := int64(0)
	for _, n := range t.Times {
		all += n
	}
	rank := int64(math.Ceil(share * float64(all)))
	for _, bucket := range slices.Sorted(maps.Keys(t.Times)) {
		if rank -= t.Times[bucket]; rank <= 0 {
			return MostOfOutboxBucket(bucket)
		}
	}
	return 0
}

// bucketWidth is how many buckets lie between a time and its double.
const bucketWidth = 16

// OutboxBucket returns the bucket of a time in milliseconds. From 32 ms on, a bucket is 1/16 wide.
func OutboxBucket(millis int64) int {
	doubled := 0
	for millis = max(millis, 0); millis >= 2*bucketWidth; millis /= 2 {
		doubled++
	}
	return doubled*bucketWidth + int(millis)
}

// MostOfOutboxBucket returns the longest time in a bucket.
func MostOfOutboxBucket(bucket int) time.Duration {
	doubled := max(bucket/bucketWidth-1, 0)
	most := int64(bucket-doubled*bucketWidth+1)<<doubled - 1
	return time.Duration(most) * time.Millisecond
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
