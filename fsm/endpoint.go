package fsm

import (
	"time"
)

// The constants for endpoints that are down. Only endpoints of ModePush can be down.
const (
	// DownAfter is how many deliveries in a row must fail, without a 2xx in between, for an endpoint to be down.
	DownAfter = 5
	// ProbePause is how long an endpoint that is down is left alone before the first probe. The pause doubles with each
	// probe that fails, up to ProbePauseMax.
	ProbePause    = time.Second
	ProbePauseMax = time.Minute
)

// Endpoint is the health of a subscription's endpoint. Each generation of a subscription has its own: two subscriptions
// with the same URL have two. But a Retry-After holds for the whole Origin, beside Until. The zero Endpoint accepts
// every delivery, and the store keeps nothing of it. In ModeWake it never counts as down: the store keeps only Until,
// and the fields that are shown: Since, Refused and Reason.
//
// An endpoint that is down gets one delivery at a time, a probe, until it answers any delivery with a 2xx. If the next
// probe may begin and no delivery is due, a waiting delivery is made due as the probe (cache.Endpoints.Overdue,
// spec.Probe).
type Endpoint struct {
	// Until is when deliveries may begin again, as a Retry-After has asked; zero without one.
	Until time.Time
	// Failures counts the deliveries that failed since the last 2xx, up to DownAfter.
	Failures int
	// Next is when the next probe may begin; zero unless the endpoint is down. While a probe is out (Probing), Next is
	// when it counts as lost.
	Next    time.Time
	Probing bool
	// Probes counts the failed probes since the endpoint went down, up to the number at which the pause stops growing.
	Probes int
	// Since is when the first delivery since the last 2xx failed or was refused; zero if none was.
	Since time.Time
	// Refused is true if the endpoint refused the latest of these deliveries for good: another attempt would be in
	// vain. Reason says why that delivery failed, in at most MaxReason bytes.
	Refused bool
	Reason  string
}

// EndpointFailure is a failed delivery attempt, as far as it concerns the endpoint.
type EndpointFailure struct {
	// RetryAfter is the least time that the endpoint asked for; at most MaxRetryAfter counts.
	RetryAfter time.Duration
	// Probe is the Slot of a probe; zero for another delivery.
	Probe time.Time
	// Refused is true if the endpoint refused the delivery for good. Such a failure does not make the endpoint down.
	// Shown is true if the failure does not count against the endpoint (ModeWake). It is shown, and its RetryAfter
	// holds.
	Refused, Shown bool
	Reason         string
}

// Down says whether the endpoint is down.
func (e Endpoint) Down() bool { return e.Failures >= DownAfter }

// AskedToWait says whether the endpoint has asked to be left alone until later than now.
func (e Endpoint) AskedToWait(now time.Time) bool { return e.Until.After(now) }

// LeftAlone says whether deliveries do not simply begin: the endpoint has asked to wait, or is down and gets only
// probes.
func (e Endpoint) LeftAlone(now time.Time) bool { return e.Down() || e.AskedToWait(now) }

// Shows says whether the endpoint already shows what the failure would show, so that the failure is no news.
func (e Endpoint) Shows(f EndpointFailure) bool {
	return !e.Since.IsZero() && e.Refused == f.Refused && e.Reason == f.Reason[:min(len(f.Reason), MaxReason)]
}

// ProbePauseAfter is how long an endpoint that is down is left alone after a number of failed probes.
func ProbePauseAfter(failed int) time.Duration { return min(ProbePause<<failed, ProbePauseMax) }

// Probe says whether a delivery may begin.
type Probe struct {
	Allowed bool
	// Slot names the probe if the delivery is one; zero if the endpoint is not down.
	Slot time.Time
	// Wait is the time after which the caller asks again, if the delivery may not begin.
	Wait time.Duration
}

// Wait is the time after which asking again is worthwhile. A probe that is out mostly fails long before it counts as
// lost.
func (e Endpoint) Wait(now time.Time) time.Duration {
	next := e.Next.Sub(now)
	if e.Probing {
		next = min(next, ProbePauseAfter(e.Probes+1))
	}
	return max(next, e.Until.Sub(now))
}

// EndpointState is what the store keeps of an endpoint.
type EndpointState struct {
	Endpoint
	// Generation of the subscription.
	Generation string
	// Version of the list of endpoints in which the endpoint first had this state.
	Version int64
}

// EndpointNow is an Endpoint, and the time by the store's clock.
type EndpointNow struct {
	Endpoint
	Now time.Time
}

// Condition is what is wrong with the endpoint, the worst first; ConditionOK if nothing is.
func (e EndpointNow) Condition() Condition {
	switch {
	case e.Down():
		return ConditionDown
	case e.Refused:
		return ConditionRefusing
	case e.AskedToWait(e.Now):
		return ConditionAskedToWait
	case !e.Since.IsZero():
		return ConditionFailing
	}
	return ConditionOK
}
