package fault

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"time"

	"reveille/fsm"
)

// The rules for dead letters and their replay. That each event which was refused for good is taken in the end is
// ruleUndelivered; that it keeps its id, ruleID; that no replay is made twice, ruleAgain.
const (
	ruleLeft        = "a dead letter is left although its replay was asked for"
	ruleLetter      = "a dead letter is of a delivery that was not refused for good"
	ruleUnmarked    = "an event that was refused for good came again, and not as a replay"
	ruleReplayed    = "an event was replayed that was not refused for good"
	ruleReplayOrder = "a dead letter was replayed before an earlier one of its stream that was asked for earlier"
)

// refusedForGood is the answer after which a push is not tried again.
const refusedForGood = http.StatusUnprocessableEntity

func (p pushed) refused() bool { return p.Status == refusedForGood }

// letter is a dead letter that the operator has seen in a list.
type letter struct {
	fsm.LetterID
	Consumer, Delivery string
	// At is when it was first seen.
	At time.Time
}

// ask is an operator's wish to have one dead letter replayed, or all of a subscription.
type ask struct {
	Subscription string
	// Letter is zero for all.
	Letter fsm.LetterID
	// Sent and Answered are when the first request was sent and the last answer came; Answered is zero if none came. OK
	// says that all was accepted.
	Sent, Answered time.Time
	OK             bool
}

// asked notes a wish before it is sent; what it returns notes the answer.
func (j *journal) asked(a *ask) (answered func(ok bool)) {
	a.Sent = time.Now()
	j.note(func(j *journal) { j.Asks = append(j.Asks, a) })
	return func(ok bool) { j.note(func(*journal) { a.Answered, a.OK = time.Now(), ok }) }
}

// queued says whether a wish has certainly had a letter queued, if that was still there.
func (a *ask) queued(l letter) bool {
	if !a.OK {
		return false
	}
	return a.Letter == l.LetterID || a.Letter == fsm.LetterID{} && a.Subscription == subscriptionOf(l.Consumer) &&
		l.At.Before(a.Sent)
}

// marking checks that a push of an event says that it is a replay if it is one. came are the pushes of the event
// before.
func (c *checker) marking(p *pushed, n pushedEvent, came []*pushed) {
	refused := slices.DeleteFunc(slices.Clone(came),
		func(b *pushed) bool { return !b.refused() || b.Answered.After(p.At) })
	if p.Replay {
		if len(refused) == 0 {
			c.violate(ruleReplayed, "%s: %s at %s", n.Consumer, n.Event, stamp(p.At))
		}
		return
	}
	for _, r := range refused {
		if !c.answerLost(r, p.At) {
			c.violate(ruleUnmarked, "%s: %s at %s, it was refused at %s as %s", n.Consumer, n.Event, stamp(p.At),
				stamp(r.Answered), r.Delivery)
			return
		}
	}
}

// delivery is what a receiver tells the deliveries of a consumer apart by.
type delivery struct{ Consumer, ID string }

// history is what came of a delivery: when it was first refused for good, and from when to when it was replayed.
type history struct{ refused, from, to time.Time }

// letters checks that each letter is of what was refused, that none is left, and the order of the replays. It counts.
func (c *checker) letters() {
	all, replayed := map[delivery]*history{}, map[pushedEvent]bool{}
	for _, p := range c.j.Pushes {
		k := delivery{p.Consumer, p.Delivery}
		h := all[k]
		if h == nil {
			h = &history{}
			all[k] = h
		}
		if p.refused() && h.refused.IsZero() {
			h.refused = p.At
		}
		if p.Replay {
			if h.from.IsZero() {
				h.from = p.At
			}
			if p.Answered.After(h.to) {
				h.to = p.Answered
			}
			for _, e := range p.Events {
				if p.taken() {
					replayed[pushedEvent{p.Consumer, e}] = true
				}
			}
		}
	}
	c.v.Letters, c.v.Replayed = len(c.j.Letters), len(replayed)
	c.v.Beside = c.beside(all)
	first := map[delivery]bool{}
	ofConsumer := map[string][]letter{}
	for _, l := range slices.SortedFunc(slices.Values(c.j.Letters), func(a, b letter) int {
		return cmp.Compare(a.Number, b.Number)
	}) {
		k := delivery{l.Consumer, l.Delivery}
		if h := all[k]; h == nil || h.refused.IsZero() {
			c.violate(ruleLetter, "%s: %s is of %s", l.Consumer, l.LetterID, l.Delivery)
		} else if !first[k] { // what is refused again leaves a later one, and the operator may have seen only that
			first[k] = true
			if h.from.IsZero() || h.from.After(time.UnixMicro(l.Number)) {
				ofConsumer[l.Consumer] = append(ofConsumer[l.Consumer], l)
			}
		}
	}
	for _, l := range c.t.Letters {
		c.violate(ruleLeft, "%s is of %s, %s: %s", l.ID, l.DeliveryID, l.Consumer, l.Reason)
	}
	for _, consumer := range slices.Sorted(maps.Keys(ofConsumer)) {
		c.replayOrder(ofConsumer[consumer], all)
	}
}

// beside counts the pushes that were taken while a dead letter of their stream was replayed.
func (c *checker) beside(all map[delivery]*history) (n int) {
	spans := map[string][]*history{}
	for k, h := range all {
		if !h.from.IsZero() {
			spans[k.Consumer] = append(spans[k.Consumer], h)
		}
	}
	for _, p := range c.j.Pushes {
		if !p.Replay && p.taken() && slices.ContainsFunc(spans[p.Consumer],
			func(h *history) bool { return h.from.Before(p.At) && p.Answered.Before(h.to) }) {
			n++
		}
	}
	return n
}

// replayOrder checks that of two letters of a consumer, which are in the order in which they came, the second was not
// replayed before the first, unless it may have been asked for alone, and first. Whoever asks for all asks for the
// first as well.
func (c *checker) replayOrder(letters []letter, all map[delivery]*history) {
	for i, a := range letters {
		ha := all[delivery{a.Consumer, a.Delivery}]
		var asked time.Time
		if at := slices.IndexFunc(c.j.Asks, func(k *ask) bool { return k.queued(a) }); at >= 0 {
			asked = c.j.Asks[at].Answered
		}
		noted := a.At
		if asked.After(noted) {
			noted = asked
		}
		for _, b := range letters[i+1:] {
			hb := all[delivery{b.Consumer, b.Delivery}]
			if hb.from.IsZero() || !ha.from.IsZero() && ha.from.Before(hb.from) || c.lostBetween(noted, hb.from) {
				continue
			}
			if slices.ContainsFunc(c.j.Asks, func(k *ask) bool {
				return k.Letter == b.LetterID && k.Sent.Before(hb.from) && (asked.IsZero() || k.Sent.Before(asked))
			}) {
				continue
			}
			c.violate(ruleReplayOrder, "%s: %s at %s, and %s at %s", a.Consumer, b.LetterID, stamp(hb.from), a.LetterID,
				stamp(ha.from))
		}
	}
}
