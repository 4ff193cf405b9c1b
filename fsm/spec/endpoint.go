package spec

import (
	"time"

	"reveille/fsm"
)

// FailEndpoint takes in a failed delivery.
func FailEndpoint(e fsm.Endpoint, now time.Time, f fsm.EndpointFailure) fsm.Endpoint {
	if e.Since.IsZero() {
		e.Since = now
	}
	e.Refused, e.Reason = f.Refused, f.Reason[:min(len(f.Reason), fsm.MaxReason)]
	e.Until = PauseOrigin(e.Until, now, f)
	switch {
	case f.Shown:
		return e
	case f.Refused:
		return ReturnProbe(e, now, f.Probe, true)
	}
	if !e.Down() {
		if e.Failures++; e.Down() {
			e.Next = now.Add(fsm.ProbePauseAfter(0))
		}
	}
	if probes(e, f.Probe) {
		if fsm.ProbePauseAfter(e.Probes) < fsm.ProbePauseMax {
			e.Probes++
		}
		e.Probing, e.Next = false, now.Add(fsm.ProbePauseAfter(e.Probes))
	}
	return e
}

// PauseOrigin returns until when the origin of an endpoint is left alone, after a failed delivery. Before, it was until
// this time, or it was not if that is zero. A retry that an operator asks for ends it.
func PauseOrigin(until, now time.Time, f fsm.EndpointFailure) time.Time {
	asked := now.Add(min(f.RetryAfter, fsm.MaxRetryAfter))
	if f.RetryAfter > 0 && !f.Refused && asked.After(until) {
		return asked
	}
	return until
}

// probes says whether the probe of this slot is out.
func probes(e fsm.Endpoint, slot time.Time) bool { return e.Probing && e.Next.Equal(slot) }

// ProbeEndpoint asks whether a delivery may begin. The endpoint's origin is left alone until a time, zero for none. If
// the endpoint is down, that delivery is the only one until it is reported or returned. This lasts for patience at
// most: the longest time that the delivery may be out.
func ProbeEndpoint(e fsm.Endpoint, until, now time.Time, patience time.Duration) (fsm.Endpoint, fsm.Probe) {
	asked := e
	if until.After(e.Until) {
		asked.Until = until
	}
	switch {
	case asked.AskedToWait(now), e.Down() && e.Next.After(now):
		return e, fsm.Probe{Wait: asked.Wait(now)}
	case !e.Down():
		return e, fsm.Probe{Allowed: true}
	}
	e.Probing, e.Next = true, now.Add(patience)
	return e, fsm.Probe{Allowed: true, Slot: e.Next}
}

// ReturnProbe takes in that a probe is over without success or failure. If it was not sent, the next one follows at
// once. If it was sent, the endpoint most often refused its events for good. An endpoint that answers need not be left
// alone for long, so the pauses begin anew.
func ReturnProbe(e fsm.Endpoint, now time.Time, slot time.Time, sent bool) fsm.Endpoint {
	if !probes(e, slot) {
		return e
	}
	if e.Probing, e.Next = false, now; sent {
		e.Probes, e.Next = 0, now.Add(fsm.ProbePauseAfter(0))
	}
	return e
}

// RecoverEndpoint takes in that a delivery was answered with a 2xx. It may have begun before the endpoint asked to
// wait, so the wait goes on.
func RecoverEndpoint(e fsm.Endpoint, now time.Time) fsm.Endpoint {
	if e.AskedToWait(now) {
		return fsm.Endpoint{Until: e.Until}
	}
	return fsm.Endpoint{}
}

// RetryEndpoint takes in that an operator asks for attempts now. Unless the endpoint is down, its state begins anew. If
// it is down, the wait that it has asked for is over. The next probe may begin; a probe that is out goes on.
func RetryEndpoint(e fsm.Endpoint, now time.Time) fsm.Endpoint {
	if !e.Down() {
		return fsm.Endpoint{}
	}
	e.Until = time.Time{}
	if !e.Probing {
		e.Next = now
	}
	return e
}
