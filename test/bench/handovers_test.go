package bench

import "fmt"

// handedToPush is the aim of the part hand-overs.
const handedToPush = 0.6

// handOvers measures what it takes from a hand-over to the receiver of its event.
func handOvers(b *bench) {
	t := b.table("Hand-over → event received",
		fmt.Sprintf("Each target has one client: hand over one event of %d bytes, wait until it was received and "+
			"answered, and again. %d × %s each; the systems take turns. The floor and \"gateway\" have a stream for "+
			"each target, to which the event is appended, and push it.", len(eventsOf(0, 1))-2, b.rounds, b.span),
		"targets", "system", "events/s", "p50", "p99", "lost", "events/s ÷ push", "p50 ÷ push",
		"CPU s per 1,000 events", "Redis", "stream server")
	for _, n := range b.pushStreams {
		systems := []system{floor, gateway, handed}
		all := b.byTurns(systems, func(w *world) measured {
			return w.measurePush(load{streams: n, batch: 1, span: b.span, settle: b.settle, patience: b.patience})
		})
		push := all[gateway]
		for _, s := range systems {
			m := all[s]
			if m == nil || push == nil {
				continue
			}
			t.row(n, s, m.rate(), m.delays.percentile(50), m.delays.percentile(99), m.lost,
				ratio(m.rate(), push.rate()), ratio(m.delays.percentile(50), push.delays.percentile(50)),
				m.cpuPer1000(waker), m.cpuPer1000(store), m.cpuPer1000(streams))
			b.lose(s, m.lost, fmt.Sprintf("hand-overs, %d targets", n))
			if s == handed {
				figure := fmt.Sprintf("events handed over per second, targets: %d, ÷ push by the gateway", n)
				b.aim(figure, m.rate()/max(push.rate(), 1), "≥", handedToPush, "")
			}
		}
	}
}
