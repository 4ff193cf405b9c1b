package dispatcher

import (
	"container/list"
	"context"
	"slices"
	"time"

	"reveille/fsm"
)

const (
	// rateLook is how often a gate looks whether its subscription has another rate, or has deliveries made again.
	rateLook = time.Second
	// laneLook is how often it looks whether those that came up before have a slot.
	laneLook = 100 * time.Millisecond
	// unlimitedTurns is how many deliveries at a gate come up at a time, with a pause, once the rate is no more.
	unlimitedTurns = 1000
	unlimitedPause = 100 * time.Millisecond
)

// turn lets a delivery pass its gate until a time.
type turn struct {
	gate  *gate
	until time.Time
}

// gate is what this replica knows of the limits of a subscription.
type gate struct {
	key laneKey
	// limits are those of a revision of the subscription.
	limits   []fsm.Limit
	revision int64
	line
	places map[deliveryKey]*list.Element
	// free turns may be used until a time.
	free  int
	until time.Time
	// Until opens, there are no turns. Then those are free that were taken ahead.
	opens time.Time
	ahead int
	timer *time.Timer
	// call is open while turns are being taken.
	call chan struct{}
	// want is how many turns are asked for at a time if fewer deliveries wait: about as many as were used of the last.
	want int
	// pace is how long a turn takes on average. Other gates may have turns of the same limit in between.
	pace time.Duration
}

// waiter is a delivery at a gate. Its wake has no streams.
type waiter struct {
	delivery fsm.Delivery
	size     int
}

// keepTo has other limits count from now on, unless they are of an older revision. r.mu is held.
func (g *gate) keepTo(limits []fsm.Limit, revision int64) {
	if revision >= g.revision && !slices.Equal(g.limits, limits) {
		g.limits, g.free, g.ahead, g.opens, g.pace, g.want = limits, 0, 0, time.Time{}, 0, 1
	}
	g.revision = max(g.revision, revision)
}

// put adds a delivery to those that wait at a gate. Replays and asides yield to others. r.mu is held.
func (r *rates) put(g *gate, w waiter, first bool) {
	queue := g.queueOf(w.delivery.Owner != "")
	add := queue.PushBack
	if first {
		add = queue.PushFront
	}
	g.places[keyOf(w.delivery)] = add(w)
	r.waiting++
}

// next takes the delivery out whose turn it is. There is one. r.mu is held.
func (r *rates) next(g *gate) waiter {
	queue := g.next()
	place := queue.Front()
	w := place.Value.(waiter)
	g.remove(queue, place)
	delete(g.places, keyOf(w.delivery))
	r.waiting--
	return w
}

// take takes a turn at a gate. It returns false if there is none. r.mu is held, but not during a call to the store.
func (r *rates) take(ctx context.Context, g *gate, behind bool) (bool, error) {
	for {
		now := time.Now()
		switch {
		case behind:
			return false, nil
		case g.free > 0 && now.Before(g.until):
			g.free--
			return true, nil
		case now.Before(g.opens), g.ahead > 0:
			return false, nil
		case g.call == nil:
			if err := r.fetch(ctx, g); err != nil {
				return false, err
			}
			continue
		}
		call := g.call
		r.mu.Unlock()
		select {
		case <-call:
		case <-ctx.Done():
		}
		r.mu.Lock()
		if err := ctx.Err(); err != nil {
			return false, err
		}
	}
}

// fetch takes turns from the store. It asks for more than wait if the last turns were all used, and for less if they
// were not. r.mu is held, but not during the call.
func (r *rates) fetch(ctx context.Context, g *gate) error {
	if g.want *= 2; g.free > 0 {
		g.want = g.want/2 - g.free
	}
	g.want = max(1, min(g.want, g.limits[len(g.limits)-1].Share()))
	g.free = 0 // what was not used is over, and nothing waits for it
	call, limits, asked := make(chan struct{}), g.limits, time.Now()
	most := max(g.want, g.waiting())
	g.call = call
	r.mu.Unlock()
	turns, err := r.d.cfg.Store.TakeTurns(ctx, limits, most)
	r.mu.Lock()
	g.call = nil
	close(call)
	switch {
	case err != nil:
		r.plan(g, askPause)
	case !slices.Equal(limits, g.limits):
		r.plan(g, 0)
	case turns.Wait > 0:
		g.ahead, g.opens = turns.N, time.Now().Add(turns.Wait)
		g.pace += (turns.Wait/time.Duration(max(1, turns.N)) - g.pace) / 4
		r.plan(g, turns.Wait)
	default:
		g.free, g.until = turns.N, asked.Add(keep(limits))
		r.plan(g, 0)
	}
	return err
}

// keep is how long turns of some limits may be used.
func keep(limits []fsm.Limit) time.Duration {
	least := limits[0].Keep()
	for _, l := range limits[1:] {
		least = min(least, l.Keep())
	}
	return least
}

// plan has the gate go on after a while, if anything waits and no call is under way, which plans by itself. r.mu is
// held.
func (r *rates) plan(g *gate, wait time.Duration) {
	switch wait = min(wait, rateLook); {
	case r.stopped || g.call != nil || g.waiting() == 0 && g.ahead == 0:
	case g.timer == nil:
		g.timer = time.AfterFunc(wait, func() { r.goOn(g) })
	default:
		g.timer.Reset(wait)
	}
}

// goOn gives turns to the deliveries at a gate, as far as there are some, or takes more from the store.
func (r *rates) goOn(g *gate) {
	busy := r.d.busy(g.key)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return
	}
	r.running.Add(1)
	defer r.running.Done()
	limited, now := r.renew(g), time.Now()
	if g.ahead > 0 && !g.opens.After(now) {
		g.free, g.until, g.ahead = g.ahead, g.opens.Add(keep(g.limits)), 0
	}
	if !now.Before(g.until) {
		g.free = 0
	}
	if busy == 0 {
		busy = r.give(g)
	}
	switch wait := g.opens.Sub(now); {
	case g.waiting() == 0 && g.ahead == 0, g.call != nil:
	case busy > 0, wait > 0:
		r.plan(g, max(busy, wait))
	case !limited:
		r.plan(g, unlimitedPause)
	default:
		ctx, cancel := context.WithTimeout(r.d.reports, rateTimeout)
		defer cancel()
		r.d.noteStore(r.fetch(ctx, g))
	}
}

// renew looks whether the subscription of a gate has another rate meanwhile. It returns false if the subscription has
// none, or is gone. r.mu is held.
func (r *rates) renew(g *gate) (limited bool) {
	sub, ok := r.d.cfg.Store.Catalog().Get(g.key.id)
	limits := r.d.limitsOf(sub)
	if !ok || sub.Generation != g.key.generation || limits == nil {
		g.free, g.until, g.ahead, g.opens = unlimitedTurns, time.Now().Add(time.Second), 0, time.Time{}
		return false
	}
	g.keepTo(limits, sub.Revision)
	return true
}

// give gives the free turns of a gate to those that wait. If one finds no place in the queue for slots, it waits on,
// and give returns for how long. r.mu is held, but not while they come up.
func (r *rates) give(g *gate) (busy time.Duration) {
	for g.free > 0 && g.waiting() > 0 {
		var up []waiter
		for ; g.free > 0 && g.waiting() > 0; g.free-- {
			up = append(up, r.next(g))
		}
		until := g.until
		r.mu.Unlock()
		gone, left := r.d.comeUp(up, g, until)
		r.mu.Lock()
		g.free += gone
		for _, w := range slices.Backward(left) {
			r.put(g, w, true)
		}
		if len(left) > 0 {
			return laneLook
		}
	}
	return 0
}
