package cache

import (
	"sync"
	"time"

	"reveille/fsm"
)

// Endpoints is what one replica knows of the endpoints in trouble, which differ from the zero Endpoint. It is safe for
// concurrent use.
type Endpoints struct {
	mu    sync.RWMutex
	known map[string]*knownEndpoint // by generation
	// pauses are those of origins. None ends later than lastPause, which is zero if there was none.
	pauses    map[string]*pause
	lastPause time.Time
	version   int64
	loaded    bool
	// now is the store's clock at the time heard, when this replica last heard from the store.
	now, heard time.Time
}

type knownEndpoint struct {
	fsm.EndpointState
	holds
}

// NewEndpoints returns an empty Endpoints.
func NewEndpoints() *Endpoints {
	now := time.Now()
	return &Endpoints{known: map[string]*knownEndpoint{}, pauses: map[string]*pause{}, now: now, heard: now}
}

// Get returns an endpoint and the time by the store's clock. ok is false if the endpoint is not in trouble.
func (v *Endpoints) Get(generation string) (e fsm.Endpoint, now time.Time, ok bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	k, ok := v.known[generation]
	if !ok {
		return fsm.Endpoint{}, time.Time{}, false
	}
	return k.Endpoint, v.clock(), true
}

// clock is the store's clock, as far as this replica knows it.
func (v *Endpoints) clock() time.Time { return v.now.Add(time.Since(v.heard)) }

func (v *Endpoints) hear(now time.Time) { v.now, v.heard = now, time.Now() }

// Overdue returns the generations of the endpoints that are down and whose next probe could have begun at least by ago.
func (v *Endpoints) Overdue(by time.Duration) (generations []string) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for generation, k := range v.known {
		if now := v.clock(); k.Down() && !k.AskedToWait(now) && !k.Next.Add(by).After(now) {
			generations = append(generations, generation)
		}
	}
	return generations
}

// Note takes in what the store has answered about an endpoint, at a time by its clock, unless there is later news. For
// an endpoint that is not in trouble, Version is the version of the list.
func (v *Endpoints) Note(s fsm.EndpointState, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.hear(now)
	if s.Version >= v.version {
		v.note(s)
	}
}

func (v *Endpoints) note(s fsm.EndpointState) {
	k, ok := v.known[s.Generation]
	switch {
	case ok && k.Version > s.Version:
	case s.Endpoint == fsm.Endpoint{}:
		delete(v.known, s.Generation)
	case ok && k.Version == s.Version:
	default:
		v.known[s.Generation] = &knownEndpoint{EndpointState: s}
	}
}

// Replace takes in the whole list in a version, at a time by the store's clock.
func (v *Endpoints) Replace(all []fsm.EndpointState, version int64, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.hear(now)
	was := v.known
	v.known = make(map[string]*knownEndpoint, len(all))
	for _, s := range all {
		if k, ok := was[s.Generation]; ok && k.Version == s.Version {
			v.known[s.Generation] = k
		} else {
			v.note(s)
		}
	}
	v.version, v.loaded = version, true
}

// Change takes in what has changed up to a version of the list, at a time by the store's clock. Endpoints that left the
// list come as the zero Endpoint.
func (v *Endpoints) Change(changed []fsm.EndpointState, version int64, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.hear(now)
	for _, s := range changed {
		v.note(s)
	}
	v.version = version
}

// Version of the list that was read last. ok is false if no list was read.
func (v *Endpoints) Version() (version int64, ok bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.version, v.loaded
}

// Down returns how many endpoints are down.
func (v *Endpoints) Down() (n int) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for _, k := range v.known {
		if k.Down() {
			n++
		}
	}
	return n
}
