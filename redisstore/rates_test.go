package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"reveille/fsm"
	"reveille/fsm/spec"
	"reveille/redisstore"
)

// TestTurnsAreWhatTheTransitionSays holds it for rates that change, callers that ask at any time, and a clock that is
// set back.
func TestTurnsAreWhatTheTransitionSays(t *testing.T) {
	w := open(t, redisstore.EmptyRedis(t).URL, 4)
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		rates := rapid.OneOf(rapid.IntRange(1, 500), rapid.IntRange(1, fsm.MaxRate))
		limits := make([]fsm.Limit, rapid.IntRange(1, 2).Draw(t, "limits"))
		for i := range limits {
			limits[i] = fsm.Limit{Name: fmt.Sprintf("limit %d of %d", i, n), Rate: rates.Draw(t, "rate")}
		}
		paces := make([]spec.Pace, len(limits))
		for range rapid.IntRange(1, 30).Draw(t, "calls") {
			if rapid.IntRange(0, 9).Draw(t, "changes") == 0 {
				limits[0].Rate = rates.Draw(t, "rate")
			}
			step := rapid.OneOf(rapid.Int64Range(0, 50), rapid.Int64Range(0, 20_000), rapid.Int64Range(-20_000, 0),
				rapid.Just(int64(-40*24*time.Hour/time.Millisecond))).Draw(t, "ms")
			w.later(time.Duration(step) * time.Millisecond)
			var want fsm.Turns
			most := rapid.IntRange(1, 100).Draw(t, "most")
			paces, want = spec.TakeTurns(paces, w.now, limits, most)
			got, err := w.TakeTurns(t.Context(), limits, most)
			if err != nil || got != want {
				t.Fatalf("%+v, %v; want %+v with %+v", got, err, want, limits)
			}
		}
	})
}
