package fault

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"reveille/fsm"
)

// The rules for events that are handed over. That none is pushed again that was taken is ruleAgain.
const (
	ruleHandOver = "a hand-over was refused, or never accepted"
	ruleKey      = "an idempotency key is not of one event"
	ruleAnew     = "an event was accepted as new although it had been accepted before"
	ruleOpen     = "an event that was handed over is neither delivered nor dead"
	ruleUntrue   = "the state of an event is not what became of it"
	ruleStranger = "a target got what nobody handed over for it"
	ruleTooOften = "an event was pushed again after its last attempt"
)

// outcome is what Reveille tells of an event in the end.
type outcome struct {
	ID       string           `json:"id"`
	Key      string           `json:"idempotency_key"`
	Payload  string           `json:"-"`
	Status   fsm.OutboxStatus `json:"status"`
	Attempts int              `json:"attempts"`
	// Last is when the result of an attempt was last known, in milliseconds since 1970.
	Last int64 `json:"last_attempt_at"`
}

// handedOver checks that each event was accepted under one id, and is delivered or dead, as its target has answered. No
// event may come that nobody handed over, or that was taken or is dead, unless the answer may have been lost.
func (c *checker) handedOver() {
	byKey, ofID, came := map[string]*handed{}, map[string]string{}, map[string][]*direct{}
	for _, h := range c.j.Handed {
		byKey[h.Key] = h
		c.accepted(h, ofID)
	}
	for _, d := range c.j.Directs {
		h := byKey[d.Key]
		if how := d.strange(h); how != "" {
			c.violate(ruleStranger, "%s, key %q, at %s: %s", d.Delivery, d.Key, stamp(d.At), how)
		}
		if h != nil {
			c.directAgain(d, h, came[d.Key])
			came[d.Key] = append(came[d.Key], d)
		}
	}
	if open := c.t.open(); open > 0 {
		c.violate(ruleOpen, "%d of the events", open)
	}
	if c.t.Events == nil {
		return
	}
	counts := map[fsm.OutboxStatus]int{}
	for _, h := range c.j.Handed {
		if h.accepted() != nil {
			counts[c.state(h, came[h.Key])]++
		}
	}
	c.v.Dead = counts[fsm.OutboxDead]
	for status, n := range c.t.Statuses {
		if n != counts[status] {
			c.violate(ruleUntrue, "the statistics have %d events that are %s, and there are %d", n, status,
				counts[status])
		}
	}
}

// open is how many events the statistics say are not over.
func (t *truth) open() (n int) {
	for status, of := range t.Statuses {
		if !status.Over() {
			n += of
		}
	}
	return n
}

// accepted checks the answers to a client. ofID are the keys of the ids so far.
func (c *checker) accepted(h *handed, ofID map[string]string) {
	first := h.accepted()
	for i := range h.Requests {
		switch r := &h.Requests[i]; {
		case r.accepted():
			if key, there := ofID[r.ID]; there && key != h.Key {
				c.violate(ruleKey, "%q and %q are of %s", key, h.Key, r.ID)
			}
			if ofID[r.ID] = h.Key; r.ID != first.ID {
				c.violate(ruleKey, "%q is of %s and of %s", h.Key, first.ID, r.ID)
			}
			// Only a Redis that loses the key may lose that. It was reserved before the first answer.
			if r != first && r.Status == http.StatusAccepted &&
				!c.marked(redisLost, h.Requests[0].Sent, first.Answered) {
				c.violate(ruleAnew, "%q at %s, and at %s", h.Key, stamp(first.Answered), stamp(r.Answered))
			}
		case r.Status != 0 && r.Status != http.StatusServiceUnavailable:
			c.violate(ruleHandOver, "%q at %s: %d %s", h.Key, stamp(r.Sent), r.Status, r.Code)
		}
	}
	if first == nil {
		c.violate(ruleHandOver, "%q after %d requests", h.Key, len(h.Requests))
		return
	}
	c.v.Handed++
}

// strange says what of a delivery is not as it was handed over; empty if it is all right.
func (d *direct) strange(h *handed) string {
	switch {
	case h == nil:
		return "nobody has this key"
	case d.Forged != "":
		return d.Forged
	case d.Target != h.Target:
		return "it is for " + h.Target
	case d.Body != h.Payload:
		return "its payload is " + d.Body
	case d.Replay || d.Attempt < 1:
		return fmt.Sprintf("it is attempt %d, a replay: %v", d.Attempt, d.Replay)
	}
	if first := h.accepted(); first != nil && first.ID != d.Delivery {
		return "its id is " + first.ID
	}
	return ""
}

