package format

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"reveille/fsm"
)

// The headers of the handshake (CloudEvents webhook spec, Abuse Protection).
const (
	headerRequestOrigin   = "WebHook-Request-Origin"
	headerRequestCallback = "WebHook-Request-Callback"
	headerRequestRate     = "WebHook-Request-Rate"
	headerAllowedOrigin   = "WebHook-Allowed-Origin"
	headerAllowedRate     = "WebHook-Allowed-Rate"
)

// AskConsent sets the headers of a request for consent. The callback may be empty. A rate of 0 asks for none.
func AskConsent(h http.Header, origin, callback string, rate int) {
	h.Set(headerRequestOrigin, origin)
	if callback != "" {
		h.Set(headerRequestCallback, callback)
	}
	if rate > 0 {
		h.Set(headerRequestRate, strconv.Itoa(rate))
	}
}

// JudgeConsent says what the answer to a request for consent by this origin means. Only its headers can give consent. A
// status can tell at most that the endpoint has not seen the request, or does not know the method. The SDK of
// CloudEvents for Go answers with the beginning of an origin if it was told to agree to that: one that ends in a dot is
// taken. No reason repeats what the endpoint sent.
func JudgeConsent(origin string, status int, h http.Header, now time.Time) fsm.ConsentAnswer {
	origins := h.Values(headerAllowedOrigin)
	if len(origins) == 0 {
		a := withoutOrigin(status, h)
		if a.Lost {
			a.RetryAfter = parseRetryAfter(h.Get("Retry-After"), now)
		}
		return a
	}
	allowed := strings.TrimSpace(origins[0])
	for _, other := range origins[1:] {
		if !strings.EqualFold(strings.TrimSpace(other), allowed) {
			return unsupported("the endpoint answers with several origins")
		}
	}
	name, ours := strings.ToLower(strings.TrimSuffix(allowed, ".")), strings.ToLower(origin)
	switch {
	case name == ours, allowed == "*":
	case name != "" && strings.HasSuffix(allowed, ".") && strings.HasPrefix(ours, name+"."): // as in "reveille."
	case !fsm.IsDNSName(name):
		return unsupported("the endpoint answers with an origin that is neither a DNS name nor *")
	default:
		return fsm.ConsentAnswer{State: fsm.ConsentRefused, Reason: "the endpoint agrees to another origin only"}
	}
	rate, ok := fsm.ParseAllowedRate(h.Values(headerAllowedRate))
	if !ok {
		return unsupported("the endpoint answers with a rate that is neither a whole number above 0 nor *")
	}
	return fsm.ConsentAnswer{State: fsm.ConsentGranted, Rate: rate}
}

func unsupported(reason string) fsm.ConsentAnswer {
	return fsm.ConsentAnswer{State: fsm.ConsentUnsupported, Reason: reason}
}

func withoutOrigin(status int, h http.Header) fsm.ConsentAnswer {
	switch {
	case len(h.Values(headerAllowedRate)) > 0:
		return unsupported("the endpoint answers with a rate, but with no origin")
	case status == http.StatusMethodNotAllowed, status == http.StatusNotImplemented:
		a := unsupported("the endpoint does not support OPTIONS")
		a.Withheld = true
		return a
	case status == http.StatusTooManyRequests, status >= http.StatusInternalServerError, status < http.StatusOK:
		return fsm.ConsentAnswer{Lost: true, Reason: "the endpoint answered with status " + strconv.Itoa(status)}
	}
	return fsm.ConsentAnswer{
		State: fsm.ConsentPending, Withheld: true, Reason: "the endpoint has neither agreed nor refused",
	}
}
