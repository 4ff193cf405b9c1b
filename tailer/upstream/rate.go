package upstream

import (
	"sync"
	"time"
)

// Rate spaces events evenly in time.
type Rate struct {
	mu    sync.Mutex
	every time.Duration
	next  time.Time
}

// NewRate returns one of so many events in a second.
func NewRate(perSecond int) *Rate { return &Rate{every: time.Second / time.Duration(perSecond)} }

// Turn returns how long it is until the caller's turn.
func (r *Rate) Turn() time.Duration {
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
