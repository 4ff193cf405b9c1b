package tailer

import (
	"time"

	"reveille/fsm"
	"reveille/tailer/upstream"
)

// phase is what a machine is doing: see machine.
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

// asks says whether anything is asked for, and an answer will come.
func (p phase) asks() bool { return p > phaseEnded }

// repeats says whether the store is told, or is going to be told, what upstream said.
func (p phase) repeats() bool {
	return p == phaseHiding || p >= phaseTelling && p <= phaseCorrecting || p == phaseAnnouncing
}

// waits says whether a hint ends what is under way.
func (p phase) waits() bool {
	return p == phaseAbsent || p == phasePausing || p == phaseHeadOnly || p == phaseSweeping
}

// everywhere stands for all partitions.
const everywhere = -1

// moment is a point in the order of inputs.
type moment int64

// input is what a machine takes in. Each kind has fields of its own, besides now.
type input struct {
	kind inputKind
	now  time.Time

	info fsm.StreamInfo
	err  error
	// wavers is how often upstream has wavered by now, misses how often it has missed an append.
	wavers   int64
	misses   int64
	tail     fsm.Offset
	observed observed
	// granted says whether there is a slot; if not, turn is how long it is until the stream's turn in the sweep.
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
	inputDone  inputKind = iota // what has no other answer was done: the wait is over, say. err: the store refused it
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
	inputVoid                            // discovery knows of the stream: a 404 from before hides no consumers
	inputAdded                           // consumers of partition are subscribed to the stream
	inputDropped                         // no consumer of partition is, unless it was added again after since
	inputDisowned                        // another replica watches for partition from now on
	inputRefresh                         // look, and tell the store again, in partition or everywhere
	inputLook                            // look
	inputDeleted                         // the stream was deleted, and the store has dealt with that
	inputRested                          // a consumer came to rest
	inputActive                          // something has happened to the stream: it comes first where slots are few
	inputWritten                         // the gateway saw a write
	inputObserved                        // observed, by the gateway
	inputGranted                         // the stream has a slot
	inputDisplaced                       // the slot went to another stream
	inputSoon                            // an answer may have got lost on its way
)

// observed is what the store made of a tail that it was told.
type observed struct {
	partition int
	// since is the moment in which the call that told it began.
	since moment
	tail  fsm.Offset
	// noted is what the store has noted by now; watched is whether any consumer is subscribed, busy whether further
	// events would wake none.
	noted         fsm.Noted
	watched, busy bool
}

// action is what a machine wants done.
type action struct {
	// phase says what is asked; each phase has fields of its own below. For a hint it is zero: nothing new is asked.
	phase phase
	// partition, tail and closed are what the store is told; was, if it is set, is where another stream of that name
	// ended.
	partition int
	tail, was fsm.Offset
	closed    bool
	// A live request begins at tail, with cursor. A read begins at was, to find what lies beyond tail.
	cursor  string
	absence fsm.Absence
	wait    time.Duration
	// active says, of a slot or a live request, that something has just happened to the stream; turn, of a slot, that
	// the stream needs a turn without one.
	active, turn bool

	// These come first. back: the stream was absent and is there again; wavered: it is the same one, although upstream
	// had said that it was gone. release: the slot and the connection are given up.
	back, wavered, release bool
	// failure is why something did not succeed, for the log; mode is how the stream is watched now, for the metrics.
	failure error
	mode    mode

	// interrupt: the wait or the live request under way is to end now.
	interrupt bool
	// check is how long it is until the live request is to be checked with HEAD, if that is not under way; 0 leaves
	// that as it is.
	check time.Duration
	// run: the goroutine is to begin.
	run bool
	// missed: upstream has missed an append.
	missed bool
	// leave: no consumer is subscribed, and the watch is to leave the set; lost: its stream was absent until then.
	leave, lost bool
}
