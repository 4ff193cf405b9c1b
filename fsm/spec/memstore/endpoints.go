package memstore

import (
	"context"
	"maps"
	"slices"
	"time"

	"reveille/fsm"
	"reveille/fsm/cache"
	"reveille/fsm/spec"
)

// Endpoints implements dispatcher.EndpointStore.
func (s *Store) Endpoints() *cache.Endpoints { return s.endpoints }

// readEndpoints reads which endpoints are in trouble, if that has changed; db.mu is held.
func (s *Store) readEndpoints(now time.Time) {
	st := &s.db.state
	if version, loaded := s.endpoints.Version(); !loaded || version != st.endpointsVersion {
		s.endpoints.Replace(slices.Collect(maps.Values(st.endpoints)), st.endpointsVersion, now)
	}
}

// putEndpoint keeps an endpoint, if it is in trouble.
func (t *tx) putEndpoint(e fsm.EndpointState) {
	t.db.listed = max(t.now().UnixMilli()*fsm.VersionsPerMilli, t.db.listed+1)
	t.endpointsVersion = t.db.listed
	if e.Version = t.endpointsVersion; e.Endpoint == (fsm.Endpoint{}) {
		delete(t.endpoints, e.Generation)
	} else {
		t.endpoints[e.Generation] = e
	}
	t.refresh = true
}

// FailEndpoint implements dispatcher.EndpointStore.
func (s *Store) FailEndpoint(
	ctx context.Context, sub fsm.Subscription, f fsm.EndpointFailure,
) (changed bool, err error) {
	err = s.ofEndpoint(ctx, sub, func(e fsm.Endpoint, now time.Time) fsm.Endpoint {
		next := spec.FailEndpoint(e, now, f)
		changed = next.Down() && !e.Down()
		return next
	}, "FailEndpoint", sub, f)
	return changed, err
}

// RecoverEndpoint implements dispatcher.EndpointStore.
func (s *Store) RecoverEndpoint(ctx context.Context, sub fsm.Subscription) (changed bool, err error) {
	err = s.ofEndpoint(ctx, sub, func(e fsm.Endpoint, now time.Time) fsm.Endpoint {
		changed = e.Down()
		return spec.RecoverEndpoint(e, now)
	}, "RecoverEndpoint", sub)
	return changed, err
}

// ReturnProbe implements dispatcher.EndpointStore.
func (s *Store) ReturnProbe(ctx context.Context, sub fsm.Subscription, slot time.Time, sent bool) error {
	return s.ofEndpoint(ctx, sub, func(e fsm.Endpoint, now time.Time) fsm.Endpoint {
		return spec.ReturnProbe(e, now, slot, sent)
	}, "ReturnProbe", sub, slot, sent)
}

// ProbeEndpoint implements dispatcher.EndpointStore.
func (s *Store) ProbeEndpoint(
	ctx context.Context, sub fsm.Subscription, patience time.Duration,
) (p fsm.Probe, err error) {
	p.Allowed = true
	err = s.ofEndpoint(ctx, sub, func(e fsm.Endpoint, now time.Time) fsm.Endpoint {
		e, p = spec.ProbeEndpoint(e, now, patience)
		return e
	}, "ProbeEndpoint", sub, patience)
	return p, err
}

// LongestWaiting implements dispatcher.EndpointStore.
func (s *Store) LongestWaiting(
	ctx context.Context, sub fsm.Subscription, after time.Time,
) (ref fsm.WakeRef, since time.Time, ok bool, err error) {
	err = s.do(ctx, func(t *tx) {
		failed := false
		t.each(sub, func(p *partition, c fsm.Consumer) {
			again := c.Attempt > 0
			_, waits := spec.Probe(c, t.env(p, c.ID))
			if waits && c.WokeAt.After(after) &&
				(!ok || failed && !again || failed == again && c.WokeAt.Before(since)) {
				ref = fsm.WakeRef{Consumer: c.Ref(), Epoch: c.Epoch, WakeID: c.WakeID}
				since, failed, ok = c.WokeAt, again, true
			}
		})
	}, "LongestWaiting", sub.ID, after)
	return ref, since, ok, err
}

// ProbeWake implements dispatcher.EndpointStore.
func (s *Store) ProbeWake(ctx context.Context, r fsm.WakeRef) (waited bool, err error) {
	err = s.do(ctx, func(t *tx) {
		waited = t.hasten(r, spec.Probe)
	}, "ProbeWake", r)
	return waited, err
}

// ofEndpoint runs a transition of the endpoint of a subscription, unless the subscription was deleted.
func (s *Store) ofEndpoint(
	ctx context.Context, sub fsm.Subscription, f func(fsm.Endpoint, time.Time) fsm.Endpoint,
	method string, args ...any,
) error {
	return s.do(ctx, func(t *tx) {
		e := t.endpoints[sub.Generation]
		if there, listed := t.subs[sub.ID]; listed && there.Generation == sub.Generation {
			if next := f(e.Endpoint, t.now()); next != e.Endpoint {
				t.putEndpoint(fsm.EndpointState{Endpoint: next, Generation: sub.Generation})
			}
		}
	}, method, args...)
}
