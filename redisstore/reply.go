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
	bad    error
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

// eachOrNil reads a list as each does, but takes nil for an empty list (outcome in lua/library/reply.lua).
func (r *reply) eachOrNil(read func(*reply)) {
	if r.bad == nil && len(r.items) > 0 && r.items[0] == nil {
		r.items = r.items[1:]
		return
	}
	r.each(read)
}

// each reads a list with read, which takes one or more items at a time.
func (r *reply) each(read func(*reply)) {
	r.list(func(l *reply) {
		for len(l.items) > 0 && l.bad == nil {
			read(l)
		}
	})
}

func (r *reply) streams(primary string) []fsm.StreamTail {
	streams := []fsm.StreamTail{}
	r.each(func(l *reply) {
		streams = append(streams,
			fsm.StreamTail{Path: l.text(), Acked: fsm.Offset(l.text()), Tail: fsm.Offset(l.text())})
	})
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

// outcomeItems is how many items an outcome is.
const outcomeItems = 7

// outcome reads wakes, idle, hidden, gone, ended, left and quarantined.
func (r *reply) outcome() (o fsm.Outcome) {
	r.eachOrNil(func(deliveries *reply) { o.Deliveries = append(o.Deliveries, deliveries.delivery()) })
	r.eachOrNil(func(paths *reply) { o.Idle = append(o.Idle, paths.text()) })
	r.eachOrNil(func(paths *reply) { o.Hidden = append(o.Hidden, paths.text()) })
	r.eachOrNil(func(gone *reply) { o.Removed = append(o.Removed, gone.gone()) })
	r.eachOrNil(func(ends *reply) { o.Ended = append(o.Ended, ends.wakeEnd()) })
	r.eachOrNil(func(left *reply) { o.Left = append(o.Left, left.left()) })
	r.eachOrNil(func(of *reply) {
		of.list(func(q *reply) {
			o.Quarantined = append(o.Quarantined, fsm.Quarantined{Consumer: q.text(), Reason: q.text()})
		})
	})
	return o
}

// lastOutcome reads the outcome that ends a reply, and passes over what comes before it.
func (r *reply) lastOutcome() fsm.Outcome {
	r.items = r.items[max(0, len(r.items)-outcomeItems):]
	return r.outcome()
}

func (r *reply) delivery() (w fsm.Delivery) {
	r.list(func(l *reply) {
		w = fsm.Delivery{
			Consumer: l.text(), Subscription: l.text(), Generation: l.text(), Primary: l.text(),
			Epoch: l.int(), WakeID: l.text(), Attempt: int(l.int()),
		}
		w.Streams = l.streams(w.Primary)
		w.WokeAt, w.Born = moment(l.int()), l.int()
		w.Patience, w.Span = time.Duration(l.int())*time.Millisecond, l.int()
		w.Handed, w.Nudged, w.Replay, w.Owner = int(l.int()), l.yes(), l.yes(), l.text()
		w.Asked = l.asked
	})
	return w
}

func (r *reply) gone() (g fsm.Removal) {
	r.list(func(l *reply) {
		g = fsm.Removal{
			Subscription: l.text(), Generation: l.text(), Consumer: l.text(), Primary: l.text(),
			Acked: fsm.Offset(l.text()), Cause: word(l, fsm.RemovalCauses),
		}
	})
	return g
}

func (r *reply) wakeEnd() (e fsm.WakeEnd) {
	r.list(func(l *reply) {
		e = fsm.WakeEnd{
			Consumer: l.text(), Subscription: l.text(), Primary: l.text(), Epoch: l.int(), WakeID: l.text(),
			WokeAt: moment(l.int()), Cause: word(l, fsm.EndCauses),
		}
	})
	return e
}

func (r *reply) left() (left fsm.Left) {
	r.list(func(l *reply) {
		left = fsm.Left{
			Subscription: l.text(), Stream: l.text(), Cause: word(l, fsm.RemovalCauses), Letters: int(l.int()),
		}
	})
	return left
}
