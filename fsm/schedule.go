package fsm

import "time"

// Jitter is a random number that a transition may need, in millionths of the span that it is applied to: 0 to 999,999.
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
	// StallLimit is a number of wakes in a row that end in "done" with work pending and no acked offset moved. After so
	// many, the next wake waits for the retry schedule.
	StallLimit = 3
)

// PushRetry has the delays of a subscription of ModePush that sets none.
var PushRetry = []time.Duration{
	30 * time.Second, 2 * time.Minute, 10 * time.Minute, time.Hour, 4 * time.Hour, 12 * time.Hour, 24 * time.Hour,
}

// The limits and defaults of deliveries of ModePush.
const (
	// PushTimeout is how long an endpoint may take if its subscription does not set a time.
	PushTimeout = 30 * time.Second
	// RetryVariance is the largest variation of a delay of Subscription.Retry, in percent, either way.
	RetryVariance = 20
	// MaxBatch is the largest number of events in one delivery, and MaxDeliveryBytes the largest number of their bytes.
	MaxBatch         = 1000
	MaxDeliveryBytes = 1 << 20
)
