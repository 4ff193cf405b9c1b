package fsm

import (
	"time"
)

// Attempt describes a finished delivery attempt to the observers.
type Attempt struct {
	// Delivery is what was delivered; its Attempt says which attempt of it this was.
	Delivery Delivery
	// Host of the endpoint. No other part of the URL is ever reported: it may hold a secret.
	Host string
	// Began is when the attempt began, by this process's clock. Took is the time until its result was known.
	Began time.Time
	Took  time.Duration
	// Result is the consequence of the attempt.
	Result AttemptResult
	// Blocked is why the delivery waits; empty unless the result is AttemptBlocked.
	Blocked BlockReason
	// Status of the answer; 0 without one.
	Status int
	// Class is the kind of a failure, as the metrics name it; empty if the attempt did not fail.
	Class string
	// Reason of a failure in a few words. It repeats nothing that the endpoint has sent.
	Reason string
	// Sent is true if the request was sent, or its sending was begun.
	Sent bool
	// Repeated is true if the request was sent a second time, because a reused connection had been closed.
	Repeated bool
	// MaxAttempts is how many attempts are made of the delivery; 0 if no number bounds them.
	MaxAttempts int
	// DeliveryID is the ID by which the receiver recognizes the delivery; empty if there was nothing to deliver.
	DeliveryID string
	// Events is the number of events in the delivery, and From the position of the first. Both are empty for a wake,
	// and if nothing could be read.
	Events int
	From   Offset
	// Extent returns what it takes to build the request again. It is nil if it was not Sent. Only an observer may call
	// it, before it returns.
	Extent func() Extent
	// EventType is the type of the event that the delivery brings. The event itself holds the type, so it is known once
	// the event is read, however the attempt ends. It is empty for an event without a type, and for formats where no
	// observer needs it.
	EventType string
	// Bytes is the size of the request's body, if it was Sent; 0 otherwise.
	Bytes int
	// Waited is how long the delivery waited in this process until the request was sent, and Exchanged how long it then
	// took until the result was known. Both are 0 if it was not Sent.
	Waited, Exchanged time.Duration
	// Remote is the address and port that the request went to, of the endpoint or of a proxy; empty without a
	// connection. HTTP is the version of the answer, such as "1.1", and TLS that of the connection, such as "1.3";
	// empty without one.
	Remote, HTTP, TLS string
	// Answer is made of the first MaxLetterAnswer bytes of the answer's body, with secrets masked. It is empty for a
	// 2xx, unless the dispatcher keeps all answers.
	Answer string
}

// Tells says whether the attempt shows how healthy the endpoint is.
func (a Attempt) Tells() bool { return a.Sent && a.Result != AttemptAbandoned }

// AttemptResult is the consequence of a delivery attempt.
type AttemptResult int

// The results of an attempt.
const (
	// AttemptFailed is retried by the schedule.
	AttemptFailed AttemptResult = iota
	// AttemptRetired leaves the endpoint alone until the subscription is resumed.
	AttemptRetired
	// AttemptAccepted means that the consumer is at work and will use the callback API.
	AttemptAccepted
	// AttemptDone means that the work is done already (webhook spec, Synchronous Done).
	AttemptDone
	// AttemptAbandoned means that this program stopped before there was an answer: nothing is known.
	AttemptAbandoned
	// AttemptEmpty means that there was no event to bring.
	AttemptEmpty
	// AttemptDead means that the events are not tried again. Either the endpoint will never take them, or their last
	// attempt has failed, or they are too large. The events behind them go on.
	AttemptDead
	// AttemptBlocked means that nothing was sent: the delivery waits (Attempt.Blocked). It is made again.
	AttemptBlocked
)

// AttemptResults is the number of results.
const AttemptResults = int(AttemptBlocked) + 1

// String returns the value of a metric label.
func (r AttemptResult) String() string {
	return [AttemptResults]string{
		"failed", "retired", "accepted", "done", "abandoned", "empty", "dead", "blocked",
	}[r]
}

// OK says whether the endpoint took the delivery.
func (r AttemptResult) OK() bool { return r == AttemptAccepted || r == AttemptDone }
