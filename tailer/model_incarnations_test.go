package tailer

import (
	"slices"
	"time"
)

// replace is a stream that ends by its time to live, and one of the same name that a client makes through the gateway
// right after: n says how many events it has, beside the one before.
func (m *model) replace(r *modelReplica, path string, n int, took time.Duration) {
	was := m.up.length(path)
	if m.up.there(path) == 0 || !m.settled(path) {
		return
	}
	m.mu.Lock()
	delete(m.heard, path)
	m.mu.Unlock()
	m.up.expire(path)
	m.renew(path, false)
	m.startOver(path, time.Now().Add(never))
	w := m.announce(r, path, true)
	if r.ctx.Err() != nil {
		m.unseen(path)
		return
	}
	m.hears(path)
	events := slices.Repeat([]string{"3"}, []int{1, max(1, was-1), max(1, was), was + 1, was + 3}[n])
	at, incarnation, err := m.up.land(path, true, events...)
	created := err == nil && m.up.length(path) == len(events)
	if err == nil {
		m.mu.Lock()
		delete(m.removed, path)
		m.mu.Unlock()
		for i := range events {
			if created {
				m.landed(path, offsetOf(i+1), incarnation)
			}
		}
		if !created {
			m.landed(path, at, incarnation)
		}
	}
	time.Sleep(took)
	if err != nil {
		r.d.Refused(w)
		m.unseen(path)
		return
	}
	r.d.Written(w, at, created)
	if r.isDead() || !created {
		m.unseen(path)
	} else {
		m.mu.Lock()
		m.replaced[path] = time.Now()
		m.mu.Unlock()
	}
	m.renew(path, false)
	m.startedOver(path, false)
}

// closeAnew closes a stream and, once the store has seen that, has another one of its name take its place past the
// gateway: n says how many events it has, beside the one before.
func (m *model) closeAnew(path string, n int) {
	if !m.settled(path) || m.up.shut(path) == 0 {
		return
	}
	for range 60 {
		if m.db.SeenClosed(path) {
			break
		}
		time.Sleep(time.Second)
	}
	m.clients.Wait()
	if !m.settled(path) || !m.db.SeenClosed(path) || m.up.length(path) == 0 {
		return
	}
	was := m.up.length(path)
	events := slices.Repeat([]string{"4"}, []int{1, max(1, was-1), was, was + 1, was + 3}[n])
	incarnation := m.up.shut(path, events...)
	if incarnation == 0 {
		return
	}
	m.renew(path, false)
	m.startOver(path, time.Now().Add(never))
	for i := range events {
		m.landed(path, offsetOf(i+1), incarnation)
	}
	m.mu.Lock()
	m.replaced[path], m.closedAnew[path] = time.Now(), true
	m.mu.Unlock()
	m.startedOver(path, false)
}

// settled says whether nothing is known of a stream that a history excuses until it is noticed.
func (m *model) settled(path string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.unnoticed[path] && !m.lying
}

// unseen is for a stream that was made anew while nobody noticed.
func (m *model) unseen(path string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unnoticed[path] = true
	m.excusePrimary(path)
}
