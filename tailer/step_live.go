package tailer

import (
	"errors"
	"slices"
	"time"

	"reveille/fsm"
	"reveille/tailer/upstream"
)

var errSpinning = errors.New("upstream answers live requests at once without anything new")

// open makes the first live request after a look.
func (m *machine) open(now time.Time) action {
	m.cursor = ""
	return m.live(now)
}

func (m *machine) live(now time.Time) action {
	if m.untold() || !m.slot {
		m.failed = false
		return m.look()
	}
	m.phase, m.mode, m.due = phaseLive, modeLive, false
	m.request = request{began: now, from: m.offset, heard: m.offset}
	return action{tail: m.offset, cursor: m.cursor, check: m.soon(m.checkAfter(now))}
}

// stop ends the live request for a reason. The first reason counts.
func (m *machine) stop(why then, a *action) {
	if (m.phase == phaseLive || m.phase == phaseAnnouncing) && !m.request.stopped {
		m.request.stopped, m.request.then, a.interrupt = true, why, true
	}
}

// show handles what the live request shows. If the stream has moved on, the store is told first.
func (m *machine) show(in *input) action {
	r := &m.request
	r.shown = in.shown
	if in.shown.Cursor != "" {
		m.cursor = in.shown.Cursor
	}
	var check time.Duration
	if in.shown.Offset.After(r.heard) {
		r.heard, m.quiet, check = in.shown.Offset, in.now, m.soon(m.rules.jitter(m.rules.Check))
	}
	var a action
	if in.shown.Offset.After(m.offset) {
		m.phase, m.last = phaseAnnouncing, -1
		a = m.announce()
	} else {
		a = m.judge(false)
	}
	a.check = check
	return a
}

func (m *machine) announce() action {
	tail := m.request.shown.Offset
	for i := range m.parts {
		if p := &m.parts[i]; p.number > m.last && tail.After(p.tail) {
			m.last = p.number
			return action{partition: p.number, tail: tail}
		}
	}
	m.phase, m.offset, m.moved = phaseLive, tail, true
	return m.judge(true)
}

// judge decides what follows the live request, from what it showed last. A long-poll is over then. SSE goes on unless
// it is stopped, for example to pace a stream whose consumers are busy.
func (m *machine) judge(moved bool) action {
	r := &m.request
	a := action{active: moved}
	if m.untold() || moved && m.busy() && r.shown.Goes {
		m.stop(thenLook, &a)
	}
	switch {
	case r.stopped:
	case m.moved && (r.shown.Closed || !r.shown.UpToDate):
		r.then = thenLook
	case r.shown.Closed || r.shown.Cached || r.shown.Offset != "" && r.shown.Offset != m.offset:
		r.then = thenOdd
	}
	return a
}

// over handles the end of the live request. It ignores the error of a request that was stopped.
func (m *machine) over(in *input) action {
	r := &m.request
	took, err := in.now.Sub(r.began), in.err
	switch {
	case r.stopped:
		err = nil
	case err == nil && m.offset == r.from && r.then != thenLook && took < m.rules.PaceMin:
		err = errSpinning
	}
	if m.failed = err != nil; m.failed {
		a := m.look()
		a.failure = err
		return a
	}
	m.failures.Reset()
	if took >= m.rules.PaceMax {
		m.paceWait.Reset()
	}
	switch {
	case m.moved && m.busy():
		m.moved = false
		return m.pause()
	case m.moved:
		m.paceWait.Reset()
	}
	if r.then != thenAgain {
		return m.look()
	}
	return m.live(in.now)
}

// checked handles a HEAD beside the live request, whose answer may be lost.
func (m *machine) checked(in *input, a *action) {
	if m.phase != phaseLive && m.phase != phaseAnnouncing {
		return
	}
	unchecked := m.request.unchecked
	if upstream.IsDown(in.err) {
		m.request.unchecked, m.quiet = true, in.now
	}
	switch {
	case in.err == nil && m.ahead(in.info) && !m.request.owed.After(m.request.heard):
		m.request.owed, a.check = in.info.Tail, overdue
	case in.err == nil && m.elsewhere(in.info):
		a.missed = m.ahead(in.info) && !m.request.stopped
		m.stop(thenLook, a)
	case in.err != nil && m.request.owed.After(m.request.heard): // an earlier HEAD has shown a tail that is owed
		m.stop(thenLook, a)
	case in.err == nil && unchecked:
		// What made that HEAD fail may also have cut this request's connection, although no error has shown it.
		m.stop(thenAgain, a)
	default:
		a.check = m.checkAfter(in.now)
	}
}

// calm is how much less often a stream is checked if it has been silent for long.
const calm = 6

// checkAfter returns the time from a check that showed nothing new to the next one. It is half of the time that the
// stream has been silent, between Check and calm times Check.
func (m *machine) checkAfter(now time.Time) time.Duration {
	if m.quiet.IsZero() {
		m.quiet = now
	}
	return m.rules.jitter(min(max(now.Sub(m.quiet)/2, m.rules.Check), calm*m.rules.Check))
}

const (
	// overdue is how long a live request may take to show a tail after a HEAD has shown it. Until then the answer may
	// still be on its way. A missed append is found later by as much.
	overdue = 50 * time.Millisecond
	// missesMin is how many missed appends prove that upstream misses some. A host that stood still can cause one.
	missesMin = 2
)

// ahead says whether a HEAD shows only that the stream has moved on. The live request should show that, too.
func (m *machine) ahead(info fsm.StreamInfo) bool {
	return info.Exists && !info.TTL && !info.Closed && info.Tail.After(m.request.heard)
}

// soon returns the time until a check of a live request that has just begun, or has just shown an event. If upstream
// misses appends, it misses them about then, so the check comes sooner.
func (m *machine) soon(check time.Duration) time.Duration {
	if m.misses < missesMin {
		return check
	}
	return min(check, m.rules.jitter(m.rules.CheckSoon))
}

// elsewhere says whether a HEAD shows anything that the live request would not show.
func (m *machine) elsewhere(info fsm.StreamInfo) bool {
	return info.Gone() || info.TTL || info.Closed || info.Tail != m.request.heard ||
		slices.ContainsFunc(m.parts, func(p part) bool { return p.tail.Ahead(info.Tail) })
}
