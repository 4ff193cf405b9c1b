package fault

import (
	"slices"
	"testing"
	"time"

	"reveille/fsm"
)

// story writes a journal by hand. Time goes on by a second with each step.
type story struct {
	journal
	now time.Time
}

func (s *story) tick() time.Time {
	s.now = s.now.Add(time.Second)
	return s.now
}

const theConsumer = "jobs:%2Fjobs%2F1"

func wakeOf(epoch int64, id string) wakeRef { return wakeRef{theConsumer, epoch, id} }

func at(path string, o fsm.Offset) map[string]fsm.Offset { return map[string]fsm.Offset{path: o} }

func (s *story) append(event string) {
	s.Appends = append(s.Appends, written{Path: "/jobs/1", Event: event, Sent: s.tick(), OK: true})
}

func (s *story) arrive(w wakeRef, from fsm.Offset) {
	s.Arrivals = append(s.Arrivals, arrival{wakeRef: w, Offsets: at("/jobs/1", from), At: s.tick()})
}

func (s *story) read(w wakeRef, from, to fsm.Offset, events ...string) {
	s.Reads = append(s.Reads, reading{wakeRef: w, Path: "/jobs/1", From: from, To: to, Events: events, At: s.tick()})
}

// call is a callback that was answered with each code in turn; ack may be empty.
func (s *story) call(w wakeRef, ack fsm.Offset, done bool, codes ...string) {
	c := &call{wakeRef: w, Claim: ack == "" && !done, Done: done}
	if ack != "" {
		c.Acks = at("/jobs/1", ack)
	}
	for _, code := range codes {
		c.Tries = append(c.Tries, try{Sent: s.tick(), Answered: s.tick(), Code: code})
	}
	s.Calls = append(s.Calls, c)
}

func (s *story) syncDone(w wakeRef) { s.Dones = append(s.Dones, syncDone{w, s.tick()}) }

func (s *story) excuse(kind markKind, from time.Time) {
	s.Marks = append(s.Marks, mark{kind, from, s.tick()})
}

// good is a wake that is worked on by the book: one event, from offset 0 to 1, unless told otherwise.
func (s *story) good(w wakeRef, from, to fsm.Offset, events ...string) {
	for _, e := range events {
		s.append(e)
	}
	s.arrive(w, from)
	s.call(w, "", false, accepted)
	s.read(w, from, to, events...)
	s.call(w, to, true, accepted)
}

