package dispatcher

import (
	"container/list"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"reveille/dispatcher/format"
	"reveille/fsm"
)

const (
	// rateSlack is how much later than its turn a delivery comes up by its deadline, with a sixteenth of its wait.
	// Before that, its gate asks for it.
	rateSlack = 10 * time.Second
	// rateWait is about the longest time until a delivery comes up by its deadline.
	rateWait = time.Hour
	// rateTimeout bounds a call for turns: a delivery waits for it that was handed out before.
	rateTimeout = 2 * time.Second
	// maxRateBack is how many deliveries a replica that stops hands back, of those that are next at their gates.
	maxRateBack = 1000
)

// rates holds back deliveries that a limit does not allow yet. Such a delivery is parked in the store until its turn is
// well over, and waits at the gate of its subscription. The gate takes turns from the store. For each one, it asks the
// store for the next delivery, as for a delivery that waits for a slot. What no gate knows comes up by its deadline.
type rates struct {
	d *Dispatcher

	mu      sync.Mutex
	gates   map[laneKey]*gate
	waiting int
	stopped bool
	// running counts the calls of goOn.
	running sync.WaitGroup
}

func newRates(d *Dispatcher) *rates { return &rates{d: d, gates: map[laneKey]*gate{}} }

// limitsOf returns the limits of a subscription: its own first, then those of its endpoint.
func (d *Dispatcher) limitsOf(sub fsm.Subscription) (limits []fsm.Limit) {
	if sub.Rate > 0 {
		limits = append(limits, fsm.Limit{Name: sub.Generation, Rate: sub.Rate})
	}
	if d.cfg.MaxRate == 0 && d.cfg.Consent == fsm.ConsentOff {
		return limits
	}
	if origin := sub.Origin(); origin != "" {
		limits = append(limits, d.endpointLimits(sub, origin)...)
	}
	return limits
}

// gateOf returns the gate of a subscription that has limits. r.mu is held.
func (r *rates) gateOf(sub fsm.Subscription, limits []fsm.Limit) *gate {
	key := laneKey{sub.ID, sub.Generation}
	g := r.gates[key]
	if g == nil {
		g = &gate{key: key, places: map[deliveryKey]*list.Element{}}
		r.gates[key] = g
	}
	g.keepTo(limits, sub.Revision)
	return g
}

// expectTurn holds a delivery back, before anything is read for it, if there is no turn for it at its gate.
func (d *Dispatcher) expectTurn(_ context.Context, a *attempt) bool {
	limits := d.limitsOf(a.sub)
	if limits == nil || a.turn != nil || !a.probe.IsZero() {
		return true
	}
	r := d.rates
	r.mu.Lock()
	defer r.mu.Unlock()
	g, now := r.gateOf(a.sub, limits), time.Now()
	if g.waiting() == 0 && (g.free > 0 && now.Before(g.until) || g.ahead == 0 && !now.Before(g.opens)) {
		return true
	}
	return r.hold(g, a, false)
}

// takeTurn has a delivery use a turn, or holds it back if there is none. A test delivery does not wait.
func (d *Dispatcher) takeTurn(ctx context.Context, a *attempt) bool {
	limits := d.limitsOf(a.sub)
	if limits == nil {
		return true
	}
	late := a.turn != nil
	if late && !time.Now().After(a.turn.until) {
		a.turn = nil
		return true
	}
	a.turn = nil
	r := d.rates
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.gateOf(a.sub, limits)
	ctx, cancel := context.WithTimeout(ctx, rateTimeout)
	defer cancel()
	ok, err := r.take(ctx, g, !late && !a.test && a.probe.IsZero() && g.waiting() > 0)
	d.noteStore(err)
	switch {
	case ok:
		return true
	case a.test && err != nil:
		return a.ends(format.Verdict{Reason: "Redis does not say whether the rate allows it"})
	case a.test:
		return a.ends(format.Verdict{Reason: fsm.BlockedRate.Rule().Says})
	}
	return r.hold(g, a, late)
}

