// Package throttle limits the log lines about what goes wrong again and again.
package throttle

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// The least time between two log lines of one Trouble: at first, and after it has gone on for long.
const (
	summaryFirst = 30 * time.Second
	summaryLast  = 10 * time.Minute
)

// Trouble limits the log lines about something that goes wrong again and again. It allows a line at the beginning,
// summaries, and a line at the end. Summaries come less and less often, down to one in ten minutes. It is safe for
// concurrent use, and the zero value is ready.
type Trouble struct {
	mu sync.Mutex
	// last is when something was logged, and latest when it last happened; every is the time until another line is
	// allowed.
	last, latest time.Time
	every        time.Duration
	// silent counts what was not logged since last.
	silent int
	// logged is true if a line was logged and no recovery has followed yet.
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

// dropped is the logger of lines that are not worth it.
var dropped = zap.NewNop()

// Log notes that it happened, and returns the logger for its line: log with the number of times, or one that drops the
// line.
func (t *Trouble) Log(log *zap.Logger, now time.Time) *zap.Logger {
	times, due := t.Happened(now)
	if !due {
		return dropped
	}
	return log.With(zap.Int("times", times))
}

// Over says whether the end of the trouble is worth a line.
func (t *Trouble) Over() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	log := t.logged
	t.logged, t.every = false, 0
	return log
}
