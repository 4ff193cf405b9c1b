package tailer

import (
	"container/list"
	"sync"
	"time"
)

// slots bounds how many live requests there are. A stream that shows an event, or of which a consumer has come to rest, takes the slot of
// the one that has been silent for longest; the streams without a slot are asked with HEAD, at a bounded rate.
type slots struct {
	mu  sync.Mutex
	max int
	// order holds the watches that have a slot, the longest silent one first.
	order *list.List
	at    map[*watch]*list.Element
}

func newSlots(n int) *slots { return &slots{max: n, order: list.New(), at: map[*watch]*list.Element{}} }

// take asks for a slot; active says that something has just happened to the stream. A watch that has one keeps it.
func (s *slots) take(w *watch, active bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.at[w]; ok {
		if active {
			s.order.MoveToBack(e)
		}
		return true
	}
	if len(s.at) >= s.max {
		if !active {
			return false
		}
		front := s.order.Front()
		silent := front.Value.(*watch)
		s.order.Remove(front)
		delete(s.at, silent)
		silent.displace(true)
	}
	w.displace(false)
	if active {
		s.at[w] = s.order.PushBack(w)
	} else {
		s.at[w] = s.order.PushFront(w)
	}
	return true
}

// touch is: something has just happened to the stream of a watch. It says whether that has a slot.
func (s *slots) touch(w *watch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.at[w]
	if ok {
		s.order.MoveToBack(e)
	}
	return ok
}

// give returns the slot of a watch that needs none any more.
func (s *slots) give(w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.at[w]; ok {
		s.order.Remove(e)
		delete(s.at, w)
	}
}

// rate spaces events evenly in time.
type rate struct {
	mu    sync.Mutex
	every time.Duration
	next  time.Time
}

func newRate(perSecond int) *rate { return &rate{every: time.Second / time.Duration(perSecond)} }

// turn returns how long it is until the caller's turn.
func (r *rate) turn() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.next.Before(now) {
		r.next = now
	}
	d := r.next.Sub(now)
	r.next = r.next.Add(r.every)
	return d
}

// signal leaves word on a channel that holds one; a word that is there already is enough.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func clearSignal(c chan struct{}) {
	select {
	case <-c:
	default:
	}
}
