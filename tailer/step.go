package tailer

import (
	"time"

	"reveille/fsm"
)

// step takes one input and returns what to do next.
func (m *machine) step(in *input) action {
	m.misses = in.misses
	a := m.next(in)
	if in.kind < inputChecked || a.run {
		if m.phase.repeats() && m.deleted > m.looked {
			m.lookAgain(&a)
		}
		a.phase = m.phase
	}
	a.mode = m.mode
	return a
}

func (m *machine) next(in *input) action {
	switch in.kind {
	case inputDone:
		return m.done(in)
	case inputHead:
		return m.answered(in)
	case inputTold:
		return m.told(in)
	case inputRead:
		return m.read(in)
	case inputSlot:
		return m.enter(in)
	case inputShown:
		return m.show(in)
	case inputOver:
		return m.over(in)
	default:
		return m.hint(in)
	}
}

// lookAgain drops what upstream said of a stream that was deleted since. It does not tell the store, because another
// stream may have that name now.
func (m *machine) lookAgain(a *action) {
	if m.phase == phaseAnnouncing {
		m.phase, *a = phaseLive, action{check: a.check}
		m.stop(thenLook, a)
		return
	}
	m.forgetBelied()
	m.look()
}

// done handles the end of an action without an answer of its own, or the store's error.
func (m *machine) done(in *input) action {
	switch m.phase {
	case phaseHiding:
		if m.hid = in.err == nil; !m.hid {
			return m.untaken()
		}
		return m.hidden()
	case phaseCorrecting:
		m.invalidate(m.last)
		if in.err != nil {
			return m.untaken()
		}
		return m.correct(in.now)
	case phaseAnnouncing: // if the gateway told the store, announce goes on; if it failed, announce does it
		m.last--
		return m.announce()
	case phaseDelaying:
		return m.open(in.now)
	case phaseEnding:
		return m.end(in.now)
	default: // a wait is over
		return m.look()
	}
}

// look asks for the stream with HEAD. It comes first whenever anything is unclear.
func (m *machine) look() action {
	m.phase, m.looked, m.due = phaseLooking, m.moment, false
	return action{}
}

// wait begins a wait. If a hint would end the wait, and one has come already, it looks instead.
func (m *machine) wait(p phase, d time.Duration) action {
	if p.waits() && m.due {
		return m.look()
	}
	m.phase = p
	return action{wait: d}
}

func (m *machine) release(a action) action {
	m.slot, a.release = false, true
	return a
}

func (m *machine) answered(in *input) action {
	was := m.phase
	if in.err != nil || !in.info.Gone() {
		// An upstream that cannot be asked may have the stream. If it says "gone" again, that counts from then on.
		m.absent, m.hid = false, false
	}
	switch {
	case was == phaseConfirming && in.err == nil && !in.info.Gone():
		return m.fail(nil) // a server that contradicts itself is not asked at full speed
	case in.err != nil:
		return m.fail(in.err)
	case in.info.Gone() && (was == phaseConfirming || m.absent):
		return m.missing(in)
	case in.info.Gone():
		m.phase = phaseConfirming
		m.forgetBelied()
		return m.release(action{})
	}
	m.info = in.info
	switch {
	case was == phaseVerifying && m.info.TTL:
		return m.correct(in.now)
	case was == phaseVerifying:
		// A server may have more to read than its HEAD says, for example after an interrupted append. The stream is
		// still the same one.
		m.phase = phaseReading
		return action{was: m.info.Tail, tail: m.info.Tail}
	}
	back, wavered := m.gone, m.gone && m.carriesOn()
	m.gone = false
	a := m.tell(in.now)
	a.back, a.wavered = back, wavered
	return a
}

func (m *machine) fail(err error) action {
	if err != nil {
		m.mode = modeFailing
	}
	m.forgetBelied()
	var a action
	if len(m.parts) == 0 { // the stream may fail for ever
		a = m.leave()
	} else {
		a = m.wait(phaseFailing, m.rules.jitter(m.failures.Next()))
	}
	a.failure = err
	return a
}

// untaken drops what the store failed to take, because it may be out of date when the store is back. The machine asks
// upstream again and tells the store that answer.
func (m *machine) untaken() (a action) {
	m.invalidate(m.last)
	if m.phase == phaseAnnouncing {
		m.phase = phaseLive
		m.stop(thenLook, &a)
		return a
	}
	return m.fail(nil)
}

// forgetBelied gives up an unfinished check. The store is told the tail again in the partitions of belied.
func (m *machine) forgetBelied() {
	for _, b := range m.belied {
		if p := m.part(b.partition); p != nil {
			p.tail = ""
		}
	}
	m.belied = nil
}

// missing hides the consumers of a stream after upstream has said twice, or once more, that it does not have it. It
// hides none if the stream was added, or discovery learned of it, since the HEAD began.
func (m *machine) missing(in *input) action {
	absence := fsm.MissingStill
	if !m.hid || in.wavers != m.wavers || in.now.Sub(m.missed) > m.rules.GoneGrace/2 {
		// If upstream goes back and forth, or was not asked for half of the grace, the stream may have existed between
		// two looks.
		absence, m.wavers, m.hid = fsm.MissingAnew, in.wavers, false
	}
	m.missed = in.now
	if !m.absent {
		m.absent, m.gone, m.offset, m.moved = true, true, "", false
		m.absentWait.Reset()
	}
	m.mode = modeAway
	if m.wanted > m.looked || m.part(m.home) == nil {
		return m.hidden()
	}
	m.phase = phaseHiding
	return action{absence: absence}
}

