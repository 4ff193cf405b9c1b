package tailer

import (
	"errors"
	"fmt"
	"time"

	"reveille/fsm"
)

// write is a write through the gateway; took is how long it is on its way upstream and back. The gateway gets the
// answer only if it is answered.
func (m *model) write(r *modelReplica, path string, create, answered bool, took time.Duration) {
	w := m.announce(r, path, create)
	if r.ctx.Err() != nil {
		return
	}
	m.hears(path)
	forgets := m.forgetsOf(path)
	time.Sleep(took)
	was := m.up.there(path)
	at, incarnation, err := m.up.land(path, create, "1")
	if err == nil {
		m.hears(path) // it may have been forgotten on the way
		m.mu.Lock()
		delete(m.removed, path)
		m.unnoted[path] = m.unnoted[path] || was == 0 && w.First.IsZero()
		m.mu.Unlock()
		m.landed(path, at, incarnation)
	}
	time.Sleep(took)
	switch {
	case r.ctx.Err() != nil && m.forgetsOf(path) != forgets:
		m.unheard(path)
	case r.ctx.Err() != nil:
	case err != nil, !answered:
		r.d.Refused(w)
	default:
		r.d.Written(w, at, was == 0)
	}
}

// crash is a write during which the replica dies.
func (m *model) crash(r *modelReplica, path string, arrives bool) {
	m.announce(r, path, true)
	if r.isDead() {
		return
	}
	r.die()
	if !arrives {
		return
	}
	m.hears(path)
	if at, incarnation, err := m.up.land(path, true, "1"); err == nil {
		m.mu.Lock()
		delete(m.removed, path)
		m.mu.Unlock()
		m.landed(path, at, incarnation)
	}
}

func (m *model) subscribe(r *modelReplica, id, pattern string, start fsm.Offset) {
	m.mu.Lock()
	if m.subs[id] != nil {
		m.mu.Unlock()
		return
	}
	m.generations++
	sub := fsm.Subscription{ID: id, Pattern: pattern, Start: start, Generation: fmt.Sprint("g", m.generations)}
	s := &modelSub{Subscription: sub} // m.mu guards s: another client may make the subscription meanwhile
	m.subs[id] = s
	m.mu.Unlock()
	stored, _, err := r.d.Subscribe(r.ctx, sub)
	for tries := 0; errors.Is(err, fsm.ErrStreamsUnknown) && tries < 120 && r.ctx.Err() == nil; tries++ {
		time.Sleep(time.Second)
		stored, _, err = r.d.Subscribe(r.ctx, sub)
	}
	m.answered(r, s, stored, err)
}

// subscribeAgain is another client that makes a subscription that is there or is being made. Whoever is answered first
// may count on it.
func (m *model) subscribeAgain(r *modelReplica, id string) {
	m.mu.Lock()
	s := m.subs[id]
	if s == nil {
		m.mu.Unlock()
		return
	}
	m.generations++
	sub := fsm.Subscription{ID: id, Pattern: s.Pattern, Start: s.Start, Generation: fmt.Sprint("g", m.generations)}
	m.mu.Unlock()
	stored, _, err := r.d.Subscribe(r.ctx, sub)
	m.answered(r, s, stored, err)
}

// answered takes in the answer to somebody who wants a subscription. It may be made by another one than came first.
func (m *model) answered(r *modelReplica, s *modelSub, stored fsm.Subscription, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil && r.ctx.Err() == nil && m.subs[stored.ID] == s && !s.leaving {
		s.Subscription, s.answered = stored, true
		delete(m.forgotten, stored.Pattern) // in case it is a name
		if s.Start == fsm.Start {
			m.owe(s)
		}
	}
}

// owe has a subscription that begins at the start of each stream get the events that were there before it; m.mu is
// held.
func (m *model) owe(s *modelSub) {
	for i, e := range m.events {
		if m.expects(s, e.path) {
			m.events[i].due = append(e.due, modelLink{s.Generation, e.path, e.path})
		}
	}
}

func (m *model) unsubscribe(r *modelReplica, id string) {
	m.mu.Lock()
	s := m.subs[id]
	if s == nil {
		m.mu.Unlock()
		return
	}
	there := s.answered
	s.answered, s.leaving = false, true
	m.mu.Unlock()
	err := r.store.DeleteSubscription(r.ctx, id)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		delete(m.subs, id)
		m.deleted[s.Generation] = there // one that is just being made may come after that
	}
}

// remove deletes a stream through the gateway; took is how long the answer is on its way.
func (m *model) remove(r *modelReplica, path string, took time.Duration) {
	if !m.beginRemoval(path) {
		return
	}
	time.Sleep(took)
	told := r.d.Deleted(r.ctx, path) == nil && r.ctx.Err() == nil
	if told {
		m.mu.Lock()
		delete(m.named, path)
		m.mu.Unlock()
	}
	m.renew(path, told) // one that was made anew meanwhile is a new one, too
	m.notices(path, told)
	m.startedOver(path, told)
	if told && m.up.there(path) == 0 {
		m.mu.Lock()
		m.removed[path] = time.Now()
		m.mu.Unlock()
	}
}

// removePast deletes a stream past the gateway, and waits until somebody has noticed unless the registry tells of it.
// In its first reading ever, what it tells of is taken for older than the streams that are there.
func (m *model) removePast(path string) {
	if !m.beginRemoval(path) {
		return
	}
	if !m.registryTells() || !m.db.RegistryWasRead() {
		time.Sleep(3 * time.Minute)
		m.renew(path, m.replica(0) != nil)
	}
	m.notices(path, m.replica(0) != nil)
	m.startedOver(path, false)
}

// beginRemoval deletes a stream upstream, if it is there.
func (m *model) beginRemoval(path string) bool {
	m.mu.Lock()
	delete(m.heard, path)
	m.mu.Unlock()
	removed := m.up.remove(path)
	if removed {
		m.renew(path, false)
		m.startOver(path, time.Now().Add(never))
	}
	return removed
}

// notices takes in whether anybody has noticed a deletion. Where there is a registry somebody will.
func (m *model) notices(path string, noticed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unnoticed[path] = !noticed && !m.tells; m.unnoticed[path] {
		m.excusePrimary(path)
	}
}
