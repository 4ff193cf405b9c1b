package tailer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/tailer/upstream"
)

// turn is one step of a machine: what it takes in, how long after the turn before, and what it then wants done.
type turn struct {
	after time.Duration
	in    input
	want  string
}

// home and other are partitions that watch the stream.
const home, other = 1, 2

func on(in input, want string) turn                     { return turn{0, in, want} }
func after(d time.Duration, in input, want string) turn { return turn{d, in, want} }
func script(parts ...[]turn) (all []turn)               { return append(all, concat(parts)...) }
func hintOf(kind inputKind) input                       { return input{kind: kind} }
func hintIn(kind inputKind, partition int) input        { return input{kind: kind, partition: partition} }

func headSays(info fsm.StreamInfo) input { return input{kind: inputHead, info: info} }

func exists(n int) fsm.StreamInfo { return fsm.StreamInfo{Exists: true, Tail: offsetOf(n)} }
func ends(n int) input            { return headSays(exists(n)) }
func endsClosed(n int) input      { in := ends(n); in.info.Closed = true; return in }

func endsTTL(n int) input                   { in := ends(n); in.info.TTL = true; return in }
func nothing() input                        { return headSays(fsm.StreamInfo{}) }
func wavered(n int64) input                 { in := nothing(); in.wavers = n; return in }
func fails(kind inputKind, err error) input { return input{kind: kind, err: err} }
func missing(n int64, in input) input       { in.misses = n; return in }
func checks(in input) input                 { in.kind = inputChecked; return in }
func led(n int) input                       { return input{kind: inputRead, tail: offsetOf(n)} }

func cutShort(n int) input {
	return input{kind: inputRead, tail: offsetOf(n), err: upstream.AnswerError{What: "it does not come to its end"}}
}

func slot(granted bool) input {
	return input{kind: inputSlot, granted: granted, turn: 20 * time.Second}
}

func shows(n int) input {
	return input{kind: inputShown, shown: upstream.Event{Offset: offsetOf(n), UpToDate: true}}
}

// knows is the store's answer that somebody is subscribed, and that it has noted a tail.
func knows(partition, tail, noted int) input {
	return input{kind: inputTold, observed: observed{
		partition: partition, since: forever, tail: offsetOf(tail), noted: fsm.Noted{Tail: offsetOf(noted)},
		watched: true,
	}}
}

// forever is a moment that nothing comes after: nothing has made an observation void.
const forever = moment(1 << 40)

func busy(in input) input    { in.observed.busy = true; return in }
func nobody(in input) input  { in.observed.watched = false; return in }
func stale(in input) input   { in.observed.since = 0; return in }
func gateway(in input) input { in.kind = inputObserved; return in }

func concat(parts [][]turn) (all []turn) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// The first part of most histories.
var (
	begun  = []turn{on(hintIn(inputAdded, home), "run; head")}
	looked = script(begun, []turn{on(ends(1), "tell 1 of 1"), on(knows(home, 1, 1), "slot")})
	atLive = script(looked, []turn{on(hintOf(inputGranted), ""), on(slot(true), "live from 1; check in 5s")})
	atHide = script(begun, []turn{on(nothing(), "release; head anew"), on(nothing(), "hide anew")})
)

var errDown = upstream.AnswerError{Status: 502}

