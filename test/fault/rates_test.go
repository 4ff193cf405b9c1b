package fault

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

// ruleRate is the rule for subscriptions that have a rate.
const ruleRate = "a subscription got more than its rate and a burst"

// brokenRate is a build that sends without a turn.
var brokenRate = harness.BrokenScript{
	Name: "a delivery does not wait for its turn", File: "dispatcher/stages.go",
	Old: "d.allowOrigin, d.takeTurn}", New: "d.allowOrigin}",
}

// ratesOf are the rates of the subscriptions that have one.
func ratesOf() map[string]int {
	rates := map[string]int{}
	for _, s := range pushSubscriptions {
		if s.rate > 0 {
			rates[s.id] = s.rate
		}
	}
	return rates
}

// rates checks that no span of time has more pushes of a subscription than its rate and one burst allow. A request may
// be on its way for pushReport. What is broken can hold up requests that have had their turn, for as long as it lasts
// and as a request may take: each fault allows another burst, and what the rate allows in that time.
func (c *checker) rates() {
	for id, rate := range c.t.Rates {
		l := fsm.Limit{Rate: rate}
		var came []*pushed
		again := map[string]time.Time{} // a request that is repeated has the turn of the first
		for _, p := range c.j.Pushes {
			if strings.HasPrefix(p.Consumer, id+":") && (p.Sent.IsZero() || !again[p.Delivery].Equal(p.Sent)) {
				came, again[p.Delivery] = append(came, p), p.Sent
			}
		}
		for i := range came {
			for j := i; j < len(came); j++ {
				from, to := came[i].At, came[j].At
				bursts, span := 1, to.Sub(from)+pushReport
				for _, m := range c.j.Marks {
					if !m.From.After(to) && !m.To.Before(from.Add(-pushTimeout)) {
						bursts, span = bursts+1, span+min(m.To.Sub(m.From), pushTimeout)
					}
				}
				if most := bursts*l.Burst() + int(span/l.Interval()); j-i+1 > most {
					c.violate(ruleRate, "%s: %d pushes from %s to %s, of %d", id, j-i+1, stamp(from), stamp(to), most)
					return
				}
			}
		}
	}
}

// TestTheCheckerCountsWhatARateAllows holds the bounds of ruleRate.
func TestTheCheckerCountsWhatARateAllows(t *testing.T) {
	const rate = 60 // with a burst of one
	within := func(n int, apart time.Duration, fault func(s *story)) func(*story) {
		return func(s *story) {
			pushesByTheBook(s)
			s.quiet()
			began := s.now
			for i := range n {
				s.Pushes = append(s.Pushes, &pushed{
					Consumer: thePushed, Path: "/jobs/1", Delivery: string(rune('a' + i)), Replay: true,
					Status: http.StatusNoContent, At: began.Add(time.Duration(i) * apart),
					Answered: began.Add(time.Duration(i) * apart),
				})
			}
			if fault != nil {
				fault(s)
			}
		}
	}
	rated := func(end *truth) { end.Rates = map[string]int{"feed": rate, "another": rate} }
	judge(t, []pushCase{
		{name: "a second apart", truth: rated, tell: within(9, time.Second, nil)},
		{name: "three at once were on their way", truth: rated, tell: within(3, 0, nil)},
		{name: "four at once", want: []string{ruleRate}, truth: rated, tell: within(4, 0, nil)},
		{name: "half a second apart", want: []string{ruleRate}, truth: rated, tell: within(9, time.Second/2, nil)},
		{name: "four at once after a fault", truth: rated, tell: within(4, 0, func(s *story) {
			s.Marks = append(s.Marks, mark{answersLost, s.now, s.now})
		})},
		{name: "without a rate", tell: within(9, 0, nil)},
	})
}
