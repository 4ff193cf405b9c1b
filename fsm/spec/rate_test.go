package spec

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"reveille/fsm"
)

// TestNoMinuteHasMoreThanTheRateAndABurst draws callers that take turns and use each of them as late as they may. They
// have a limit together, and some have one of their own. It also holds that little of the rate is lost while somebody
// always asks.
func TestNoMinuteHasMoreThanTheRateAndABurst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type caller struct {
			limits []fsm.Limit
			waits  time.Time // until then
			taken  []time.Time
		}
		rates := rapid.OneOf(rapid.IntRange(1, 300), rapid.IntRange(1, 10_000), rapid.Just(fsm.MaxRate/10))
		common := fsm.Limit{Name: "common", Rate: rates.Draw(t, "rate")}
		eager := rapid.Bool().Draw(t, "eager")
		callers := make([]*caller, rapid.IntRange(1, 4).Draw(t, "callers"))
		interval, keep := common.Interval(), common.Keep()
		for i := range callers {
			callers[i] = &caller{}
			if !eager && rapid.Bool().Draw(t, "has its own") {
				own := fsm.Limit{Name: fmt.Sprint(i), Rate: rates.Draw(t, "own")}
				callers[i].limits = append(callers[i].limits, own)
				interval, keep = min(interval, own.Interval()), min(keep, own.Keep())
			}
			callers[i].limits = append(callers[i].limits, common)
		}
		paces := map[string]Pace{}
		now := moment(0)
		ends := now.Add(min(5*time.Minute, 2000*interval+10*time.Second))
		for now.Before(ends) {
			for _, c := range callers {
				if c.waits.After(now) || !eager && rapid.IntRange(0, 3).Draw(t, "asks") > 0 {
					continue
				}
				var was []Pace
				for _, l := range c.limits {
					was = append(was, paces[l.Name])
				}
				most := 1000
				if !eager {
					most = rapid.IntRange(1, 10).Draw(t, "most")
				}
				next, turns := TakeTurns(was, now, c.limits, most)
				for i, l := range c.limits {
					paces[l.Name] = next[i]
				}
				c.waits = now.Add(turns.Wait)
				late := time.Duration(0)
				if !eager {
					late = time.Duration(rapid.Int64Range(0, int64(keep)).Draw(t, "late"))
				}
				for range turns.N {
					c.taken = append(c.taken, c.waits.Add(late))
				}
			}
			step := interval / 4
			if !eager {
				step = time.Duration(rapid.Int64Range(0, int64(2*keep)).Draw(t, "step"))
			}
			now = now.Add(max(step, time.Millisecond))
		}
		var all []time.Time
		for _, c := range callers {
			all = append(all, c.taken...)
			within(t, c.limits[0], c.taken)
		}
		within(t, common, all)
		if n, could := len(all), int(now.Sub(moment(0))/interval); eager && n < could*9/10-1 {
			t.Fatalf("%d turns of %d, with %+v", n, could, common)
		}
	})
}

// within holds that no minute has more turns than a limit allows.
func within(t *rapid.T, l fsm.Limit, taken []time.Time) {
	slices.SortFunc(taken, time.Time.Compare)
	for i := range taken {
		end, _ := slices.BinarySearchFunc(taken, taken[i].Add(time.Minute), time.Time.Compare)
		if end-i > l.Rate+l.Burst() {
			t.Fatalf("%d turns within a minute from %s on, with %+v", end-i, taken[i].Sub(moment(0)), l)
		}
	}
}

// TestTheTurnsOfALimit holds what one caller gets.
func TestTheTurnsOfALimit(t *testing.T) {
	type turns = fsm.Turns
	slow, fast := fsm.Limit{Rate: 6}, fsm.Limit{Rate: 6000}
	until := func(seconds float64, interval time.Duration) Pace {
		return Pace{moment(0).Add(time.Duration(seconds * float64(time.Second))), moment(0), interval}
	}
	set := until(3600, 10*time.Second) // before the clock was set back
	set.At = moment(3595)
	for _, tc := range []struct {
		name   string
		was    []Pace
		limits []fsm.Limit
		want   turns
	}{
		{"a free one at once", []Pace{{}}, []fsm.Limit{slow}, turns{N: 1}},
		{"at its time", []Pace{until(4, 10*time.Second)}, []fsm.Limit{slow}, turns{N: 1, Wait: 4 * time.Second}},
		{"a share of a burst", []Pace{{}}, []fsm.Limit{fast}, turns{N: 25}},
		{"what is left of a burst", []Pace{until(.7, 10*time.Millisecond)}, []fsm.Limit{fast}, turns{N: 5}},
		{
			"a share later",
			[]Pace{until(.75, 10*time.Millisecond)},
			[]fsm.Limit{fast},
			turns{N: 25, Wait: 250 * time.Millisecond},
		},
		{
			"sooner at a higher rate",
			[]Pace{until(60, time.Minute)},
			[]fsm.Limit{slow},
			turns{N: 1, Wait: 10 * time.Second},
		},
		{"as if no clock had been set back", []Pace{set}, []fsm.Limit{slow}, turns{N: 1, Wait: 5 * time.Second}},
		{"of both at once", []Pace{{}, {}}, []fsm.Limit{slow, fast}, turns{N: 1}},
		{
			"none while its own limit has none",
			[]Pace{until(4, 10*time.Second), {}},
			[]fsm.Limit{slow, fast},
			turns{Wait: 4 * time.Second},
		},
		{
			"when the common limit has one",
			[]Pace{until(4, 10*time.Second), until(5, 10*time.Second)},
			[]fsm.Limit{slow, slow},
			turns{N: 1, Wait: 5 * time.Second},
		},
	} {
		next, got := TakeTurns(tc.was, moment(0), tc.limits, 1000)
		if got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
		if got.N == 0 && !slices.Equal(next, tc.was) {
			t.Errorf("%s: the limits are %+v", tc.name, next)
		}
	}
}