// directAgain checks a delivery of an event that came before.
func (c *checker) directAgain(d *direct, h *handed, came []*direct) {
	again := false
	for _, b := range came {
		if b.Answered.IsZero() || b.Answered.After(d.At) {
			continue // requests cross on the way
		}
		again = again || b.taken()
		rule := ""
		switch {
		case b.taken():
			rule = ruleAgain
		case b.refused(), b.Attempt >= h.most() && b.Attempt < d.Attempt:
			rule = ruleTooOften
		}
		if rule != "" && !c.uncertain(&b.pushed) {
			c.violate(rule, "%s at %s, it was answered with %d at %s", d.Delivery, stamp(d.At), b.Status,
				stamp(b.Answered))
			break
		}
	}
	if again {
		c.v.HandedAgain++
	}
}

// state checks what Reveille tells of an event that was accepted, and returns its status.
func (c *checker) state(h *handed, came []*direct) fsm.OutboxStatus {
	first := h.accepted()
	o, there := c.t.Events[first.ID]
	if !there || !o.Status.Over() {
		if c.t.open() == 0 { // they were not counted
			c.violate(ruleOpen, "%s is %q", first.ID, o.Status)
		}
		return o.Status
	}
	if o.ID != first.ID || o.Key != h.Key {
		c.violate(ruleKey, "%s has %q, and is shown as %s with %q", first.ID, h.Key, o.ID, o.Key)
	}
	if got, asked := c.t.Keys[h.Key]; asked && got != first.ID &&
		(got != "" || !c.marked(redisLost, h.Requests[0].Sent, first.Answered)) {
		c.violate(ruleKey, "%q is of %s, and leads to %q", h.Key, first.ID, got)
	}
	why := ""
	switch {
	case o.Payload != "" && o.Payload != h.Payload:
		why = fmt.Sprintf("its payload is %s, want %s", o.Payload, h.Payload)
	case o.Status == fsm.OutboxDead:
		why = c.notDead(h, o, came)
	case o.Status != fsm.OutboxDelivered:
		why = "nobody has cancelled it"
	case !slices.ContainsFunc(came, func(d *direct) bool {
		// An attempt that was given up may be answered after the next one has begun.
		return d.taken() && (d.Attempt == o.Attempts || c.uncertain(&d.pushed))
	}):
		why = "no such attempt was taken"
	}
	if why == "" {
		why = c.notMade(h, o, came)
	}
	if why != "" {
		c.violate(ruleUntrue, "%s is %s after %d attempts: %s", first.ID, o.Status, o.Attempts, why)
	}
	return o.Status
}

// notDead says why an event cannot be dead; empty if it can.
func (c *checker) notDead(h *handed, o outcome, came []*direct) string {
	refused := false
	for _, d := range came {
		if d.taken() && !c.uncertain(&d.pushed) {
			return "it was taken at " + stamp(d.Answered)
		}
		refused = refused || d.refused() && d.Attempt <= o.Attempts
	}
	if !refused && o.Attempts < h.most() {
		return fmt.Sprintf("it was not refused for good, and has %d attempts", h.most())
	}
	return ""
}

// notMade says what is wrong with the number of attempts. One that has not come was cut on its way, or Redis has lost
// that it was not made; one that does not count, Redis has lost.
func (c *checker) notMade(h *handed, o outcome, came []*direct) string {
	at := map[int]time.Time{}
	for _, d := range came {
		at[d.Attempt] = d.At
		if from, to := d.began().Add(-pushReport), d.At.Add(pushTimeout+pushReport); d.Attempt > o.Attempts &&
			!c.marked(redisLost, from, to) {
			return fmt.Sprintf("attempt %d came at %s", d.Attempt, stamp(d.At))
		}
	}
	from := h.Requests[0].Sent
	for n := 1; n <= o.Attempts; n++ {
		if came, there := at[n]; there {
			from = came
			continue
		}
		to := time.UnixMilli(o.Last)
		for _, later := range slices.Sorted(maps.Keys(at)) {
			if later > n && at[later].Before(to) {
				to = at[later]
				break
			}
		}
		to = to.Add(pushReport)
		if !c.marked(answersLost, from, to) && !c.marked(redisLost, from, to) {
			return fmt.Sprintf("attempt %d has not come from %s to %s", n, stamp(from), stamp(to))
		}
	}
	return ""
}
