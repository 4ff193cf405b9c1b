package bench

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"reveille/redisstore"
)

// shareTime bounds how long new replicas take to share the partitions out.
const shareTime = 5 * time.Minute

// shares is how many partitions each replica has; those that nobody has are under nil.
func (w *world) shares() map[any]int {
	w.t.Helper()
	keys := make([]string, redisstore.DefaultPartitions)
	for p := range keys {
		keys[p] = fmt.Sprintf("rv:{%d}:lease", p)
	}
	c := w.redis.Client()
	defer func() { _ = c.Close() }()
	owners, err := c.MGet(w.ctx, keys...).Result()
	w.check(err)
	shares := map[any]int{}
	for _, o := range owners {
		shares[o]++
	}
	return shares
}

// share waits until the replicas have shared the partitions out: all are taken, by all replicas, and no more of them
// move.
func (b *bench) share(w *world) {
	w.t.Helper()
	const still = 300 * time.Millisecond
	var before map[any]int
	whole := b.once(shareTime, func() bool {
		now := w.shares()
		same := maps.Equal(before, now)
		before = now
		if now[nil] > 0 || len(now) != len(w.revs) {
			return false
		}
		return same || !pause(b.ctx, still)
	})
	if !whole {
		w.check(fmt.Errorf("%d replicas have not shared the partitions out within %s", len(w.revs), shareTime))
	}
}

// replicas measures the same load with one and with several replicas, and how soon one acts on what was made known at
// another.
func replicas(b *bench) {
	t := b.table("Replicas",
		fmt.Sprintf("%d streams, created through each replica in turn. The replicas share the machine's cores.",
			b.many),
		"replicas", "system", "p50", "p99", "wakes/s", "lost", "wakes/s ÷ one", "CPU s per 1,000 wakes, all", "Redis")
	one := map[system]float64{}
	most := 0
	for _, n := range b.replicas {
		most = max(most, n)
		for _, s := range []system{tailed, gateway} {
			b.in(s, n, func(w *world) {
				b.share(w)
				m := w.measure(load{streams: b.many, gap: gap, span: b.span, settle: b.settle, patience: b.patience})
				if one[s] == 0 {
					one[s] = m.rate()
				}
				t.row(n, s, m.delays.percentile(50), m.delays.percentile(99), m.rate(), m.lost, ratio(m.rate(), one[s]),
					m.cpuPer1000(waker), m.cpuPer1000(store))
				b.lose(s, m.lost, fmt.Sprintf("%d replicas", n))
			})
		}
	}
	if most > 1 {
		b.in(tailed, most, func(w *world) { b.hinted(w) })
	}
}

// hinted makes subscriptions at one replica and appends behind everybody's back at once. Whoever watches the stream
// delivers, and the payload's callback URL says who that is.
func (b *bench) hinted(w *world) {
	w.t.Helper()
	t := b.table("From a subscription at one replica to a wake",
		fmt.Sprintf("%d replicas. The first one knows the stream and makes the subscription; as soon as it has "+
			"answered, the stream gets an event. Without hints, another replica would learn of the "+
			"subscription up to a second later.", len(w.revs)),
		"delivered by", "wakes", "p50", "p99", "longest", "lost")
	b.share(w)
	h := newHooks(w.t, sayDone)
	var own, others samples
	lost := 0
	for i := range b.hints {
		path := fmt.Sprintf("%s/%d", prefix(), i)
		w.check(w.create(0, path))
		wakes := h.expect(path)
		w.check(w.subscribe(0, path, "h"+strings.ReplaceAll(path[1:], "/", "-"), h.url))
		made := time.Now()
		_, err := w.append(0, path, `{"n":1}`)
		w.check(err)
		select {
		case a := <-wakes:
			if strings.HasPrefix(a.Callback, w.revs[0].URL+"/") {
				own = append(own, a.at.Sub(made))
			} else {
				others = append(others, a.at.Sub(made))
			}
		case <-time.After(b.patience):
			lost++
		case <-w.ctx.Done():
			w.t.SkipNow()
		}
	}
	t.row("the same", len(own), own.percentile(50), own.percentile(99), own.percentile(100), lost)
	t.row("another", len(others), others.percentile(50), others.percentile(99), others.percentile(100), "")
	b.lose(tailed, lost, "hints")
}
