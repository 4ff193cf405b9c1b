package fault

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"reveille/fsm"
)

const theTarget = "http://127.0.0.1:1/hook"

func eventID(key string) string { return "whe_1_" + key }

// hand hands an event over by requests that are answered with each status in turn; without an answer if that is 0.
func (s *story) hand(key string, statuses ...int) *handed {
	h := &handed{Key: key, Target: theTarget, Payload: `"` + key + `"`}
	for _, status := range statuses {
		r := handing{Sent: s.tick(), Status: status}
		if r.accepted() {
			r.ID = eventID(key)
		}
		if status != 0 {
			r.Answered = s.tick()
		}
		h.Requests = append(h.Requests, r)
	}
	s.Handed = append(s.Handed, h)
	return h
}

// deliver is an attempt that comes to the target, answered with a status a second later; with none if that is 0.
func (s *story) deliver(key string, attempt, status int) *direct {
	d := &direct{Key: key, Target: theTarget, Body: `"` + key + `"`, Attempt: attempt}
	d.Delivery, d.At, d.Status = eventID(key), s.tick(), status
	if s.tick(); status != 0 {
		d.Answered = s.now
	}
	s.Directs = append(s.Directs, d)
	return d
}

// handedCase is a run by the book but for one thing, of event a.
type handedCase struct {
	name string
	tell func(s *story)
	// status and attempts are what Reveille tells of event a in the end; delivered after one attempt unless they are
	// set. truth changes what else it tells.
	status   fsm.OutboxStatus
	attempts int
	truth    func(t *truth)
	want     []string
	again    int
}

