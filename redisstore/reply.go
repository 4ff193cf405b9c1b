package redisstore

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"reveille/fsm"
)

// reply reads what a script returned, item by item. It is bad after an error of the call. It also becomes bad at the
// first item that contradicts the head of the script's file. Everything read after that is zero.
type reply struct {
	script *script
	items  []any
	// told is the outcome as the script replies it, nil if there is nothing to do.
	told any
	bad  error
	// asked is when the call was made, by this process's clock.
	asked time.Time
}

// err is a method, so that "return r.yes(), r.err()" reads the reply first.
func (r *reply) err() error { return r.bad }

func (r *reply) next() any {
	if r.bad != nil {
		return nil
	}
	if len(r.items) == 0 {
		r.fail("too few items")
		return nil
	}
	v := r.items[0]
	r.items = r.items[1:]
	return v
}

// fail makes the reply bad, unless it is bad already. The text has says what is wrong with it.
func (r *reply) fail(has string) {
	if r.bad == nil {
		r.bad = fmt.Errorf("redis: the reply of script %s has %s", r.script.name, has)
	}
}

func (r *reply) text() string {
	s, ok := r.next().(string)
	if !ok {
		r.fail("no text where text belongs")
	}
	return s
}

func (r *reply) int() int64 {
	switch v := r.next().(type) {
	case int64:
		return v
	case string:
		if n, err := strconv.ParseInt(v, 10, 64); err == nil {
			return n
		}
	}
	r.fail("no number where a number belongs")
	return 0
}

// code reads a number, which must be one of the known ones.
func (r *reply) code(known ...int64) int64 {
	n := r.int()
	if r.bad == nil && !slices.Contains(known, n) {
		r.fail(fmt.Sprintf("the unknown code %d", n))
		return 0
	}
	return n
}

// yes reads 1 or 0.
func (r *reply) yes() bool { return r.code(0, 1) == 1 }

// word reads a word, which must be one of the known ones.
func word[T ~string](r *reply, known []T) T {
	w := T(r.text())
	if r.bad == nil && !slices.Contains(known, w) {
		r.fail(fmt.Sprintf("the unknown word %q", w))
		return ""
	}
	return w
}

// list reads a list with read. It does not call read if there is no list.
func (r *reply) list(read func(*reply)) {
	items, ok := r.next().([]any)
	if !ok {
		r.fail("no list where a list belongs")
		return
	}
	l := &reply{script: r.script, items: items, asked: r.asked}
	read(l)
	r.bad = l.bad
}

// each reads a list with read, which takes one or more items at a time.
func (r *reply) each(read func(*reply)) {
	r.list(func(l *reply) {
		for len(l.items) > 0 && l.bad == nil {
			read(l)
		}
	})
}

// streams reads the rest of a list as the links of a consumer.
func (r *reply) streams(primary string) []fsm.StreamTail {
	streams := []fsm.StreamTail{}
	for len(r.items) > 0 && r.bad == nil {
		streams = append(streams,
			fsm.StreamTail{Path: r.text(), Acked: fsm.Offset(r.text()), Tail: fsm.Offset(r.text())})
	}
	fsm.SortStreams(primary, streams)
	return streams
}

// moment returns the time of a number of milliseconds. It is the zero time if the number is 0 or less.
func moment(millis int64) time.Time {
	if millis <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(millis)
}

// outcome reads the outcome (tell in lua/library/call.lua). It may be read before and after the script's own items.
func (r *reply) outcome() (o fsm.Outcome) {
	if r.told == nil || r.bad != nil {
		return o
	}
	told := &reply{script: r.script, items: []any{r.told}, asked: r.asked}
	told.each(func(items *reply) { items.list(func(l *reply) { l.addTo(&o) }) })
	r.bad = told.bad
	return o
}

// addTo adds one item of an outcome.
func (r *reply) addTo(o *fsm.Outcome) {
	switch kind := r.text(); kind {
	case "delivery":
		o.Deliveries = append(o.Deliveries, r.delivery())
	case "idle":
		o.Idle = append(o.Idle, r.text())
	case "hidden":
		o.Hidden = append(o.Hidden, r.text())
	case "removed":
		o.Removed = append(o.Removed, r.removal())
	case "ended":
		o.Ended = append(o.Ended, r.wakeEnd())
	case "left":
		o.Left = append(o.Left, r.left())
	case "quarantined":
		o.Quarantined = append(o.Quarantined, fsm.Quarantined{Consumer: r.text(), Reason: r.text()})
	default:
		r.fail(fmt.Sprintf("the unknown kind %q in its outcome", kind))
	}
}

func (r *reply) delivery() fsm.Delivery {
	w := fsm.Delivery{
		Consumer: r.text(), Subscription: r.text(), Generation: r.text(), Primary: r.text(),
		Epoch: r.int(), WakeID: r.text(), Attempt: int(r.int()), Asked: r.asked,
	}
	w.WokeAt, w.Born = moment(r.int()), r.int()
	w.Patience, w.Span = time.Duration(r.int())*time.Millisecond, r.int()
	w.Handed, w.Nudged, w.Replay, w.Owner = int(r.int()), r.yes(), r.yes(), r.text()
	w.Streams = r.streams(w.Primary)
	return w
}

func (r *reply) removal() fsm.Removal {
	return fsm.Removal{
		Subscription: r.text(), Generation: r.text(), Consumer: r.text(), Primary: r.text(),
		Acked: fsm.Offset(r.text()), Cause: word(r, fsm.RemovalCauses),
	}
}

func (r *reply) wakeEnd() fsm.WakeEnd {
	return fsm.WakeEnd{
		Consumer: r.text(), Subscription: r.text(), Primary: r.text(), Epoch: r.int(), WakeID: r.text(),
		WokeAt: moment(r.int()), Cause: word(r, fsm.EndCauses),
	}
}

func (r *reply) left() fsm.Left {
	return fsm.Left{Subscription: r.text(), Stream: r.text(), Cause: word(r, fsm.RemovalCauses), Letters: int(r.int())}
}
