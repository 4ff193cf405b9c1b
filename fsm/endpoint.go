package fsm

import (
	"sync"
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
// with the same URL have two. The zero Endpoint accepts every delivery, and the store keeps nothing of it. In ModeWake
// the store keeps only the fields that are shown: Since, Refused and Reason.
//
// An endpoint that is down gets one delivery at a time, a probe, until it answers any delivery with a 2xx. If the next
// probe may begin and no delivery is due, a waiting delivery is made due as the probe (Overdue, spec.Probe).
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
	// Shown is true if the failure is only shown, and nothing else follows from it (ModeWake).
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

// probePause is how long an endpoint that is down is left alone after a number of failed probes.
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

// Endpoints is what one replica knows of the endpoints in trouble, which differ from the zero Endpoint. It is safe for
// concurrent use.
type Endpoints struct {
	mu      sync.RWMutex
	known   map[string]*knownEndpoint // by generation
	version int64
	loaded  bool
}

type knownEndpoint struct {
	EndpointState
	// now is the store's clock at the time heard, when this replica learned of the state.
	now, heard time.Time
	// held counts the deliveries that were held back since then and had not failed before. heldAgain counts the others.
	held, heldAgain int
	// ahead is the end of a pause that this replica knows of and the store may not know.
	ahead time.Time
}

// NewEndpoints returns an empty Endpoints.
func NewEndpoints() *Endpoints { return &Endpoints{known: map[string]*knownEndpoint{}} }

// Get returns an endpoint and the time by the store's clock. ok is false if the endpoint is not in trouble.
func (v *Endpoints) Get(generation string) (e Endpoint, now time.Time, ok bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	k, ok := v.known[generation]
	if !ok {
		return Endpoint{}, time.Time{}, false
	}
	return k.Endpoint, k.clock(), true
}

// clock is the store's clock, as far as this replica knows it.
func (k *knownEndpoint) clock() time.Time { return k.now.Add(time.Since(k.heard)) }

// Overdue returns the generations of the endpoints that are down and whose next probe could have begun at least by ago.
func (v *Endpoints) Overdue(by time.Duration) (generations []string) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for generation, k := range v.known {
		if now := k.clock(); k.Down() && !k.AskedToWait(now) && !k.Next.Add(by).After(now) {
			generations = append(generations, generation)
		}
	}
	return generations
}

// Hold counts a delivery that is held back. It returns how many of its kind were held back since the latest news of the
// endpoint. The argument again says that the delivery has failed before.
func (v *Endpoints) Hold(generation string, again bool) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	k, ok := v.known[generation]
	switch {
	case !ok:
		return 1
	case again:
		k.heldAgain++
		return k.heldAgain
	}
	k.held++
	return k.held
}

// Pause leaves an endpoint alone from now on, before the store knows of it.
func (v *Endpoints) Pause(generation string, d time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	k, ok := v.known[generation]
	if !ok {
		now := time.Now()
		k = &knownEndpoint{EndpointState: EndpointState{Generation: generation}, now: now, heard: now}
		v.known[generation] = k
	}
	if until := k.clock().Add(d); until.After(k.Until) {
		k.Until, k.ahead = until, until
	}
}

// Ahead returns the rest of a Pause that is not confirmed by the store yet.
func (v *Endpoints) Ahead(generation string) time.Duration {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if k, ok := v.known[generation]; ok && !k.ahead.IsZero() {
		return k.ahead.Sub(k.clock())
	}
	return 0
}

// Note records what the store has answered about an endpoint, at a time by its clock, unless there is later news. For
// an endpoint that is not in trouble, Version is the version of the list.
func (v *Endpoints) Note(s EndpointState, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s.Version >= v.version {
		v.note(s, now)
	}
}

func (v *Endpoints) note(s EndpointState, now time.Time) {
	k, ok := v.known[s.Generation]
	switch {
	case ok && k.Version > s.Version:
	case s.Endpoint == Endpoint{}:
		delete(v.known, s.Generation)
	case ok && k.Version == s.Version:
	default:
		v.known[s.Generation] = &knownEndpoint{EndpointState: s, now: now, heard: time.Now()}
	}
}

// Replace records the whole list in a version, at a time by the store's clock.
func (v *Endpoints) Replace(all []EndpointState, version int64, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	was := v.known
	v.known = make(map[string]*knownEndpoint, len(all))
	for _, s := range all {
		if k, ok := was[s.Generation]; ok && k.Version == s.Version {
			v.known[s.Generation] = k
		} else {
			v.note(s, now)
		}
	}
	v.version, v.loaded = version, true
}

// Change records what has changed up to a version of the list, at a time by the store's clock. Endpoints that left the
// list come as the zero Endpoint.
func (v *Endpoints) Change(changed []EndpointState, version int64, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, s := range changed {
		v.note(s, now)
	}
	v.version = version
}

// Version of the list that was read last. ok is false if no list was read.
func (v *Endpoints) Version() (version int64, ok bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.version, v.loaded
}

// All returns the endpoints in trouble, by generation, each with the time by the store's clock.
func (v *Endpoints) All() map[string]EndpointNow {
	v.mu.RLock()
	defer v.mu.RUnlock()
	all := make(map[string]EndpointNow, len(v.known))
	for generation, k := range v.known {
		all[generation] = EndpointNow{k.Endpoint, k.clock()}
	}
	return all
}

// Count returns how many endpoints are left alone because they have asked to wait, and how many are down.
func (v *Endpoints) Count() (askedToWait, down int) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for _, k := range v.known {
		if k.AskedToWait(k.clock()) {
			askedToWait++
		}
		if k.Down() {
			down++
		}
	}
	return askedToWait, down
}
