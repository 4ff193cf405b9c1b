// Package format builds the requests of deliveries and judges their answers. Each format has its payload, header and
// signature, and decides what it reads in an answer. The package does no I/O and knows no clock.
//
// A new format of events is a type with the two methods of layout, a line in formats, and a name in fsm. A new
// signature scheme is a function and a line in schemes. Only status.go has the policy of status codes.
package format

import (
	"fmt"
	"net/http"
	"time"

	"reveille/fsm"
)

// Format builds the requests of one subscription and reads their answers.
type Format interface {
	// Most is how many events of a delivery one request brings at most. It depends on the stream, not on the events.
	Most(d Content) int
	// Request returns the header and the body of one attempt, signed.
	Request(d Content) (http.Header, []byte, error)
	// Judge says what an answer means.
	Judge(a Answer) Verdict
}

// Content is what one attempt is built from. Attempts may go on for days, so each request is built anew.
type Content struct {
	Delivery fsm.Delivery
	// ID is how receivers recognize the delivery. It is the same for all attempts.
	ID string
	// Batch is what a delivery of fsm.ModePush brings.
	Batch fsm.Batch
	// Event is what Batch brings, if that was handed over; empty otherwise.
	Event fsm.OutboxEvent
	// PublicURL is the beginning of the callback URL, without a slash at its end.
	PublicURL string
	// Token is the bearer token of the callbacks.
	Token string
	// Secret signs the request. So does Previous, unless it is empty.
	Secret, Previous string
	// At dates the signature.
	At time.Time
}

// eventID names an event of the delivery, counted from 0. A test delivery has one event and no stream.
func (d Content) eventID(i int) string {
	if d.Delivery.Primary == "" {
		return d.ID
	}
	return d.Batch.EventID(d.Delivery, i)
}

// Answer is what an endpoint answered.
type Answer struct {
	Status int
	Header http.Header
	// RedirectsTo says in a few words where a redirect points, without its path; empty if unknown.
	RedirectsTo string
	// Body is the body of a 2xx. It is nil if it did not arrive completely, or was too long to be read.
	Body []byte
	// At is when the answer arrived.
	At time.Time
}

// scheme signs a request: it adds to the header. The error says that the secret does not fit the scheme.
type scheme func(h http.Header, d Content, body []byte) error

var (
	formats = map[fsm.Mode]map[fsm.Format]func(fsm.Subscription, scheme) Format{
		fsm.ModeWake: {fsm.FormatWake: func(_ fsm.Subscription, s scheme) Format { return wake{s} }},
		fsm.ModePush: {
			fsm.FormatJSON:              pushes(func(s fsm.Subscription) layout { return plainJSON{s.Batch} }),
			fsm.FormatCloudEvents:       pushes(func(fsm.Subscription) layout { return cloudEvent{} }),
			fsm.FormatCloudEventsBinary: pushes(func(fsm.Subscription) layout { return cloudEventBinary{} }),
			fsm.FormatCloudEventsBatch:  pushes(func(s fsm.Subscription) layout { return cloudEventBatch{s.Batch} }),
			fsm.FormatOJS:               pushes(func(s fsm.Subscription) layout { return ojs{s.ID} }),
			fsm.FormatOutbox:            func(_ fsm.Subscription, s scheme) Format { return outbox{s} },
		},
	}
	schemes = map[fsm.Signature]scheme{
		fsm.SignatureHMAC:             signHMAC,
		fsm.SignatureStandardWebhooks: signStandardWebhooks,
	}
)

// Of returns the format of a subscription. The error names the subscription and the unknown value.
func Of(sub fsm.Subscription) (Format, error) {
	unknown := func(field, value string) error {
		return fmt.Errorf("subscription %s has the %s %.100q, which this version does not know", sub.ID, field, value)
	}
	ofMode, ok := formats[sub.Mode]
	if !ok {
		return nil, unknown("mode", string(sub.Mode))
	}
	make, ok := ofMode[sub.Format]
	if !ok {
		return nil, unknown("format", string(sub.Format))
	}
	sign, ok := schemes[sub.Signature]
	if !ok {
		return nil, unknown("signature scheme", string(sub.Signature))
	}
	return make(sub, sign), nil
}
