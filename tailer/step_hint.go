package tailer

import (
	"slices"
	"time"

	"reveille/fsm"
)

// hint handles an input that comes while the watch does something else. The watch carries out the returned action at
// once.
func (m *machine) hint(in *input) (a action) {
	switch in.kind {
	case inputChecked:
		m.checked(in, &a)
	case inputSilence:
		m.stop(thenAgain, &a)
	case inputSoon:
		m.quiet, a.check = in.now, m.rules.jitter(m.rules.Check)
	case inputGranted:
		// What has happened since it asked counts for its place among the slots, and for no later slot.
		m.slot, a.active, m.active = true, m.active, false
	case inputDisplaced:
		m.slot = false
		m.stop(thenLook, &a)
	case inputVoid:
		m.wanted = m.happened()
		m.lookNow(&a)
	case inputAdded:
		m.add(in.partition)
		if m.phase == phaseResting {
			return m.resume()
		}
		if m.part(in.partition).tail == "" {
			m.lookNow(&a)
		}
	case inputDropped:
		if p := m.part(in.partition); p != nil && p.added == in.since {
			m.drop(in.partition)
			m.lookNow(&a)
		}
	case inputDisowned:
		m.drop(in.partition)
		m.disowned = true
		m.lookNow(&a)
	case inputRefresh:
		if m.phase == phaseResting {
			return m.resume()
		}
		m.invalidate(in.partition)
		m.lookNow(&a)
	case inputDeleted:
		m.deleted = m.happened()
		for i := range m.parts {
			m.parts[i].noted = fsm.Noted{}
		}
	case inputRested:
		m.rested = m.happened()
		for i := range m.parts {
			m.parts[i].busy = false
		}
		m.active = m.active || !m.slot
		m.lookNow(&a)
	case inputActive:
		if !m.slot {
			m.active = true
			m.lookNow(&a)
		}
	case inputWritten:
		if m.absent {
			m.lookNow(&a)
		}
	case inputLook:
		m.lookNow(&a)
	case inputObserved:
		if m.observed(&in.observed) {
			m.lookNow(&a)
		}
	default: // an answer is no hint
	}
	return a
}

// lookNow ends a wait. It stops a live request only if the store must be told something.
func (m *machine) lookNow(a *action) {
	m.due = true
	switch {
	case m.phase.waits():
		a.interrupt = true
	case m.untold():
		m.stop(thenLook, a)
	}
}

func (m *machine) add(partition int) {
	m.wanted, m.disowned = m.happened(), false
	i, ok := m.find(partition)
	if !ok {
		m.parts = slices.Insert(m.parts, i, part{number: partition})
	}
	m.parts[i].added = m.wanted
}

// resume starts again with a stream that was closed. The store is told its tail again.
func (m *machine) resume() action {
	m.invalidate(everywhere)
	m.offset, m.moved, m.failed, m.gone, m.quiet = "", false, false, false, time.Time{}
	m.failures.Reset()
	m.paceWait.Reset()
	m.quietWait.Reset()
	a := m.look()
	a.run = true
	return a
}