// hold has a delivery wait at a gate, before others if it is late. If its turn comes before it is parked, the store
// hands it out anew all the same. r.mu is held.
func (r *rates) hold(g *gate, a *attempt, late bool) bool {
	key, w := keyOf(a.delivery), waiter{a.delivery, sizeOf(a.delivery)}
	w.delivery.Streams = nil
	place, free := g.places[key], r.d.cfg.MaxQueued-r.waiting
	switch {
	case place != nil:
		if was := place.Value.(waiter); was.delivery.Handed < a.delivery.Handed {
			place.Value = w
		}
	case r.stopped, g.waiting() > free: // its deadline brings it
	default:
		r.put(g, w, late)
	}
	r.plan(g, time.Until(g.opens))
	pace := g.pace
	for _, l := range g.limits {
		pace = max(pace, l.Interval())
	}
	wait := time.Duration(g.waiting()+1) * pace
	return a.blocked(fsm.BlockedRate, min(wait+wait/16+rateSlack, rateWait+rand.N(rateWait/4)))
}

// busy returns how long to wait until it is looked again whether a subscription can have more deliveries made, 0 if it
// can now: none waits for a slot, it is not stopped, has any consent that it needs, and its endpoint is not left alone.
func (d *Dispatcher) busy(key laneKey) time.Duration {
	if sub, ok := d.cfg.Store.Catalog().Get(key.id); ok && sub.Generation == key.generation {
		if e := d.cfg.Store.Endpoints().Of(sub); sub.Stopped() || !d.mayDeliver(sub) || e.LeftAlone(e.Now) {
			return rateLook
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.slots.lanes[key]; l != nil && l.waiting() > 0 {
		return laneLook
	}
	return 0
}

// comeUp queues deliveries for a slot, each with a turn. The store is asked what there is to deliver. It returns how
// many have no subscription any more, and those for which the queue is full.
func (d *Dispatcher) comeUp(up []waiter, g *gate, until time.Time) (gone int, left []waiter) {
	catalog := d.cfg.Store.Catalog()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range up {
		sub, ok := subscriptionOf(catalog, w.delivery)
		if !ok || d.stopped {
			gone++
			continue
		}
		it := d.slots.queued[keyOf(w.delivery)]
		if it == nil {
			if it = d.slots.enqueue(d.slots.lane(g.key, d.kinds[sub.Mode].size), w.delivery); it == nil {
				left = append(left, w)
				continue
			}
			it.delivery, it.size, it.since = nil, w.size, time.Now()
		}
		it.turn = &turn{g, until}
	}
	d.pump()
	return gone, left
}

// unused gives back a turn that a delivery has not used. It may be nil.
func (r *rates) unused(t *turn) {
	if t == nil || !time.Now().Before(t.until) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	g := t.gate
	if g.free == 0 || t.until.Before(g.until) {
		g.until = t.until
	}
	g.free++
	r.plan(g, 0)
}

// forget drops gates that hold nothing.
func (r *rates) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for key, g := range r.gates {
		if g.waiting() == 0 && g.call == nil && now.After(g.opens) && now.After(g.until) {
			delete(r.gates, key)
		}
	}
}

// stop ends the gates. It returns some deliveries that are to be handed back: those that are next at their gates. So
// another replica goes on at once. The others come up by their deadlines.
func (r *rates) stop() (next []fsm.DeliveryRef) {
	r.mu.Lock()
	r.stopped = true
	for _, g := range r.gates {
		if g.timer != nil {
			g.timer.Stop()
		}
		for most := maxRateBack / len(r.gates); most >= 0 && g.waiting() > 0; most-- {
			next = append(next, r.next(g).delivery.Ref())
		}
	}
	r.mu.Unlock()
	r.running.Wait()
	return next
}
