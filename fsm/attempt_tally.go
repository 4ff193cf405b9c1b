package fsm

import (
	"maps"
	"math"
	"slices"
	"time"
)

// The attempts are counted by minute for CountedMinutes, and by hour for CountedHours. The present minute and the
// present hour are among them.
const (
	CountedMinutes = 60
	CountedHours   = 7 * 24
)

// AttemptTally counts delivery attempts. It does not count what was put off before anything was sent.
type AttemptTally struct {
	// Results counts them by result.
	Results map[string]int64
	// Failures counts those that failed by Attempt.Class.
	Failures map[string]int64
	// Events is how many events the endpoints took. A wake brings none.
	Events int64
	// Times has how long the endpoints took (Attempt.Exchanged), of what was sent and not abandoned.
	Times Times
}

// Counted says whether a tally counts an attempt.
func Counted(a Attempt) bool {
	return LogAll.Takes(a.Result) && (a.Result != AttemptAbandoned || a.Sent)
}

// Count adds one attempt, if it is Counted.
func (t *AttemptTally) Count(a Attempt) {
	if !Counted(a) {
		return
	}
	addCount(&t.Results, a.Result.String(), 1)
	if a.Class != "" {
		addCount(&t.Failures, a.Class, 1)
	}
	if a.Result.OK() {
		t.Events += int64(a.Events)
	}
	if a.Tells() {
		addCount(&t.Times, TimeBucket((a.Exchanged + time.Millisecond - 1).Milliseconds()), 1)
	}
}

// Add adds another tally.
func (t *AttemptTally) Add(o AttemptTally) {
	addCounts(&t.Results, o.Results)
	addCounts(&t.Failures, o.Failures)
	t.Events += o.Events
	addCounts(&t.Times, o.Times)
}

func addCounts[M ~map[K]int64, K comparable](to *M, counts M) {
	for of, n := range counts {
		addCount(to, of, n)
	}
}

func addCount[M ~map[K]int64, K comparable](to *M, of K, n int64) {
	if *to == nil {
		*to = M{}
	}
	(*to)[of] += n
}

// Attempts is how many there were.
func (t AttemptTally) Attempts() (n int64) {
	for _, of := range t.Results {
		n += of
	}
	return n
}

// Of is how many had one of some results.
func (t AttemptTally) Of(results ...AttemptResult) (n int64) {
	for _, r := range results {
		n += t.Results[r.String()]
	}
	return n
}

// AttemptCounts are the attempts of a subscription, or of all, by minute and by hour. The present minute and the
// present hour come last.
type AttemptCounts struct {
	Minutes, Hours []AttemptTally
	// Now is when they were read, by the clock of the store.
	Now time.Time
}

// StatsWindow is a span of time up to the present.
type StatsWindow struct {
	Name string
	// Slots is how many minutes it has, or how many hours if ByHour is true.
	Slots  int
	ByHour bool
}

// StatsWindows are the windows of the statistics.
var StatsWindows = []StatsWindow{
	{Name: "15m", Slots: 15},
	{Name: "1h", Slots: CountedMinutes},
	{Name: "24h", Slots: 24, ByHour: true},
	{Name: "7d", Slots: CountedHours, ByHour: true},
}

// In returns what is counted in the window, slot by slot, and when the first slot began.
func (c AttemptCounts) In(w StatsWindow) (slots []AttemptTally, since time.Time) {
	slot, all := time.Minute, c.Minutes
	if w.ByHour {
		slot, all = time.Hour, c.Hours
	}
	return all[len(all)-w.Slots:], c.Now.Truncate(slot).Add(-time.Duration(w.Slots-1) * slot)
}

// Times says how many durations lie in each TimeBucket.
type Times map[int]int64

// Add adds other durations.
func (t *Times) Add(o Times) { addCounts(t, o) }

// Millis is Percentile in milliseconds; nil if there are none.
func (t Times) Millis(share float64) *int64 {
	if len(t) == 0 {
		return nil
	}
	ms := t.Percentile(share).Milliseconds()
	return &ms
}

// Percentile returns the duration that a share of all, from 0 to 1, has not exceeded. It is up to 1/16 too long, and 0
// if there are none.
func (t Times) Percentile(share float64) time.Duration {
	all := int64(0)
	for _, n := range t {
		all += n
	}
	rank := int64(math.Ceil(share * float64(all)))
	for _, bucket := range slices.Sorted(maps.Keys(t)) {
		if rank -= t[bucket]; rank <= 0 {
			return mostOfBucket(bucket)
		}
	}
	return 0
}

// bucketWidth is how many buckets lie between a time and its double.
const bucketWidth = 16

// TimeBucket returns the bucket of a time in milliseconds. From 32 ms on, a bucket is 1/16 wide.
func TimeBucket(millis int64) int {
	doubled := 0
	for millis = max(millis, 0); millis >= 2*bucketWidth; millis /= 2 {
		doubled++
	}
	return doubled*bucketWidth + int(millis)
}

// mostOfBucket returns the longest time in a bucket.
func mostOfBucket(bucket int) time.Duration {
	doubled := max(bucket/bucketWidth-1, 0)
	most := int64(bucket-doubled*bucketWidth+1)<<doubled - 1
	return time.Duration(most) * time.Millisecond
}
