package cache

import (
	"time"

	"reveille/fsm"
)

// pause is until when an origin is left alone, as one of its endpoints has asked.
type pause struct {
	// until is the time that the store had in a version of the list; zero for none.
	until   time.Time
	version int64
	// ahead is the end of a Pause that the store may not know of.
	ahead time.Time
	holds
}

// holds counts the deliveries that were held back since the latest news and had not failed before. again counts the
// others.
type holds struct{ first, again int }

func (h *holds) add(again bool) int {
	if again {
		h.again++
		return h.again
	}
	h.first++
	return h.first
}

func (p *pause) end() time.Time {
	if p.ahead.After(p.until) {
		return p.ahead
	}
	return p.until
}

// set changes a pause. v.mu is held.
func (v *Endpoints) set(p *pause, until, ahead time.Time) {
	was := p.end()
	if !ahead.After(until) { // the store knows of it
		ahead = time.Time{}
	}
	if p.until, p.ahead = until, ahead; !p.end().Equal(was) {
		p.holds = holds{}
	}
	if p.end().After(v.lastPause) {
		v.lastPause = p.end()
	}
}

// pauseOf returns the pause of a subscription's origin, or nil if there is none. If nothing is paused, the URL is not
// even read. v.mu is held.
func (v *Endpoints) pauseOf(sub fsm.Subscription) *pause {
	if v.lastPause.IsZero() || !v.lastPause.After(v.clock()) {
		return nil
	}
	if p := v.pauses[sub.Origin()]; p != nil && p.end().After(v.clock()) {
		return p
	}
	return nil
}

// Of returns what this replica knows of the endpoint of a subscription. The endpoint has asked to wait if another
// subscription got that answer from the same origin, too.
func (v *Endpoints) Of(sub fsm.Subscription) (e fsm.EndpointNow) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	k, p := v.known[sub.Generation], v.pauseOf(sub)
	if k == nil && p == nil {
		return e
	}
	if e.Now = v.clock(); k != nil {
		e.Endpoint = k.Endpoint
	}
	if p != nil && p.end().After(e.Until) {
		e.Until = p.end()
	}
	return e
}

// Hold counts a delivery that is held back. It returns how many of its kind were held back since the latest news: of
// the pause of its origin, or else of its endpoint. The argument again says that the delivery has failed before.
func (v *Endpoints) Hold(sub fsm.Subscription, again bool) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	if p := v.pauseOf(sub); p != nil {
		return p.add(again)
	}
	if k := v.known[sub.Generation]; k != nil {
		return k.add(again)
	}
	return 1
}

// Pause leaves the origin of a subscription alone from now on, before the store knows of it.
func (v *Endpoints) Pause(sub fsm.Subscription, d time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	origin := sub.Origin()
	p := v.pauses[origin]
	if p == nil {
		p = &pause{}
		v.pauses[origin] = p
	}
	if until := v.clock().Add(d); until.After(p.end()) {
		v.set(p, p.until, until)
	}
}

// Paused returns the rest of the pause of a subscription's origin, and whether the store has told of it. Otherwise the
// store may not know of it yet.
func (v *Endpoints) Paused(sub fsm.Subscription) (rest time.Duration, told bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	p := v.pauseOf(sub)
	if p == nil {
		return 0, false
	}
	return p.end().Sub(v.clock()), !p.ahead.After(p.until)
}

// NotePause takes in until when the store leaves the origin of a subscription alone, in a version of the list, unless
// there is later news. The argument told says that the store knows of each Pause before.
func (v *Endpoints) NotePause(sub fsm.Subscription, until time.Time, version int64, told bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	origin := sub.Origin()
	p := v.pauses[origin]
	if p == nil {
		if until.IsZero() && version <= v.version {
			return
		}
		p = &pause{} // if it is over, a list of before does not bring it back
		v.pauses[origin] = p
	}
	ahead := p.ahead
	if told {
		ahead = time.Time{}
	}
	if version < p.version {
		until = p.until
	}
	p.version = max(p.version, version)
	v.set(p, until, ahead)
}

// ReplacePauses takes in until when the store leaves origins alone, in a version of the list, at a time by the store's
// clock. Replace or Change follows. If the version is lower than the last one, the store has lost its latest changes.
func (v *Endpoints) ReplacePauses(all map[string]time.Time, version int64, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.hear(now)
	for origin := range all {
		if v.pauses[origin] == nil {
			v.pauses[origin] = &pause{}
		}
	}
	v.lastPause = time.Time{}
	for origin, p := range v.pauses {
		until := p.until
		if p.version <= version || version < v.version {
			until, p.version = all[origin], version
		}
		if v.set(p, until, p.ahead); p.version == version && !p.end().After(now) {
			delete(v.pauses, origin)
		}
	}
}
