package bench

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// load is writers that each go round and round: append an event, wait for its wake, deal with it, pause.
type load struct {
	streams int
	gap     time.Duration
	span    time.Duration
	settle  time.Duration
	// patience is how long an append may go without a wake until it counts as lost.
	patience time.Duration
	// callbacks has a wake answered with {} and then dealt with as a worker does that uses callbacks: claim, two acks,
	// done. Otherwise the answer says that it is done.
	callbacks bool
	// batch is how many events are appended at a time, and pushed at most.
	batch int
	// before is called when everything is set up and nothing has been measured.
	before func()
}

// gap of the writers unless a part takes another: a pause in which nothing is left to be done for the wake before.
const gap = 5 * time.Millisecond

// measured is what came of a load, or of several.
type measured struct {
	// delays are those from the beginning of an append to the arrival of its wake, turns those to the end of what
	// follows.
	delays, turns samples
	lost, strays  int
	took          time.Duration
	cpu           map[role]time.Duration
}

func (m *measured) add(o measured) {
	m.delays, m.turns = append(m.delays, o.delays...), append(m.turns, o.turns...)
	m.lost, m.strays, m.took = m.lost+o.lost, m.strays+o.strays, m.took+o.took
	if m.cpu == nil {
		m.cpu = map[role]time.Duration{}
	}
	for r, d := range o.cpu {
		m.cpu[r] += d
	}
}

// rate is how many turns there were in a second.
func (m *measured) rate() float64 {
	if m.took == 0 {
		return 0
	}
	return float64(len(m.turns)) / m.took.Seconds()
}

// cpuPer1000 is the processor time in seconds that a role took for a thousand turns.
func (m *measured) cpuPer1000(r role) float64 {
	if len(m.turns) == 0 {
		return 0
	}
	return m.cpu[r].Seconds() * 1000 / float64(len(m.turns))
}

type samples []time.Duration

// percentile returns the time that p percent of the samples do not exceed.
func (s samples) percentile(p float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(len(sorted)-1, int(float64(len(sorted))*p/100))]
}

// prefix is a first segment for the streams of one measurement.
func prefix() string { return fmt.Sprintf("/b%08x", rand.Uint32()) }

// measure puts a load on the world.
func (w *world) measure(l load) measured {
	w.t.Helper()
	reply := sayDone
	if l.callbacks {
		reply = sayOK
	}
	h, under := newHooks(w.t, sayDone), prefix()
	w.check(w.subscribe(0, under+"/*", under[1:], h.url))
	paths, waiting := make([]string, l.streams), make([]chan arrival, l.streams)
	for i := range paths {
		paths[i] = fmt.Sprintf("%s/%d", under, i)
		waiting[i] = h.expect(paths[i])
	}
	w.check(w.each(l.streams, func(i int) error { return w.create(i, paths[i]) }))
	w.check(w.awaitFirst(waiting, l.patience))
	if !pause(w.ctx, l.settle) {
		w.t.SkipNow()
	}
	h.say(reply) // the wakes of the new streams were answered
	if l.before != nil {
		l.before()
	}
	h.strays.Store(0)

	var mu sync.Mutex
	var wg sync.WaitGroup
	var all measured
	var failure error
	before, began := w.cpu(), time.Now()
	for i, path := range paths {
		wg.Go(func() {
			m, err := w.writer(l, i, path, waiting[i], began.Add(l.span))
			mu.Lock()
			defer mu.Unlock()
			all.add(m)
			failure = errors.Join(failure, err)
		})
	}
	wg.Wait()
	all.took, all.cpu = time.Since(began), since(before, w.cpu())
	all.strays += int(h.strays.Load())
	w.check(failure)
	return all
}

// awaitFirst waits until each new stream has had its wake, which an empty one gets from Reveille.
func (w *world) awaitFirst(waiting []chan arrival, within time.Duration) error {
	if w.system == floor {
		return nil
	}
	timeout := time.After(within)
	for i, c := range waiting {
		select {
		case <-c:
		case <-timeout:
			return fmt.Errorf("stream %d had no wake within %s of being created", i, within)
		case <-w.ctx.Done():
			return w.ctx.Err()
		}
	}
	return nil
}

// writer goes round until a time.
func (w *world) writer(l load, n int, path string, wakes <-chan arrival, until time.Time) (m measured, err error) {
	for turn := 0; time.Now().Before(until); turn++ {
		select {
		case <-wakes: // of an append before
			m.strays++
		default:
		}
		began := time.Now()
		end, err := w.append(n, path, fmt.Sprintf(`{"n":%d}`, turn))
		if err != nil {
			return m, err
		}
		timeout := time.NewTimer(l.patience)
		select {
		case a := <-wakes:
			m.delays = append(m.delays, a.at.Sub(began))
			<-a.answered
			if l.callbacks {
				if err := w.callBack(a, path, end); err != nil {
					return m, err
				}
			}
			m.turns = append(m.turns, time.Since(began))
		case <-timeout.C:
			m.lost++
		case <-w.ctx.Done():
			return m, w.ctx.Err()
		}
		timeout.Stop()
		if l.gap > 0 && !pause(w.ctx, l.gap) {
			return m, w.ctx.Err()
		}
	}
	return m, nil
}

// callBack deals with a wake by callbacks: claim, two acks, done. There is one event to ack, so the second ack repeats
// the first.
func (w *world) callBack(a arrival, path, end string) error {
	ack := fmt.Sprintf(`{"epoch":%d,"acks":[{"path":%q,"offset":%q}]}`, a.Epoch, path, end)
	for _, body := range []string{
		fmt.Sprintf(`{"epoch":%d,"wake_id":%q}`, a.Epoch, a.WakeID), ack, ack,
		fmt.Sprintf(`{"epoch":%d,"done":true}`, a.Epoch),
	} {
		if _, err := w.ask("POST", a.Callback, body, a.Token); err != nil {
			return err
		}
	}
	return nil
}
