package fault

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"reveille/fsm"
)

// The rules that the checker holds the journal against.
const (
	ruleLost     = "an event was lost"
	ruleRepeated = "an epoch was handed out again"
	ruleWakeID   = "an epoch has two wake ids"
	ruleReused   = "a wake id has two epochs"
	ruleZombie   = "a callback of an older epoch was accepted"
	ruleBack     = "an acknowledged offset went back"
	ruleFinal    = "a consumer did not come to rest with everything acknowledged"
	ruleGone     = "a consumer is gone whose stream was never deleted"
	ruleRefused  = "a rightful callback was refused as wrong"
	ruleForged   = "a wake was not signed with its subscription's secret"
)

// violation is a rule that was broken, and how.
type violation struct{ Rule, How string }

// streamTruth is a stream as the server has it in the end.
type streamTruth struct {
	Events []string
	Tail   fsm.Offset
}

// link is a stream that a consumer subscribed to by callback.
type link struct{ Consumer, Path string }

// truth is how things stand in the end.
type truth struct {
	Streams map[string]streamTruth
	// Expected are the consumers that there must be and that are woken.
	Expected []string
	// Pushed are those that events are pushed for, and how each orders them.
	Pushed map[string]fsm.Ordering
	// Consumers are those that there are.
	Consumers map[string]fsm.Consumer
	// Letters are the dead letters that there are.
	Letters []fsm.DeadLetter
	// Since are the events that a consumer has to get of streams that it subscribed to by callback.
	Since map[link][]string
	// Rates are those of subscriptions, in requests a minute.
	Rates map[string]int
	// Statuses count the events that were handed over, as the statistics tell; nil if they were not asked for.
	Statuses map[fsm.OutboxStatus]int
	// Events are what each of them is, by its id; nil if nobody has asked. Keys are the ids that some of the keys lead
	// to; empty if a key leads to none.
	Events map[string]outcome
	Keys   map[string]string
}

// verdict is what the checker makes of a run.
type verdict struct {
	Events, Wakes, Lost, Duplicates, Repeated int
	// Pushed counts the events that receivers took, PushedAgain the pushes of events that were taken already, and Aside
	// the events that stepped aside: their stream went on before they were pushed again.
	Pushed, PushedAgain, Aside int
	// Letters counts the dead letters that the operator has seen, Replayed the events that were taken from a replay,
	// and Beside the pushes that were taken while a dead letter of their stream was replayed.
	Letters, Replayed, Beside int
	// Handed counts the events that were accepted for direct delivery, HandedAgain the deliveries of what was taken
	// already, and Dead the events that are dead.
	Handed, HandedAgain, Dead int
	Gap                       time.Duration
	Violations                []violation
}

// checker judges one run.
type checker struct {
	j *journal
	t truth
	v verdict
}

// check judges a journal by the truth. It depends on nothing else.
func check(j *journal, t truth) verdict {
	c := &checker{j: j, t: t}
	for _, s := range t.Streams {
		c.v.Events += len(s.Events)
	}
	c.wakes()
	c.zombies()
	c.offsets()
	c.events()
	c.pushes()
	c.handedOver()
	c.rates()
	c.refusals()
	c.final()
	return c.v
}

func (c *checker) violate(rule, how string, args ...any) {
	c.v.Violations = append(c.v.Violations, violation{rule, fmt.Sprintf(how, args...)})
}

func (c *checker) marked(kind markKind, from, to time.Time) bool {
	return slices.ContainsFunc(c.j.Marks,
		func(m mark) bool { return m.Kind == kind && !m.From.After(to) && !m.To.Before(from) })
}

type epochOf struct {
	Consumer string
	Epoch    int64
}

