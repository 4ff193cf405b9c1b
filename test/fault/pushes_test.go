package fault

import (
	"maps"
	"slices"
	"time"

	"reveille/fsm"
)

// The rules for events that are pushed.
const (
	ruleUndelivered = "an event was not pushed until it was taken"
	ruleOrder       = "an event was pushed before an earlier one of its stream"
	ruleAgain       = "an event was pushed again although its answer cannot have been lost"
	ruleID          = "an event was pushed under another id than before"
	ruleSharedID    = "two events were pushed under one id"
)

// pushed is a push that reached a receiver.
type pushed struct {
	Consumer, Path string
	// Delivery is the id of all of it. IDs are those of its Events.
	Delivery    string
	IDs, Events []string
	// Replay is set if it says that it replays a dead letter.
	Replay bool
	// Sent is when it was signed, by its replica's clock and to the second. It came At.
	Sent, At time.Time
	// Answered is when the answer was sent, Status what it was; 0 if there was none.
	Answered time.Time
	Status   int
	// Forged says what is wrong with its signature or its form.
	Forged string
}

func (p pushed) taken() bool { return p.Status/100 == 2 }

// pushed notes a push when it arrives; what it returns notes the answer, before it is sent.
func (j *journal) pushed(p *pushed) (answered func(status int)) {
	j.note(func(j *journal) { j.Pushes = append(j.Pushes, p) })
	return func(status int) {
		j.note(func(*journal) { p.Answered, p.Status = time.Now(), status })
	}
}

// began is when its replica began to wait for the answer, at the latest. A crowded machine may have had it on its way
// for seconds. A clock that is ahead says nothing.
func (p pushed) began() time.Time {
	if second := p.Sent.Add(time.Second); !p.Sent.IsZero() && second.Before(p.At) {
		return second
	}
	return p.At
}

// pushReport is how long an answer may take at most, where nothing is broken, from its receiver into Redis, and as well
// a request from its replica to the receiver.
const pushReport = 2 * time.Second

// answerLost says whether Reveille may not know that a push was taken: something between the receiver and Redis was
// broken while it was on its way, the answer came too late, or Redis has lost that it was noted.
func (c *checker) answerLost(p *pushed, again time.Time) bool {
	return c.uncertain(p) || c.lostBetween(p.Answered, again) ||
		// An attempt that was out when its stream was hidden is made again once the stream is shown.
		c.marked(missing, p.began().Add(-pushReport), p.Answered.Add(pushReport))
}

// uncertain is answerLost but for what Redis has lost later, and for streams that were hidden. What was not answered is
// uncertain, too: nobody knows when its sender gave it up.
func (c *checker) uncertain(p *pushed) bool {
	from, to := p.began().Add(-pushReport), p.Answered.Add(pushReport)
	return p.Answered.IsZero() || p.Answered.Sub(p.began()) >= pushTimeout/2 ||
		c.marked(answersLost, from, to) || c.marked(redisLost, from, to)
}

// pushedEvent is an event of a consumer's stream.
type pushedEvent struct{ Consumer, Event string }

// pushes checks that each event has come until it was taken, the events of a stream in their order where that is asked
// for, each under one id, and after it was taken only where the answer may have been lost.
func (c *checker) pushes() {
	number := map[string]map[string]int{}
	for consumer := range c.t.Pushed {
		number[consumer] = map[string]int{}
		for i, e := range c.t.Streams[primaryOf(consumer)].Events {
			number[consumer][e] = i
		}
	}
	came, taken := map[pushedEvent][]*pushed{}, map[pushedEvent][]*pushed{}
	ids, events := map[pushedEvent]string{}, map[string]pushedEvent{}
	last, aside := map[string]int{}, map[pushedEvent]bool{}
	for _, p := range c.j.Pushes {
		if p.Forged != "" {
			c.violate(ruleForged, "%s: %s", p.Delivery, p.Forged)
		}
		for i, e := range p.Events[:min(len(p.Events), len(p.IDs))] {
			n, id := pushedEvent{p.Consumer, e}, p.IDs[i]
			if at, there := number[p.Consumer][e]; there && !p.Replay {
				switch before := last[p.Consumer]; {
				case at >= before:
					last[p.Consumer] = at
				case c.t.Pushed[p.Consumer] == fsm.OrderingNone:
					aside[n] = true
				case len(came[n]) == 0:
					c.violate(ruleOrder, "%s: %s at %s, number %d, after number %d", p.Consumer, e, stamp(p.At), at,
						before)
				}
			}
			c.again(p, n, taken[n])
			c.marking(p, n, came[n])
			if was, there := ids[n]; there && was != id && !c.moved(came[n], p.At) {
				c.violate(ruleID, "%s: %s was %s, and is %s at %s", p.Consumer, e, was, id, stamp(p.At))
			}
			if was, there := events[id]; there && was != n {
				c.violate(ruleSharedID, "%s: %v and %v", id, was, n)
			}
			ids[n], events[id] = id, n
			came[n] = append(came[n], p)
			if p.taken() {
				taken[n] = append(taken[n], p)
			}
		}
	}
	for _, consumer := range slices.Sorted(maps.Keys(c.t.Pushed)) {
		c.delivered(consumer, came, taken)
	}
	c.v.Pushed, c.v.Aside = len(taken), len(aside)
	c.letters()
}

// again checks a push of an event that was taken before.
func (c *checker) again(p *pushed, n pushedEvent, taken []*pushed) {
	// Requests cross on the way: what was taken after this one came is not before it.
	taken = slices.DeleteFunc(slices.Clone(taken), func(t *pushed) bool { return t.Answered.After(p.At) })
	if len(taken) > 0 {
		c.v.PushedAgain++
	}
	for _, t := range taken {
		if !c.answerLost(t, p.At) {
			c.violate(ruleAgain, "%s: %s at %s, it was taken at %s as %s", n.Consumer, n.Event, stamp(p.At),
				stamp(t.Answered), t.Delivery)
			return
		}
	}
}

// moved says whether Redis may have lost, before a moment, what the id of an event was made from: the position before
// it, or the consumer itself, which were there when the event first came.
func (c *checker) moved(came []*pushed, now time.Time) bool {
	return slices.ContainsFunc(came, func(p *pushed) bool { return c.lostBetween(p.At, now) })
}

// delivered checks that all events of a consumer's stream were taken, those that were refused for good by a replay.
func (c *checker) delivered(consumer string, came, taken map[pushedEvent][]*pushed) {
	path := primaryOf(consumer)
	var lost []string
	for _, e := range c.t.Streams[path].Events {
		if len(taken[pushedEvent{consumer, e}]) == 0 {
			lost = append(lost, e)
		}
	}
	if c.v.Lost += len(lost); len(lost) > 0 {
		c.violate(ruleUndelivered, "%s: %d events of %s, the first %s, which has come %d times", consumer, len(lost),
			path, lost[0], len(came[pushedEvent{consumer, lost[0]}]))
	}
}
