// Package bell wakes a goroutine that waits for work, or for a time.
package bell

import (
	"context"
	"time"
)

// Bell is a channel to wait on. It keeps a ring until somebody receives it, and a second ring meanwhile is lost. So who
// waits must do all work that is there. A Bell of several waiters is made with a capacity of as many.
type Bell chan struct{}

// New returns a Bell for one waiter.
func New() Bell { return make(Bell, 1) }

// Ring wakes one that waits, or the next one to wait. It never blocks.
func (b Bell) Ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// Sleep waits for a time. It returns false if ctx is done.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return ctx.Err() == nil
}
