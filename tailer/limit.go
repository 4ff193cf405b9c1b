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
	// taken holds the watches that have a slot, the longest silent one first. Each knows its place.
	taken list.List
}

// take asks for a slot; active says that something has just happened to the stream. A watch that has one keeps it.
func (s *slots) take(w *watch, active bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.slot == nil {
		if s.taken.Len() >= s.max {
			if !active {
				return false
			}
			silent := s.taken.Front().Value.(*watch)
			s.drop(silent)
			silent.step(&input{kind: inputDisplaced})
		}
		w.slot = s.taken.PushFront(w)
		w.step(&input{kind: inputGranted})
	}
	if active {
		s.taken.MoveToBack(w.slot)
	}
	return true
}

// touch notes that something has just happened to the stream of a watch that may have a slot.
func (s *slots) touch(w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.slot != nil {
		s.taken.MoveToBack(w.slot)
	}
}

// give returns the slot of a watch that needs none any more.
func (s *slots) give(w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.slot != nil {
		s.drop(w)
	}
}

func (s *slots) drop(w *watch) {
	s.taken.Remove(w.slot)
	w.slot = nil
}
