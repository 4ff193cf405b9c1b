package tailer

import (
	"slices"
	"time"

	"reveille/fsm"
)

// judge holds what is demanded at the end of a history.
func (m *model) judge() {
	there := m.db.Subscriptions()
	for _, e := range m.events {
		if m.up.there(e.path) != e.incarnation {
			continue // deleted since
		}
		for _, l := range e.due {
			id := m.answering(l.generation)
			covered := slices.ContainsFunc(m.seen, func(s modelSpan) bool { return s.covers(e, l) })
			if covered || id == "" || there[id].Generation != l.generation {
				continue
			}
			during := ""
			if _, early := e.early[l.generation]; early {
				during = " during a backfill"
			}
			m.fault("lost wake%s: event %s of %s, landed at %s, was never shown to %s (%s)", during,
				e.at.Value(), e.path, clock(e.landed), fsm.ConsumerID(id, l.primary), l.generation)
		}
	}
	for _, c := range m.db.Consumers() {
		switch {
		case m.deleted[c.Generation]:
			m.fault("consumer of a deleted subscription: %s", c.ID)
		case m.up.there(c.Primary) == 0:
			m.fault("consumer of a stream that is gone: %s", c.ID)
		}
		for _, l := range modelLinksOf(c) {
			if m.left[l] {
				m.fault("consumer that had unsubscribed: %s is subscribed to %s", c.ID, l.path)
			}
		}
	}
	named := func(path string) bool {
		if _, named := m.named[path]; named || m.unanswered[path] {
			return true
		}
		for _, s := range there {
			if s.Pattern == path {
				return true
			}
		}
		return false
	}
	for path := range m.db.Records() {
		if m.up.there(path) == 0 && !named(path) {
			m.fault("kept for ever in the store: what is known of %s", path)
		}
	}
	if tail := offsetOf(len(m.up.notices)); m.up.registry && m.db.RegistryOffset() != tail {
		m.fault("the registry stream was read up to %s of %s", m.db.RegistryOffset(), tail)
	}
	waiting := 0
	for _, path := range modelPaths {
		if m.up.there(path) == 0 && named(path) {
			waiting++
		}
	}
	for _, r := range m.replicas {
		for what, n := range m.heldForGood(r) {
			if n > 0 && (what != "paths" || n > waiting) {
				m.fault("kept for ever in memory: %d %s", n, what)
			}
		}
	}
}

// heldForGood is what a replica holds at every one of some moments: what it holds in passing is no matter.
func (m *model) heldForGood(r *modelReplica) map[string]int {
	held := m.held(r)
	for range 30 {
		time.Sleep(time.Second)
		now := m.held(r)
		for what := range held {
			held[what] = min(held[what], now[what])
		}
	}
	return held
}

// held is what a replica holds now. It watches what consumers in its partitions are subscribed to, and their primary
// streams, and nothing else.
func (m *model) held(r *modelReplica) map[string]int {
	held, needed := r.d.Held(), map[string]bool{}
	for _, c := range m.db.Consumers() {
		if r.store.Ownership().Owns(r.store.PartitionOf(c.Primary)) {
			needed[c.Primary] = true
			for path := range c.Links {
				needed[path] = true
			}
		}
	}
	for _, path := range r.d.Watched() {
		if !needed[path] {
			held["watches that nobody needs"]++
		}
	}
	return held
}

// answering is the subscription of a generation, if its 201 was sent and nobody wants it deleted.
func (m *model) answering(generation string) string {
	for id, s := range m.subs {
		if s.Generation == generation && s.answered {
			return id
		}
	}
	return ""
}