// histories are what a machine does, by the rules of its state table.
var histories = map[string][]turn{
	"a look comes first, the store is told, and a live request follows": atLive,
	"a tail that the store knows is not told again": script(atLive, []turn{
		on(fails(inputOver, errDown), "head; failure"), on(ends(1), "slot"),
	}),
	"an event is told before the live request goes on": script(atLive, []turn{
		on(shows(2), "announce 1 of 2; check in 5s"), on(knows(home, 2, 2), "continue, active"),
		on(hintOf(inputOver), "live from 2; check in 5s"),
	}),
	"an event is told in each partition": script(atLive, []turn{
		on(hintIn(inputAdded, other), "interrupt"),
		on(hintOf(inputOver), "head"), on(ends(1), "tell 2 of 1"), on(knows(other, 1, 1), "slot"),
		on(slot(true), "live from 1; check in 5s"),
		on(shows(2), "announce 1 of 2; check in 5s"), on(knows(home, 2, 2), "announce 2 of 2"),
		on(knows(other, 2, 2), "continue, active"),
	}),
	"an event that the gateway has told is not told again": script(atLive, []turn{
		on(shows(2), "announce 1 of 2; check in 5s"), on(gateway(knows(home, 2, 2)), ""),
		on(hintOf(inputDone), "continue, active"),
	}),
	"an event that the gateway could not tell is told": script(atLive, []turn{
		on(shows(2), "announce 1 of 2; check in 5s"), on(hintOf(inputDone), "announce 1 of 2"),
	}),
	"a stopped request's event is told all the same": script(atLive, []turn{
		on(hintOf(inputDisplaced), "interrupt"), on(shows(2), "announce 1 of 2; check in 5s"),
		on(knows(home, 2, 2), "continue, active"), on(fails(inputOver, errDown), "head"),
	}),

	// Failures.
	"a HEAD that fails is repeated later and later": script(begun, []turn{
		on(fails(inputHead, errDown), "wait 100ms; failure"), on(hintOf(inputDone), "head"),
		on(fails(inputHead, errDown), "wait 150ms; failure"), on(hintOf(inputDone), "head"),
		on(ends(1), "tell 1 of 1"), on(knows(home, 1, 1), "slot"), // all is well again
		on(slot(false), "release; wait 20s"), on(hintOf(inputDone), "head"),
		on(fails(inputHead, errDown), "wait 100ms; failure"),
	}),
	"no hint cuts short the wait after a failure": script(begun, []turn{
		on(fails(inputHead, errDown), "wait 100ms; failure"), on(hintOf(inputRested), ""), on(hintOf(inputLook), ""),
	}),
	"a live request that fails is followed by HEAD, and repeated later and later": script(atLive, []turn{
		on(fails(inputOver, errDown), "head; failure"), on(ends(1), "slot"),
		on(slot(true), "wait 100ms"), on(hintOf(inputDone), "live from 1; check in 5s"),
		on(fails(inputOver, errDown), "head; failure"), on(ends(1), "slot"),
		on(slot(true), "wait 150ms"),
	}),
	"a live request that is answered at once without anything new has failed": script(atLive, []turn{
		after(time.Millisecond, hintOf(inputOver), "head; failure"),
	}),
	"a live request that was silent for long is repeated at once": script(atLive, []turn{
		after(30*time.Second, shows(1), "continue"), on(hintOf(inputOver), "live from 1; check in 15s"),
	}),
	"an answer that makes no sense leads to HEAD": script(atLive, []turn{
		after(30*time.Second, shows(0), "continue"), on(hintOf(inputOver), "head"),
	}),
	"one that is not up to date leads to HEAD": script(atLive, []turn{
		on(input{kind: inputShown, shown: upstream.Event{Offset: offsetOf(2)}}, "announce 1 of 2; check in 5s"),
		on(knows(home, 2, 2), "continue, active"), on(hintOf(inputOver), "head"),
	}),
	"a connection without a sign of life is given up": script(atLive, []turn{
		after(70*time.Second, hintOf(inputSilence), "interrupt"),
		on(fails(inputOver, errDown), "live from 1; check in 30s"),
	}),

	// Checks beside the live request.
	"a check that shows nothing new is repeated, rarer the longer the stream is silent": script(atLive, []turn{
		after(5*time.Second, checks(ends(1)), "check in 5s"), after(25*time.Second, checks(ends(1)), "check in 15s"),
		after(time.Hour, checks(ends(1)), "check in 30s"), on(shows(2), "announce 1 of 2; check in 5s"),
	}),
	"a check that shows more stops the request, unless it shows that itself": script(atLive, []turn{
		on(checks(ends(2)), "check in 50ms"), on(shows(2), "announce 1 of 2; check in 5s"),
		on(knows(home, 2, 2), "continue, active"), on(checks(ends(3)), "check in 50ms"),
		on(checks(ends(4)), "interrupt; missed"), on(fails(inputOver, errDown), "head"),
	}),
	"a check that shows more and cannot be repeated stops the request": script(atLive, []turn{
		on(checks(ends(2)), "check in 50ms"), on(checks(fails(0, errDown)), "interrupt"),
	}),
	"a check that finds no stream stops the request": script(atLive, []turn{
		on(checks(nothing()), "interrupt"),
	}),
	"a check that finds it closed stops the request": script(atLive, []turn{
		on(checks(endsClosed(1)), "interrupt"),
	}),
	"a check that works after one failed makes it anew": script(atLive, []turn{
		on(checks(fails(0, errDown)), "check in 5s"), on(checks(ends(1)), "interrupt"),
		on(hintOf(inputOver), "live from 1; check in 5s"),
	}),
	"a check that was refused says nothing of the request": script(atLive, []turn{
		on(checks(fails(0, upstream.AnswerError{Status: 403})), "check in 5s"),
		on(checks(ends(1)), "check in 5s"),
	}),
	"where upstream misses appends, a live request is checked soon": script(looked, []turn{
		on(hintOf(inputGranted), ""), on(missing(2, slot(true)), "live from 1; check in 250ms"),
		on(missing(2, checks(ends(1))), "check in 5s"),
		on(missing(2, shows(2)), "announce 1 of 2; check in 250ms"),
	}),
	"a single append that was missed may have landed during the check": script(looked, []turn{
		on(hintOf(inputGranted), ""), on(missing(1, slot(true)), "live from 1; check in 5s"),
	}),
	"an upstream that is back has silent streams checked soon": script(atLive, []turn{
		after(time.Hour, checks(ends(1)), "check in 30s"), on(hintOf(inputSoon), "check in 5s"),
	}),

	// Everybody is busy.
	"a stream whose consumers are busy is looked at with pauses that grow": script(atLive, []turn{
		on(shows(2), "announce 1 of 2; check in 5s"), on(busy(knows(home, 2, 2)), "continue, active"),
		on(hintOf(inputOver), "wait 50ms"), on(hintOf(inputDone), "head"),
		on(ends(9), "tell 1 of 9"), on(busy(knows(home, 9, 9)), "wait 75ms"), on(hintOf(inputDone), "head"),
		on(ends(9), "slot"), // nothing new: it is followed again
	}),
	"a consumer that comes to rest ends the pause": script(atLive, []turn{
		on(shows(2), "announce 1 of 2; check in 5s"), on(busy(knows(home, 2, 2)), "continue, active"),
		on(hintOf(inputOver), "wait 50ms"), on(hintOf(inputRested), "interrupt"), on(hintOf(inputDone), "head"),
	}),
	"one that came to rest while the store was told keeps the stream from pausing": script(atLive, []turn{
		on(shows(2), "announce 1 of 2; check in 5s"), on(hintOf(inputRested), ""),
		on(stale(busy(knows(home, 2, 2))), "continue, active"),
		on(hintOf(inputOver), "live from 2; check in 5s"),
	}),

	// Absence.
	"a 404 is asked for again before anybody is hidden": atHide,
	"an upstream that contradicts itself is not asked at full speed": script(begun, []turn{
		on(nothing(), "release; head anew"), on(ends(1), "wait 100ms"), on(hintOf(inputDone), "head"),
	}),
	"a stream that stays away is asked for later and later, and hidden still": script(atHide, []turn{
		on(hintOf(inputDone), "wait 1s"), on(hintOf(inputDone), "head"), on(nothing(), "hide still"),
		on(hintOf(inputDone), "wait 1.5s"),
	}),
	"an upstream that goes back and forth says it anew": script(atHide, []turn{
		on(hintOf(inputDone), "wait 1s"), on(hintOf(inputDone), "head"), on(wavered(1), "hide anew"),
	}),
	"what it says after it was not asked for long, it says anew": script(atHide, []turn{
		on(hintOf(inputDone), "wait 1s"), on(hintOf(inputDone), "head"),
		after(15*time.Second, nothing(), "hide still"),
		on(hintOf(inputDone), "wait 1.5s"), on(hintOf(inputDone), "head"),
		after(16*time.Second, nothing(), "hide anew"),
	}),
	"what the store does not take in is not said again but asked again": script(atHide, []turn{
		on(fails(inputDone, errDown), "wait 100ms"), on(hintOf(inputDone), "head"), on(nothing(), "hide anew"),
		on(hintOf(inputDone), "wait 1s"), on(hintOf(inputDone), "head"), on(nothing(), "hide still"),
		on(fails(inputDone, errDown), "wait 150ms"), on(hintOf(inputDone), "head"), on(nothing(), "hide anew"),
	}),
	"what the store was not told yet it is told anew": script(begun, []turn{
		on(nothing(), "release; head anew"), on(hintIn(inputAdded, home), ""), on(nothing(), "head"),
		on(nothing(), "hide anew"),
	}),
	"what it says after it could not be asked, it says anew": script(atHide, []turn{
		on(hintOf(inputDone), "wait 1s"), on(hintOf(inputDone), "head"),
		on(fails(inputHead, errDown), "wait 100ms; failure"), on(hintOf(inputDone), "head"),
		on(nothing(), "release; head anew"), on(nothing(), "hide anew"),
	}),
	"who asked for the stream since the HEAD knew better": script(begun, []turn{
		on(nothing(), "release; head anew"), on(hintIn(inputAdded, home), ""), on(nothing(), "head"),
	}),
	"who found it since the HEAD knew better": script(begun, []turn{
		on(nothing(), "release; head anew"), on(hintOf(inputVoid), ""), on(nothing(), "head"),
	}),
	"nobody is hidden for a partition that is not the stream's own": {
		on(hintIn(inputAdded, other), "run; head"),
		on(nothing(), "release; head anew"), on(nothing(), "wait 1s"),
	},
	"discovery is told of a stream that is back before the store": script(atLive, []turn{
		on(checks(nothing()), "interrupt"), on(hintOf(inputOver), "head"),
		on(nothing(), "release; head anew"), on(nothing(), "hide anew"), on(hintOf(inputDone), "wait 1s"),
		on(hintOf(inputDone), "head"), on(ends(1), "back; wavered; tell 1 of 1"), // although it was told before
	}),
	"a stream that is back shorter is not the same": script(atLive, []turn{
		on(checks(nothing()), "interrupt"), on(hintOf(inputOver), "head"),
		on(nothing(), "release; head anew"), on(nothing(), "hide anew"), on(hintOf(inputDone), "wait 1s"),
		on(hintOf(inputDone), "head"), on(ends(0), "back; tell 1 of 0"),
	}),
	"a write has an absent stream looked at now": script(atHide, []turn{
		on(hintOf(inputDone), "wait 1s"), on(hintOf(inputWritten), "interrupt"), on(hintOf(inputDone), "head"),
	}),
	"a stream that stays away until nobody is subscribed is lost": script(atHide, []turn{
		on(hintIn(inputDropped, home), ""), on(dropped(home, 1), ""),
		on(hintOf(inputDone), "release; end"), on(hintOf(inputDone), "leave; lost"),
	}),
	"and so is one that cannot be asked for by then": script(atHide, []turn{
		on(hintOf(inputDone), "wait 1s"), on(hintOf(inputDone), "head"), on(dropped(home, 1), ""),
		on(fails(inputHead, errDown), "release; end; failure"), on(hintOf(inputDone), "leave; lost"),
	}),
	"one that another replica watches now is not": script(atHide, []turn{
		on(hintIn(inputDisowned, home), ""), on(hintOf(inputDone), "release; end"), on(hintOf(inputDone), "leave"),
	}),

	// A tail that moved back.
	"a tail behind the one noted is asked for again, and read beyond, before consumers start over": script(begun,
		[]turn{
			on(ends(1), "tell 1 of 1"), on(knows(home, 1, 5), "head anew"), on(ends(1), "read from 1 beyond 1"),
			on(led(1), "read from -1 beyond 1"), on(led(1), "restart 1 from 5 at 1"),
			on(hintOf(inputDone), "tell 1 of 1"), on(knows(home, 1, 1), "slot"),
		}),
	"an old answer costs nobody a restart": script(begun, []turn{
		on(ends(1), "tell 1 of 1"), on(knows(home, 1, 5), "head anew"), on(ends(5), "read from 5 beyond 5"),
		on(led(5), "read from -1 beyond 5"), on(led(5), "tell 1 of 5"), on(knows(home, 5, 5), "slot"),
	}),
	"a tail that has moved on meanwhile is told in the other partitions, too": script(begun, []turn{
		on(hintIn(inputAdded, other), ""), on(ends(1), "tell 1 of 1"), on(knows(home, 1, 5), "tell 2 of 1"),
		on(knows(other, 1, 1), "head anew"), on(ends(5), "read from 5 beyond 5"), on(led(5), "read from -1 beyond 5"),
		on(led(5), "tell 1 of 5"), on(knows(home, 5, 5), "tell 2 of 5"), on(knows(other, 5, 5), "slot"),
	}),
	"a closed end that holds after all costs a wait, for upstream contradicts itself": script(begun, []turn{
		on(ends(1), "tell 1 of 1"), on(closedAt(knows(home, 1, 1)), "head anew"),
		on(endsClosed(1), "read from 1 beyond 1"), on(led(1), "read from -1 beyond 1"), on(led(1), "wait 100ms"),
		on(hintOf(inputDone), "head"),
		on(ends(1), "tell 1 of 1"), on(closedAt(knows(home, 1, 1)), "head anew"),
		on(endsClosed(1), "read from 1 beyond 1"), on(led(1), "read from -1 beyond 1"), on(led(1), "wait 150ms"),
	}),
	"a server that has more to read than its HEAD says has the same stream": script(begun, []turn{
		on(ends(1), "tell 1 of 1"), on(knows(home, 1, 5), "head anew"), on(ends(1), "read from 1 beyond 1"),
		on(led(5), "tell 1 of 5"), on(knows(home, 5, 5), "slot"),
	}),
	"more may be shown only to those who begin at the start": script(begun, []turn{
		on(ends(1), "tell 1 of 1"), on(knows(home, 1, 5), "head anew"), on(ends(1), "read from 1 beyond 1"),
		on(led(1), "read from -1 beyond 1"), on(led(5), "tell 1 of 5"),
	}),
	"a read that fails decides nothing": script(begun, []turn{
		on(ends(1), "tell 1 of 1"), on(knows(home, 1, 5), "head anew"), on(ends(1), "read from 1 beyond 1"),
		on(fails(inputRead, errDown), "wait 100ms; failure"), on(hintOf(inputDone), "head"),
		on(ends(1), "tell 1 of 1"), on(knows(home, 1, 5), "head anew"),
	}),
	"a stream too long to be read at one go is read on from where that ended": script(begun, []turn{
		on(ends(4), "tell 1 of 4"), on(knows(home, 4, 5), "head anew"), on(ends(4), "read from 4 beyond 4"),
		on(led(4), "read from -1 beyond 4"), on(cutShort(2), "wait 100ms; failure"), on(hintOf(inputDone), "head"),
		on(ends(4), "tell 1 of 4"), on(knows(home, 4, 5), "head anew"), on(ends(4), "read from 4 beyond 4"),
		on(led(4), "read from 2 beyond 4"), on(led(4), "restart 1 from 5 at 4"),
	}),
	"but not from beyond its end": script(begun, []turn{
		on(ends(4), "tell 1 of 4"), on(knows(home, 4, 5), "head anew"), on(ends(4), "read from 4 beyond 4"),
		on(led(4), "read from -1 beyond 4"), on(cutShort(2), "wait 100ms; failure"), on(hintOf(inputDone), "head"),
		on(ends(1), "tell 1 of 1"), on(knows(home, 1, 5), "head anew"), on(ends(1), "read from 1 beyond 1"),
		on(led(1), "read from -1 beyond 1"),
	}),
	"a stream whose life a read would extend is not read": script(begun, []turn{
		on(endsTTL(1), "tell 1 of 1"), on(knows(home, 1, 5), "head anew"), on(endsTTL(1), "restart 1 from 5 at 1"),
	}),
	"one that has gone meanwhile is asked for again": script(begun, []turn{
		on(ends(1), "tell 1 of 1"), on(knows(home, 1, 5), "head anew"), on(nothing(), "release; head anew"),
	}),

	// What may be old news.
	"what a look has shown is not told once the stream was deleted": script(begun, []turn{
		on(hintOf(inputDeleted), ""), on(ends(5), "head"), on(ends(1), "tell 1 of 1"),
	}),
	"nor in the next partition": script(begun, []turn{
		on(hintIn(inputAdded, other), ""), on(ends(5), "tell 1 of 5"), on(hintOf(inputDeleted), ""),
		on(knows(home, 5, 5), "head"), on(ends(1), "tell 1 of 1"),
	}),
	"nor what a live request shows": script(atLive, []turn{
		on(hintOf(inputDeleted), ""), on(shows(2), "interrupt; continue; check in 5s"),
		on(fails(inputOver, errDown), "head"), on(ends(0), "tell 1 of 0"),
	}),
	"nor does anybody start over for it": script(begun, []turn{
		on(ends(1), "tell 1 of 1"), on(knows(home, 1, 5), "head anew"), on(ends(1), "read from 1 beyond 1"),
		on(hintOf(inputDeleted), ""), on(led(1), "head"), on(ends(1), "tell 1 of 1"),
	}),
	"nor is anybody hidden for it": script(begun, []turn{
		on(nothing(), "release; head anew"), on(hintOf(inputDeleted), ""), on(nothing(), "head"),
		on(nothing(), "hide anew"),
	}),
	"a tail that the store does not take is asked for again": script(begun, []turn{
		on(ends(5), "tell 1 of 5"), on(fails(inputTold, errDown), "wait 100ms"), on(hintOf(inputDone), "head"),
		on(ends(1), "tell 1 of 1"), on(fails(inputTold, errDown), "wait 150ms"),
	}),
	"an event that it does not take ends the live request, and no other begins before it takes one": script(atLive,
		[]turn{
			on(shows(2), "announce 1 of 2; check in 5s"), on(fails(inputTold, errDown), "interrupt; continue"),
			on(fails(inputOver, errDown), "head"), on(ends(1), "tell 1 of 1"),
			on(fails(inputTold, errDown), "wait 100ms"), on(hintOf(inputDone), "head"), on(ends(2), "tell 1 of 2"),
			on(knows(home, 2, 2), "slot, active"), on(slot(true), "live from 2; check in 5s"),
		}),
	"a restart that it does not take is found out again": script(begun, []turn{
		on(ends(1), "tell 1 of 1"), on(knows(home, 1, 5), "head anew"), on(ends(1), "read from 1 beyond 1"),
		on(led(1), "read from -1 beyond 1"), on(led(1), "restart 1 from 5 at 1"),
		on(fails(inputDone, errDown), "wait 100ms"), on(hintOf(inputDone), "head"), on(ends(1), "tell 1 of 1"),
		on(knows(home, 1, 5), "head anew"),
	}),

	// Streams without a live request.
	"a stream with a TTL is only ever looked at": script(begun, []turn{
		on(endsTTL(1), "tell 1 of 1"), on(knows(home, 1, 1), "release; wait 250ms"), on(hintOf(inputDone), "head"),
		on(endsTTL(1), "release; wait 375ms"), on(hintOf(inputDone), "head"),
		on(endsTTL(2), "tell 1 of 2"), on(knows(home, 2, 2), "release; wait 250ms"), // an event
	}),
	"one without a slot waits for its turn": script(looked, []turn{
		on(slot(false), "release; wait 20s"), after(20*time.Second, hintOf(inputDone), "head"), on(ends(1), "slot"),
	}),
	"a turn that is cut short is still to come": script(looked, []turn{
		on(slot(false), "release; wait 20s"), on(hintOf(inputLook), "interrupt"),
		after(8*time.Second, hintOf(inputDone), "head"), on(ends(1), "slot, its turn is to come"),
		on(slot(false), "release; wait 12s"),
	}),
	"one of which a consumer comes to rest is preferred": script(looked, []turn{
		on(slot(false), "release; wait 20s"), on(hintOf(inputRested), "interrupt"),
		on(hintOf(inputDone), "head"), on(ends(1), "slot, active, its turn is to come"),
	}),
	"one of which a consumer comes to rest while it asks is preferred for that slot alone": script(looked, []turn{
		on(hintOf(inputRested), ""), on(hintOf(inputGranted), "active"), on(slot(true), "live from 1; check in 5s"),
		on(hintOf(inputDisplaced), "interrupt"), on(fails(inputOver, errDown), "head"), on(ends(1), "slot"),
	}),
	"a request whose slot went to another stream is stopped": script(atLive, []turn{
		on(hintOf(inputDisplaced), "interrupt"), on(fails(inputOver, errDown), "head"), on(ends(1), "slot"),
	}),
	"one whose slot goes before it begins is not made": script(looked, []turn{
		on(hintOf(inputGranted), ""), on(hintOf(inputDisplaced), ""), on(slot(true), "head"),
	}),

	// Hints.
	"a hint during a look counts for the next wait": script(looked, []turn{
		on(hintOf(inputLook), ""), on(slot(false), "release; head"),
	}),
	"a consumer that comes to rest stops no live request": script(atLive, []turn{on(hintOf(inputRested), "")}),
	"a store that is to be told again stops one": script(atLive, []turn{
		on(hintIn(inputRefresh, everywhere), "interrupt"), on(fails(inputOver, errDown), "head"),
		on(ends(1), "tell 1 of 1"),
	}),
	"what it was told before that does not count": script(atLive, []turn{
		on(shows(2), "announce 1 of 2; check in 5s"), on(hintIn(inputRefresh, home), "interrupt"),
		on(stale(knows(home, 2, 2)), "continue, active"), on(fails(inputOver, errDown), "head"),
		on(ends(2), "tell 1 of 2"),
	}),
	"an answer that nobody was subscribed does not end what was asked for since": script(begun, []turn{
		on(ends(1), "tell 1 of 1"), on(hintIn(inputAdded, home), ""), on(stale(nobody(knows(home, 1, 1))), "slot"),
		on(hintOf(inputGranted), ""), on(slot(true), "head"), on(ends(1), "tell 1 of 1"),
	}),
	"the last partition that is dropped ends it": script(atLive, []turn{
		on(dropped(home, 1), "interrupt"), on(fails(inputOver, errDown), "head"), on(ends(1), "release; end"),
		on(hintOf(inputDone), "leave"),
	}),
	"one that cannot be asked for does not keep it": script(begun, []turn{
		on(fails(inputHead, errDown), "wait 100ms; failure"), on(dropped(home, 1), ""), on(hintOf(inputDone), "head"),
		on(fails(inputHead, errDown), "release; end; failure"), on(hintOf(inputDone), "leave"),
	}),
	"one that was added since is not dropped": script(atLive, []turn{
		on(hintIn(inputAdded, home), ""), on(dropped(home, 1), ""),
	}),
	"somebody who asks for it meanwhile keeps it": script(begun, []turn{
		on(ends(1), "tell 1 of 1"), on(nobody(knows(home, 1, 1)), "release; end"), on(hintIn(inputAdded, home), ""),
		on(hintOf(inputDone), "head"),
	}),

	// Closed streams.
	"a closed stream rests until somebody asks for it, and is told again": script(begun, []turn{
		on(endsClosed(1), "tell 1 of 1"), on(knows(home, 1, 1), "release; end"), on(hintOf(inputDone), ""),
		on(hintOf(inputRested), ""), on(hintOf(inputLook), ""),
		on(hintIn(inputRefresh, everywhere), "run; head"), on(endsClosed(1), "tell 1 of 1"),
	}),
	"one that the store is to be told of again since the HEAD is looked at again": script(begun, []turn{
		on(endsClosed(1), "tell 1 of 1"), on(knows(home, 1, 1), "release; end"),
		on(hintIn(inputRefresh, everywhere), ""), on(hintOf(inputDone), "head"), on(endsClosed(1), "tell 1 of 1"),
	}),
	"one that was asked for since the HEAD is looked at again": script(begun, []turn{
		on(endsClosed(1), "tell 1 of 1"), on(hintIn(inputAdded, home), ""), on(knows(home, 1, 1), "release; end"),
		on(hintOf(inputDone), "head"),
	}),
	"one that is open before it came to rest is told, for the store took it for closed": script(begun, []turn{
		on(endsClosed(1), "tell 1 of 1"), on(closedAt(knows(home, 1, 1)), "release; end"), on(hintOf(inputLook), ""),
		on(hintOf(inputDone), "head"), on(ends(1), "tell 1 of 1"), on(closedAt(knows(home, 1, 1)), "head anew"),
	}),
}

