package throttle

import (
	"sync"
	"time"
)

// Outage is a time in which the store does not answer, as all tasks of a replica see it together. It lasts from the
// first task that fails until no task fails any more. It is safe for concurrent use, and the zero value is ready.
type Outage struct {
	mu      sync.Mutex
	failing map[string]struct{}
	since   time.Time
	// last is when the beginning of an outage was last logged. logged says whether the present one was. unlogged counts
	// the outages since last.
	last     time.Time
	logged   bool
	unlogged int
	// mended is closed when a task does not fail any more; nil while no task fails.
	mended chan struct{}
}

// Failed notes that a task failed, and says whether the outage is worth a log line. An outage gets one line at most,
// and there is at most one line in half a minute. The line is for all outages since the line before.
func (o *Outage) Failed(task string, now time.Time) (outages int, log bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.failing) == 0 {
		o.failing, o.since, o.logged, o.mended = map[string]struct{}{}, now, false, make(chan struct{})
		o.unlogged++
	}
	o.failing[task] = struct{}{}
	if o.logged || now.Sub(o.last) < summaryFirst {
		return 0, false
	}
	outages = o.unlogged
	o.last, o.logged, o.unlogged = now, true, 0
	return outages, true
}

// Worked notes that a task did not fail. If that ends the outage, it returns how long the outage has lasted, and
// whether its beginning was logged.
func (o *Outage) Worked(task string, now time.Time) (lasted time.Duration, log bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, failed := o.failing[task]; !failed {
		return 0, false
	}
	delete(o.failing, task)
	close(o.mended)
	if o.mended = nil; len(o.failing) > 0 {
		o.mended = make(chan struct{})
		return 0, false
	}
	return now.Sub(o.since), o.logged
}

// Fails says whether a task has failed and not worked since.
func (o *Outage) Fails(task string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, failed := o.failing[task]
	return failed
}

// Mended returns a channel that is closed when another failed task works again. A task that failed then tries again. It
// is nil while there is no outage.
func (o *Outage) Mended() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mended
}
