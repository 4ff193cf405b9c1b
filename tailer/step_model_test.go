package tailer

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"reveille/fsm"
	"reveille/fsm/spec"
	"reveille/tailer/upstream"
)

// stage is one stream, the store, and the machine between them, for histories in which anything may happen at any time.
type stage struct {
	t   *rapid.T
	m   *machine
	now time.Time
	// asked is what the machine wants done, and before what the stream was when it asked.
	asked  action
	before fsm.StreamInfo
	slot   bool

	stream fsm.StreamInfo
	down   bool
	// noted is what the store has noted, of the partitions that somebody is subscribed in.
	noted  map[int]fsm.Noted
	hidden bool
	// hiddenAt is since when the store hides the consumers of the home partition.
	hiddenAt time.Time
	// gone is since when all looks have said that there is no stream, the last of them at goneLast, with no gap.
	gone, goneLast time.Time
	// deletions counts those through the gateway, up to when upstream was asked, and up to when it was asked for what
	// it said last.
	deletions, askedBefore, saidBefore int
}

func (s *stage) step(in input) {
	in.now = s.now
	if in.kind == inputHead {
		s.look(in.err == nil && in.info.Gone())
	}
	if in.kind == inputHead || in.kind == inputRead || in.kind == inputShown {
		s.saidBefore = s.askedBefore
	}
	a := s.m.step(&in)
	if in.kind < inputChecked || a.run {
		switch a.phase {
		case phaseHiding, phaseTelling, phaseCorrecting, phaseAnnouncing:
			if s.saidBefore < s.deletions {
				s.t.Fatal("the store is told what upstream said of a stream that was deleted since")
			}
		case phaseLive:
			if a.tail != "" { // it begins
				s.askedBefore = s.deletions
			}
		default:
			s.askedBefore = s.deletions
		}
		s.asked, s.before = a, s.stream
		s.slot = s.slot && !a.release
		if a.leave { // discovery is told that it is lost, or not
			s.m = nil
		}
	}
}

// look takes in what a look came to.
func (s *stage) look(gone bool) {
	switch {
	case !gone:
		s.gone = time.Time{}
	case s.gone.IsZero() || s.now.Sub(s.goneLast) > s.m.rules.GoneGrace/2:
		s.gone = s.now
	}
	s.goneLast = s.now
}

// hide is what the store does: it hides the consumers, or removes them after the grace.
func (s *stage) hide(a fsm.Absence) {
	grace := s.m.rules.GoneGrace
	s.hidden = true
	switch {
	case a == fsm.MissingAnew || s.hiddenAt.IsZero():
		s.hiddenAt = s.now
	case s.now.Sub(s.hiddenAt) >= grace:
		if s.gone.IsZero() || s.gone.After(s.hiddenAt) {
			s.t.Fatal("consumers are removed although the stream was not seen to be gone for all of the grace")
		}
		s.leave(home)
	}
}

// leave removes the consumers of a partition.
func (s *stage) leave(partition int) {
	delete(s.noted, partition)
	if partition == home {
		s.hiddenAt = time.Time{}
	}
}

// refuse answers for a store that does not take what it is told.
func (s *stage) refuse() {
	s.now = s.now.Add(time.Second)
	switch a := s.asked; {
	case a.phase == phaseHiding, a.phase == phaseCorrecting && a.was != "":
		s.step(input{kind: inputDone, err: fsm.ErrUnavailable})
	case a.phase == phaseTelling, a.phase == phaseAnnouncing, a.phase == phaseCorrecting:
		s.step(input{kind: inputTold, err: fsm.ErrUnavailable})
	}
}

// subscribe is what the set does when somebody wants the stream watched.
func (s *stage) subscribe(partition int) {
	if _, there := s.noted[partition]; !there {
		s.noted[partition] = fsm.Noted{}
	}
	if s.m == nil {
		m := newMachine(testRules(), home)
		s.m, s.slot = &m, false
	}
	s.step(input{kind: inputAdded, partition: partition})
}

// answer answers what the machine asks; fails says that upstream does not, late that it does as it was when it was
// asked.
func (s *stage) answer(fails, late bool) {
	seen := s.stream
	if late {
		seen = s.before
	}
	var err error
	if fails || s.down {
		seen, err = fsm.StreamInfo{}, errDown
	}
	s.now = s.now.Add(time.Second)
	switch a := s.asked; a.phase {
	case phaseResting, phaseEnded:
	case phaseLooking, phaseConfirming, phaseVerifying:
		s.step(input{kind: inputHead, info: seen, err: err})
	case phaseHiding:
		s.hide(a.absence)
		s.step(input{kind: inputDone})
	case phaseTelling, phaseAnnouncing, phaseCorrecting:
		if a.was != "" {
			if s.noted[a.partition].Tail == a.was {
				s.noted[a.partition] = fsm.Noted{Tail: a.tail}
			}
			s.step(input{kind: inputDone})
			return
		}
		o := observed{partition: a.partition, since: s.m.moment, tail: a.tail}
		if noted, watched := s.noted[a.partition]; watched {
			noted = spec.Raised(noted, a.tail, a.closed)
			if a.partition == home {
				s.hidden, s.hiddenAt = false, time.Time{}
			}
			s.noted[a.partition], o.watched, o.noted = noted, true, noted
		}
		s.step(input{kind: inputTold, observed: o})
	case phaseReading, phaseRereading:
		s.step(input{kind: inputRead, tail: seen.Tail, err: err})
	case phaseEntering:
		if s.slot = !fails; s.slot {
			s.step(input{kind: inputGranted})
		}
		s.step(input{kind: inputSlot, granted: s.slot, turn: time.Second})
	case phaseLive:
		switch {
		case s.m.untold() && !s.m.request.stopped:
			s.t.Fatal("a live request goes on although the store is to be told something")
		case !s.m.request.stopped && a.tail != "" && err == nil && seen.Exists && seen.Tail.After(a.tail):
			s.step(input{kind: inputShown, shown: upstream.Event{Offset: seen.Tail, UpToDate: true}})
		default:
			s.now = s.now.Add(30 * time.Second)
			s.step(input{kind: inputOver, err: err})
		}
	default: // a wait, the end
		s.now = s.now.Add(a.wait)
		s.step(input{kind: inputDone})
	}
}

