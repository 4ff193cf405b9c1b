package tailer

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"reveille/fsm"
)

// write is a write through the gateway; took is how long it is on its way upstream and back.
func (m *model) write(r *modelReplica, path string, create bool, took time.Duration) {
	w := r.d.BeforeWrite(r.ctx, path, create)
	if r.ctx.Err() != nil {
		return
	}
	m.mu.Lock()
	m.heard[path] = true
	m.mu.Unlock()
	time.Sleep(took)
	was := m.up.there(path)
	at, incarnation, err := m.up.land(path, "1", create)
	if err == nil {
		m.mu.Lock()
		delete(m.removed, path)
		m.mu.Unlock()
		m.landed(path, at, incarnation)
	}
	time.Sleep(took)
	switch {
	case r.ctx.Err() != nil:
	case err != nil:
		r.d.Refused(w)
	default:
		r.d.Written(w, at, was == 0)
	}
}

// crash is a write during which the replica dies.
func (m *model) crash(r *modelReplica, path string, arrives bool) {
	r.d.BeforeWrite(r.ctx, path, true)
	if r.isDead() {
		return
	}
	r.die()
	if !arrives {
		return
	}
	m.mu.Lock()
	m.heard[path] = true
	m.mu.Unlock()
	if at, incarnation, err := m.up.land(path, "1", true); err == nil {
		m.mu.Lock()
		delete(m.removed, path)
		m.mu.Unlock()
		m.landed(path, at, incarnation)
	}
}

func (m *model) subscribe(r *modelReplica, id, pattern string) {
	m.mu.Lock()
	if m.subs[id] != nil {
		m.mu.Unlock()
		return
	}
	m.generations++
	s := &modelSub{Subscription: fsm.Subscription{ID: id, Pattern: pattern, Generation: fmt.Sprint("g", m.generations)}}
	m.subs[id] = s
	m.mu.Unlock()
	_, _, err := r.d.Subscribe(r.ctx, s.Subscription)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil && r.ctx.Err() == nil && !s.leaving {
		s.answered = true
	}
}

func (m *model) unsubscribe(r *modelReplica, id string) {
	m.mu.Lock()
	s := m.subs[id]
	if s == nil {
		m.mu.Unlock()
		return
	}
	s.answered, s.leaving = false, true
	m.mu.Unlock()
	err := r.store.DeleteSubscription(r.ctx, id)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		delete(m.subs, id)
		m.deleted[s.Generation] = true
	}
}

// leave is a worker that unsubscribes its consumer from its stream, in a callback of the current wake.
func (m *model) leave(r *modelReplica, path string) {
	for _, c := range m.db.Consumers() {
		if c.Primary != path || c.WakeID == "" {
			continue
		}
		reply, err := r.store.Callback(r.ctx, fsm.Callback{
			Consumer: c.ID, Primary: path, Generation: c.Generation, Epoch: c.Epoch, TokenEpoch: c.Epoch,
			WakeID:      c.WakeID,
			Unsubscribe: []string{path}, MaxStreams: 10,
		})
		if err == nil && reply.Code == "" {
			m.mu.Lock()
			m.left[c.ID+" "+c.Generation] = true
			m.mu.Unlock()
		}
		return
	}
}

// remove deletes a stream, through the gateway unless r is nil.
func (m *model) remove(r *modelReplica, path string) {
	m.mu.Lock()
	delete(m.heard, path)
	m.mu.Unlock()
	if m.up.remove(path) == 0 {
		return
	}
	m.backFor(path)
	if r != nil && r.d.Deleted(r.ctx, path) == nil && r.ctx.Err() == nil && m.up.there(path) == 0 {
		m.mu.Lock()
		m.removed[path] = time.Now()
		m.mu.Unlock()
	}
}

// backFor is for what may rightly make a stream a new one: those who have left it may have a consumer of it again.
func (m *model) backFor(path string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.left, func(key string, _ bool) bool {
		id, _, _ := strings.Cut(key, " ")
		_, of, _ := fsm.ParseConsumerID(id)
		return path == "" || of == path
	})
}
