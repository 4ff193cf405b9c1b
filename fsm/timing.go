package fsm

import "time"

// Timing is the set of times that transitions depend on.
type Timing struct {
	// Waking is how long a delivery attempt may stay without a 2xx or a claim (webhook spec, WAKING Timeout).
	Waking time.Duration
	// Request is how long the request of an attempt may stay open, whether or not Waking has passed (webhook spec,
	// Webhook Request Timeout).
	Request time.Duration
	// Liveness is how long a live consumer may stay without a callback (webhook spec, Liveness Timeout).
	Liveness time.Duration
	// GoneGrace is how long the primary stream must stay away before its consumers are removed.
	GoneGrace time.Duration
	// GCAfter is how long deliveries may fail without a break; an attempt made later that fails, too, is the last
	// (webhook spec, Garbage Collection).
	GCAfter time.Duration
}

// Open is how long after an attempt was handed out its request may be open, in whole milliseconds. The request begins
// within half of Waking (Delivery.GoodUntil).
func (t Timing) Open() time.Duration { return (t.Waking/2 + t.Request).Truncate(time.Millisecond) }
