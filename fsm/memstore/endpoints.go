package memstore

import (
	"context"
	"maps"
	"slices"
	"time"

	"reveille/fsm"
)

// Endpoints implements fsm.EndpointStore.
func (s *Store) Endpoints() *fsm.Endpoints { return s.endpoints }

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

// FailEndpoint implements fsm.EndpointStore.
func (s *Store) FailEndpoint(ctx context.Context, sub fsm.Subscription, f fsm.EndpointFailure) error {
	return s.ofEndpoint(ctx, sub, func(e fsm.Endpoint, now time.Time) fsm.Endpoint {
		return e.Fail(now, f)
	}, "FailEndpoint", sub, f)
}

// RecoverEndpoint implements fsm.EndpointStore.
func (s *Store) RecoverEndpoint(ctx context.Context, sub fsm.Subscription) error {
	return s.ofEndpoint(ctx, sub, fsm.Endpoint.Recover, "RecoverEndpoint", sub)
}

// ofEndpoint runs a transition of the endpoint of a subscription, unless that was deleted.
func (s *Store) ofEndpoint(
	ctx context.Context, sub fsm.Subscription, f func(fsm.Endpoint, time.Time) fsm.Endpoint,
	method string, args ...any,
) error {
	return s.call(ctx, func(t *tx) error {
		e := t.endpoints[sub.Generation]
		if there, listed := t.subs[sub.ID]; listed && there.Generation == sub.Generation {
			if next := f(e.Endpoint, t.now()); next != e.Endpoint {
				t.putEndpoint(fsm.EndpointState{Endpoint: next, Generation: sub.Generation})
			}
		}
		return nil
	}, method, args...)
}
