package tailer

import (
	"slices"
	"time"

	"reveille/fsm"
	"reveille/tailer/upstream"
)

// machine decides which requests Reveille sends for one stream, and when. Its step takes one input (an answer, a timer,
// a hint) and returns the next action. It does no I/O, reads no clock and takes no lock. An input carries the time. The
// watch around the machine passes inputs to it and carries out its actions.
//
// It begins at rest. It asks one thing at a time. The phase says which, and what its answer leads to:
//
//	phase       asked                     answer                           next
//	looking     HEAD                      an error                         failing, or ending without consumers
//	                                      404                              confirming, or hiding if absent already
//	                                      it exists                        telling; discovery hears that it is back
//	confirming  a new HEAD                404                              hiding
//	                                      an error, or it exists           failing: upstream contradicts itself
//	hiding      store: hide               done                             absent, or ending without consumers
//	absent      wait, longer each time    over, or a hint                  looking
//	telling     store: each partition     what it has noted agrees         settled: see below
//	            that was told otherwise   HEAD belies it (fsm.Noted)       verifying
//	verifying   a new HEAD                it exists                        reading, or correcting if it has a TTL
//	                                      404                              confirming
//	reading     read on from the tail,    there is more                    correcting, with the end of the read
//	            then from the start       there is no more                 correcting
//	correcting  store: restart where      done in all those partitions     telling
//	            it is belied, the tail    a closed end holds after all     failing: upstream contradicts itself
//	            where it is not
//	settled     -                         no consumer left, or closed      ending
//	                                      it moved, all consumers are busy pausing
//	                                      it has a TTL                     headOnly
//	                                      otherwise                        entering
//	entering    a slot for live requests  granted                          live, or delaying if the last one failed
//	                                      refused                          sweeping
//	live        live request              it shows an event                announcing
//	                                      it failed                        looking
//	                                      it ended in good order           live, pausing; looking if unclear
//	announcing  store: each partition     done in all                      live: the request goes on
//	pausing     wait, longer each time    over, or a hint                  looking
//	headOnly    wait, longer each time    over, or a hint                  looking
//	sweeping    wait for the turn         over, or a hint                  looking
//	failing     wait, longer each time    over                             looking
//	delaying    wait, longer each time    over                             live
//	ending      leave the set             no consumer is subscribed        ended; discovery hears of one that was gone
//	                                      closed                           resting
//	                                      otherwise                        looking
//	resting     nothing                   a hint: added, or refresh        looking
//
// If a store call fails, the next phase is failing, or the live request ends. If the stream was deleted after upstream
// answered, the next phase is looking.
//
// A hint that comes outside a wait counts for the next wait. It stops a live request only if the store must be told
// something, or if the slot went to another stream. Now and then a HEAD checks the live request (inputChecked).
type machine struct {
	rules *Config
	// home is the partition of the consumers that patterns made.
	home  int
	phase phase
	mode  mode
	parts []part

	// moment is a logical clock. It advances with each input that voids earlier answers. The next fields hold the
	// moment of the last input of each kind.
	moment moment
	// wanted: the stream was added, or discovery knows of it. An end or an absence that was found before is void.
	wanted moment
	// rested: a consumer came to rest. An earlier observation that all consumers are busy is void.
	rested moment
	// invalidated: the store must be told the tail again. What it was told before does not count.
	invalidated moment
	// deleted: the stream was deleted. What the store noted before belongs to another stream.
	deleted moment
	// looked is the moment in which the last HEAD of phaseLooking began.
	looked moment

	// due is true if a hint has asked for a look. The next wait ends before it begins.
	due bool
	// slot is true if the stream has a slot for live requests. The flag active is true if something has happened to the
	// stream since it last asked for a slot.
	slot, active bool
	// turn is the time of its turn in the sweep.
	turn time.Time
	// disowned is true if another replica watches for the last partition that was dropped.
	disowned bool

	// info is what upstream last said of the stream. offset and cursor are how far the machine has followed it.
	info   fsm.StreamInfo
	offset fsm.Offset
	cursor string
	// moved is true if a live request has shown something new since the last HEAD.
	moved bool
	// last is the partition that was told last.
	last int
	// reread is how far reading from the start had come when it failed.
	reread fsm.Offset
	// belied holds the store's answers that HEAD belies.
	belied []observed
	// absent is true while upstream keeps answering that there is no such stream. The next field, gone, stays true
	// until discovery hears that the stream is back.
	absent, gone bool
	// missed is when upstream last answered so. wavers is how often upstream had wavered when the absence last counted
	// as new. The flag hid is true once the store has hidden the consumers for it.
	missed time.Time
	wavers int64
	hid    bool
	// closed is when the machine found the stream closed.
	closed time.Time
	// quiet is since when the stream is silent.
	quiet time.Time
	// misses is how often upstream has missed an append, over all streams.
	misses int64
	// failed is true if the last live request failed.
	failed bool
	// The waits of each kind. Each is longer than the one before.
	failures, paceWait, quietWait, absentWait upstream.Backoff
	request                                   request
}

