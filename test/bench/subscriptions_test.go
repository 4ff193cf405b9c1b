package bench

import (
	"fmt"
	"time"
)

// subscriptions measures what a new stream costs among many subscriptions with patterns that are all different.
func subscriptions(b *bench) {
	t := b.table("A new stream among subscriptions with distinct patterns",
		fmt.Sprintf("A third of the patterns is like /x/*, a third like /*/x, a third like /**/x; one more "+
			"subscription matches the streams. %d streams are created through the gateway, one after the other; a "+
			"delay runs from the start of the PUT to the arrival of its wake. Then %d streams get events.",
			b.newStreams, b.many),
		"subscriptions", "made in", "RSS", "p50", "p99", "lost", "CPU ms a stream", "Redis",
		fmt.Sprintf("p50 of %d active", b.many), "wakes/s", "p50 ÷ first row", "CPU ÷ first row")
	var first, ten samples
	var firstCPU float64
	for _, n := range b.subscriptions {
		b.in(gateway, 1, func(w *world) {
			h := newHooks(w.t, sayDone)
			began := time.Now()
			w.check(w.each(n, func(i int) error {
				pattern := [...]string{"/x%d/*", "/*/x%d", "/**/x%d"}[i%3]
				return w.subscribe(0, fmt.Sprintf(pattern, i), fmt.Sprintf("x%d", i), h.url)
			}))
			made := time.Since(began)
			if !b.once(watchTime, func() bool { return w.backfilled(fmt.Sprintf("x%d", n-1)) }) ||
				!pause(w.ctx, b.settle) {
				w.check(fmt.Errorf("the last of %d subscriptions was not done within %s", n, watchTime))
			}
			delays, lost, used := b.newOnes(w, h)
			cpu := func(r role) float64 { return used[r].Seconds() * 1000 / float64(b.newStreams) }
			m := w.measure(load{streams: b.many, gap: gap, span: b.span, settle: b.settle, patience: b.patience})
			if first == nil {
				first, firstCPU = delays, cpu(waker)
			}
			p50 := delays.percentile(50)
			t.row(n, made, mib(w.rss(waker)), p50, delays.percentile(99), lost, cpu(waker), cpu(store),
				m.delays.percentile(50), m.rate(),
				ratio(p50, first.percentile(50)), ratio(cpu(waker), firstCPU))
			switch n {
			case 10:
				ten = delays
			case 10_000:
				if ten != nil {
					b.aim("10,000 distinct patterns: p50 of a new stream ÷ that with 10",
						p50.Seconds()/ten.percentile(50).Seconds(), "≤", 2, "")
				}
			}
			b.lose(gateway, lost+m.lost, fmt.Sprintf("%d subscriptions", n))
		})
	}
}

// newOnes creates streams one after the other, each of which wakes its consumer.
func (b *bench) newOnes(w *world, h *hooks) (delays samples, lost int, used map[role]time.Duration) {
	w.t.Helper()
	under := prefix()
	w.check(w.subscribe(0, under+"/*", under[1:], h.url))
	before := w.cpu()
	for i := range b.newStreams {
		path := fmt.Sprintf("%s/%d", under, i)
		wakes, began := h.expect(path), time.Now()
		w.check(w.create(0, path))
		select {
		case a := <-wakes:
			delays = append(delays, a.at.Sub(began))
		case <-time.After(b.patience):
			lost++
		case <-w.ctx.Done():
			w.t.SkipNow()
		}
	}
	return delays, lost, since(before, w.cpu())
}
