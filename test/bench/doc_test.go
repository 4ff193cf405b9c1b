// Package bench measures how quick Reveille is and what it costs: the built program beside a real redis-server, with
// its AOF synced every second, and the real reference server. What can be compared is set against the floor (./floor),
// the least that turns an append into a webhook, on the same machine and in the same run: the ratios mean something,
// the times mean little elsewhere.
//
// TestBench, which make bench runs, takes BENCH=full or BENCH=quick, BENCH_ONLY (a regular expression that picks
// parts), BENCH_BASE (another build of Reveille, to compare this one with) and BENCH_RESULTS (a file of results that
// the run is added to). TestBenchShort, a plain test, plays every part with tiny numbers and asserts that nothing is
// lost; times are never asserted. In the short form it plays two parts.
package bench

import (
	"fmt"
	"time"
)

// sizes are the numbers of a form of the benchmark.
type sizes struct {
	// rounds is how often the wakes are measured, the systems by turns; span is how long each time, settle how long
	// before that nothing happens.
	rounds       int
	span, settle time.Duration
	// patience is how long an append may go without a wake until it counts as lost.
	patience time.Duration
	streams  []int
	// many is the number of streams of the parts that take just one.
	many int
	// pushStreams are numbers of streams whose events are pushed, batches how many at a time.
	pushStreams, batches []int
	// silent are numbers of silent watched streams, idle how long they are watched being silent.
	silent []int
	idle   time.Duration
	// burst is how many streams get an event in the same second.
	burst int
	// subscriptions are numbers of subscriptions, newStreams how many streams are created among each.
	subscriptions []int
	newStreams    int
	// replicas are numbers of replicas, hints how many subscriptions are made at one for another to act on.
	replicas []int
	hints    int
	// letters are how many dead letters there are, of letterStreams streams; sample is how many are replayed one by
	// one.
	letters, letterStreams, sample int
	// benchtime is that of the Go benchmarks.
	benchtime string
}

var forms = map[string]sizes{
	"full": {
		rounds: 3, span: 10 * time.Second, settle: 2 * time.Second, patience: 5 * time.Second,
		streams: []int{1, 64, 512}, many: 64, pushStreams: []int{1, 64}, batches: []int{1, 100},
		silent: []int{0, 10_000, 50_000}, idle: 30 * time.Second, burst: 10_000,
		subscriptions: []int{1, 10, 100, 10_000}, newStreams: 500,
		replicas: []int{1, 2, 3}, hints: 100,
		letters: 1_000_000, letterStreams: 1000, sample: 10_000, benchtime: "1s",
	},
	"quick": {
		rounds: 1, span: 2 * time.Second, settle: 500 * time.Millisecond, patience: 5 * time.Second,
		streams: []int{1, 64, 512}, many: 64, pushStreams: []int{1, 64}, batches: []int{1, 100},
		silent: []int{0, 1000}, idle: 5 * time.Second, burst: 1000, subscriptions: []int{1, 10, 100}, newStreams: 50,
		replicas: []int{1, 2, 3}, hints: 20,
		letters: 100_000, letterStreams: 1000, sample: 1000, benchtime: "50ms",
	},
	"tiny": {
		rounds: 1, span: 200 * time.Millisecond, settle: 50 * time.Millisecond, patience: 5 * time.Minute,
		streams: []int{3}, many: 3, pushStreams: []int{3}, batches: []int{1, 100},
		silent: []int{20}, idle: 200 * time.Millisecond, burst: 20, subscriptions: []int{6}, newStreams: 4,
		replicas: []int{2}, hints: 4,
		letters: 60, letterStreams: 3, sample: 6, benchtime: "1x",
	},
}

// progress says something at once; the testing package would wait until the end.
func progress(format string, args ...any) {
	fmt.Printf("%s %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}
