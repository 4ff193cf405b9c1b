package bench

import (
	"fmt"
	"slices"
)

// Aims of the part push.
const (
	pushedToFloor = 0.7
	pushedASecond = 50_000
)

// pushes measures what it takes from an append to the receiver of its events.
func pushes(b *bench) {
	t := b.table("Append → events pushed",
		fmt.Sprintf("Each stream has one writer: append as many events as a batch holds, %d bytes each, wait until "+
			"all were received and answered, and again. %d × %s each; the systems take turns. The floor sends one "+
			"request for each append, without the events. \"unordered\" is tailed with the ordering none.",
			len(eventsOf(0, 1))-2, b.rounds, b.span),
		"streams", "batch", "system", "events/s", "p50", "p99", "lost", "events/s ÷ floor", "p50 ÷ floor",
		"CPU s per 1,000 appends", "Redis", "stream server")
	for _, n := range b.pushStreams {
		for _, batch := range b.batches {
			systems := systems
			if batch == 1 && n == slices.Max(b.pushStreams) {
				systems = append(slices.Clone(systems), unordered)
			}
			all := b.byTurns(systems, func(w *world) measured {
				return w.measurePush(load{
					streams: n, batch: batch, span: b.span, settle: b.settle, patience: b.patience,
				})
			})
			least := all[floor]
			for _, s := range systems {
				m := all[s]
				if m == nil || least == nil {
					continue
				}
				events := m.rate() * float64(batch)
				t.row(n, batch, s, events, m.delays.percentile(50), m.delays.percentile(99), m.lost,
					ratio(m.rate(), least.rate()), ratio(m.delays.percentile(50), least.delays.percentile(50)),
					m.cpuPer1000(waker), m.cpuPer1000(store), m.cpuPer1000(streams))
				b.lose(s, m.lost, fmt.Sprintf("push, %d streams, batch %d", n, batch))
				figure := fmt.Sprintf("pushed events per second, streams: %d, batch: %d, tailed", n, batch)
				switch {
				case s != tailed:
				case batch == 1:
					b.aim(figure+", ÷ floor", m.rate()/max(least.rate(), 1), "≥", pushedToFloor, "")
				default:
					b.aim(figure, events, "≥", pushedASecond, "")
				}
			}
		}
	}
}
