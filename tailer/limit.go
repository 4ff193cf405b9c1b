package tailer

import (
	"container/list"
	"sync"
)

// slots bounds how many live requests there are. A stream that shows an event, or of which a consumer has come to rest,
// takes the slot of the one that has been silent for longest; the streams without a slot are asked with HEAD, at a
// bounded rate.
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
		silent.step(&input{kind: inputDisplaced})
	}
	w.step(&input{kind: inputGranted})
	if active {
		s.at[w] = s.order.PushBack(w)
	} else {
		s.at[w] = s.order.PushFront(w)
	}
	return true
}

// touch notes that something has just happened to the stream of a watch that may have a slot.
func (s *slots) touch(w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.at[w]; ok {
		s.order.MoveToBack(e)
	}
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
