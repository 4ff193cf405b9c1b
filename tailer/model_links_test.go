package tailer

import (
	"maps"
	"slices"
	"time"

	"reveille/fsm"
)

const (
	// modelReading is longer than a worker reads.
	modelReading = 100 * time.Millisecond
	never        = 1000 * time.Hour
)

// modelLink is a stream that a consumer is subscribed to. The consumer is the one that a subscription has for a primary
// stream.
type modelLink struct{ generation, primary, path string }

func modelLinksOf(c fsm.Consumer) (links []modelLink) {
	for _, path := range slices.Sorted(maps.Keys(c.Links)) {
		links = append(links, modelLink{c.Generation, c.Primary, path})
	}
	return links
}

// worker is that of a consumer that was woken.
func (m *model) worker(match func(fsm.Consumer) bool) (fsm.Consumer, bool) {
	for _, c := range m.db.Consumers() {
		if c.WakeID != "" && match(c) {
			return c, true
		}
	}
	return fsm.Consumer{}, false
}

// call is a callback of the current wake. done is whether it has taken effect; an error means that nobody knows.
func (m *model) call(r *modelReplica, c fsm.Consumer, subscribe, unsubscribe []string) (done bool, err error) {
	cb := fsm.Callback{
		Consumer: c.Ref(), Primary: c.Primary, Generation: c.Generation, Epoch: c.Epoch, TokenEpoch: c.Epoch,
		WakeID: c.WakeID, Unsubscribe: unsubscribe, Tails: map[string]fsm.Offset{}, MaxStreams: 10,
	}
	info, err := r.d.Head(r.ctx, c.Primary)
	if err == nil && info.Gone() {
		info, err = r.d.HeadAnew(r.ctx, c.Primary)
	}
	switch {
	case err == nil && info.Gone():
		o, err := r.store.Hide(r.ctx, c.Primary, fsm.Missing)
		r.settle(o)
		return false, err
	case err == nil:
		cb.Tails[c.Primary] = info.Tail
	}
	for _, path := range subscribe {
		from := fsm.Start
		if info, err := r.d.Head(r.ctx, path); err == nil && info.Exists {
			from, cb.Tails[path] = info.Tail, info.Tail
		}
		cb.Subscribe = append(cb.Subscribe, fsm.Subscribe{Path: path, From: from})
	}
	reply, err := r.store.Callback(r.ctx, cb)
	if done = err == nil && reply.Code == ""; done {
		r.settle(reply.Outcome)
		r.d.Watch(c.Primary, subscribe)
	}
	return done, err
}

// link is a worker that subscribes its consumer to another stream.
func (m *model) link(r *modelReplica, primary, path string) {
	c, ok := m.worker(func(c fsm.Consumer) bool {
		_, linked := c.Links[path]
		return c.Primary == primary && !linked
	})
	if !ok {
		return
	}
	done, err := m.call(r, c, []string{path}, nil)
	m.mu.Lock()
	defer m.mu.Unlock()
	passing := m.mayBeRemoved(primary)
	l := modelLink{c.Generation, primary, path}
	switch _, left := m.left[l]; {
	case err != nil && left:
		m.left[l] = false
	case done:
		delete(m.left, l)
		if path != primary && !passing {
			m.links[l] = time.Now()
		}
	}
}

// leave is a worker that unsubscribes its consumer from all streams.
func (m *model) leave(r *modelReplica, primary string) {
	if c, ok := m.worker(func(c fsm.Consumer) bool { return c.Primary == primary }); ok {
		m.unlink(r, c, slices.Sorted(maps.Keys(c.Links)))
	}
}

// leaveOne is a worker that unsubscribes its consumer from one stream of several.
func (m *model) leaveOne(r *modelReplica, path string) {
	c, ok := m.worker(func(c fsm.Consumer) bool {
		_, linked := c.Links[path]
		return linked && len(c.Links) > 1
	})
	if ok {
		m.unlink(r, c, []string{path})
	}
}

func (m *model) unlink(r *modelReplica, c fsm.Consumer, paths []string) {
	done, err := m.call(r, c, nil, paths)
	if !done && err == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	passing := m.mayBeRemoved(c.Primary)
	for _, path := range paths {
		l := modelLink{c.Generation, c.Primary, path}
		m.left[l] = done && !passing
		delete(m.links, l)
		m.excuse(func(_ modelEvent, due modelLink) bool { return due == l })
	}
}

// renew is for what makes a stream a new one. Its consumers are others from then on: they have no further streams, and
// those that have left it may be there again; will be if that is sure.
func (m *model) renew(path string, sure bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for l := range m.left {
		switch {
		case l.primary != path:
		case sure:
			delete(m.left, l)
		default:
			m.left[l] = false
		}
	}
	m.dropLinks(func(l modelLink) bool { return l.primary == path })
}

// startOver is for a stream that was deleted. Consumers of others that are subscribed to it start over, whatever a
// worker reads that reads it now; they are to see what lands from a moment on.
func (m *model) startOver(path string, from time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for l := range m.links {
		if l.path == path {
			m.links[l] = from
		}
	}
	m.excuse(func(e modelEvent, l modelLink) bool { return e.path == path && l.primary != path })
}

// startedOver is for when those who deal with a deletion are at the end of that; sure is whether they were told.
func (m *model) startedOver(path string, sure bool) {
	if sure {
		m.startOver(path, time.Now().Add(modelReading))
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dropLinks(func(l modelLink) bool { return l.path == path })
}

// dropLinks is for links that may be gone. m.mu is held.
func (m *model) dropLinks(which func(modelLink) bool) {
	maps.DeleteFunc(m.links, func(l modelLink, _ time.Time) bool { return which(l) })
	m.excuse(func(_ modelEvent, l modelLink) bool { return l.path != l.primary && which(l) })
}

// excusePrimary is for the events by now of a stream whose own consumers may rightly miss them. m.mu is held.
func (m *model) excusePrimary(path string) {
	m.excuse(func(e modelEvent, l modelLink) bool { return e.path == path && l.primary == path })
}

// excuse is for events by now that may rightly go unnoticed. m.mu is held.
func (m *model) excuse(which func(e modelEvent, l modelLink) bool) {
	for i := range m.events {
		e := &m.events[i]
		e.due = slices.DeleteFunc(e.due, func(l modelLink) bool { return which(*e, l) })
	}
}