func (m *machine) hidden() action {
	m.invalidate(everywhere)
	if len(m.parts) == 0 {
		return m.leave()
	}
	return m.wait(phaseAbsent, m.rules.jitter(m.absentWait.Next()))
}

// tell tells the store the tail that HEAD showed, in each partition that does not know it yet.
func (m *machine) tell(now time.Time) action {
	m.phase, m.last = phaseTelling, -1
	return m.tellNext(now)
}

func (m *machine) tellNext(now time.Time) action {
	for i := range m.parts {
		if p := &m.parts[i]; p.number > m.last && (p.tail != m.info.Tail || p.noted.Closed != m.info.Closed) {
			m.last = p.number
			return action{partition: p.number, tail: m.info.Tail, closed: m.info.Closed}
		}
	}
	if len(m.belied) > 0 {
		// The next HEAD is newer than everything in belied, so it cannot be old news.
		m.phase = phaseVerifying
		return action{}
	}
	return m.settled(now)
}

func (m *machine) told(in *input) action {
	if in.err != nil {
		return m.untaken()
	}
	o := &in.observed
	if m.observed(o) && !o.noted.Closed { // a closed end is checked at once
		m.due = true
	}
	switch {
	case m.phase == phaseAnnouncing:
		return m.announce()
	case m.phase == phaseCorrecting:
		return m.correct(in.now)
	case o.watched && o.noted.BeliedBy(m.info):
		m.belied = append(m.belied, *o)
	}
	return m.tellNext(in.now)
}

// read handles how far the reading led. Some servers show further events only to a reader that begins before the tail
// of their HEAD, not at it. The next look goes on with a stream that is too long for one reading.
func (m *machine) read(in *input) action {
	switch {
	case in.err != nil:
		if m.phase == phaseRereading {
			m.reread = in.tail
		}
		return m.fail(in.err)
	case in.tail.After(m.info.Tail):
		m.info.Tail = in.tail
	case m.phase == phaseReading:
		m.phase = phaseRereading
		if m.reread == "" || m.reread.Ahead(m.info.Tail) {
			m.reread = fsm.Start
		}
		return action{was: m.reread, tail: m.info.Tail}
	}
	m.reread = ""
	return m.correct(in.now)
}

// correct goes through the partitions where HEAD belied the store's note. If HEAD still does, the stream is a new one
// under an old name, and its consumers start over. If not, the store is told the tail again.
func (m *machine) correct(now time.Time) action {
	m.phase = phaseCorrecting
	if len(m.belied) == 0 {
		// The other partitions may have been told another tail.
		m.belied = nil
		return m.tell(now)
	}
	b := m.belied[0]
	m.belied, m.last = m.belied[1:], b.partition
	switch {
	case b.noted.BeliedBy(m.info):
		return action{partition: b.partition, was: b.noted.Tail, tail: m.info.Tail}
	case b.noted.Closed: // it was open a moment ago
		m.invalidate(m.last)
		return m.fail(nil)
	}
	return action{partition: b.partition, tail: m.info.Tail, closed: m.info.Closed}
}

// settled continues after a look whose tail the store knows.
func (m *machine) settled(now time.Time) action {
	if !m.failed {
		m.failures.Reset()
	}
	if len(m.parts) == 0 || m.info.Closed {
		return m.leave()
	}
	moved := m.moved || m.offset != "" && m.offset != m.info.Tail
	m.offset, m.moved = m.info.Tail, false
	switch {
	case moved && m.busy():
		return m.pause()
	case moved:
		m.paceWait.Reset()
	}
	if m.info.TTL {
		m.mode = modeHeadOnly
		if moved {
			m.quietWait.Reset()
		}
		return m.release(m.wait(phaseHeadOnly, m.rules.jitter(m.quietWait.Next())))
	}
	a := action{active: m.active || moved, turn: !m.turn.After(now)}
	m.phase, m.active = phaseEntering, false
	return a
}

// pause waits while a stream moves and all its consumers are busy. A consumer that comes to rest ends the wait. Earlier
// hints do not end it.
func (m *machine) pause() action {
	m.due = false
	return m.wait(phasePausing, m.paceWait.Next())
}

func (m *machine) enter(in *input) action {
	switch {
	case !in.granted:
		m.mode = modeSweep
		// A hint can cut a turn short. The stream keeps that turn: a new one would leave it unused, while other streams
		// wait for theirs.
		if !m.turn.After(in.now) {
			m.turn = in.now.Add(in.turn)
		}
		return m.release(m.wait(phaseSweeping, max(m.rules.jitter(m.rules.Check), m.turn.Sub(in.now))))
	case m.failed:
		// HEAD works, but live requests fail. The wait bounds what they cost.
		m.mode = modeFailing
		return m.wait(phaseDelaying, m.rules.jitter(m.failures.Next()))
	}
	return m.open(in.now)
}

// leave gives up what a watch holds. It also gives up the watch, unless a hint asks for the stream meanwhile.
func (m *machine) leave() action {
	m.phase, m.mode = phaseEnding, modeNone
	return m.release(action{})
}

func (m *machine) end(now time.Time) action {
	switch {
	case len(m.parts) == 0:
		m.phase = phaseEnded
		return action{leave: true, lost: m.gone && !m.disowned}
	case !m.absent && m.info.Closed && m.wanted <= m.looked && !m.due:
		// The stream has ended and has nothing new to show.
		m.phase, m.closed = phaseResting, now
		return action{}
	}
	return m.look()
}
