package redisstore

import (
	"context"
	"strconv"
	"strings"
	"time"

	"reveille/fsm"
	"reveille/fsm/cache"
)

// Endpoints implements dispatcher.EndpointStore.
func (s *Store) Endpoints() *cache.Endpoints { return s.endpoints }

// FailEndpoint implements dispatcher.EndpointStore.
func (s *Store) FailEndpoint(
	ctx context.Context, sub fsm.Subscription, f fsm.EndpointFailure,
) (changed bool, err error) {
	_, _, changed, err = s.ofEndpoint(ctx, scriptFailEndpoint, sub, f.RetryAfter > 0,
		f.RetryAfter.Milliseconds(), millisOf(f.Probe), flag(f.Refused), flag(f.Shown),
		f.Reason[:min(len(f.Reason), fsm.MaxReason)])
	if changed || f.RetryAfter > 0 {
		s.hints.tellEndpoints()
	}
	return changed, err
}

// RecoverEndpoint implements dispatcher.EndpointStore.
func (s *Store) RecoverEndpoint(ctx context.Context, sub fsm.Subscription) (changed bool, err error) {
	_, _, changed, err = s.ofEndpoint(ctx, scriptRecoverEndpoint, sub, false)
	if changed {
		s.hints.tellEndpoints()
	}
	return changed, err
}

// ReturnProbe implements dispatcher.EndpointStore.
func (s *Store) ReturnProbe(ctx context.Context, sub fsm.Subscription, slot time.Time, sent bool) error {
	_, _, _, err := s.ofEndpoint(ctx, scriptReturnProbe, sub, false, millisOf(slot), flag(sent))
	return err
}

// ProbeEndpoint implements dispatcher.EndpointStore.
func (s *Store) ProbeEndpoint(
	ctx context.Context, sub fsm.Subscription, patience time.Duration,
) (fsm.Probe, error) {
	e, now, allowed, err := s.ofEndpoint(ctx, scriptProbeEndpoint, sub, false, patience.Milliseconds())
	switch {
	case err != nil:
		return fsm.Probe{}, err
	case !allowed:
		return fsm.Probe{Wait: e.Wait(now)}, nil
	}
	return fsm.Probe{Allowed: true, Slot: e.Next}, nil
}

// longestLook is how many consumers of any subscription one call looks at. longestLooks is how many calls are made for
// a partition at most.
const longestLook, longestLooks = 200, 25

// LongestWaiting implements dispatcher.EndpointStore. If a partition that answers has such a wake, it ignores
// partitions that do not answer.
func (s *Store) LongestWaiting(
	ctx context.Context, sub fsm.Subscription, after time.Time,
) (ref fsm.DeliveryRef, since time.Time, ok bool, err error) {
	partitions, failed := fsm.AllPartitions(s.keys.partitions), false
	for look := 0; look < longestLooks && len(partitions) > 0; look++ {
		var left []int
		for i, r := range s.pipeline(ctx, scriptLongest, len(partitions), func(i int) ([]string, []any) {
			return s.keys.guard(partitions[i]), s.arguments(partitions[i], sub.ID, sub.Generation, millisOf(after),
				longestLook, look*longestLook)
		}) {
			at, of := moment(r.int()), fsm.DeliveryRef{Consumer: fsm.ConsumerRef{ID: r.text(), Home: r.text()}}
			of.Epoch, of.WakeID = r.int(), r.text()
			again, more := r.yes(), r.yes()
			switch {
			case r.bad != nil:
				err = r.bad
			case of.Consumer.ID == "" && more:
				left = append(left, partitions[i])
			case of.Consumer.ID == "":
			case !ok, failed && !again, failed == again && at.Before(since):
				ref, since, failed, ok = of, at, again, true
			}
		}
		partitions = left
	}
	if ok {
		err = nil
	}
	return ref, since, ok, err
}

// ProbeDelivery implements dispatcher.EndpointStore.
func (s *Store) ProbeDelivery(ctx context.Context, w fsm.DeliveryRef) (waited bool, err error) {
	r := s.run(ctx, scriptProbeDelivery, s.PartitionOf(w.Consumer.Home), w.Consumer.ID, w.Epoch, w.WakeID)
	return r.yes(), r.err()
}

// millisOf is the inverse of moment.
func millisOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// ofEndpoint calls a script about the endpoint of a subscription, notes the endpoint's new state, and returns whether
// the script says yes. The endpoint that it returns is left alone while its origin is. The argument told says that the
// script tells the store of each pause that this replica knows of.
func (s *Store) ofEndpoint(
	ctx context.Context, sc *script, sub fsm.Subscription, told bool, args ...any,
) (e fsm.Endpoint, now time.Time, yes bool, err error) {
	keys := append(s.keys.listOfEndpoints(), s.keys.subscriptions(), s.keys.pauses())
	r := s.call(ctx, sc, keys, append([]any{
		s.draw().millis(), sub.ID, sub.Generation, s.endpointsSeen.Load(), versionDraw(), sub.Origin(),
	}, args...)...)
	r.list(func(l *reply) {
		state := fsm.EndpointState{Generation: sub.Generation, Version: l.int()}
		state.Endpoint = l.endpoint()
		now, yes = moment(l.int()), l.yes()
		paused, list := moment(l.int()), l.int()
		if l.bad == nil {
			raise(&s.endpointsSeen, list)
			s.endpoints.Note(state, now)
			s.endpoints.NotePause(sub, paused, list, told)
			if e = state.Endpoint; paused.After(e.Until) {
				e.Until = paused
			}
		}
	})
	return e, now, yes, r.bad
}

// endpoint reads until, failures, next, probing, probes, since, refused and reason (lua/endpoint.lua).
func (r *reply) endpoint() fsm.Endpoint {
	return fsm.Endpoint{
		Until: moment(r.int()), Failures: int(r.int()), Next: moment(r.int()), Probing: r.yes(), Probes: int(r.int()),
		Since: moment(r.int()), Refused: r.yes(), Reason: r.text(),
	}
}

// readEndpoints reads the list of endpoints in trouble, if it has changed.
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
	pauses, keys := map[string]time.Time{}, append(s.keys.listOfEndpoints(), s.keys.pauses())
	r := s.call(ctx, scriptListEndpoints, keys, since, s.draw().millis())
	r.list(func(l *reply) {
		version, whole = l.int(), l.yes()
		l.each(func(changed *reply) { states = append(states, changed.listed()) })
		now = l.int()
		l.each(func(paused *reply) {
			origin := paused.text()
			pauses[origin] = moment(paused.int())
		})
	})
	if r.bad != nil {
		return r.bad
	}
	raise(&s.endpointsSeen, version)
	s.endpoints.ReplacePauses(pauses, version, moment(now))
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

// endpointFields is how many fields lua/endpoint.lua keeps of an endpoint.
const endpointFields = 9

// listed reads a generation and its endpoint as lua/endpoint.lua stores it. An endpoint that is off the list is empty.
func (r *reply) listed() (s fsm.EndpointState) {
	s.Generation = r.text()
	text := r.text()
	if r.bad != nil || text == "" {
		return s
	}
	kept := &reply{script: r.script}
	for _, field := range strings.SplitN(text, " ", endpointFields) {
		kept.items = append(kept.items, field)
	}
	s.Version, s.Endpoint = kept.int(), kept.endpoint()
	r.bad = kept.bad
	return s
}
