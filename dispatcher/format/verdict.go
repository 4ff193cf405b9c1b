package format

import (
	"time"

	"reveille/fsm"
)

// Verdict is what a delivery attempt came to.
type Verdict struct {
	Result fsm.AttemptResult
	// Class is the kind of a failure; empty if the attempt did not fail.
	Class Class
	// Reason of a failure in a few words. It repeats nothing that the endpoint sent, but for Answer.RedirectsTo: that
	// may be an echo of the request with its token.
	Reason string
	// RetryAfter is the least time that the endpoint wants to be left alone; 0 if it did not say.
	RetryAfter time.Duration
	// Wait is how long it is until an attempt that was not made is made again; 0 for as long as one waits for a slot.
	Wait time.Duration
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
	// ClassProxy is of a proxy that the operator has requests sent through: it has no connection, or answered itself.
	ClassProxy Class = "proxy"
	// ClassProhibited is a target that the settings do not allow.
	ClassProhibited Class = "prohibited"
	// ClassFiles is a lack of open files on this machine.
	ClassFiles Class = "too_many_open_files"
	ClassOther Class = "other"
)

// The classes of attempts that were not made, because the events could not be read, or not be sent.
const (
	ClassUpstream Class = "upstream"
	ClassTooLarge Class = "too_large"
	ClassTooDeep  Class = "too_deep"
	ClassNotKept  Class = "not_kept"
	ClassNotBuilt Class = "not_built"
	// ClassNotJSON is of a stream that a filter cannot look at.
	ClassNotJSON Class = "not_json"
)

// OfEndpoint says whether a failure of a class is held against the endpoint: it is neither of this machine nor of a
// proxy. A target that is not allowed is as good as one that is down.
func (c Class) OfEndpoint() bool { return c != ClassFiles && c != ClassProxy }

// ClassUnknownFormat is that of an attempt that was not made, because this version does not know how.
const ClassUnknownFormat Class = "unknown_format"
