package tailer

import (
	"time"

	"reveille/fsm"
	"reveille/tailer/upstream"
)

// phase is what a machine is doing. See machine.
type phase uint8

const (
	phaseResting phase = iota
	phaseEnded
	phaseLooking
	phaseConfirming
	phaseHiding
	phaseAbsent
	phaseTelling
	phaseVerifying
	phaseReading
	phaseRereading // as reading, from the start
	phaseCorrecting
	phaseEntering
	phaseLive
	phaseAnnouncing
	phasePausing
	phaseHeadOnly
	phaseSweeping
	phaseFailing
	phaseDelaying
	phaseEnding
)

// asks says whether a request or wait is under way, so that an answer will come.
func (p phase) asks() bool { return p > phaseEnded }

// repeats says whether the machine tells the store, or is about to tell it, what upstream said.
func (p phase) repeats() bool {
	return p == phaseHiding || p >= phaseTelling && p <= phaseCorrecting || p == phaseAnnouncing
}

// waits says whether a hint ends the phase.
func (p phase) waits() bool {
	return p == phaseAbsent || p == phasePausing || p == phaseHeadOnly || p == phaseSweeping
}

// everywhere stands for all partitions.
const everywhere = -1

// moment is a point in the order of inputs.
type moment int64

// input is what a machine takes as input. Each kind has fields of its own. All kinds have now and misses.
type input struct {
	kind inputKind
	now  time.Time

	info fsm.StreamInfo
	err  error
	// wavers is how often upstream has wavered so far, misses how often it has missed an append.
	wavers   int64
	misses   int64
	tail     fsm.Offset
	observed observed
	// granted says whether there is a slot. If not, turn is the time until the stream's turn in the sweep.
	granted   bool
	turn      time.Duration
	shown     upstream.Event
	partition int
	since     moment
}

// inputKind is the kind of an input.
type inputKind uint8

// Answers to what was asked.
const (
	inputDone  inputKind = iota // an action without its own answer is over, such as a wait. err: the store failed
	inputHead                   // info, err, wavers
	inputTold                   // err, or observed
	inputRead                   // err, or tail: how far the read led
	inputSlot                   // granted, turn
	inputShown                  // shown: the live request goes on
	inputOver                   // err: the live request is over
)

// Hints: inputs from elsewhere, at any time.
const (
	inputChecked   inputKind = iota + 32 // info, err of a HEAD beside the live request
	inputSilence                         // the live request has shown no sign of life for too long
	inputVoid                            // discovery knows of the stream: an earlier 404 hides no consumers
	inputAdded                           // consumers of partition are subscribed to the stream
	inputDropped                         // no consumer of partition is subscribed, unless it was added after since
	inputDisowned                        // another replica watches for partition from now on
	inputRefresh                         // ask with HEAD, and tell the store again, in partition or everywhere
	inputLook                            // ask with HEAD
	inputDeleted                         // the stream was deleted, and the store has dealt with that
	inputRested                          // a consumer came to rest
	inputActive                          // something has happened to the stream: it gets a slot first
	inputWritten                         // the gateway saw a write
	inputObserved                        // observed, by the gateway
	inputGranted                         // the stream has a slot
	inputDisplaced                       // the slot went to another stream
	inputSoon                            // an answer to the live request may be lost
)

// observed is the store's answer to a tail.
type observed struct {
	partition int
	// since is the moment in which the call to the store began.
	since moment
	tail  fsm.Offset
	// noted is the end of the stream as the store has noted it, this tail included. The flag watched says whether any
	// consumer is subscribed, busy whether further events would wake none.
	noted         fsm.Noted
	watched, busy bool
}

// action is what a machine wants done.
type action struct {
	// phase says what to ask. The fields below belong to single phases. After a hint, phase is zero: ask nothing new.
	phase phase
	// The store is told partition, tail and closed. was, if it is set, is where another stream of that name ended.
	partition int
	tail, was fsm.Offset
	closed    bool
	// A live request begins at tail, with cursor. A read begins at was, to find what lies beyond tail.
	cursor  string
	absence fsm.Absence
	wait    time.Duration
	// check is the time until a HEAD checks the live request, unless one is under way. 0 changes nothing.
	check time.Duration
	// active, for a slot or a live request, says that something has happened to the stream. Once a slot is granted, it
	// says whether that was since the stream asked. For a slot, turn says that the stream needs a turn in the sweep if
	// it gets no slot.
	active, turn bool

	// These come first. A stream is back if it was absent and exists again. It has wavered if it is the same stream,
	// although upstream had said that it was gone. With release, the watch gives up the slot and the connection.
	back, wavered, release bool
	// failure is why something did not succeed, for the log. mode is how the stream is watched now, for the metrics.
	failure error
	mode    mode

	// interrupt: end the wait or the live request under way.
	interrupt bool
	// run: start the goroutine.
	run bool
	// missed: upstream has missed an append.
	missed bool
	// leave: no consumer is subscribed, so remove the watch from the set. lost: until then the stream was absent.
	leave, lost bool
}
