package cache

import (
	"sync"
	"time"

	"reveille/fsm"
)

// Endpoints is what one replica knows of the endpoints in trouble, which differ from the zero Endpoint. It is safe for
// concurrent use.
type Endpoints struct {
	mu      sync.RWMutex
	known   map[string]*knownEndpoint // by generation
	version int64
	loaded  bool
}

type knownEndpoint struct {
	fsm.EndpointState
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
func (v *Endpoints) Get(generation string) (e fsm.Endpoint, now time.Time, ok bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	k, ok := v.known[generation]
	if !ok {
		return fsm.Endpoint{}, time.Time{}, false
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
		k = &knownEndpoint{EndpointState: fsm.EndpointState{Generation: generation}, now: now, heard: now}
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

// Note takes in what the store has answered about an endpoint, at a time by its clock, unless there is later news. For
// an endpoint that is not in trouble, Version is the version of the list.
func (v *Endpoints) Note(s fsm.EndpointState, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s.Version >= v.version {
		v.note(s, now)
	}
}

func (v *Endpoints) note(s fsm.EndpointState, now time.Time) {
	k, ok := v.known[s.Generation]
	switch {
	case ok && k.Version > s.Version:
	case s.Endpoint == fsm.Endpoint{}:
		delete(v.known, s.Generation)
	case ok && k.Version == s.Version:
	default:
		v.known[s.Generation] = &knownEndpoint{EndpointState: s, now: now, heard: time.Now()}
	}
}

// Replace takes in the whole list in a version, at a time by the store's clock.
func (v *Endpoints) Replace(all []fsm.EndpointState, version int64, now time.Time) {
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

// Change takes in what has changed up to a version of the list, at a time by the store's clock. Endpoints that left the
// list come as the zero Endpoint.
func (v *Endpoints) Change(changed []fsm.EndpointState, version int64, now time.Time) {
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
func (v *Endpoints) All() map[string]fsm.EndpointNow {
	v.mu.RLock()
	defer v.mu.RUnlock()
	all := make(map[string]fsm.EndpointNow, len(v.known))
	for generation, k := range v.known {
		all[generation] = fsm.EndpointNow{Endpoint: k.Endpoint, Now: k.clock()}
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