// TestTheCheckerFindsEachViolation shows a checker that can fail: each case is a run by the book but for one thing.
func TestTheCheckerFindsEachViolation(t *testing.T) {
	rested := func(o fsm.Offset) map[string]fsm.Consumer {
		return map[string]fsm.Consumer{theConsumer: {
			Links: map[string]fsm.Link{"/jobs/1": {Acked: o, Tail: o}},
			Lease: fsm.Lease{State: fsm.Idle, Epoch: 2},
		}}
	}
	one, two := wakeOf(1, "w_1"), wakeOf(2, "w_2")
	for _, c := range []struct {
		name string
		tell func(s *story)
		// truth changes what is true in the end: two events, and the consumer at rest at the end of them.
		truth func(t *truth)
		want  []string
		// lost, duplicates and repeated are the figures that the verdict must show.
		lost, duplicates, repeated int
	}{
		{name: "nothing is wrong", tell: func(s *story) {
			s.good(one, "0", "1", "a")
			s.good(two, "1", "2", "b")
		}},
		{name: "a wake that comes twice is counted and no violation", duplicates: 1, tell: func(s *story) {
			s.good(one, "0", "1", "a")
			s.good(two, "1", "2", "b")
			s.arrive(two, "1")
		}},
		{name: "a late repetition of an older wake is no violation", duplicates: 1, tell: func(s *story) {
			s.good(one, "0", "1", "a")
			s.good(two, "1", "2", "b")
			s.arrive(one, "0")
			s.call(one, "", false, string(fsm.CodeStaleEpoch))
		}},
		{name: "an event that nobody read", want: []string{ruleLost}, lost: 1, tell: func(s *story) {
			s.good(one, "0", "1", "a")
			s.append("b")
		}},
		{name: "an event that was read and not acknowledged", want: []string{ruleLost}, lost: 1, tell: func(s *story) {
			s.good(one, "0", "1", "a")
			s.append("b")
			s.arrive(two, "1")
			s.call(two, "", false, accepted)
			s.read(two, "1", "2", "b")
			s.call(two, "", true, accepted)
		}},
		{
			name: "an event that was acknowledged short of its end", want: []string{ruleLost}, lost: 1,
			tell: func(s *story) {
				s.good(one, "0", "1", "a")
				s.append("b")
				s.arrive(two, "1")
				s.read(two, "1", "2", "b")
				s.call(two, "1", true, accepted)
			},
		},
		{name: "an event whose acknowledgement was refused", want: []string{ruleLost}, lost: 1, tell: func(s *story) {
			s.good(one, "0", "1", "a")
			s.append("b")
			s.arrive(two, "1")
			s.read(two, "1", "2", "b")
			s.call(two, "2", true, string(fsm.CodeStaleEpoch))
		}},
		{name: "an acknowledgement whose answer was lost may have counted", tell: func(s *story) {
			s.good(one, "0", "1", "a")
			s.append("b")
			s.arrive(two, "1")
			s.read(two, "1", "2", "b")
			s.call(two, "2", true, unknown, string(fsm.CodeStaleEpoch))
		}},
		{name: "a synchronous done acknowledges what was read", tell: func(s *story) {
			s.good(one, "0", "1", "a")
			s.append("b")
			s.arrive(two, "1")
			s.read(two, "1", "2", "b")
			s.syncDone(two)
		}},
		{
			name: "an epoch that is handed out again after it was worked on", want: []string{ruleRepeated}, repeated: 1,
			tell: func(s *story) {
				s.good(one, "0", "1", "a")
				s.good(wakeOf(1, "w_2"), "1", "2", "b")
			},
		},
		{
			name: "an epoch that is handed out again after Redis lost it", want: []string{ruleRepeated}, repeated: 1,
			tell: func(s *story) {
				s.append("a")
				s.append("b")
				s.arrive(one, "0")
				s.excuse(redisLost, s.now)
				again := wakeOf(1, "w_2")
				s.arrive(again, "0")
				s.read(again, "0", "2", "a", "b")
				s.syncDone(again)
			},
		},
		{name: "an epoch with another wake id at the second attempt", want: []string{ruleWakeID}, tell: func(s *story) {
			s.good(one, "0", "1", "a")
			s.append("b")
			s.arrive(two, "1")
			again := wakeOf(2, "w_3")
			s.arrive(again, "1")
			s.read(again, "1", "2", "b")
			s.syncDone(again)
		}},
		{name: "a wake id of two epochs", want: []string{ruleReused}, tell: func(s *story) {
			s.good(one, "0", "1", "a")
			s.good(wakeOf(2, "w_1"), "1", "2", "b")
		}},
		{name: "a callback of an older epoch that is accepted", want: []string{ruleZombie}, tell: func(s *story) {
			s.good(one, "0", "1", "a")
			s.good(two, "1", "2", "b")
			s.call(one, "1", false, accepted)
		}},
		{name: "a callback of an older epoch after Redis lost the newer one", tell: func(s *story) {
			s.good(one, "0", "1", "a")
			from := s.now
			s.good(two, "1", "2", "b")
			s.excuse(redisLost, from)
			s.call(one, "1", false, accepted)
		}},
		{
			name: "a callback of an older epoch after Redis lost other things", want: []string{ruleZombie},
			tell: func(s *story) {
				s.good(one, "0", "1", "a")
				s.good(two, "1", "2", "b")
				s.excuse(redisLost, s.tick())
				s.call(one, "1", false, accepted)
			},
		},
		{name: "a callback of an older epoch that was sent before the newer one came", tell: func(s *story) {
			s.good(one, "0", "1", "a")
			sent := s.tick()
			s.good(two, "1", "2", "b")
			s.Calls = append(s.Calls,
				&call{wakeRef: one, Tries: []try{{Sent: sent, Answered: s.tick(), Code: accepted}}})
		}},
		{name: "a wake that begins before what was acknowledged", want: []string{ruleBack}, tell: func(s *story) {
			s.good(one, "0", "1", "a")
			s.append("b")
			s.arrive(two, "0")
			s.read(two, "0", "2", "a", "b")
			s.syncDone(two)
		}},
		{name: "a wake that begins before an acknowledgement that Redis lost", tell: func(s *story) {
			from := s.now
			s.good(one, "0", "1", "a")
			s.append("b")
			s.excuse(redisLost, from)
			s.arrive(two, "0")
			s.read(two, "0", "2", "a", "b")
			s.syncDone(two)
		}},
		{
			name: "a wake that begins before an acknowledgement that Redis had kept", want: []string{ruleBack},
			tell: func(s *story) {
				s.good(one, "0", "1", "a")
				s.append("b")
				s.excuse(redisLost, s.tick())
				s.arrive(two, "0")
				s.read(two, "0", "2", "a", "b")
				s.syncDone(two)
			},
		},
		{name: "a consumer that stays awake", want: []string{ruleFinal}, tell: byTheBook, truth: func(t *truth) {
			c := t.Consumers[theConsumer]
			c.State = fsm.Live
			t.Consumers[theConsumer] = c
		}},
		{
			name: "a consumer that has not acknowledged the end", want: []string{ruleFinal}, tell: byTheBook,
			truth: func(t *truth) {
				t.Consumers = rested("1")
			},
		},
		{
			name: "a consumer that has acknowledged more than there is", want: []string{ruleFinal}, tell: byTheBook,
			truth: func(t *truth) {
				t.Consumers = rested("3")
			},
		},
		{
			name: "a consumer that is gone in the end", want: []string{ruleGone}, tell: byTheBook,
			truth: func(t *truth) { t.Consumers = nil },
		},
		{name: "a callback that is told its consumer is gone", want: []string{ruleGone}, tell: func(s *story) {
			byTheBook(s)
			s.call(two, "", false, string(fsm.CodeConsumerGone))
		}},
		{name: "a callback that is told so while upstream says 404", tell: func(s *story) {
			from := s.now
			byTheBook(s)
			s.call(two, "", false, string(fsm.CodeConsumerGone))
			s.excuse(maybeGone, from)
		}},
		{name: "an offset that was read and is refused as wrong", want: []string{ruleRefused}, tell: func(s *story) {
			byTheBook(s)
			s.call(two, "2", false, string(fsm.CodeInvalidOffset))
		}},
		{
			name: "an offset that was read and lies beyond the end that the stream server itself tells",
			tell: func(s *story) {
				byTheBook(s)
				s.call(two, "2", false, string(fsm.CodeInvalidOffset))
				s.Calls[len(s.Calls)-1].Contradicted = true
			},
		},
		{name: "a token that is refused", want: []string{ruleRefused}, tell: func(s *story) {
			byTheBook(s)
			s.call(two, "", false, string(fsm.CodeTokenInvalid))
		}},
		{name: "a wake that somebody else has signed", want: []string{ruleForged}, tell: func(s *story) {
			byTheBook(s)
			s.Arrivals[0].Forged = "the signature is wrong"
		}},
		{
			name: "an event of a further stream that nobody read", want: []string{ruleLost}, lost: 1, tell: byTheBook,
			truth: func(t *truth) {
				t.Streams["/shared/1"] = streamTruth{[]string{"x"}, "1"}
				t.Since = map[link][]string{{theConsumer, "/shared/1"}: {"x"}}
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &story{now: time.Unix(1_700_000_000, 0)}
			c.tell(s)
			end := truth{
				Streams:  map[string]streamTruth{"/jobs/1": {[]string{"a", "b"}, "2"}},
				Expected: []string{theConsumer}, Consumers: rested("2"),
			}
			if c.truth != nil {
				c.truth(&end)
			}
			v := check(&s.journal, end)
			if !slices.Equal(v.rules(), c.want) {
				t.Errorf("violations %v, want %v", v.Violations, c.want)
			}
			if v.Lost != c.lost || v.Duplicates != c.duplicates || v.Repeated != c.repeated {
				t.Errorf("lost %d, duplicates %d, repeated %d; want %d, %d, %d", v.Lost, v.Duplicates, v.Repeated,
					c.lost, c.duplicates, c.repeated)
			}
		})
	}
}

func byTheBook(s *story) {
	s.good(wakeOf(1, "w_1"), "0", "1", "a")
	s.good(wakeOf(2, "w_2"), "1", "2", "b")
}

// TestTheCheckerMeasuresTheLongestGap is about the one figure that no rule judges.
func TestTheCheckerMeasuresTheLongestGap(t *testing.T) {
	s := &story{now: time.Unix(1_700_000_000, 0)}
	s.append("a")
	for range 10 {
		s.tick()
	}
	w := wakeOf(1, "w_1")
	s.arrive(w, "0")
	s.read(w, "0", "1", "a")
	v := check(&s.journal,
		truth{Streams: map[string]streamTruth{"/jobs/1": {[]string{"a"}, "1"}}, Expected: []string{theConsumer}})
	if v.Gap != 12*time.Second || v.Events != 1 || v.Wakes != 1 {
		t.Errorf("gap %s, %d events, %d wakes; want 12s, 1, 1", v.Gap, v.Events, v.Wakes)
	}
}

// rules are those that are violated.
func (v verdict) rules() (rules []string) {
	for _, x := range v.Violations {
		rules = append(rules, x.Rule)
	}
	return rules
}