// request is the live request under way.
type request struct {
	began time.Time
	// from is where it began. heard is how far it has shown the stream to go.
	from, heard fsm.Offset
	// shown is what it showed last.
	shown upstream.Event
	// then is what follows it.
	then then
	// stopped is true if it was stopped. then says why.
	stopped bool
	// owed is a tail that a HEAD has shown, and that the live request should show.
	owed fsm.Offset
	// unchecked is true if a HEAD that checked it has failed.
	unchecked bool
}

// then is what follows a live request.
type then uint8

const (
	thenAgain then = iota // another one
	thenLook              // a look with HEAD
	thenOdd               // a look with HEAD, because the answer made no sense
)

// part is what the machine knows of the stream in one partition.
type part struct {
	number int
	// added is when the partition was last added.
	added moment
	// tail is the highest tail that the store was told; empty if the store must be told again.
	tail fsm.Offset
	// noted is what the store had noted when it was last told a tail.
	noted fsm.Noted
	// busy is true if the last observation said that further events would wake no consumer.
	busy bool
}

func newMachine(rules *Config, home int) machine {
	// Absence counts toward the grace only if looks follow each other well within it (missing).
	often := min(rules.Check, rules.GoneGrace/6)
	soon := min(max(rules.GoneGrace/30, time.Millisecond), often)
	return machine{
		rules: rules, home: home,
		failures:   upstream.Backoff{Min: rules.BackoffMin, Max: rules.Check},
		paceWait:   upstream.Backoff{Min: rules.PaceMin, Max: rules.PaceMax},
		quietWait:  upstream.Backoff{Min: rules.TTLFast, Max: rules.Check},
		absentWait: upstream.Backoff{Min: soon, Max: often},
	}
}

func (m *machine) part(partition int) *part {
	if i, ok := m.find(partition); ok {
		return &m.parts[i]
	}
	return nil
}

func (m *machine) find(partition int) (int, bool) {
	return slices.BinarySearchFunc(m.parts, partition, func(p part, n int) int { return p.number - n })
}

func (m *machine) drop(partition int) {
	if i, ok := m.find(partition); ok {
		m.parts = slices.Delete(m.parts, i, i+1)
	}
}

// happened begins a new moment.
func (m *machine) happened() moment {
	m.moment++
	return m.moment
}

// untold says whether a look is due: a partition was added or must be told again, or none is left.
func (m *machine) untold() bool {
	return len(m.parts) == 0 || slices.ContainsFunc(m.parts, func(p part) bool { return p.tail == "" })
}

// busy says whether further events would wake no consumer.
func (m *machine) busy() bool {
	return len(m.parts) > 0 && !slices.ContainsFunc(m.parts, func(p part) bool { return !p.busy })
}

// invalidate voids what the store was told, in one partition or in all. The store must be told the tail again.
func (m *machine) invalidate(partition int) {
	m.invalidated = m.happened()
	for i := range m.parts {
		if p := &m.parts[i]; p.number == partition || partition == everywhere {
			p.tail, p.busy = "", false
		}
	}
}

// observed handles the store's answer to a tail. due says whether the store must be told again.
func (m *machine) observed(o *observed) (due bool) {
	p := m.part(o.partition)
	switch {
	case p == nil:
	case !o.watched && p.added <= o.since:
		m.drop(o.partition)
	case !o.watched:
		// A consumer was subscribed since. The store noted the tail that was known then, which may be lower.
		p.tail, p.busy = "", false
		return true
	case o.noted.EndsBefore(o.tail):
		// The tail belongs to another stream than the store has noted.
		p.tail, p.busy = "", false
		return true
	default:
		if (p.tail == "" || o.tail.After(p.tail)) && m.invalidated <= o.since {
			p.tail = o.tail
		}
		if m.deleted <= o.since {
			p.noted = o.noted
		}
		p.busy = o.busy && m.rested <= o.since
	}
	return false
}

// carriesOn says whether a stream that is back is the same one as before, as far as is known.
func (m *machine) carriesOn() bool {
	p := m.part(m.home)
	return p != nil && p.noted.Tail != "" && !p.noted.BeliedBy(m.info)
}