// closedAt is the store's answer that it has noted the stream's end, too.
func closedAt(in input) input { in.observed.noted.Closed = true; return in }

func dropped(partition int, since moment) input {
	return input{kind: inputDropped, partition: partition, since: since}
}

func testRules() *Config {
	cfg := &Config{}
	cfg.setDefaults()
	cfg.jitter = func(d time.Duration) time.Duration { return d }
	return cfg
}

func TestWhatAMachineAsks(t *testing.T) {
	for name, turns := range histories {
		t.Run(name, func(t *testing.T) {
			m, now := newMachine(testRules(), home), time.Unix(0, 0)
			for i, turn := range turns {
				now = now.Add(turn.after)
				in := turn.in
				in.now = now
				if got := describe(m.step(&in)); got != turn.want {
					t.Fatalf("turn %d, of kind %d in phase %d: it wants %q, not %q", i+1, in.kind, m.phase, got,
						turn.want)
				}
			}
		})
	}
}

// describe says what an action is.
func describe(a action) string {
	var list []string
	say := func(is bool, format string, args ...any) {
		if is {
			list = append(list, fmt.Sprintf(format, args...))
		}
	}
	say(a.interrupt, "interrupt")
	say(a.missed, "missed")
	say(a.run, "run")
	say(a.leave, "leave")
	say(a.lost, "lost")
	say(a.back, "back")
	say(a.wavered, "wavered")
	say(a.release, "release")
	active := map[bool]string{true: ", active"}[a.active]
	switch a.phase {
	case phaseResting, phaseEnded:
		say(a.active, "active")
	case phaseHiding:
		say(true, "hide %s", map[fsm.Absence]string{fsm.MissingAnew: "anew", fsm.MissingStill: "still"}[a.absence])
	case phaseTelling, phaseCorrecting:
		say(a.was == "", "tell %d of %s", a.partition, short(a.tail))
		say(a.was != "", "restart %d from %s at %s", a.partition, short(a.was), short(a.tail))
	case phaseAnnouncing:
		say(true, "announce %d of %s", a.partition, short(a.tail))
	case phaseReading, phaseRereading:
		say(true, "read from %s beyond %s", short(a.was), short(a.tail))
	case phaseEntering:
		say(true, "slot%s%s", active, map[bool]string{false: ", its turn is to come"}[a.turn])
	case phaseLive:
		say(a.tail != "", "live from %s", short(a.tail))
		say(a.tail == "", "continue%s", active)
	case phaseLooking:
		say(true, "head")
	case phaseConfirming, phaseVerifying:
		say(true, "head anew")
	case phaseEnding:
		say(true, "end")
	default:
		say(true, "wait %s", a.wait)
	}
	say(a.check > 0, "check in %s", a.check)
	say(a.failure != nil, "failure")
	return strings.Join(list, "; ")
}

func short(o fsm.Offset) string {
	for n := range 10 {
		if o == offsetOf(n) {
			return fmt.Sprint(n)
		}
	}
	return string(o)
}
