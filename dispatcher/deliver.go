package dispatcher

import (
	"context"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
)

// Deliver makes delivery attempts: at once where a slot is free, otherwise when one is. It does not block. After a stop
// it hands them back to the store, for another replica, and takes the time of that.
func (d *Dispatcher) Deliver(wakes []fsm.Wake) {
	if len(wakes) == 0 {
		return
	}
	if !d.place(wakes) {
		refs := make([]fsm.WakeRef, len(wakes))
		for i, w := range wakes {
			refs[i] = w.Ref()
		}
		d.handBack(refs)
	}
}

// place has attempts made, unless the program stops.
func (d *Dispatcher) place(wakes []fsm.Wake) bool {
	catalog := d.cfg.Store.Catalog()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		return false
	}
	for _, w := range wakes {
		if sub, ok := subscriptionOf(catalog, w); ok {
			d.placeOne(sub, w)
			continue
		}
		if len(d.unlisted) >= d.cfg.MaxQueued {
			d.drop()
			continue
		}
		d.unlisted = append(d.unlisted, w)
		signal(d.unlistedReady)
	}
	return true
}

func subscriptionOf(c *fsm.Catalog, w fsm.Wake) (fsm.Subscription, bool) {
	sub, ok := c.Get(w.Subscription)
	return sub, ok && sub.Generation == w.Generation
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // its reader will be woken anyway
	}
}

// placeOne sends a wake or queues it. d.mu is held.
func (d *Dispatcher) placeOne(sub fsm.Subscription, w fsm.Wake) {
	now := d.cfg.Clock()
	l := d.slots.lane(laneKey{sub.ID, sub.Generation}, d.kinds[sub.Mode].size)
	if size := sizeOf(w); !l.isBehind(w) && d.slots.mayStart(l, size, now) {
		d.start(d.slots.take(l, size, now), sub, w)
		return
	}
	it := d.slots.enqueue(l, w)
	if it == nil {
		d.drop()
		return
	}
	it.since = time.Now()
	d.parkLater(it)
	d.pump()
}

// drop leaves a wake to its deadline. d.mu is held.
func (d *Dispatcher) drop() {
	d.metrics.dropped.Inc()
	if times, log := d.dropped.Happened(d.cfg.Clock()); log {
		d.log.Warn("the queue of wakes is full; the newest ones wait for their deadlines", zap.Int("times", times))
	}
}

// pump gives the free slots to the wakes whose turn it is. d.mu is held.
func (d *Dispatcher) pump() {
	for {
		it, sl, ok := d.slots.next(d.cfg.Clock())
		if !ok {
			return
		}
		d.parkNoMore(it)
		if it.wake == nil || time.Since(it.since) > d.cfg.WakingTimeout/2 {
			// The copy at hand is good until its deadline has passed, which a process that was frozen would not notice:
			// then the wake may be out once more by now, and only the store knows.
			d.do(func() { d.begin(sl, it.ref, it.seen) })
			continue
		}
		sub, ok := subscriptionOf(d.cfg.Store.Catalog(), *it.wake)
		if !ok { // deleted while it waited, and its consumers with it
			d.slots.release(sl)
			continue
		}
		d.start(sl, sub, *it.wake)
	}
}

// start makes an attempt with a slot that was taken for it. d.mu is held.
func (d *Dispatcher) start(sl slot, sub fsm.Subscription, w fsm.Wake) {
	d.do(func() { d.perform(sl, sub, w) })
}

// release gives a slot back and hands it on.
func (d *Dispatcher) release(sl slot) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slots.release(sl)
	d.pump()
}

// begin asks the store what there is to deliver of a wake that was parked, and delivers it.
func (d *Dispatcher) begin(sl slot, ref fsm.WakeRef, seen fsm.Sighting) {
	ctx, cancel := context.WithTimeout(d.reports, reportTimeout)
	out, err := d.cfg.Store.Begin(ctx, ref)
	cancel()
	d.noteStore(err)
	// One wake is what Begin hands out; anything else takes the common way.
	if err == nil && len(out.Wakes) == 1 && d.requests.Err() == nil {
		w := out.Wakes[0]
		if sub, ok := subscriptionOf(d.cfg.Store.Catalog(), w); ok {
			out.Wakes = nil
			w.Seen = seen
			d.follow(out)
			d.perform(sl, sub, w)
			return
		}
	}
	d.release(sl)
	d.follow(out)
}

// follow carries out what a transition asks for. No sighting of a stream has caused it.
func (d *Dispatcher) follow(out fsm.Outcome) { d.cfg.Outcomes.Follow(out, fsm.Sighting{}) }

