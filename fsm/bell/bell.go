// Package bell wakes a goroutine that waits for work.
package bell

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