// wakes checks that each epoch is that of one wake and each wake id that of one epoch.
func (c *checker) wakes() {
	first := map[wakeRef]time.Time{}
	ids := map[epochOf][]wakeRef{}
	epochs := map[string]wakeRef{}
	for _, a := range c.j.Arrivals {
		if a.Forged != "" {
			c.violate(ruleForged, "%v: %s", a.wakeRef, a.Forged)
		}
		if _, there := first[a.wakeRef]; there {
			c.v.Duplicates++
			continue
		}
		first[a.wakeRef] = a.At
		e := epochOf{a.Consumer, a.Epoch}
		ids[e] = append(ids[e], a.wakeRef)
		if was, there := epochs[a.WakeID]; there && (was.Epoch != a.Epoch || was.Consumer != a.Consumer) {
			c.violate(ruleReused, "%v and %v", was, a.wakeRef)
		}
		epochs[a.WakeID] = a.wakeRef
	}
	c.v.Wakes = len(first)
	for _, refs := range ids {
		if len(refs) < 2 {
			continue
		}
		rule := ruleWakeID
		if c.over(refs[0], first[refs[1]]) {
			rule = ruleRepeated
			c.v.Repeated++
		}
		c.violate(rule, "%v from %s, then %s from %s", refs[0], stamp(first[refs[0]]), refs[1].WakeID,
			stamp(first[refs[1]]))
	}
}

// over says whether a wake had been worked on, or may have been lost by Redis, before a moment: its epoch was spent.
func (c *checker) over(w wakeRef, before time.Time) bool {
	if slices.ContainsFunc(c.j.Dones, func(d syncDone) bool { return d.wakeRef == w && d.At.Before(before) }) {
		return true
	}
	for _, k := range c.j.Calls {
		if t := k.accepted(); k.wakeRef == w && t != nil && t.Sent.Before(before) {
			return true
		}
	}
	return slices.ContainsFunc(c.j.Marks, func(m mark) bool { return m.Kind == redisLost && m.From.Before(before) })
}

// zombies checks that nothing of a wake is accepted any more once a later one has been seen. A Redis that has lost the
// later one is back where the older one was the current, and can only take it for that.
func (c *checker) zombies() {
	seen := map[string][]arrival{}
	for _, a := range c.j.Arrivals {
		seen[a.Consumer] = append(seen[a.Consumer], a)
	}
	for _, k := range c.j.Calls {
		t := k.accepted()
		if t == nil {
			continue
		}
		for _, a := range seen[k.Consumer] {
			if a.Epoch > k.Epoch && a.At.Before(t.Sent) && !c.lostBetween(a.At, t.Sent) {
				c.violate(ruleZombie, "%v, sent at %s, epoch %d was there at %s", k.wakeRef, stamp(t.Sent), a.Epoch,
					stamp(a.At))
				break
			}
		}
	}
}

// offsets checks that a wake does not begin before what an earlier one has acknowledged.
func (c *checker) offsets() {
	type acked struct {
		epoch int64
		to    fsm.Offset
		at    time.Time
	}
	acks := map[link][]acked{}
	for _, k := range c.j.Calls {
		if t := k.accepted(); t != nil {
			for path, to := range k.Acks {
				l := link{k.Consumer, path}
				acks[l] = append(acks[l], acked{k.Epoch, to, t.Answered})
			}
		}
	}
	for _, a := range c.j.Arrivals {
		for path, from := range a.Offsets {
			for _, k := range acks[link{a.Consumer, path}] {
				if a.Epoch <= k.epoch || !k.to.After(from) {
					continue
				}
				if !c.lostBetween(k.at, a.At) {
					c.violate(ruleBack, "%s of %v: %s, acknowledged was %s in epoch %d", path, a.wakeRef, from, k.to,
						k.epoch)
				}
				break
			}
		}
	}
}

// lostBetween says whether Redis may have lost a change of a moment before another.
func (c *checker) lostBetween(changed, then time.Time) bool {
	return slices.ContainsFunc(c.j.Marks, func(m mark) bool {
		return m.Kind == redisLost && !changed.Before(m.From) && m.From.Before(then)
	})
}

type needed struct{ Consumer, Path, Event string }

