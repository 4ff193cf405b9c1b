package tailer

import "time"

// hears notes that a stream is known from now on, or awaited.
func (m *model) hears(path string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heard[path] = true
	delete(m.forgotten, path)
}

func (m *model) forgetsOf(path string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.forgets[path]
}

// unheard is for a stream that was forgotten while a write was on its way of which nobody told afterwards.
func (m *model) unheard(path string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.heard, path)
	m.excusePrimary(path)
}

// isAwaited says whether a stream would be noticed although it is made past the gateway. m.mu is held.
func (m *model) isAwaited(path string) bool { return m.up.registry || m.named[path] }

// name is an operator who names a stream.
func (m *model) name(r *modelReplica, path string) {
	err := r.d.Name(r.ctx, []string{path})
	m.mu.Lock()
	// One that got no answer may have been named all the same.
	failed := err != nil || r.ctx.Err() != nil
	m.unanswered[path] = m.unanswered[path] || failed
	m.mu.Unlock()
	if failed {
		return
	}
	if m.up.there(path) > 0 {
		m.hears(path)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.named[path] = true
}

// forget is an operator who has a stream forgotten, with what is pending of it. It may be heard of again.
func (m *model) forget(r *modelReplica, path string) {
	forget := func() {
		m.mu.Lock()
		delete(m.heard, path)
		if m.named[path] {
			m.named[path] = false
		}
		m.forgotten[path] = true
		m.forgets[path]++
		m.excusePrimary(path)
		m.mu.Unlock()
		m.renew(path, false)
	}
	forget()
	m.startOver(path, time.Now().Add(never))
	before := m.wakesOf(path)
	done := r.d.Forget(r.ctx, []string{path}) == nil && r.ctx.Err() == nil
	forget()
	if done {
		m.mu.Lock()
		delete(m.named, path)
		m.mu.Unlock()
	}
	m.startedOver(path, done)
	for id := range m.wakesOf(path) {
		if done && before[id] {
			m.fault("the stream of wake %s was forgotten, but not its consumer", id)
		}
	}
}

// wakesOf returns the latest wakes of a stream's consumers. Another consumer has another one.
func (m *model) wakesOf(path string) map[string]bool {
	wakes := map[string]bool{}
	for _, c := range m.db.Consumers() {
		if c.Primary == path && c.WakeID != "" {
			wakes[c.WakeID] = true
		}
	}
	return wakes
}
