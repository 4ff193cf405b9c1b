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
		s.endpoints.ReplacePauses(st.pauses, st.endpointsVersion, now)
		s.endpoints.Replace(slices.Collect(maps.Values(st.endpoints)), st.endpointsVersion, now)
	}
}

// putEndpoint keeps an endpoint, if it is in trouble.
func (t *tx) putEndpoint(e fsm.EndpointState) {
	t.changeEndpoints()
	if e.Version = t.endpointsVersion; e.Endpoint == (fsm.Endpoint{}) {
		delete(t.endpoints, e.Generation)
	} else {
		t.endpoints[e.Generation] = e
	}
}

// changeEndpoints gives the list of endpoints a new version.
func (t *tx) changeEndpoints() {
	t.db.listed = max(t.now().UnixMilli()*fsm.VersionsPerMilli, t.db.listed+1)
	t.endpointsVersion, t.refresh = t.db.listed, true
}

// pauseOrigin keeps until when an origin is left alone, if that is later than before.
func (t *tx) pauseOrigin(origin string, until time.Time) {
	if origin == "" || !until.After(t.pauses[origin]) {
		return
	}
	maps.DeleteFunc(t.pauses, func(_ string, until time.Time) bool { return !until.After(t.now()) })
	t.pauses[origin] = until
	t.changeEndpoints()
}

// FailEndpoint implements dispatcher.EndpointStore.
func (s *Store) FailEndpoint(
	ctx context.Context, sub fsm.Subscription, f fsm.EndpointFailure,
) (changed bool, err error) {
	err = s.do(ctx, func(t *tx) {
		t.pauseOrigin(sub.Origin(), spec.PauseOrigin(t.pauses[sub.Origin()], t.now(), f))
		t.ofEndpoint(s, sub, func(e fsm.Endpoint, now time.Time) fsm.Endpoint {
			next := spec.FailEndpoint(e, now, f)
			changed = next.Down() && !e.Down()
			return next
		}, f.RetryAfter > 0)
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
	err = s.do(ctx, func(t *tx) {
		t.ofEndpoint(s, sub, func(e fsm.Endpoint, now time.Time) fsm.Endpoint {
			e, p = spec.ProbeEndpoint(e, t.pauses[sub.Origin()], now, patience)
			return e
		}, false)
	}, "ProbeEndpoint", sub, patience)
	return p, err
}

// LongestWaiting implements dispatcher.EndpointStore.
func (s *Store) LongestWaiting(
	ctx context.Context, sub fsm.Subscription, after time.Time,
) (ref fsm.DeliveryRef, since time.Time, ok bool, err error) {
	err = s.do(ctx, func(t *tx) {
		failed := false
		t.each(sub, func(p *partition, c fsm.Consumer) {
			again := c.Attempt > 0
			_, waits := spec.Probe(c, t.env(p, c.ID))
			if waits && c.WokeAt.After(after) &&
				(!ok || failed && !again || failed == again && c.WokeAt.Before(since)) {
				ref = fsm.DeliveryRef{Consumer: c.Ref(), Epoch: c.Epoch, WakeID: c.WakeID}
				since, failed, ok = c.WokeAt, again, true
			}
		})
	}, "LongestWaiting", sub.ID, after)
	return ref, since, ok, err
}

// ProbeDelivery implements dispatcher.EndpointStore.
func (s *Store) ProbeDelivery(ctx context.Context, r fsm.DeliveryRef) (waited bool, err error) {
	err = s.do(ctx, func(t *tx) {
		waited = t.hasten(r, spec.Probe)
	}, "ProbeDelivery", r)
	return waited, err
}

// ofEndpoint runs a transition of the endpoint of a subscription.
func (s *Store) ofEndpoint(
	ctx context.Context, sub fsm.Subscription, f func(fsm.Endpoint, time.Time) fsm.Endpoint,
	method string, args ...any,
) error {
	return s.do(ctx, func(t *tx) { t.ofEndpoint(s, sub, f, false) }, method, args...)
}

// ofEndpoint runs a transition, which a replica has asked for. Nothing is kept of a deleted subscription. The argument
// told says that the transition tells the store of each pause that the replica knows of.
func (t *tx) ofEndpoint(
	s *Store, sub fsm.Subscription, f func(fsm.Endpoint, time.Time) fsm.Endpoint, told bool,
) {
	e := t.endpoints[sub.Generation]
	there, listed := t.subs[sub.ID]
	next := f(e.Endpoint, t.now())
	if next != e.Endpoint && listed && there.Generation == sub.Generation {
		t.putEndpoint(fsm.EndpointState{Endpoint: next, Generation: sub.Generation})
	}
	t.tellEndpoint(s, sub, told)
}

// tellEndpoint has a replica know what the store keeps of an endpoint.
func (t *tx) tellEndpoint(s *Store, sub fsm.Subscription, told bool) {
	e, kept := t.endpoints[sub.Generation]
	if !kept {
		e = fsm.EndpointState{Generation: sub.Generation, Version: t.endpointsVersion}
	}
	s.endpoints.Note(e, t.now())
	s.endpoints.NotePause(sub, t.pauses[sub.Origin()], t.endpointsVersion, told)
}
