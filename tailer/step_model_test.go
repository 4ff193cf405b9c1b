package tailer

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"reveille/fsm"
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
	// noted are the tails that the store has noted, of the partitions that somebody is subscribed in.
	noted  map[int]fsm.Offset
	hidden bool
}

func (s *stage) step(in input) {
	in.now = s.now
	a := s.m.step(&in)
	if in.kind < inputChecked || a.run {
		s.asked, s.before = a, s.stream
		s.slot = s.slot && !a.release
		if a.leave { // discovery is told that it is lost, or not
			s.m = nil
		}
	}
}

// subscribe is what the set does when somebody wants the stream watched.
func (s *stage) subscribe(partition int) {
	if _, there := s.noted[partition]; !there {
		s.noted[partition] = ""
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
		s.hidden = true
		s.step(input{kind: inputDone})
	case phaseTelling, phaseAnnouncing, phaseCorrecting:
		if a.was != "" {
			if s.noted[a.partition] == a.was {
				s.noted[a.partition] = a.tail
			}
			s.step(input{kind: inputDone})
			return
		}
		o := observed{partition: a.partition, since: s.m.moment, tail: a.tail}
		if noted, watched := s.noted[a.partition]; watched {
			if a.tail.After(noted) {
				noted = a.tail
			}
			if a.partition == home {
				s.hidden = false
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
	case "delete":
		s.stream = fsm.StreamInfo{}
	case "close":
		s.stream.Closed = s.stream.Exists
	case "down":
		s.down = true
	case "up":
		s.down = false
	case "subscribe":
		s.subscribe(partition)
	case "unsubscribe":
		delete(s.noted, partition)
		if running && s.m.part(partition) != nil {
			s.step(input{kind: inputDropped, partition: partition, since: s.m.part(partition).added})
		}
	case "store loses":
		if _, there := s.noted[partition]; there {
			s.noted[partition] = ""
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
				inputRested, inputActive, inputLook, inputSoon, inputVoid, inputWritten, inputDeleted, inputSilence,
			}).Draw(s.t, "hint")})
		}
	}
}

// Whatever has happened: once upstream answers again, the store knows in every partition how far the stream is, and
// nobody is hidden whose stream is there.
func TestAMachineTellsTheStoreWhatIsTrueInTheEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &stage{
			t: t, now: time.Unix(0, 0), noted: map[int]fsm.Offset{},
			stream: fsm.StreamInfo{Exists: true, Tail: "1"},
		}
		s.subscribe(home)
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			what := rapid.SampledFrom([]string{
				"answer", "answer", "answer", "late answer", "failure", "append", "create", "delete", "close", "down",
				"up",
				"subscribe", "unsubscribe", "store loses", "displace", "check", "hint",
			}).Draw(t, "what")
			switch {
			case what == "answer" || what == "late answer" || what == "failure":
				if s.m != nil {
					s.answer(what == "failure", what == "late answer")
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
			if s.stream.Exists && noted != s.stream.Tail {
				t.Fatalf("partition %d has noted %q, and the stream ends at %q", partition, noted, s.stream.Tail)
			}
		}
		if s.hidden && s.stream.Exists && s.noted[home] != "" {
			t.Fatal("its consumers are hidden, and the stream is there")
		}
	})
}
