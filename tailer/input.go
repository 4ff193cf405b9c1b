package tailer

import (
	"time"

	"reveille/fsm"
)

// phase is what a machine is at: see there.
type phase uint8

const (
	phaseLooking phase = iota
	phaseConfirming
	phaseHiding
	phaseAbsent
	phaseReturning
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
	phaseLosing
	phaseResting
	phaseEnded
)

// waits says whether a hint ends what is under way.
func (p phase) waits() bool {
	return p == phaseAbsent || p == phasePausing || p == phaseHeadOnly || p == phaseSweeping
}

// everywhere stands for all partitions.
const everywhere = -1

// input is what a machine takes in.
type input struct {
	kind inputKind
	now  time.Time
	// partition that known, restarted, added, dropped, disowned or refresh is about.
	partition int
	// since is, of dropped, when the partition had been added.
	since moment
	// info and err are what a HEAD answered; err also why a read or a live request failed.
	info fsm.StreamInfo
	err  error
	// wavers is how often upstream has wavered by now, of a HEAD's answer.
	wavers int64
	// tail is how far a read led.
	tail fsm.Offset
	// granted says whether there is a live slot; if not, turn is how long it is until the stream's turn in the sweep.
	granted bool
	turn    time.Duration
	// observed is what the store made of a tail.
	observed observed
	// shown is what a live request showed.
	shown shown
}

// inputKind is the kind of an input.
type inputKind uint8

// Inputs of the loop: answers to what it was to do.
const (
	inputStart    inputKind = iota
	inputHead               // info, err, wavers
	inputHidden             // the store has hidden the consumers
	inputReturned           // discovery knows that the stream is back
	inputTold               // observed: the store was told the tail
	inputKnown              // the gateway has told the store meanwhile, or tried to
	inputRead               // tail, err
	inputRestarted
	inputSlot   // granted, turn
	inputShown  // shown: the live request goes on
	inputOver   // err: the live request is over
	inputWaited // the time is over, or a hint came
	inputEnd    // nobody can add a partition while this is taken in
	inputLost   // discovery knows that the stream is lost
)

// Inputs from elsewhere, at any time.
const (
	inputChecked  inputKind = iota + 32 // info, err of a HEAD beside the live request
	inputSilence                        // the live request has shown no sign of life for too long
	inputVoid                           // somebody knows better than a 404 from before: it hides nobody
	inputAdded                          // consumers of a partition are subscribed to the stream
	inputDropped                        // none of a partition's is any more, unless it was added since
	inputDisowned                       // another replica watches for a partition from now on
	// it is to be looked at, and the store told again, in a partition or everywhere
	inputRefresh
	inputLook      // the stream is to be looked at
	inputDeleted   // the stream was deleted, and the store has dealt with that
	inputRested    // a consumer came to rest
	inputActive    // something has happened to the stream: it comes first where slots are few
	inputWritten   // the gateway saw a write
	inputObserved  // observed: the gateway has told the store the tail
	inputGranted   // the stream has a slot
	inputDisplaced // the slot went to another stream
	inputSoon      // an answer may have got lost on its way
)

// observed is what the store made of a tail that it was told.
type observed struct {
	partition int
	// since is the moment in which it began to be told.
	since moment
	tail  fsm.Offset
	// noted is the highest tail that it has noted, watched whether anybody is subscribed, busy whether further events
	// would wake nobody.
	noted         fsm.Offset
	watched, busy bool
}

// shown is what a live request shows. A position is empty if it does not say.
type shown struct {
	offset           fsm.Offset
	cursor           string
	upToDate, closed bool
	// cached is true if a cache gave the answer.
	cached bool
}

// action is what a machine wants done.
type action struct {
	ask ask
	// partition and tail are of askTell and askAnnounce; partition, was and tail of askRestart; tail and cursor of
	// askLive, which begins there; was is where askRead begins, and tail what it is to lie beyond; tail is what
	// askReturn is about.
	partition int
	tail, was fsm.Offset
	cursor    string
	// absence is that of askHide.
	absence fsm.Absence
	// wait is how long askWait lasts, if no interrupt comes.
	wait time.Duration
	// active says, of askSlot and askContinue, that something has just happened to the stream; turn, of askSlot, that
	// it needs a turn if there is no slot.
	active, turn bool
	// wavered says, of askReturn, that upstream shows the same stream again that it had said was gone.
	wavered bool

	// release: the slot and the connection are given up first.
	release bool
	// failure is why something did not succeed, for the log; mode is how the stream is watched now, for the metrics.
	failure error
	mode    mode

	// interrupt: the wait or the live request under way is to end now.
	interrupt bool
	// check is when the live request is to be checked with HEAD, if that is not under way; 0 leaves it as it is.
	check time.Duration
	// run: the goroutine is to begin, with ask.
	run bool
	// leave: nobody is subscribed, and the watcher is to leave the set.
	leave bool
}

// ask is what the loop is to do next, and to answer with an input.
type ask uint8

const (
	askNothing  ask = iota
	askHead         // a HEAD in its turn
	askHeadAnew     // a HEAD whose answer is from after now
	askHide
	askReturn // tell discovery that the stream is back
	askTell
	askAnnounce // askTell, unless the gateway does it at the same time
	askRead
	askRestart
	askSlot
	askLive
	askContinue // go on with the live request
	askWait
	askEnd
	askLose // tell discovery that the stream is lost
)
