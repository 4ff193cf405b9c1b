package fsm

import "time"

// Jitter is a random draw that a transition may need, in millionths of whatever span it is applied to: 0 to 999,999.
type Jitter uint32

// JitterSpan is the exclusive upper end of a Jitter.
const JitterSpan = 1_000_000

// The retry schedule's constants (webhook spec, Retry Schedule). The store's scripts take them from here.
const (
	RetryBase       = 100 * time.Millisecond
	RetryCap        = 30 * time.Second
	RetryJitter     = time.Second
	RetrySlowAfter  = 10
	RetrySlow       = 60 * time.Second
	RetrySlowJitter = 5 * time.Second
	// MaxRetryAfter bounds what a Retry-After header can ask for.
	MaxRetryAfter = time.Hour
	// StallLimit is how many wakes in a row may end in "done" with work pending and no acked offset moved before
	// the next one waits for the retry schedule.
	StallLimit = 3
)

// RetryDelay returns how long to wait before retry n (from 1) of a delivery: min(2^n × 100 ms, 30 s) and up to 1 s for
// the first ten, 60 s and up to 5 s from the eleventh on (webhook spec, Retry Schedule). Whole milliseconds.
func RetryDelay(n int, j Jitter) time.Duration {
	n = max(n, 1)
	base, span := RetrySlow, RetrySlowJitter
	if n <= RetrySlowAfter {
		base, span = min(RetryBase<<n, RetryCap), RetryJitter
	}
	return (base + span*time.Duration(j)/JitterSpan).Truncate(time.Millisecond)
}

// PushRetry has the delays of a subscription of ModePush that names none.
var PushRetry = []time.Duration{
	30 * time.Second, 2 * time.Minute, 10 * time.Minute, time.Hour, 4 * time.Hour, 12 * time.Hour, 24 * time.Hour,
}

// What holds for deliveries of ModePush.
const (
	// PushTimeout is how long an endpoint may take if its subscription does not say.
	PushTimeout = 30 * time.Second
	// RetryVariance is by how many percent at most a delay of Subscription.Retry is varied, either way.
	RetryVariance = 20
	// MaxBatch is how many events one delivery may bring, and MaxDeliveryBytes how many bytes of them.
	MaxBatch         = 1000
	MaxDeliveryBytes = 1 << 20
)
