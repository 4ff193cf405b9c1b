package bench

import (
	"fmt"
	"time"
)

// watchTime bounds how long it takes until all streams of a part are watched.
const watchTime = 10 * time.Minute

// maxShared is how many streams are watched by HTTP/2 at most: behind whoever translates for the stream server each is
// a connection.
const maxShared = 10_000

// watched makes n streams that a subscription's consumers watch and that stay silent, and returns their paths.
func (b *bench) watched(w *world, n int, webhook string) []string {
	w.t.Helper()
	under := prefix()
	paths := make([]string, n)
	for i := range paths {
		paths[i] = fmt.Sprintf("%s/%d", under, i)
	}
	files, began := w.files(waker), time.Now()
	subscribe := func() { w.check(w.subscribe(0, under+"/*", under[1:], webhook)) }
	if w.system == floor {
		subscribe() // it has to know the webhook
	}
	w.check(w.each(n, func(i int) error { return w.create(i, paths[i]) }))
	if w.system != floor {
		// Those that are there before the subscription wake nobody.
		subscribe()
		if !b.once(watchTime, func() bool { return w.backfilled(under[1:]) }) {
			w.check(fmt.Errorf("the consumers of %d streams were not made within %s", n, watchTime))
		}
	}
	// Each has a live request, which is a connection unless they share some, up to the limit.
	live := min(n, maxLive)
	watched := func() bool { return w.files(waker) >= files+live*95/100 }
	if w.front != nil {
		watched = func() bool { return w.front.live.Load() >= int64(live*95/100) }
	}
	if !b.once(watchTime, watched) {
		w.check(fmt.Errorf("%d streams were not watched within %s: %d files are open", n, watchTime, w.files(waker)))
	}
	progress("  %d streams are watched after %s", n, time.Since(began).Round(100*time.Millisecond))
	return paths
}

// fits says whether the machine allows for a number of watched streams, and why not if it does not.
func (b *bench) fits(n int) bool {
	enough, say := filesFor(n)
	progress("  %s", say)
	if !enough {
		b.Logf("not measured with %d streams: %s; raise the hard limit of open files (ulimit -Hn)", n, say)
	}
	return enough
}

// silentStreams measures what watched streams cost in which nothing happens, and what they cost those in which
// something does.
func silentStreams(b *bench) {
	_, limit := filesFor(b.silent[len(b.silent)-1])
	t := b.table("Silent watched streams",
		fmt.Sprintf("\"CPU\" is the processor time of %s without an event, in %% of one core. At most %d streams "+
			"have an open request; the others are checked with HEAD. %s. "+
			"\"Redis, a consumer\" is what Redis keeps of a consumer at rest and of its stream. "+
			"Then %d other streams get events, as above.",
			b.idle, maxLive, limit, b.many),
		"streams", "system", "RSS", "a stream", "CPU", "Redis RSS", "Redis, a consumer", "Redis CPU",
		"stream server CPU", "open files",
		fmt.Sprintf("p50 of %d active", b.many), "p99", "wakes/s", "lost", "p50 ÷ without")
	var bare, empty int
	var without time.Duration
	measure := func(s system, n int, aimedAt float64) {
		if !b.fits(n) {
			t.row(n, s, "not measured: too few open files allowed", "", "", "", "", "", "", "", "", "", "", "", "")
			return
		}
		b.in(s, 1, func(w *world) {
			h := newHooks(w.t, sayDone)
			if n > 0 {
				b.watched(w, n, h.url)
			}
			// What was needed for setting up goes back to the system, and the checks of the streams spread out.
			if !pause(w.ctx, b.idle) {
				w.t.SkipNow()
			}
			before, began := w.cpu(), time.Now()
			if !pause(w.ctx, b.idle) {
				w.t.SkipNow()
			}
			used, took := since(before, w.cpu()), time.Since(began)
			percent := func(r role) float64 { return 100 * used[r].Seconds() / took.Seconds() }
			rss, redis, files := w.rss(waker), w.rss(store), w.files(waker)
			each, kept := "-", "-"
			if n == 0 {
				bare, empty = rss, w.redisMemory()
			} else {
				consumer := float64(w.redisMemory()-empty) / 1024 / float64(n)
				kept = decimal(consumer) + " KiB"
				b.aim(fmt.Sprintf("Redis, a consumer at rest, %d of them, %s", n, s), consumer, "≤", 1.2, " KiB")
				kib := float64(rss-bare) / 1024 / float64(n)
				each = decimal(kib) + " KiB"
				b.aim(fmt.Sprintf("RSS per silent watched stream, %d of them, %s", n, s), kib, "≤", aimedAt, " KiB")
			}
			m := w.measure(load{streams: b.many, gap: gap, span: b.span, settle: b.settle, patience: b.patience})
			p50 := m.delays.percentile(50)
			if n == 0 {
				without = p50
			}
			t.row(n, s, mib(rss), each, decimal(percent(waker))+" %", mib(redis), kept, decimal(percent(store))+" %",
				decimal(percent(streams))+" %", files, p50, m.delays.percentile(99), m.rate(), m.lost,
				ratio(p50, without))
			if n == 10_000 && s == tailed {
				b.aim("idle CPU with 10,000 silent watched streams, of one core", percent(waker), "≤", 10, " %")
			}
			b.lose(s, m.lost, fmt.Sprintf("beside %d silent streams", n))
		})
	}
	for _, n := range b.silent {
		measure(tailed, n, 20)
		if n > 0 && n <= maxShared {
			measure(tailedHTTP2, n, 8)
		}
	}
}

func mib(bytes int) string { return decimal(float64(bytes)/(1<<20)) + " MiB" }
