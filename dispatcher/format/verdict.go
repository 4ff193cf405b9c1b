package format

import "time"

// Verdict is what a delivery attempt came to.
type Verdict struct {
	Result Result
	// Class is the kind of a failure; empty if the attempt did not fail.
	Class Class
	// Reason of a failure in a few words. It never repeats anything that the endpoint sent: that may be an echo of the
	// request with its token.
	Reason string
	// RetryAfter is the least time that the endpoint wants to be left alone; 0 if it did not say.
	RetryAfter time.Duration
}

// OK says whether the endpoint took the delivery.
func (v Verdict) OK() bool { return v.Result == Accepted || v.Result == Done }

// Result is what follows from an attempt.
type Result int

// The results of an attempt.
const (
	// Failed is retried by the schedule.
	Failed Result = iota
	// Retired leaves the endpoint alone until the subscription is resumed.
	Retired
	// Accepted means that the consumer is at work and will use the callback API.
	Accepted
	// Done means that the work is done already (webhook spec, Synchronous Done).
	Done
	// Abandoned means that this program stopped before there was an answer: nothing is known.
	Abandoned
	// Waiting means that nothing was sent: this version does not know how.
	Waiting
)

// Results is how many there are.
const Results = int(Waiting) + 1

// String returns the value of a metric label.
func (r Result) String() string {
	return [Results]string{"failed", "retired", "accepted", "done", "abandoned", "waiting"}[r]
}

// Class is the kind of a failure: the value of a metric label.
type Class string

// The classes of answers, decided by their status (status.go).
const (
	ClassRedirect    Class = "redirect"
	ClassClientError Class = "client_error"
	ClassGone        Class = "gone"
	ClassRateLimited Class = "rate_limited"
	ClassServerError Class = "server_error"
	ClassUnavailable Class = "unavailable"
	ClassInvalid     Class = "invalid_status"
)

// The classes of attempts without an answer, decided by whoever sends.
const (
	ClassTimeout    Class = "timeout"
	ClassDNS        Class = "dns"
	ClassTLS        Class = "tls"
	ClassConnection Class = "connection"
	// ClassProhibited is a target that the settings do not allow.
	ClassProhibited Class = "prohibited"
	// ClassFiles is a lack of open files on this machine.
	ClassFiles Class = "too_many_open_files"
	ClassOther Class = "other"
)

// ClassUnknownFormat is that of an attempt that was not made, because this version does not know how.
const ClassUnknownFormat Class = "unknown_format"
