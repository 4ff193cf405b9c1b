package tailer

import (
	"strings"
	"time"

	"reveille/fsm"
)

// modelNotice is what the registry stream tells of one stream.
type modelNotice struct {
	path    string
	deleted bool
	text    string
	// at is when it is told.
	at time.Time
}

// notice has the registry stream tell of a stream, later by the lag, but in order. u.mu is held.
func (u *modelUpstream) notice(operation, path string) {
	if !u.registry {
		return
	}
	now := time.Now()
	n := &modelNotice{
		path: path, deleted: operation == "delete", text: message(operation, strings.TrimPrefix(path, "/"), now),
		at: now.Add(u.lag),
	}
	if last := len(u.notices) - 1; last >= 0 && u.notices[last].at.After(n.at) {
		n.at = u.notices[last].at
	}
	u.notices = append(u.notices, n)
	if n.at.After(now) {
		restarts := u.restarts
		time.AfterFunc(n.at.Sub(now), func() {
			u.set(func() {
				if u.restarts == restarts {
					u.publish()
				}
			})
		})
	} else {
		u.publish()
	}
}

// publish shows the next notice. u.mu is held.
func (u *modelUpstream) publish() {
	s := u.streams[registryPath]
	s.append(u.notices[len(s.events)].text)
}

// caughtUp waits until the registry stream has told everything.
func (u *modelUpstream) caughtUp() {
	u.mu.Lock()
	var last time.Time
	if n := len(u.notices); n > 0 {
		last = u.notices[n-1].at
	}
	u.mu.Unlock()
	time.Sleep(time.Until(last))
}

// unread returns the notices that no replica has dealt with yet, as far as the store knows.
func (m *model) unread(path string) (list []*modelNotice) {
	read := m.db.RegistryOffset()
	m.up.mu.Lock()
	defer m.up.mu.Unlock()
	for i, n := range m.up.notices {
		if n.path == path && offsetOf(i+1).After(read) {
			list = append(list, n)
		}
	}
	return list
}

// mayBeRemoved says whether a replica is still to take in that a stream is a new one, for which the consumers that are
// there by now are removed, and made again: the registry is to tell of a deletion, say, or a closed stream that was
// made anew is to be looked at. m.mu is held.
func (m *model) mayBeRemoved(path string) bool {
	deletions := 0
	for _, n := range m.unread(path) {
		if n.deleted {
			deletions++
		}
	}
	m.closedAnew[path] = m.closedAnew[path] && m.db.SeenClosed(path)
	if !m.restarted.IsZero() {
		if !m.db.RegistrySince().After(m.restarted) || len(m.unread(path)) > 0 {
			return true
		}
		m.restarted = time.Time{}
	}
	return m.unnoticed[path] || m.unnoted[path] || m.closedAnew[path] || deletions > max(m.db.Expected(path), 0)
}

// createPast makes a stream past the gateway. Nobody knows of it unless there is a registry, or it was named.
func (m *model) createPast(path string) {
	m.mu.Lock()
	delete(m.removed, path)
	m.mu.Unlock()
	was := m.up.there(path)
	at, incarnation, err := m.up.land(path, true, "2")
	if err != nil {
		return
	}
	m.mu.Lock()
	if was == 0 {
		m.heard[path], m.past[path] = m.isAwaited(path), incarnation
	}
	m.mu.Unlock()
	m.landed(path, at, incarnation)
}

// restartServer has the server, which keeps everything in memory, restart, and clients make the streams anew past the
// gateway at once: n says how many events each has, beside the one before. The registry may become longer than it was.
// One of which nothing was read yet cannot be told from the next.
func (m *model) restartServer(n int) {
	if !m.registryTells() || !m.db.RegistryWasRead() || !m.db.RegistryOffset().After(offsetOf(0)) {
		return
	}
	was := map[string]int{}
	for _, path := range modelPaths {
		if !m.settled(path) {
			return
		}
		if m.up.there(path) > 0 {
			was[path] = m.up.length(path)
		}
	}
	time.Sleep(10 * time.Millisecond) // no stream is made in the same millisecond as one before
	m.mu.Lock()
	m.restarted = time.Now()
	m.mu.Unlock()
	for path := range was {
		m.mu.Lock()
		delete(m.heard, path)
		m.mu.Unlock()
	}
	m.up.restart()
	for path := range was {
		m.renew(path, false)
		m.startOver(path, time.Now().Add(never))
	}
	time.Sleep(10 * time.Millisecond)
	for path, events := range was {
		for range []int{0, 1, max(1, events), events + 1, events + 3}[n] {
			m.createPast(path)
		}
		m.renew(path, false)
		m.startedOver(path, false)
	}
}

// announce is what the gateway does before a write. A stream that is first heard of by it begins there, for everybody
// (D12): one that was made past the gateway, be it while the gateway asks for it.
func (m *model) announce(r *modelReplica, path string, create bool) (w fsm.Write) {
	_, known := m.db.Records()[path]
	w = r.d.BeforeWrite(r.ctx, path, create)
	there := m.up.there(path)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !known && there > 0 && m.past[path] == there {
		m.excusePrimary(path)
	}
	return w
}

// switchOn has the replicas read the registry stream from now on, if there is one. They are started anew for that.
func (m *model) switchOn() error {
	m.mu.Lock()
	on := !m.tells && m.up.registry
	m.tells = m.up.registry
	m.mu.Unlock()
	if !on {
		return nil
	}
	for _, r := range m.replicas {
		if r != nil {
			r.die()
		}
	}
	return m.revive()
}

func (m *model) registryTells() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tells
}
