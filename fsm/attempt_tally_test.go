package fsm

import (
	"reflect"
	"testing"
	"time"
)

// TestWhatOneAttemptCountsAs holds which attempts count, and as what.
func TestWhatOneAttemptCountsAs(t *testing.T) {
	const took = 20 * time.Millisecond
	times := Times{TimeBucket(20): 1}
	for _, c := range []struct {
		name string
		a    Attempt
		want AttemptTally
	}{
		{
			"taken events",
			Attempt{Result: AttemptDone, Sent: true, Events: 3, Exchanged: took},
			AttemptTally{Results: map[string]int64{"done": 1}, Events: 3, Times: times},
		},
		{
			"an accepted wake",
			Attempt{Result: AttemptAccepted, Sent: true, Exchanged: took},
			AttemptTally{Results: map[string]int64{"accepted": 1}, Times: times},
		},
		{
			"a failure",
			Attempt{Result: AttemptFailed, Class: "unavailable", Sent: true, Events: 3, Exchanged: took},
			AttemptTally{
				Results: map[string]int64{"failed": 1}, Failures: map[string]int64{"unavailable": 1}, Times: times,
			},
		},
		{
			"nobody was reached",
			Attempt{Result: AttemptDead, Class: "dns", Events: 3},
			AttemptTally{Results: map[string]int64{"dead": 1}, Failures: map[string]int64{"dns": 1}},
		},
		{
			"a stop before the answer",
			Attempt{Result: AttemptAbandoned, Sent: true, Events: 3, Exchanged: took},
			AttemptTally{Results: map[string]int64{"abandoned": 1}},
		},
		{"a stop before it was sent", Attempt{Result: AttemptAbandoned}, AttemptTally{}},
		{"put off", Attempt{Result: AttemptBlocked}, AttemptTally{}},
		{"nothing to bring", Attempt{Result: AttemptEmpty}, AttemptTally{}},
	} {
		var got AttemptTally
		if got.Count(c.a); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestTheWindowsEndWithThePresent holds which minutes and hours a window has.
func TestTheWindowsEndWithThePresent(t *testing.T) {
	counts := AttemptCounts{
		Minutes: make([]AttemptTally, CountedMinutes), Hours: make([]AttemptTally, CountedHours),
		Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	for i := range counts.Minutes {
		counts.Minutes[i].Events = int64(CountedMinutes - i)
	}
	for i := range counts.Hours {
		counts.Hours[i].Events = int64(CountedHours - i)
	}
	for i, since := range []time.Time{
		time.Date(2026, 1, 2, 2, 50, 0, 0, time.UTC), time.Date(2026, 1, 2, 2, 5, 0, 0, time.UTC),
		time.Date(2026, 1, 1, 4, 0, 0, 0, time.UTC), time.Date(2025, 12, 26, 4, 0, 0, 0, time.UTC),
	} {
		w := StatsWindows[i]
		slots, began := counts.In(w)
		if !began.Equal(since) || len(slots) != w.Slots || slots[0].Events != int64(w.Slots) ||
			slots[w.Slots-1].Events != 1 {
			t.Errorf("%s: %d since %s, want %d since %s", w.Name, len(slots), began, w.Slots, since)
		}
	}
}

// TestPercentilesAreCloseToTheTimes holds that each time lies in one bucket, and how wide that is.
func TestPercentilesAreCloseToTheTimes(t *testing.T) {
	most := -1
	for millis := int64(0); millis < 100_000; millis++ {
		bucket := TimeBucket(millis)
		longest := mostOfBucket(bucket).Milliseconds()
		if bucket < most || longest < millis || longest > millis+millis/16 {
			t.Fatalf("%d ms is in bucket %d, up to %d ms", millis, bucket, longest)
		}
		most = bucket
	}
	var times Times
	for millis := range int64(1000) {
		times.Add(Times{TimeBucket(millis): 1})
	}
	for share, exact := range map[float64]time.Duration{0.5: 499, 0.95: 949, 0.99: 989, 1: 999, 0: 0} {
		exact *= time.Millisecond
		if got := times.Percentile(share); got < exact || got > exact+exact/16 {
			t.Errorf("a share of %v took %s, want %s", share, got, exact)
		}
	}
	if got := Times(nil).Percentile(0.5); got != 0 {
		t.Errorf("of none, it is %s", got)
	}
}
