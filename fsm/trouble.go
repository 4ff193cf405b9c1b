package fsm

import (
	"sync"
	"time"
)

// How often, at most, one Trouble is worth a line: at first, and when it has gone on for long.
const (
	summaryFirst = 30 * time.Second
	summaryLast  = 10 * time.Minute
)

// Trouble thins out what is logged of something that goes wrong again and again: its beginning, then a summary now and
// then, ever less often up to every ten minutes, and its end. It is safe for concurrent use, and ready as it is.
type Trouble struct {
	mu sync.Mutex
	// last is when something was logged, latest when it happened; every is the time until it is worth another line.
	last, latest time.Time
	every        time.Duration
	// silent counts what was not logged since last.
	silent int
	// logged is true if something was logged that no recovery has followed yet.
	logged bool
}

// Happened says whether to log, and how many times it happened since the last log line, this time included.
func (t *Trouble) Happened(now time.Time) (times int, log bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.silent++
	if now.Sub(t.latest) > summaryLast {
		t.every = 0 // another trouble of the same kind
	}
	t.latest = now
	if now.Sub(t.last) < max(t.every, summaryFirst) {
		return 0, false
	}
	times = t.silent
	t.every = min(max(2*t.every, summaryFirst), summaryLast)
	t.last, t.silent, t.logged = now, 0, true
	return times, true
}

// Over says whether the end of the trouble is worth a line.
func (t *Trouble) Over() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	log := t.logged
	t.logged, t.every = false, 0
	return log
}