// events checks that each consumer has read every event that concerns it, in a wake whose ack or done beyond it was not
// refused.
func (c *checker) events() {
	read, covered := map[needed]time.Time{}, map[needed]bool{}
	done := map[wakeRef]bool{}
	for _, d := range c.j.Dones {
		done[d.wakeRef] = true
	}
	acks := map[wakeRef][]*call{}
	for _, k := range c.j.Calls {
		if len(k.Acks) > 0 && !k.refused() {
			acks[k.wakeRef] = append(acks[k.wakeRef], k)
		}
	}
	for _, r := range c.j.Reads {
		ok := done[r.wakeRef] || slices.ContainsFunc(acks[r.wakeRef], func(k *call) bool {
			to, there := k.Acks[r.Path]
			return there && !r.To.After(to)
		})
		for _, e := range r.Events {
			n := needed{r.Consumer, r.Path, e}
			if at, there := read[n]; !there || r.At.Before(at) {
				read[n] = r.At
			}
			covered[n] = covered[n] || ok
		}
	}
	sent, confirmed := map[string]time.Time{}, map[string]bool{}
	for _, w := range c.j.Appends {
		sent[w.Path+" "+w.Event] = w.Sent
		confirmed[w.Path+" "+w.Event] = w.OK
	}
	judge := func(consumer, path string, events []string) {
		var lost []string
		for _, e := range events {
			n := needed{consumer, path, e}
			if !covered[n] {
				lost = append(lost, e)
			}
			if at, there := read[n]; there {
				// One without an answer may have waited anywhere before it took place.
				if confirmed[path+" "+e] {
					c.v.Gap = max(c.v.Gap, at.Sub(sent[path+" "+e]))
				}
			}
		}
		c.v.Lost += len(lost)
		if len(lost) > 0 {
			c.violate(ruleLost, "%s: %d events of %s, the first %s, appended at %s, read: %v", consumer, len(lost),
				path,
				lost[0], stamp(sent[path+" "+lost[0]]), !read[needed{consumer, path, lost[0]}].IsZero())
		}
	}
	for _, consumer := range c.t.Expected {
		path := primaryOf(consumer)
		judge(consumer, path, c.t.Streams[path].Events)
	}
	for l, events := range c.t.Since {
		judge(l.Consumer, l.Path, events)
	}
}

// refusals checks that no callback was refused for a reason that it cannot have given.
func (c *checker) refusals() {
	for _, k := range c.j.Calls {
		for _, t := range k.Tries {
			switch fsm.Code(t.Code) {
			case unknown, accepted, fsm.CodeTokenExpired, fsm.CodeStaleEpoch, fsm.CodeAlreadyClaimed:
			case fsm.CodeConsumerGone:
				if !c.marked(maybeGone, t.Sent, t.Answered) && !c.lostBetween(t.Sent, t.Answered) {
					c.violate(ruleGone, "%v: a callback sent at %s was told so", k.wakeRef, stamp(t.Sent))
				}
			case fsm.CodeInvalidOffset:
				if !k.Contradicted {
					c.violate(ruleRefused, "%v: %s", k.wakeRef, t.Code)
				}
			default:
				c.violate(ruleRefused, "%v: %s", k.wakeRef, t.Code)
			}
		}
	}
}

// final checks how the consumers stand in the end.
func (c *checker) final() {
	for _, id := range slices.Concat(c.t.Expected, slices.Sorted(maps.Keys(c.t.Pushed))) {
		k, there := c.t.Consumers[id]
		if !there {
			c.violate(ruleGone, "%s does not exist", id)
			continue
		}
		if k.State != fsm.Idle {
			c.violate(ruleFinal, "%s is %s in epoch %d, attempt %d", id, k.State, k.Epoch, k.Attempt)
		}
		if k.Asides > 0 {
			c.violate(ruleFinal, "%s has %d deliveries aside", id, k.Asides)
		}
		for _, path := range slices.Sorted(maps.Keys(k.Links)) {
			acked, tail := k.Links[path].Acked, c.t.Streams[path].Tail
			if acked != tail && (acked != fsm.Start || tail != "") {
				c.violate(ruleFinal, "%s: %s is acknowledged to %s and ends at %s", id, path, acked, tail)
			}
		}
	}
}

func stamp(t time.Time) string { return t.Format("15:04:05.000") }