// happen lets one thing happen.
func (s *stage) happen(what string) {
	partition := rapid.SampledFrom([]int{home, other}).Draw(s.t, "partition")
	running := s.m != nil
	switch what {
	case "append":
		if s.stream.Exists && !s.stream.Closed {
			s.stream.Tail += "1"
		}
	case "create":
		if !s.stream.Exists {
			s.stream = fsm.StreamInfo{Exists: true, Tail: "1"}
		}
	case "delete past the gateway":
		s.stream = fsm.StreamInfo{}
	case "delete":
		s.stream = fsm.StreamInfo{}
		s.deletions++
		s.leave(home)
		if _, there := s.noted[other]; there {
			s.noted[other] = fsm.Noted{}
		}
		if running {
			s.step(input{kind: inputDeleted})
			s.step(input{kind: inputRefresh, partition: everywhere})
		}
	case "stand still":
		s.now = s.now.Add(time.Minute)
	case "close":
		s.stream.Closed = s.stream.Exists
	case "down":
		s.down = true
	case "up":
		s.down = false
	case "subscribe":
		s.subscribe(partition)
	case "unsubscribe":
		s.leave(partition)
		if running && s.m.part(partition) != nil {
			s.step(input{kind: inputDropped, partition: partition, since: s.m.part(partition).added})
		}
	case "store loses":
		if _, there := s.noted[partition]; there {
			s.noted[partition] = fsm.Noted{}
		}
		if running {
			s.step(input{kind: inputRefresh, partition: partition})
		}
	case "displace":
		if running && s.slot {
			s.slot = false
			s.step(input{kind: inputDisplaced})
		}
	case "check":
		if running && (s.m.phase == phaseLive || s.m.phase == phaseAnnouncing) {
			in := input{kind: inputChecked, info: s.stream}
			if s.down {
				in.info, in.err = fsm.StreamInfo{}, errDown
			}
			s.step(in)
		}
	case "hint":
		if running {
			s.step(input{kind: rapid.SampledFrom([]inputKind{
				inputRested, inputActive, inputLook, inputSoon, inputVoid, inputWritten, inputSilence,
			}).Draw(s.t, "hint")})
		}
	}
}

// Whatever has happened: once upstream answers again, the store knows in every partition how far the stream is, and
// nobody is hidden whose stream is there. Until then, nobody is removed whose stream may have been there, and what
// upstream said before a deletion through the gateway is told to nobody after it.
func TestAMachineTellsTheStoreWhatIsTrueInTheEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &stage{
			t: t, now: time.Unix(0, 0), noted: map[int]fsm.Noted{},
			stream: fsm.StreamInfo{Exists: true, Tail: "1"},
		}
		s.subscribe(home)
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			what := rapid.SampledFrom([]string{
				"answer", "answer", "answer", "late answer", "failure", "refusal", "append", "create", "delete",
				"delete past the gateway", "close", "down", "up", "subscribe", "unsubscribe", "store loses", "displace",
				"check", "hint", "stand still",
			}).Draw(t, "what")
			switch {
			case what == "answer" || what == "late answer" || what == "failure":
				if s.m != nil {
					s.answer(what == "failure", what == "late answer")
				}
			case what == "refusal":
				if s.m != nil {
					s.refuse()
				}
			default:
				s.happen(what)
			}
		}
		s.down = false
		for left := range 100 {
			if s.m == nil {
				break
			}
			if !s.asked.phase.asks() && left < 50 { // it rests, and is looked at once an hour
				s.step(input{kind: inputRefresh, partition: everywhere})
			}
			s.happen("check")
			s.answer(false, false)
		}
		if s.m == nil {
			if len(s.noted) > 0 {
				t.Fatalf("nobody watches it for %v", s.noted)
			}
			return
		}
		for partition, noted := range s.noted {
			if ends := (fsm.Noted{Tail: s.stream.Tail, Closed: s.stream.Closed}); s.stream.Exists && noted != ends {
				t.Fatalf("partition %d has noted %v, and the stream ends so: %v", partition, noted, ends)
			}
		}
		if s.hidden && s.stream.Exists && s.noted[home].Tail != "" {
			t.Fatal("its consumers are hidden, and the stream is there")
		}
	})
}
