package tailer

import (
	"container/list"
	"sync"
)

// slots bounds the live requests. A stream that shows an event, or whose consumer came to rest, takes the slot of the
// stream that has been silent longest. HEAD asks for the streams without a slot, at a bounded rate.
type slots struct {
	mu  sync.Mutex
	max int
	// taken holds the watches that have a slot. The longest silent one is first. Each watch knows its place.
	taken list.List
}

// take asks for a slot. active says that something happened to the stream just now. A watch that has a slot keeps it.
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
		active = w.step(&input{kind: inputGranted}).active || active
	}
	if active {
		s.taken.MoveToBack(w.slot)
	}
	return true
}

// touch notes that something happened to the stream of a watch just now. The watch may have no slot.
func (s *slots) touch(w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.slot != nil {
		s.taken.MoveToBack(w.slot)
	}
}

// give returns the slot of a watch that no longer needs one.
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
