package fault

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"reveille/fsm"
)

const thePushed = "feed:%2Fjobs%2F1"

// push is a push of events, answered with a status a second later; with none if that is 0. The id of an event is that
// of its delivery.
func (s *story) push(delivery string, status int, events ...string) {
	p := &pushed{Consumer: thePushed, Path: "/jobs/1", Delivery: delivery, Events: events, At: s.tick(), Status: status}
	for range events {
		p.IDs = append(p.IDs, delivery)
	}
	p.Answered = s.tick()
	if len(events) > 1 {
		p.IDs = slices.Clone(events)
	}
	s.Pushes = append(s.Pushes, p)
}

// replay is a push that says that it is one.
func (s *story) replay(delivery string, status int, events ...string) {
	s.push(delivery, status, events...)
	s.Pushes[len(s.Pushes)-1].Replay = true
}

// quiet lets more time go by than an answer takes to be noted.
func (s *story) quiet() { s.now = s.now.Add(2 * pushReport) }

// TestTheCheckerFindsWhatIsWrongWithPushes is TestTheCheckerFindsEachViolation for pushes. The id of an event is its
// name where a case is not about ids.
func TestTheCheckerFindsWhatIsWrongWithPushes(t *testing.T) {
	const no = http.StatusServiceUnavailable
	const yes = http.StatusNoContent
	judge(t, []pushCase{
		{name: "nothing is wrong", tell: func(s *story) {
			s.push("a", yes, "a")
			s.push("b", yes, "b")
			s.push("c", yes, "c")
		}},
		{name: "several events come at a time", tell: func(s *story) {
			s.push("a-b", yes, "a", "b")
			s.push("c", yes, "c")
		}},
		{name: "an event is retried, and the batch has grown meanwhile", tell: func(s *story) {
			s.push("a", no, "a")
			s.push("a-b", 0, "a", "b")
			s.push("a-c", yes, "a", "b", "c")
		}},
		{name: "an event that never came", want: []string{ruleUndelivered}, lost: 1, tell: func(s *story) {
			s.push("a", yes, "a")
			s.push("c", yes, "c")
		}},
		{name: "the last event never came", want: []string{ruleUndelivered}, lost: 1, tell: func(s *story) {
			s.push("a-b", yes, "a", "b")
		}},
		{
			name: "an event that was refused and never came again", want: []string{ruleUndelivered}, lost: 1,
			tell: func(s *story) {
				s.push("a", yes, "a")
				s.push("b", no, "b")
				s.push("c", yes, "c")
			},
		},
		{
			name: "an event without an answer that never came again", want: []string{ruleUndelivered}, lost: 1,
			tell: func(s *story) {
				s.push("a", 0, "a")
				s.push("b-c", yes, "b", "c")
			},
		},
		{name: "an event before an earlier one", want: []string{ruleOrder}, tell: func(s *story) {
			s.push("b", yes, "b")
			s.push("a", yes, "a")
			s.push("c", yes, "c")
		}},
		{name: "an event before an earlier one, and refused", want: []string{ruleOrder}, tell: func(s *story) {
			s.push("b", no, "b")
			s.push("a", yes, "a")
			s.push("b", yes, "b")
			s.push("c", yes, "c")
		}},
		{name: "a batch in a wrong order", want: []string{ruleOrder}, tell: func(s *story) {
			s.push("a-c", yes, "a", "c", "b")
		}},
		{name: "an event again that was taken", want: []string{ruleAgain}, again: 1, tell: func(s *story) {
			pushesByTheBook(s)
			s.push("b", yes, "b")
		}},
		{name: "an event again that was taken in a batch", want: []string{ruleAgain}, again: 1, tell: func(s *story) {
			s.push("a-c", yes, "a", "b", "c")
			s.push("c", yes, "c")
		}},
		{name: "an event again whose answer may have been lost", again: 1, tell: func(s *story) {
			s.push("a", yes, "a")
			began := s.now
			s.push("b", yes, "b")
			s.excuse(answersLost, began)
			s.quiet()
			s.push("b", yes, "b")
			s.push("c", yes, "c")
		}},
		{
			name: "an event again for the second time, whose second answer was not lost", want: []string{ruleAgain},
			again: 2, tell: func(s *story) {
				began := s.now
				s.push("a", yes, "a")
				s.excuse(answersLost, began)
				s.quiet()
				s.push("a", yes, "a")
				s.push("a", yes, "a")
				s.push("b-c", yes, "b", "c")
			},
		},
		{
			name: "an event again after other answers were lost, earlier", want: []string{ruleAgain}, again: 1,
			tell: func(s *story) {
				s.excuse(answersLost, s.tick())
				s.quiet()
				pushesByTheBook(s)
				s.push("c", yes, "c")
			},
		},
		{
			name: "an event again after other answers were lost, later", want: []string{ruleAgain}, again: 1,
			tell: func(s *story) {
				pushesByTheBook(s)
				s.quiet()
				s.excuse(answersLost, s.now)
				s.push("c", yes, "c")
			},
		},
		{name: "an event again whose stream was hidden when it was taken", again: 1, tell: func(s *story) {
			began := s.now
			s.push("a", yes, "a")
			s.excuse(missing, began)
			s.quiet()
			s.push("a", yes, "a")
			s.push("b-c", yes, "b", "c")
		}},
		{
			name: "an event again whose stream was hidden long before", want: []string{ruleAgain}, again: 1,
			tell: func(s *story) {
				began := s.now
				s.excuse(missing, began)
				s.quiet()
				pushesByTheBook(s)
				s.excuse(maybeGone, began)
				s.push("c", yes, "c")
			},
		},
		{name: "an event again whose answer took as long as the time allowed", again: 1, tell: func(s *story) {
			s.push("a", yes, "a")
			s.now = s.now.Add(pushTimeout)
			s.Pushes[0].Answered = s.now
			s.push("a", yes, "a")
			s.push("b-c", yes, "b", "c")
		}},
		{name: "an event again whose request was on its way for long", again: 1, tell: func(s *story) {
			s.push("a", yes, "a")
			s.Pushes[0].Sent = s.Pushes[0].At.Add(-pushTimeout)
			s.push("a", yes, "a")
			s.push("b-c", yes, "b", "c")
		}},
		{
			name: "an event again that was signed by a clock that is ahead", want: []string{ruleAgain}, again: 1,
			tell: func(s *story) {
				s.push("a", yes, "a")
				s.Pushes[0].Sent = s.Pushes[0].At.Add(pushTimeout)
				s.push("a", yes, "a")
				s.push("b-c", yes, "b", "c")
			},
		},
		{name: "an event again that was taken by a request that came later", again: 0, tell: func(s *story) {
			pushesByTheBook(s)
			s.push("c", yes, "c")
			s.Pushes[3].At = s.Pushes[2].At
		}},
		{name: "an event again, under another id, after Redis lost that it was taken", again: 1, tell: func(s *story) {
			s.push("a", yes, "a")
			began := s.now
			s.push("b", yes, "b")
			s.excuse(redisLost, began)
			s.quiet()
			s.push("b'", yes, "b")
			s.push("c", yes, "c")
		}},
		{name: "an event under another id", want: []string{ruleID}, tell: func(s *story) {
			s.push("a", no, "a")
			s.push("a'", yes, "a")
			s.push("b-c", yes, "b", "c")
		}},
		{
			name: "an event under another id whose answer was lost", want: []string{ruleID}, again: 1,
			tell: func(s *story) {
				began := s.now
				s.push("a", yes, "a")
				s.excuse(answersLost, began)
				s.push("a'", yes, "a")
				s.push("b-c", yes, "b", "c")
			},
		},
		{name: "an event under another id after Redis lost other things", want: []string{ruleID}, tell: func(s *story) {
			s.push("a", no, "a")
			s.excuse(redisLost, s.tick())
			s.push("a'", yes, "a")
			s.push("b-c", yes, "b", "c")
		}},
		{name: "two events under one id", want: []string{ruleSharedID}, tell: func(s *story) {
			s.push("a", yes, "a")
			s.push("a", yes, "b")
			s.push("c", yes, "c")
		}},
		{name: "an event aside is retried while its stream goes on", aside: 1, truth: unordered, tell: func(s *story) {
			s.push("a", no, "a")
			s.push("b", yes, "b")
			s.push("a", no, "a")
			s.push("c", yes, "c")
			s.push("a", yes, "a")
		}},
		{
			name: "an event aside whose first attempt has not arrived", aside: 1, truth: unordered,
			tell: func(s *story) {
				s.push("b", yes, "b")
				s.push("a", yes, "a")
				s.push("c", yes, "c")
			},
		},
		{
			name: "an event aside that never came again", want: []string{ruleUndelivered}, lost: 1, truth: unordered,
			tell: func(s *story) {
				s.push("a", no, "a")
				s.push("b-c", yes, "b", "c")
			},
		},
		{
			name: "an event aside again that was taken", want: []string{ruleAgain}, again: 1, aside: 1,
			truth: unordered, tell: func(s *story) {
				s.push("a", no, "a")
				s.push("b-c", yes, "b", "c")
				s.push("a", yes, "a")
				s.push("a", yes, "a")
			},
		},
		{
			name: "an event aside again whose answer may have been lost", again: 1, aside: 1, truth: unordered,
			tell: func(s *story) {
				s.push("a", no, "a")
				s.push("b-c", yes, "b", "c")
				began := s.now
				s.push("a", yes, "a")
				s.excuse(answersLost, began)
				s.quiet()
				s.push("a", yes, "a")
			},
		},
		{
			name: "an event aside under another id", want: []string{ruleID}, aside: 1, truth: unordered,
			tell: func(s *story) {
				s.push("a", no, "a")
				s.push("b-c", yes, "b", "c")
				s.push("a'", yes, "a")
			},
		},
		{
			name: "a delivery that is aside in the end", want: []string{ruleFinal}, tell: pushesByTheBook,
			truth: func(t *truth) {
				unordered(t)
				k := t.Consumers[thePushed]
				k.Asides = 1
				t.Consumers[thePushed] = k
			},
		},
		{name: "a push that somebody else has signed", want: []string{ruleForged}, tell: func(s *story) {
			pushesByTheBook(s)
			s.Pushes[0].Forged = "the signature is wrong"
		}},
		{
			name: "a consumer that does not come to rest", want: []string{ruleFinal}, tell: pushesByTheBook,
			truth: func(t *truth) { t.Consumers[thePushed] = fsm.Consumer{Lease: fsm.Lease{State: fsm.Waking}} },
		},
		{
			name: "a consumer that stands before the last event", want: []string{ruleFinal}, tell: pushesByTheBook,
			truth: func(t *truth) {
				t.Consumers[thePushed].Links["/jobs/1"] = fsm.Link{Acked: fsm.Offset("1").At(1, "3"), Tail: "3"}
			},
		},
		{
			name: "a consumer that is gone in the end", want: []string{ruleGone}, tell: pushesByTheBook,
			truth: func(t *truth) { t.Consumers = nil },
		},
	})
}

