package bench

import (
	"fmt"
	"time"
)

// pairs is how many times as often as other loads each build is measured, for a fraction of the time: what drifts on a
// machine meets both builds then.
const pairs = 2

// builds measures this build and another one, BENCH_BASE, by turns.
func builds(b *bench) {
	if b.base == "" {
		progress("  BENCH_BASE names no build to compare with")
		return
	}
	t := b.table("This build ÷ "+b.base,
		fmt.Sprintf("%d × %s each, the builds by turns. In brackets the ratio of the rates in each pair: "+
			"how far they are apart is what the machine does.", pairs*b.rounds, b.span/pairs),
		"streams", "system", "cycle", "p50", "base", "÷", "p99 ÷", "wakes or pushes/s", "base", "÷", "(pairs)",
		"CPU s per 1,000 of them", "base", "÷", "Redis ÷", "stream server ÷")
	for _, c := range []cycle{synchronous, full, push} {
		streams := b.streams
		if c == push {
			streams = b.pushStreams
		}
		for _, n := range streams {
			for _, s := range []system{tailed, gateway} {
				b.compare(t, s, n, c)
			}
		}
	}
}

// cycle is what a load makes of each event.
type cycle string

const (
	synchronous cycle = "synchronous done"
	full        cycle = "full"
	push        cycle = "push" // of one event
)

// loadOf is the load that makes a cycle of each event, and what measures it.
func (b *bench) loadOf(c cycle, streams int, span time.Duration) (load, func(*world, load) measured) {
	l := load{streams: streams, span: span, settle: b.settle, patience: b.patience}
	switch c {
	case synchronous:
		l.gap = gap
	case full:
		l.callbacks = true
	case push:
		l.batch = 1
		return l, (*world).measurePush
	}
	return l, (*world).measure
}

// compare adds the row of one load.
func (b *bench) compare(t *table, s system, n int, c cycle) {
	l, measure := b.loadOf(c, n, b.span/pairs)
	var base, now measured
	var each string
	for round := range pairs * b.rounds {
		turns := []*measured{&base, &now}
		if round%2 == 1 {
			turns[0], turns[1] = turns[1], turns[0]
		}
		var rate [2]float64
		for _, m := range turns {
			with, at := *b, 1
			if m == &base {
				with.bin, at = b.base, 0
			}
			with.in(s, 1, func(w *world) {
				got := measure(w, l)
				m.add(got)
				rate[at] = got.rate()
			})
		}
		each += " " + ratio(rate[1], rate[0])
	}
	p := func(m measured, percent float64) time.Duration { return m.delays.percentile(percent) }
	t.row(n, s, string(c), p(now, 50), p(base, 50), ratio(p(now, 50), p(base, 50)), ratio(p(now, 99), p(base, 99)),
		now.rate(), base.rate(), ratio(now.rate(), base.rate()), "("+each[min(1, len(each)):]+")",
		now.cpuPer1000(waker), base.cpuPer1000(waker), ratio(now.cpuPer1000(waker), base.cpuPer1000(waker)),
		ratio(now.cpuPer1000(store), base.cpuPer1000(store)), ratio(now.cpuPer1000(streams), base.cpuPer1000(streams)))
	b.lose(s, now.lost, fmt.Sprintf("%d streams, %s", n, c))
}
