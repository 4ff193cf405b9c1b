package spec

import (
	"math"
	"time"

	"reveille/fsm"
)

// Pace is what is kept of a limit: until when its turns are taken, and the interval at which they were. At is when the
// last ones were taken.
type Pace struct {
	Until, At time.Time
	Interval  time.Duration
}

// TakeTurns gives a caller some turns of all of the limits, at most this many, and at most the smallest share. This is
// the generic cell rate algorithm (GCRA). If no turn is free, the caller gets the next ones of the last limit, and
// waits for them. But if another limit has it wait for longer, it gets none: the last limit is for all callers, and
// they must not wait for that. If a limit has a new rate, the turns that are taken ahead take their time by that rate.
func TakeTurns(
	was []Pace, now time.Time, limits []fsm.Limit, most int,
) ([]Pace, fsm.Turns) {
	ahead, free := make([]time.Duration, len(limits)), math.MaxInt
	for i, l := range limits {
		p, interval := was[i], l.Interval()
		if p.At.After(now) { // the clock was set back
			ahead[i] = max(0, p.Until.Sub(p.At))
		} else {
			ahead[i] = max(0, p.Until.Sub(now))
		}
		if ahead[i] > 0 && p.Interval != interval {
			scaled := float64(ahead[i].Microseconds()) * float64(interval.Microseconds())
			ahead[i] = time.Duration(scaled/float64(p.Interval.Microseconds())) * time.Microsecond // as Lua counts
		}
		free = min(free, int(math.Floor(float64(time.Duration(l.Stored())*interval-ahead[i])/float64(interval))))
		most = min(most, l.Share())
	}
	turns := fsm.Turns{N: min(free, most)}
	if free <= 0 {
		longest := time.Duration(0)
		for i, l := range limits {
			turns.Wait = max(0, ahead[i]+time.Duration(most-l.Stored())*l.Interval())
			longest = max(longest, turns.Wait)
		}
		if longest > turns.Wait {
			return was, fsm.Turns{Wait: longest}
		}
		turns.N = most
	}
	next := make([]Pace, len(limits))
	for i, l := range limits {
		taken := max(ahead[i], turns.Wait) + time.Duration(turns.N)*l.Interval()
		next[i] = Pace{Until: now.Add(taken), At: now, Interval: l.Interval()}
	}
	return next, turns
}
