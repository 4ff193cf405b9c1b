package format

import (
	"time"

	"reveille/fsm"
)

// Verdict is the result of a delivery attempt.
type Verdict struct {
	Result fsm.AttemptResult
	// Class is the kind of a failure; empty if the attempt did not fail.
	Class Class
	// Reason says in a few words why the attempt failed. It repeats nothing that the endpoint sent, except
	// Answer.RedirectsTo: an answer may echo the request with its token.
	Reason string
	// RetryAfter is how long, at least, the endpoint wants to be left alone; 0 if it did not say.
	RetryAfter time.Duration
	// Blocked is why the delivery waits; empty unless the result is fsm.AttemptBlocked. Wait is for how long; 0 is the
	// usual time.
	Blocked fsm.BlockReason
	Wait    time.Duration
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

// The classes of attempts without an answer, decided by the sender of the request.
const (
	ClassTimeout    Class = "timeout"
	ClassDNS        Class = "dns"
	ClassTLS        Class = "tls"
	ClassConnection Class = "connection"
	// ClassProxy is a failure of the operator's proxy: it cannot be reached, or answered itself.
	ClassProxy Class = "proxy"
	// ClassProhibited is a target that the settings do not allow.
	ClassProhibited Class = "prohibited"
	// ClassFiles is a lack of open files on this machine.
	ClassFiles Class = "too_many_open_files"
	ClassOther Class = "other"
)

// The classes of attempts that were not made, because the events could not be read or sent.
const (
	ClassUpstream Class = "upstream"
	ClassTooLarge Class = "too_large"
	ClassTooDeep  Class = "too_deep"
	ClassNotKept  Class = "not_kept"
	ClassNotBuilt Class = "not_built"
	// ClassNotJSON is a stream that is not JSON, so a filter cannot read it.
	ClassNotJSON Class = "not_json"
)

// OfEndpoint says whether a failure counts against the endpoint. A failure of this machine or of a proxy does not. A
// target that is not allowed counts like an endpoint that is down.
func (c Class) OfEndpoint() bool { return c != ClassFiles && c != ClassProxy }

// ClassUnknownFormat is an attempt that was not made, because this version does not know how to make it.
const ClassUnknownFormat Class = "unknown_format"
