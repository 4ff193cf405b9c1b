package fault

import (
	"net/http"
	"testing"
	"time"

	"reveille/fsm"
)

func letterNo(n int64) fsm.LetterID { return fsm.LetterID{Partition: 1, Number: n} }

// die is an event that is refused for good, and its letter, which is listed.
func (s *story) die(n int64, event string) {
	s.push(event, refusedForGood, event)
	s.list(n, event)
}

func (s *story) list(n int64, delivery string) {
	s.Letters = append(s.Letters, letter{letterNo(n), thePushed, delivery, s.tick()})
}

// ask asks for the replay of a letter, of all if n is 0. It is accepted.
func (s *story) ask(n int64) *ask {
	a := &ask{Subscription: "feed", Sent: s.tick(), Answered: s.tick(), OK: true}
	if n > 0 {
		a.Letter = letterNo(n)
	}
	s.Asks = append(s.Asks, a)
	return a
}

// TestTheCheckerFindsWhatIsWrongWithReplays is TestTheCheckerFindsEachViolation for dead letters. Events a and b are
// refused for good, unless a case says otherwise.
func TestTheCheckerFindsWhatIsWrongWithReplays(t *testing.T) {
	const no = http.StatusServiceUnavailable
	const yes = http.StatusNoContent
	dead := func(then func(s *story)) func(s *story) {
		return func(s *story) {
			s.die(1, "a")
			s.die(2, "b")
			s.push("c", yes, "c")
			s.quiet()
			then(s)
		}
	}
	judge(t, []pushCase{
		{name: "all are asked for, and replayed", replayed: 2, tell: dead(func(s *story) {
			s.ask(0)
			s.replay("a", yes, "a")
			s.replay("b", yes, "b")
		})},
		{name: "they are asked for again", replayed: 2, tell: dead(func(s *story) {
			s.ask(0)
			s.replay("a", no, "a")
			s.ask(0)
			s.replay("a", yes, "a")
			s.replay("b", yes, "b")
		})},
		{name: "the second is asked for alone, and first", replayed: 2, tell: dead(func(s *story) {
			s.ask(2)
			s.ask(0)
			s.replay("b", yes, "b")
			s.replay("a", yes, "a")
		})},
		{name: "the second is asked for alone, without an answer, and first", replayed: 2, tell: dead(func(s *story) {
			s.ask(2).Answered, s.Asks[0].OK = time.Time{}, false
			s.ask(0)
			s.replay("b", yes, "b")
			s.replay("a", yes, "a")
		})},
		{name: "the second is asked for while all are", replayed: 2, tell: dead(func(s *story) {
			s.ask(0).Answered = s.now.Add(time.Minute)
			s.ask(2)
			s.replay("b", yes, "b")
			s.replay("a", yes, "a")
		})},
		{name: "the first is not known to be asked for", replayed: 2, tell: dead(func(s *story) {
			s.ask(1).OK = false
			s.ask(2)
			s.replay("b", yes, "b")
			s.replay("a", yes, "a")
		})},
		{
			name: "the second is replayed before the first", want: []string{ruleReplayOrder}, replayed: 2,
			tell: dead(func(s *story) {
				s.ask(0)
				s.replay("b", yes, "b")
				s.replay("a", yes, "a")
			}),
		},
		{
			name: "the second is replayed before the first, which was asked for before", replayed: 2,
			want: []string{ruleReplayOrder}, tell: dead(func(s *story) {
				s.ask(1)
				s.ask(2)
				s.replay("b", yes, "b")
				s.replay("a", yes, "a")
			}),
		},
		{name: "only the letter was seen that a replay has left", replayed: 2, beside: 1, tell: func(s *story) {
			s.push("a", refusedForGood, "a")
			s.ask(0)
			s.replay("a", refusedForGood, "a")
			s.die(1, "b")
			s.list(s.now.UnixMicro(), "a")
			s.push("c", yes, "c")
			s.quiet()
			s.ask(0)
			s.replay("b", yes, "b")
			s.replay("a", yes, "a")
		}},
		{
			name: "the first is never replayed", want: []string{ruleUndelivered, ruleReplayOrder}, lost: 1, replayed: 1,
			tell: dead(func(s *story) {
				s.ask(0)
				s.replay("b", yes, "b")
			}),
		},
		{name: "Redis lost that the first was asked for", replayed: 2, tell: dead(func(s *story) {
			began := s.now
			s.ask(1)
			s.excuse(redisLost, began)
			s.ask(2)
			s.replay("b", yes, "b")
			s.ask(0)
			s.replay("a", yes, "a")
		})},
		{name: "a replay is refused for good, leaves another letter, and that is replayed", replayed: 2, tell: dead(
			func(s *story) {
				s.ask(0)
				s.replay("a", refusedForGood, "a")
				s.list(3, "a")
				s.replay("b", yes, "b")
				s.ask(0)
				s.replay("a", yes, "a")
			},
		)},
		{
			name: "a letter goes without a replay", want: []string{ruleUndelivered}, lost: 1, replayed: 1,
			tell: dead(func(s *story) {
				s.ask(0)
				s.replay("a", yes, "a")
			}),
		},
		{
			name: "a letter is left", want: []string{ruleUndelivered, ruleLeft}, lost: 1, replayed: 1,
			tell: dead(func(s *story) {
				s.ask(0)
				s.replay("a", yes, "a")
			}),
			truth: func(t *truth) { t.Letters = []fsm.DeadLetter{{ID: letterNo(2), DeliveryID: "b"}} },
		},
		{
			name: "a letter is left although it was replayed", want: []string{ruleLeft}, replayed: 2,
			tell: dead(func(s *story) {
				s.ask(0)
				s.replay("a", yes, "a")
				s.replay("b", yes, "b")
			}),
			truth: func(t *truth) { t.Letters = []fsm.DeadLetter{{ID: letterNo(2), DeliveryID: "b"}} },
		},
		{name: "a replay again that was taken", want: []string{ruleAgain}, replayed: 2, again: 1, tell: dead(
			func(s *story) {
				s.ask(0)
				s.replay("a", yes, "a")
				s.replay("a", yes, "a")
				s.replay("b", yes, "b")
			},
		)},
		{name: "a replay again whose answer may have been lost", replayed: 2, again: 1, tell: dead(
			func(s *story) {
				s.ask(0)
				began := s.now
				s.replay("a", yes, "a")
				s.excuse(answersLost, began)
				s.quiet()
				s.replay("a", yes, "a")
				s.replay("b", yes, "b")
			},
		)},
		{name: "a replay under another id", want: []string{ruleID}, replayed: 2, tell: dead(func(s *story) {
			s.ask(0)
			s.replay("a", yes, "a")
			s.replay("b'", yes, "b")
		})},
		{name: "a replay that does not say so", want: []string{ruleUnmarked}, replayed: 1, tell: dead(
			func(s *story) {
				s.ask(0)
				s.replay("a", yes, "a")
				s.push("b", yes, "b")
			},
		)},
		{name: "an event comes again whose refusal may have been lost", replayed: 2, tell: func(s *story) {
			began := s.now
			s.push("a", refusedForGood, "a")
			s.excuse(answersLost, began)
			s.quiet()
			s.die(1, "a")
			s.die(2, "b")
			s.push("c", yes, "c")
			s.quiet()
			s.ask(0)
			s.replay("a", yes, "a")
			s.replay("b", yes, "b")
		}},
		{
			name: "an event is replayed that was only put off", want: []string{ruleReplayed}, replayed: 1,
			tell: func(s *story) {
				s.push("a", no, "a")
				s.replay("a", yes, "a")
				s.push("b-c", yes, "b", "c")
			},
		},
		{name: "a letter of an event that was only put off", want: []string{ruleLetter}, tell: func(s *story) {
			s.push("a", no, "a")
			s.list(1, "a")
			s.push("a", yes, "a")
			s.push("b-c", yes, "b", "c")
		}},
		{name: "a letter of what never came", want: []string{ruleLetter}, tell: func(s *story) {
			pushesByTheBook(s)
			s.list(1, "d")
		}},
		{name: "what is new is taken during a replay", replayed: 1, beside: 1, tell: func(s *story) {
			s.die(1, "a")
			s.ask(0)
			s.replay("a", no, "a")
			s.push("b", yes, "b")
			s.replay("a", yes, "a")
			s.push("c", yes, "c")
		}},
	})
}