// parkLater has the store told that a wake waits, if it waits for long: in a burst most do not, and go out without a
// call to the store about their waiting. Until then the deadline that they were handed out with stands, so that they
// come back should this process die. The store is told at once of a retry, because an answer to an earlier attempt may
// end the wake at any time, and of a wake that is not kept in memory. d.mu is held.
func (d *Dispatcher) parkLater(it *item) {
	if it.parking {
		it.again = true
		return
	}
	urgent := it.wake == nil || it.ref.Handed > 1
	if it.park != nil {
		if !urgent {
			return
		}
		d.parkNoMore(it)
	}
	list, at := &d.toPark, it.since.Add(d.cfg.parkAfter)
	if urgent {
		list, at = &d.toParkNow, it.since
	}
	it.parkAt = at
	it.park = list.PushBack(it)
	if urgent || list.Len() == 1 { // otherwise a parker waits for the first one's time already
		signal(d.parkReady)
	}
}

// parkNoMore takes a wake off the lists of those to be parked. d.mu is held.
func (d *Dispatcher) parkNoMore(it *item) {
	if it.park != nil {
		d.toParkNow.Remove(it.park) // nothing happens in the list that it is not in
		d.toPark.Remove(it.park)
		it.park = nil
	}
}

// runParker tells the store of wakes that wait. An attempt that it could not be told of stays queued; the store then
// does not hand it out at its turn, and its deadline brings it back.
func (d *Dispatcher) runParker(ctx context.Context) {
	for {
		it, ref, wait := d.nextToPark()
		if it == nil {
			var later <-chan time.Time
			if wait > 0 {
				later = time.After(wait)
			}
			select {
			case <-ctx.Done():
				return
			case <-d.parkReady:
			case <-later:
			}
			continue
		}
		call, cancel := context.WithTimeout(ctx, reportTimeout)
		out, err := d.cfg.Store.Park(call, ref, parkTime)
		cancel()
		d.follow(out)
		if ctx.Err() != nil {
			return
		}
		d.noteStore(err)
		d.parked(it)
	}
}

// nextToPark returns the item whose turn it is, or how long it is until the next item's turn; 0 if no item waits.
func (d *Dispatcher) nextToPark() (it *item, ref fsm.WakeRef, wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.toParkNow.Front()
	if e == nil {
		e = d.toPark.Front()
	}
	if e == nil {
		return nil, fsm.WakeRef{}, 0
	}
	it = e.Value.(*item)
	if wait := time.Until(it.parkAt); wait > 0 {
		return nil, fsm.WakeRef{}, wait
	}
	d.parkNoMore(it)
	it.parking = true
	if d.toParkNow.Len()+d.toPark.Len() > 0 {
		signal(d.parkReady) // another parker may go on with the next
	}
	return it, it.ref, 0
}

func (d *Dispatcher) parked(it *item) {
	d.mu.Lock()
	defer d.mu.Unlock()
	it.parking = false
	switch {
	case d.stopped:
		return
	case it.again:
		it.again = false
		d.parkLater(it)
	default:
		it.wake = nil
	}
	d.pump()
}

// runUnlisted looks again for the subscriptions of wakes that the catalog did not know. One that is still missing then
// was deleted, and its consumers with it; or its record, or the list, cannot be read. No attempt can be made, so none
// may count as failed: the store is told that the wake waits.
func (d *Dispatcher) runUnlisted(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.unlistedReady:
		}
		d.mu.Lock()
		wakes := d.unlisted
		d.unlisted = nil
		d.mu.Unlock()
		call, cancel := context.WithTimeout(ctx, reportTimeout)
		err := d.cfg.Store.RefreshCatalog(call)
		cancel()
		if ctx.Err() != nil {
			return
		}
		d.noteStore(err)
		wait := parkTime
		if err != nil {
			wait = d.cfg.WakingTimeout // the list may well have them
		}
		d.park(ctx, d.placeListed(wakes), wait)
	}
}

// placeListed has attempts made of the wakes whose subscriptions are known now, and returns the others.
func (d *Dispatcher) placeListed(wakes []fsm.Wake) (missing []fsm.WakeRef) {
	catalog := d.cfg.Store.Catalog()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range wakes {
		switch sub, ok := subscriptionOf(catalog, w); {
		case d.stopped || !ok:
			missing = append(missing, w.Ref())
		default:
			d.placeOne(sub, w)
		}
	}
	return missing
}
