package fsm

import (
	"strings"
	"time"
)

// Attempt is a delivery attempt that is over, as observers are told of it.
type Attempt struct {
	// Wake is what was delivered; its Attempt says which attempt of it this was.
	Wake Wake
	// Host of the endpoint. It is all that is ever told of the URL: the rest may be a secret.
	Host string
	// Began is when the attempt began, by this process's clock, and Took how long it was until its result was known.
	Began time.Time
	Took  time.Duration
	// Result is what follows from it.
	Result AttemptResult
	// Status of the answer; 0 without one.
	Status int
	// Class is the kind of a failure, as the metrics name it; empty if the attempt did not fail.
	Class string
	// Reason of a failure in a few words. It repeats nothing that the endpoint has sent.
	Reason string
	// Sent is true if the request was sent, or its sending was begun.
	Sent bool
	// Repeated is true if its request was sent once more, because the connection was closed that had been used before.
	Repeated bool
	// DeliveryID is what the receiver tells the delivery by; empty if there was nothing to deliver.
	DeliveryID string
	// Events is how many it brought, and From the position of the first of them; empty for a wake, and where nothing
	// could be read.
	Events int
	From   Offset
	// EventType is the type of the event of a delivery by Open Job Spec. The event itself has it, so it is known once
	// the event is read, however the attempt ends. It is empty for an event without a type, and for other formats.
	EventType string
	// Bytes is the size of the request's body, if it was Sent; 0 otherwise.
	Bytes int
}

// Tells says whether the attempt shows how the endpoint does.
func (a Attempt) Tells() bool { return a.Sent && a.Result != AttemptAbandoned }

// DeliveryEvents begins the types of the events that tell of deliveries (OJS Webhook Delivery 11.1).
const DeliveryEvents = "webhook."

// FirstHand says whether an event may tell of the attempt. It may not if what the attempt brings tells of a delivery
// itself, for there would be no end. All of events does, the stream to which such events are appended. Elsewhere the
// type says so: the event may be of another installation, or from before that setting was changed. Where nothing was
// read there is nothing to tell of, and no DeliveryID.
func (a Attempt) FirstHand(events string) bool {
	return a.DeliveryID != "" && a.Wake.Primary != events && !strings.HasPrefix(a.EventType, DeliveryEvents)
}

// AttemptResult is what follows from a delivery attempt.
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
	// AttemptWaiting means that nothing was sent: this version does not know how.
	AttemptWaiting
	// AttemptEmpty means that there was no event to bring.
	AttemptEmpty
	// AttemptUnread means that the events could not be read from the stream server. It is made again.
	AttemptUnread
	// AttemptDead means that the events are not tried again: the endpoint will never take them, their last attempt has
	// failed, or they are too large. What follows them goes on.
	AttemptDead
	// AttemptHeld means that nothing was sent, because the endpoint is to be left alone for a while, or because the
	// subscription is paused.
	AttemptHeld
)

// AttemptResults is how many there are.
const AttemptResults = int(AttemptHeld) + 1

// String returns the value of a metric label.
func (r AttemptResult) String() string {
	return [AttemptResults]string{
		"failed", "retired", "accepted", "done", "abandoned", "waiting", "empty", "unread", "dead",
		"held",
	}[r]
}

// OK says whether the endpoint took the delivery.
func (r AttemptResult) OK() bool { return r == AttemptAccepted || r == AttemptDone }
