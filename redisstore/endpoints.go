package redisstore

import (
	"context"
	"strconv"
	"strings"

	"reveille/fsm"
)

// Endpoints implements fsm.EndpointStore.
func (s *Store) Endpoints() *fsm.Endpoints { return s.endpoints }

// FailEndpoint implements fsm.EndpointStore.
func (s *Store) FailEndpoint(ctx context.Context, sub fsm.Subscription, f fsm.EndpointFailure) error {
	err := s.ofEndpoint(ctx, scriptFailEndpoint, sub, f.RetryAfter.Milliseconds())
	if err == nil && f.RetryAfter > 0 {
		s.hints.tellEndpoints()
	}
	return err
}

// RecoverEndpoint implements fsm.EndpointStore.
func (s *Store) RecoverEndpoint(ctx context.Context, sub fsm.Subscription) error {
	return s.ofEndpoint(ctx, scriptRecoverEndpoint, sub)
}

// ofEndpoint calls a script about the endpoint of a subscription, and notes what it is like then.
func (s *Store) ofEndpoint(ctx context.Context, sc *script, sub fsm.Subscription, args ...any) error {
	r := s.call(ctx, sc, append(s.keys.listOfEndpoints(), s.keys.subscriptions()), append([]any{
		s.draw().millis(), sub.ID, sub.Generation, s.endpointsSeen.Load(), versionDraw(),
	}, args...)...)
	r.list(func(l *reply) {
		state := fsm.EndpointState{Generation: sub.Generation, Version: l.int()}
		state.Until = moment(l.int())
		now := moment(l.int())
		if l.bad == nil {
			raise(&s.endpointsSeen, state.Version)
			s.endpoints.Note(state, now)
		}
	})
	return r.bad
}

// readEndpoints reads which endpoints are in trouble, if that has changed.
func (s *Store) readEndpoints(ctx context.Context) error {
	since := ""
	if known, loaded := s.endpoints.Version(); loaded {
		v, err := s.rdb.Get(ctx, s.keys.endpointsVersion()).Result()
		since = strconv.FormatInt(known, 10)
		if err = wrap(err); err != nil || v == since || v == "" && known == 0 {
			return err
		}
	}
	var version, now int64
	var whole bool
	var states []fsm.EndpointState
	r := s.call(ctx, scriptListEndpoints, s.keys.listOfEndpoints(), since, s.draw().millis())
	r.list(func(l *reply) {
		version, whole = l.int(), l.yes()
		l.each(func(changed *reply) { states = append(states, changed.endpoint()) })
		now = l.int()
	})
	if r.bad != nil {
		return r.bad
	}
	raise(&s.endpointsSeen, version)
	if whole {
		s.endpoints.Replace(states, version, moment(now))
		return nil
	}
	for i := range states {
		if states[i].Version == 0 { // it is off the list
			states[i].Version = version
		}
	}
	s.endpoints.Change(states, version, moment(now))
	return nil
}

// endpoint reads a generation and what lua/endpoint.lua keeps of its endpoint, which is nothing if it is off the list.
func (r *reply) endpoint() (s fsm.EndpointState) {
	s.Generation = r.text()
	text := r.text()
	if r.bad != nil || text == "" {
		return s
	}
	var numbers [2]int64
	fields := strings.Fields(text)
	for i := range numbers {
		if i < len(fields) {
			n, err := strconv.ParseInt(fields[i], 10, 64)
			if err != nil {
				r.fail("an endpoint that cannot be read")
				return s
			}
			numbers[i] = n
		}
	}
	s.Version, s.Until = numbers[0], moment(numbers[1])
	return s
}
