package spec

import (
	"math"
	"time"

	"reveille/fsm"
)

// delay returns how long to wait after failed attempt n (from 1), in whole milliseconds.
func delay(p fsm.Profile, n int, j fsm.Jitter) time.Duration {
	if len(p.Delays) == 0 {
		return RetryDelay(n, j)
	}
	// Lua has no integers, so this calculates as Lua does.
	ms := float64(p.Delays[min(max(n, 1), len(p.Delays))-1].Milliseconds())
	least, span := ms*(100-fsm.RetryVariance)/100, ms*2*fsm.RetryVariance/100
	return time.Duration(math.Floor(least+span*float64(j)/fsm.JitterSpan)) * time.Millisecond
}

// RetryDelay returns how long to wait before retry n (from 1) of a delivery, in whole milliseconds (webhook spec, Retry
// Schedule). For the first ten retries it is min(2^n × 100 ms, 30 s) and up to 1 s. From the eleventh on it is 60 s and
// up to 5 s.
func RetryDelay(n int, j fsm.Jitter) time.Duration {
	n = max(n, 1)
	base, span := fsm.RetrySlow, fsm.RetrySlowJitter
	if n <= fsm.RetrySlowAfter {
		base, span = min(fsm.RetryBase<<n, fsm.RetryCap), fsm.RetryJitter
	}
	return (base + span*time.Duration(j)/fsm.JitterSpan).Truncate(time.Millisecond)
}
