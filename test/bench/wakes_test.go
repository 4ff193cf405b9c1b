package bench

import (
	"fmt"
	"time"
)

// wakes measures what it takes from an append to its webhook, answered with done.
func wakes(b *bench) {
	t := b.table("Append → webhook",
		fmt.Sprintf("Each stream has one writer: append, wake, done, a pause of %s. %d × %s each; the systems take "+
			"turns.",
			gap, b.rounds, b.span),
		"streams", "system", "p50", "p99", "wakes/s", "lost", "p50 ÷ floor", "p99 ÷ floor", "wakes/s ÷ floor",
		"CPU s per 1,000 wakes", "Redis", "stream server")
	for _, n := range b.streams {
		all := b.byTurns(systems, func(w *world) measured {
			return w.measure(load{streams: n, gap: gap, span: b.span, settle: b.settle, patience: b.patience})
		})
		least := all[floor]
		for _, s := range systems {
			m := all[s]
			if m == nil || least == nil {
				continue
			}
			t.row(n, s, m.delays.percentile(50), m.delays.percentile(99), m.rate(), m.lost,
				ratio(m.delays.percentile(50), least.delays.percentile(50)),
				ratio(m.delays.percentile(99), least.delays.percentile(99)),
				ratio(m.rate(), least.rate()), m.cpuPer1000(waker), m.cpuPer1000(store), m.cpuPer1000(streams))
			b.lose(s, m.lost, fmt.Sprintf("%d streams", n))
			b.aimWakes(s, n, m, least)
		}
	}
}

func (b *bench) aimWakes(s system, streams int, m, least *measured) {
	p50 := m.delays.percentile(50).Seconds() / max(least.delays.percentile(50), time.Microsecond).Seconds()
	rate := m.rate() / max(least.rate(), 1)
	switch {
	case s == tailed && streams == 1:
		b.aim("append → webhook p50, 1 stream, tailed, ÷ floor", p50, "≤", 1.3, "")
	case s == gateway && streams == 1:
		b.aim("append → webhook p50, 1 stream, gateway, ÷ floor", p50, "≤", 1, "")
	case s == tailed && streams == 64:
		b.aim("wakes per second, 64 streams, tailed, ÷ floor", rate, "≥", 0.8, "")
	case s == gateway && streams == 64:
		b.aim("wakes per second, 64 streams, gateway, ÷ floor", rate, "≥", 1, "")
	}
}

// cycles measures how many cycles there can be in a second, with nothing between one and the next.
func cycles(b *bench) {
	t := b.table("Cycles without a pause",
		fmt.Sprintf("%d streams, %d × %s each. A full cycle is append, webhook, claim, two acks, done.", b.many,
			b.rounds, b.span),
		"cycle", "system", "cycles/s", "p50 of a cycle", "p99", "lost", "cycles/s ÷ floor", "CPU s per 1,000 cycles",
		"Redis", "stream server")
	type kind struct {
		name      string
		s         system
		callbacks bool
	}
	var least float64
	for _, k := range []kind{
		{"synchronous done", floor, false},
		{"synchronous done", tailed, false},
		{"synchronous done", gateway, false},
		{"full", tailed, true},
		{"full", gateway, true},
	} {
		var m measured
		for range b.rounds {
			b.in(k.s, 1, func(w *world) {
				m.add(w.measure(load{
					streams: b.many, span: b.span, settle: b.settle, patience: b.patience,
					callbacks: k.callbacks,
				}))
			})
		}
		if len(m.turns) == 0 {
			continue
		}
		if k.s == floor {
			least = m.rate()
		}
		t.row(k.name, k.s, m.rate(), m.turns.percentile(50), m.turns.percentile(99), m.lost, ratio(m.rate(), least),
			m.cpuPer1000(waker), m.cpuPer1000(store), m.cpuPer1000(streams))
		b.lose(k.s, m.lost, k.name)
	}
}
