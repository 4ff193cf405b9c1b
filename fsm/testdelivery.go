package fsm

import (
	"errors"
	"time"
)

// TestDelivery is what came of a test delivery: of a synthetic event that was sent to an endpoint, and changes nothing.
type TestDelivery struct {
	// Status of the answer; 0 without one.
	Status int
	// Took is how long it was until the endpoint answered, or had failed to.
	Took time.Duration
	// Body is the beginning of the answer's.
	Body []byte
	// Failure is why the endpoint did not take it, as Attempt.Reason says it; empty if it did.
	Failure string
}

// ErrTesting says that as many test deliveries are under way as may be.
var ErrTesting = errors.New("a test delivery is under way")
