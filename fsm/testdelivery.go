package fsm

import (
	"errors"
	"time"
)

// TestDelivery is the result of a test delivery: a synthetic event that was sent to an endpoint, and changes nothing.
type TestDelivery struct {
	// Status of the answer; 0 without one.
	Status int
	// Took is the time until the endpoint answered, or had failed to answer.
	Took time.Duration
	// Body is the beginning of the answer's body.
	Body []byte
	// Failure is why the endpoint did not take it, as Attempt.Reason says it; empty if it did.
	Failure string
}

// ErrTesting says that the largest number of test deliveries is under way.
var ErrTesting = errors.New("a test delivery is under way")