// TestTheCheckerFindsWhatIsWrongWithHandOvers is TestTheCheckerFindsEachViolation for events that are handed over.
func TestTheCheckerFindsWhatIsWrongWithHandOvers(t *testing.T) {
	const no, yes, final = http.StatusServiceUnavailable, http.StatusNoContent, refusedForGood
	const isNew, isThere = http.StatusAccepted, http.StatusOK
	for _, c := range []handedCase{
		{name: "nothing is wrong", tell: func(s *story) {
			s.hand("a", isNew)
			s.deliver("a", 1, yes)
		}},
		{name: "it is handed over again and again", tell: func(s *story) {
			s.hand("a", no, 0, isNew, no, isThere)
			s.deliver("a", 1, yes)
		}},
		{name: "it comes before it is accepted", tell: func(s *story) {
			h := s.hand("a", 0)
			s.deliver("a", 1, yes)
			h.Requests = append(h.Requests,
				handing{Sent: s.tick(), Answered: s.tick(), Status: isThere, ID: eventID("a")})
		}},
		{name: "it is retried", attempts: 3, tell: func(s *story) {
			s.hand("a", isNew)
			s.deliver("a", 1, no)
			s.deliver("a", 2, 0)
			s.deliver("a", 3, yes)
		}},
		{name: "it is refused for good", status: fsm.OutboxDead, tell: func(s *story) {
			s.hand("a", isNew)
			s.deliver("a", 1, final)
		}},
		{name: "it is out of attempts", status: fsm.OutboxDead, attempts: 2, tell: func(s *story) {
			s.hand("a", isNew).MaxAttempts = 2
			s.deliver("a", 1, no)
			s.deliver("a", 2, no)
		}},
		{name: "it gets an attempt that does not count", status: fsm.OutboxDead, attempts: 2, tell: func(s *story) {
			s.hand("a", isNew).MaxAttempts = 2
			s.deliver("a", 1, no)
			s.deliver("a", 2, no)
			s.deliver("a", 2, no)
		}},

		{name: "it is refused by Reveille", want: []string{ruleHandOver}, tell: func(s *story) {
			s.hand("a", http.StatusConflict, isNew)
			s.deliver("a", 1, yes)
		}},
		{
			name: "it is never accepted", want: []string{ruleHandOver},
			tell:  func(s *story) { s.hand("a", 0, no) },
			truth: func(t *truth) { t.Events, t.Statuses = map[string]outcome{}, nil },
		},
		{name: "its key is of two events", want: []string{ruleKey}, tell: func(s *story) {
			h := s.hand("a", isNew, isThere)
			h.Requests[1].ID = eventID("b")
			s.deliver("a", 1, yes)
		}},
		{
			name: "two keys are of one event", want: []string{ruleKey, ruleStranger, ruleKey, ruleUntrue},
			truth: func(t *truth) { t.Statuses[fsm.OutboxDelivered]++ },
			tell: func(s *story) {
				s.hand("a", isNew)
				s.hand("b", isNew).Requests[0].ID = eventID("a")
				s.deliver("a", 1, yes)
				s.deliver("b", 1, yes)
			},
		},
		{
			name: "it has another key in the end", want: []string{ruleKey},
			tell: func(s *story) {
				s.hand("a", isNew)
				s.deliver("a", 1, yes)
			},
			truth: func(t *truth) {
				o := t.Events[eventID("a")]
				o.Key = "b"
				t.Events[eventID("a")] = o
			},
		},
		{
			name: "its key leads nowhere", want: []string{ruleKey},
			tell: func(s *story) {
				s.hand("a", isNew)
				s.quiet()
				s.excuse(redisLost, s.tick())
				s.deliver("a", 1, yes)
			},
			truth: func(t *truth) { t.Keys["a"] = "" },
		},
		{
			name: "its key leads nowhere, and Redis may have lost it",
			tell: func(s *story) {
				began := s.now
				s.hand("a", isNew)
				s.excuse(redisLost, began)
				s.quiet()
				s.deliver("a", 1, yes)
			},
			truth: func(t *truth) { t.Keys["a"] = "" },
		},
		{name: "it is new twice", want: []string{ruleAnew}, tell: func(s *story) {
			s.hand("a", isNew, isNew)
			s.deliver("a", 1, yes)
		}},
		{name: "it is new twice, and Redis may have lost its key", tell: func(s *story) {
			began := s.now
			s.hand("a", isNew, isNew)
			s.excuse(redisLost, began)
			s.quiet()
			s.deliver("a", 1, yes)
		}},

		{name: "nobody handed it over", want: []string{ruleStranger}, tell: func(s *story) {
			s.hand("a", isNew)
			s.deliver("a", 1, yes)
			s.deliver("b", 1, yes)
		}},
		{name: "it comes to another target", want: []string{ruleStranger}, tell: func(s *story) {
			s.hand("a", isNew)
			s.deliver("a", 1, yes).Target += "/2"
		}},
		{name: "it has another payload", want: []string{ruleStranger}, tell: func(s *story) {
			s.hand("a", isNew)
			s.deliver("a", 1, yes).Body = `"b"`
		}},
		{name: "it comes under another id", want: []string{ruleStranger}, tell: func(s *story) {
			s.hand("a", isNew)
			s.deliver("a", 1, yes).Delivery = eventID("b")
		}},
		{name: "somebody else has signed it", want: []string{ruleStranger}, tell: func(s *story) {
			s.hand("a", isNew)
			s.deliver("a", 1, yes).Forged = "the signature is wrong"
		}},
		{name: "it is no replay and says so", want: []string{ruleStranger}, tell: func(s *story) {
			s.hand("a", isNew)
			s.deliver("a", 1, yes).Replay = true
		}},

		{name: "it comes again", want: []string{ruleAgain}, again: 1, tell: func(s *story) {
			s.hand("a", isNew)
			s.deliver("a", 1, yes)
			s.deliver("a", 1, yes)
		}},
		{name: "it comes again, and its answer may have been lost", attempts: 2, again: 1, tell: func(s *story) {
			s.hand("a", isNew)
			began := s.now
			s.deliver("a", 1, yes)
			s.excuse(answersLost, began)
			s.quiet()
			s.deliver("a", 2, yes)
		}},
		{name: "it comes again, and Redis may have lost that it was taken", again: 1, tell: func(s *story) {
			s.hand("a", isNew)
			began := s.now
			s.deliver("a", 1, yes)
			s.excuse(redisLost, began)
			s.quiet()
			s.deliver("a", 1, yes)
		}},
		{
			name: "it comes again after Redis lost other things, earlier", want: []string{ruleAgain}, again: 1,
			tell: func(s *story) {
				s.excuse(redisLost, s.tick())
				s.quiet()
				s.hand("a", isNew)
				s.deliver("a", 1, yes)
				s.deliver("a", 1, yes)
			},
		},
		{
			name: "it comes again after Redis lost other things, later", want: []string{ruleAgain}, again: 1,
			tell: func(s *story) {
				s.hand("a", isNew)
				s.deliver("a", 1, yes)
				s.quiet()
				s.excuse(redisLost, s.tick())
				s.deliver("a", 1, yes)
			},
		},
		{name: "it comes again by a request that was under way", tell: func(s *story) {
			s.hand("a", isNew)
			d := s.deliver("a", 1, yes)
			s.deliver("a", 1, yes).At = d.At
		}},
		{
			name: "it comes again although it was refused for good", want: []string{ruleTooOften},
			status: fsm.OutboxDead, tell: func(s *story) {
				s.hand("a", isNew)
				s.deliver("a", 1, final)
				s.deliver("a", 1, final)
			},
		},
		{
			name: "it comes again, and its refusal may have been lost", status: fsm.OutboxDead, attempts: 1,
			tell: func(s *story) {
				s.hand("a", isNew)
				began := s.now
				s.deliver("a", 1, final)
				s.excuse(answersLost, began)
				s.quiet()
				s.deliver("a", 1, final)
			},
		},
		{name: "it comes once too often", want: []string{ruleTooOften}, attempts: 3, tell: func(s *story) {
			s.hand("a", isNew).MaxAttempts = 2
			s.deliver("a", 1, no)
			s.deliver("a", 2, no)
			s.deliver("a", 3, yes)
		}},

		{name: "it never came", want: []string{ruleUntrue}, tell: func(s *story) { s.hand("a", isNew) }},
		{name: "it is delivered and was not taken", want: []string{ruleUntrue}, tell: func(s *story) {
			s.hand("a", isNew)
			s.deliver("a", 1, no)
		}},
		{name: "it is delivered by an attempt that failed", want: []string{ruleUntrue}, tell: func(s *story) {
			s.hand("a", isNew)
			s.deliver("a", 1, no)
			s.deliver("a", 2, yes)
		}},
		{name: "it is dead and was taken", want: []string{ruleUntrue}, status: fsm.OutboxDead, tell: func(s *story) {
			s.hand("a", isNew)
			s.deliver("a", 1, yes)
		}},
		{
			name: "it is dead and was taken, and the answer may have been lost", status: fsm.OutboxDead, attempts: 2,
			again: 1, tell: func(s *story) {
				s.hand("a", isNew).MaxAttempts = 2
				began := s.now
				s.deliver("a", 1, yes)
				s.excuse(answersLost, began)
				s.quiet()
				s.deliver("a", 2, no)
			},
		},
		{name: "it is dead too early", want: []string{ruleUntrue}, status: fsm.OutboxDead, tell: func(s *story) {
			s.hand("a", isNew).MaxAttempts = 2
			s.deliver("a", 1, no)
		}},
		{name: "an attempt counts that never came", want: []string{ruleUntrue}, attempts: 2, tell: func(s *story) {
			s.hand("a", isNew)
			s.deliver("a", 2, yes)
		}},
		{name: "an attempt counts that may have been cut on its way", attempts: 2, tell: func(s *story) {
			s.hand("a", isNew)
			s.excuse(answersLost, s.now)
			s.deliver("a", 2, yes)
		}},
		{
			name: "an attempt counts that never came, and others were cut", want: []string{ruleUntrue}, attempts: 3,
			tell: func(s *story) {
				s.excuse(answersLost, s.now)
				s.quiet()
				s.hand("a", isNew)
				s.deliver("a", 1, no)
				s.deliver("a", 3, yes)
				s.quiet()
				s.excuse(answersLost, s.now)
			},
		},
		{name: "an attempt came and does not count", want: []string{ruleUntrue}, again: 1, tell: func(s *story) {
			s.hand("a", isNew)
			d := s.deliver("a", 1, yes)
			d.Answered = d.At.Add(pushTimeout)
			s.now = s.now.Add(2 * pushTimeout)
			s.deliver("a", 2, no)
		}},

		{name: "it is retried in the end", want: []string{ruleOpen}, status: fsm.OutboxRetrying, tell: func(s *story) {
			s.hand("a", isNew)
			s.deliver("a", 1, no)
		}},
		{
			name: "it is lost", want: []string{ruleOpen}, tell: func(s *story) { s.hand("a", isNew) },
			truth: func(t *truth) { t.Events, t.Statuses = map[string]outcome{}, nil },
		},
		{name: "it is cancelled", want: []string{ruleUntrue}, status: fsm.OutboxCancelled, tell: func(s *story) {
			s.hand("a", isNew)
			s.deliver("a", 1, no)
		}},
		{
			name: "the statistics say something else", want: []string{ruleUntrue},
			tell: func(s *story) {
				s.hand("a", isNew)
				s.deliver("a", 1, yes)
			},
			truth: func(t *truth) { t.Statuses[fsm.OutboxDead] = 1 },
		},
		{
			name: "the statistics say that it is not over, and nobody has asked for it", want: []string{ruleOpen},
			tell:  func(s *story) { s.hand("a", isNew) },
			truth: func(t *truth) { t.Events, t.Statuses = nil, map[fsm.OutboxStatus]int{fsm.OutboxPending: 1} },
		},
	} {
		t.Run(c.name, func(t *testing.T) { c.judge(t) })
	}
}

func (c handedCase) judge(t *testing.T) {
	s := &story{now: time.Unix(1_700_000_000, 0)}
	c.tell(s)
	o := outcome{ID: eventID("a"), Key: "a", Payload: `"a"`, Status: c.status, Attempts: max(c.attempts, 1)}
	if o.Status == "" {
		o.Status = fsm.OutboxDelivered
	}
	o.Last = s.now.UnixMilli()
	end := truth{
		Events: map[string]outcome{o.ID: o}, Keys: map[string]string{"a": o.ID},
		Statuses: map[fsm.OutboxStatus]int{o.Status: 1},
	}
	if c.truth != nil {
		c.truth(&end)
	}
	v := check(&s.journal, end)
	if !slices.Equal(v.rules(), c.want) {
		t.Errorf("violations %v, want %v", v.Violations, c.want)
	}
	if v.HandedAgain != c.again {
		t.Errorf("again %d, want %d", v.HandedAgain, c.again)
	}
}