// pushCase is a run by the book but for one thing.
type pushCase struct {
	name string
	tell func(s *story)
	// truth changes what is true in the end: three events, and the consumer at rest at the end of them.
	truth func(t *truth)
	want  []string
	// lost, again, aside, replayed and beside are the figures that the verdict must show.
	lost, again, aside, replayed, beside int
}

func judge(t *testing.T, cases []pushCase) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := &story{now: time.Unix(1_700_000_000, 0)}
			c.tell(s)
			end := truth{
				Streams: map[string]streamTruth{"/jobs/1": {[]string{"a", "b", "c"}, "3"}},
				Pushed:  map[string]fsm.Ordering{thePushed: fsm.OrderingStream},
				Consumers: map[string]fsm.Consumer{thePushed: {
					Links: map[string]fsm.Link{"/jobs/1": {Acked: "3", Tail: "3"}},
					Lease: fsm.Lease{State: fsm.Idle},
				}},
			}
			if c.truth != nil {
				c.truth(&end)
			}
			v := check(&s.journal, end)
			if !slices.Equal(v.rules(), c.want) {
				t.Errorf("violations %v, want %v", v.Violations, c.want)
			}
			if v.Lost != c.lost || v.PushedAgain != c.again || v.Aside != c.aside {
				t.Errorf("lost %d, again %d, aside %d; want %d, %d, %d", v.Lost, v.PushedAgain, v.Aside, c.lost,
					c.again, c.aside)
			}
			if v.Replayed != c.replayed || v.Beside != c.beside {
				t.Errorf("replayed %d, beside %d; want %d, %d", v.Replayed, v.Beside, c.replayed, c.beside)
			}
		})
	}
}

// unordered has failed pushes step aside.
func unordered(t *truth) { t.Pushed[thePushed] = fsm.OrderingNone }

func pushesByTheBook(s *story) {
	s.push("a", http.StatusOK, "a")
	s.push("b", http.StatusOK, "b")
	s.push("c", http.StatusOK, "c")
}
