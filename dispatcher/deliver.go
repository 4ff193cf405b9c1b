package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/fsm/cache"
)

// Deliver makes each delivery attempt as soon as a slot is free. It does not block. After a stop, it hands the attempts
// back to the store for another replica; this may block for handBackTime.
func (d *Dispatcher) Deliver(deliveries []fsm.Delivery) {
	if len(deliveries) == 0 {
		return
	}
	if !d.place(deliveries) {
		refs := make([]fsm.DeliveryRef, len(deliveries))
		for i, w := range deliveries {
			refs[i] = w.Ref()
		}
		d.handBack(refs)
	}
}

// place starts or queues the attempts. It returns false if the program stops.
func (d *Dispatcher) place(deliveries []fsm.Delivery) bool {
	catalog := d.cfg.Store.Catalog()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		return false
	}
	for _, w := range deliveries {
		if sub, ok := subscriptionOf(catalog, w); ok {
			d.placeOne(sub, w)
			continue
		}
		if len(d.unlisted) >= d.cfg.MaxQueued {
			d.drop(w)
			continue
		}
		d.unlisted = append(d.unlisted, w)
		d.unlistedReady.Ring()
	}
	return true
}

func subscriptionOf(c *cache.Catalog, w fsm.Delivery) (fsm.Subscription, bool) {
	sub, ok := c.Get(w.Subscription)
	return sub, ok && sub.Generation == w.Generation
}

// placeOne sends a wake or queues it. d.mu is held.
func (d *Dispatcher) placeOne(sub fsm.Subscription, w fsm.Delivery) {
	now := d.cfg.Clock()
	if w.Asked.IsZero() {
		w.Asked = time.Now()
	}
	l := d.slots.lane(laneKey{sub.ID, sub.Generation}, d.kinds[sub.Mode].size)
	if size := sizeOf(w); !l.isBehind(w) && d.isGood(w) && d.slots.mayStart(l, size, now) {
		d.start(d.slots.take(l, size, now), sub, w, nil)
		return
	}
	it := d.slots.enqueue(l, w)
	if it == nil {
		d.drop(w)
		return
	}
	it.since = time.Now()
	d.parkLater(it)
	d.pump()
}

// isGood says whether a wake may go out as the store handed it out. A process that was frozen does not notice that the
// deadline has passed. The wake may be out again meanwhile, and only the store knows.
func (d *Dispatcher) isGood(w fsm.Delivery) bool {
	return time.Now().Before(w.GoodUntil(d.cfg.WakingTimeout))
}

// drop gives back a wake that the full queue cannot keep. d.mu is held.
func (d *Dispatcher) drop(w fsm.Delivery) {
	d.metrics.dropped.Inc()
	if times, log := d.dropped.Happened(d.cfg.Clock()); log {
		d.log.Warn("the queue of wakes is full; the newest ones come again later", zap.Int("times", times))
	}
	d.giveBack(fsm.BlockedSlot, d.cfg.WakingTimeout, w.Ref())
}

// pump gives the free slots to queued wakes, in the order of their turns. d.mu is held.
func (d *Dispatcher) pump() {
	for {
		it, sl, ok := d.slots.next(d.cfg.Clock())
		if !ok {
			return
		}
		d.parkNoMore(it)
		if it.delivery == nil || it.parking || !d.isGood(*it.delivery) {
			if it.by == "" {
				d.begun++
				it.by = fmt.Sprintf("%s-%d", d.name, d.begun)
			}
			d.do(func() bool { return d.begin(sl, it) })
			continue
		}
		sub, ok := subscriptionOf(d.cfg.Store.Catalog(), *it.delivery)
		if !ok { // the subscription and its consumers were deleted while the wake waited
			d.slots.release(sl)
			d.rates.unused(it.turn)
			continue
		}
		d.start(sl, sub, *it.delivery, it.turn)
	}
}

// start makes an attempt with a slot that was taken for it. d.mu is held.
func (d *Dispatcher) start(sl slot, sub fsm.Subscription, w fsm.Delivery, has *turn) {
	a := &attempt{sub: sub, delivery: w, slot: sl, turn: has}
	d.do(func() bool { return d.perform(a) })
}

// release frees a slot, for the next wake in turn.
func (d *Dispatcher) release(sl slot) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slots.release(sl)
	d.pump()
}

// begin asks the store what there is to deliver of a wake that waited, and delivers it as perform does. If the store
// does not answer, the wake stays in memory: the store may have handed it out.
func (d *Dispatcher) begin(sl slot, it *item) bool {
	ctx, cancel := context.WithTimeout(d.reports, reportTimeout)
	out, err := d.cfg.Store.Begin(ctx, it.ref, it.by)
	cancel()
	d.noteStore(err)
	if errors.Is(err, fsm.ErrUnavailable) {
		d.askLater(sl, it)
		return true
	}
	// Begin hands out one wake. Any other outcome takes the common way.
	if err == nil && len(out.Deliveries) == 1 && d.requests.Err() == nil {
		w := out.Deliveries[0]
		if sub, ok := subscriptionOf(d.cfg.Store.Catalog(), w); ok {
			out.Deliveries = nil
			w.Seen = it.seen
			d.follow(out)
			return d.perform(&attempt{sub: sub, delivery: w, slot: sl, turn: it.turn})
		}
	}
	d.rates.unused(it.turn)
	d.release(sl)
	d.follow(out)
	return true
}

// follow carries out what a transition asks for. No sighting of a stream caused the transition.
func (d *Dispatcher) follow(out fsm.Outcome) { d.cfg.Outcomes.Follow(out, fsm.Sighting{}) }

// runUnlisted refreshes the catalog, and looks again for the subscriptions of wakes that it did not hold. A
// subscription that is still missing was deleted with its consumers, or its record or the list cannot be read. No
// attempt can be made, so none may count as failed: the store is told that the wake waits.
func (d *Dispatcher) runUnlisted(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.unlistedReady:
		}
		d.mu.Lock()
		deliveries := d.unlisted
		d.unlisted = nil
		d.mu.Unlock()
		call, cancel := context.WithTimeout(ctx, reportTimeout)
		err := d.cfg.Store.RefreshCatalog(call)
		cancel()
		if ctx.Err() == nil {
			d.noteStore(err)
		}
		wait := parkTime
		if err != nil {
			wait = d.cfg.WakingTimeout // the list was not read: the subscriptions may be in it
		}
		missing := d.placeListed(deliveries)
		d.mu.Lock()
		d.giveBack(fsm.BlockedUnlisted, wait, missing...)
		d.mu.Unlock()
	}
}

// placeListed starts or queues the wakes whose subscriptions the catalog holds, and returns the others.
func (d *Dispatcher) placeListed(deliveries []fsm.Delivery) (missing []fsm.DeliveryRef) {
	catalog := d.cfg.Store.Catalog()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range deliveries {
		switch sub, ok := subscriptionOf(catalog, w); {
		case d.stopped || !ok:
			missing = append(missing, w.Ref())
		default:
			d.placeOne(sub, w)
		}
	}
	return missing
}
