package bench

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// burstTime is how long after the last append of a burst a wake counts as lost.
const burstTime = 5 * time.Minute

// burst measures how long it takes until all streams are woken for that get an event in the same second.
func burst(b *bench) {
	t := b.table(fmt.Sprintf("%d streams get one event in the same second", b.burst),
		"A delay runs from the start of a stream's append to the arrival of its wake, \"all woken\" from the first "+
			"append to the last wake. If the stream server takes fewer appends in a second, \"all appended\" shows "+
			"it, and the floor shows what is possible.",
		"system", "p50", "p99", "longest", "all appended", "all woken", "after the last append", "lost",
		"all woken ÷ floor", "CPU s", "Redis", "stream server")
	if !b.fits(b.burst) {
		t.row("not measured: too few open files allowed", "", "", "", "", "", "", "", "", "", "", "")
		return
	}
	var least time.Duration
	for _, s := range systems {
		b.in(s, 1, func(w *world) {
			r := b.blast(w)
			if s == floor {
				least = r.woken
			}
			t.row(s, r.delays.percentile(50), r.delays.percentile(99), r.delays.percentile(100), r.appended, r.woken,
				max(0, r.woken-r.appended), r.lost, ratio(r.woken, least),
				r.cpu[waker].Seconds(), r.cpu[store].Seconds(), r.cpu[streams].Seconds())
			if s != floor {
				b.aim(fmt.Sprintf("%d streams, one event each within a second, %s: last wake (floor: %s)", b.burst, s,
					cell(least)), r.woken.Seconds(), "≤", 5, " s")
			}
			b.lose(s, r.lost, "burst")
		})
	}
}

type blasted struct {
	delays          samples
	appended, woken time.Duration
	lost            int
	cpu             map[role]time.Duration
}

// blast has each of many streams get one event within a second, if the writers can.
func (b *bench) blast(w *world) (r blasted) {
	w.t.Helper()
	h := newHooks(w.t, sayDone)
	paths := b.watched(w, b.burst, h.url)
	waiting := make([]chan arrival, len(paths))
	for i, path := range paths {
		waiting[i] = h.expect(path)
	}
	if !pause(w.ctx, b.settle) {
		w.t.SkipNow()
	}
	const writers = 64
	began := time.Now()
	starts := make([]time.Time, len(paths))
	var next atomic.Int64
	var wg sync.WaitGroup
	failures := make([]error, writers)
	before := w.cpu()
	for n := range writers {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(paths) ||
					!pause(w.ctx, time.Until(began.Add(time.Duration(i)*time.Second/time.Duration(len(paths))))) {
					return
				}
				starts[i] = time.Now()
				if _, err := w.append(i, paths[i], `{"n":1}`); err != nil {
					failures[n] = errors.Join(failures[n], err)
				}
			}
		})
	}
	wg.Wait()
	w.check(errors.Join(failures...))
	r.appended = time.Since(began)
	timeout := time.After(burstTime)
	for i, c := range waiting {
		select {
		case a := <-c:
			r.delays = append(r.delays, a.at.Sub(starts[i]))
			r.woken = max(r.woken, a.at.Sub(began))
		case <-timeout:
			timeout = time.After(0) // the others have had their time as well
			r.lost++
		case <-w.ctx.Done():
			w.t.SkipNow()
		}
	}
	r.cpu = since(before, w.cpu())
	return r
}
