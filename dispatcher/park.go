package dispatcher

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"reveille/fsm"
	"reveille/fsm/bell"
)

// This replica begins each wake that the store handed out to it, or gives the wake back. In four cases, the wake's
// deadline brings it back. This process dies, the store refuses a call or is silent during a stop, or more than maxBack
// wakes wait to be given back.

const (
	// askPause is how long a wake waits before the store, which did not answer for it, is asked again. While the store
	// does not answer, askBatch is how many wakes it is asked for at a time.
	askPause = 500 * time.Millisecond
	askBatch = 500
)

// parkLater tells the store that a wake waits, once it has waited for parkAfter. In a burst, most wakes go out sooner
// and need no such call. Until then, the deadline from the hand-out stands, so the wake comes back if this process
// dies. The store is told at once of a retry, because an answer to an earlier attempt may end the wake at any time. It
// is also told at once of a wake that is not kept in memory. d.mu is held.
func (d *Dispatcher) parkLater(it *item) {
	if it.parking {
		it.again = true
		return
	}
	urgent := it.delivery == nil || it.ref.Handed > 1
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
	if urgent || list.Len() == 1 { // otherwise a parker already waits for the first one's time
		d.parkReady.Ring()
	}
}

// parkNoMore takes a wake off toParkNow and toPark. d.mu is held.
func (d *Dispatcher) parkNoMore(it *item) {
	if it.park != nil {
		d.toParkNow.Remove(it.park) // it changes nothing in a list without the wake
		d.toPark.Remove(it.park)
		it.park = nil
	}
}

// parkAgain plans another call for a wake that the store may not have been told of. d.mu is held.
func (d *Dispatcher) parkAgain(it *item) {
	it.parkAt = time.Now().Add(d.cfg.parkAfter)
	it.park = d.toPark.PushBack(it)
	if d.toPark.Len() == 1 {
		d.parkReady.Ring()
	}
}

// runParker tells the store of wakes that wait.
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
		out, err := d.cfg.Store.Park(call, ref, fsm.BlockedSlot, parkTime)
		cancel()
		d.follow(out)
		if ctx.Err() != nil {
			return
		}
		d.noteStore(err)
		d.parked(it, err)
		if errors.Is(err, fsm.ErrUnavailable) && !bell.Sleep(ctx, reportRetry) {
			return
		}
	}
}

// nextToPark returns the item whose turn it is, or the time until the next item's turn; 0 if no item waits.
func (d *Dispatcher) nextToPark() (it *item, ref fsm.DeliveryRef, wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.toParkNow.Front()
	if e == nil {
		e = d.toPark.Front()
	}
	if e == nil {
		return nil, fsm.DeliveryRef{}, 0
	}
	it = e.Value.(*item)
	if wait := time.Until(it.parkAt); wait > 0 {
		return nil, fsm.DeliveryRef{}, wait
	}
	d.parkNoMore(it)
	it.parking = true
	if d.toParkNow.Len()+d.toPark.Len() > 0 {
		d.parkReady.Ring() // another parker may go on with the next
	}
	return it, it.ref, 0
}

// parked notes that the store was told, or may have been told, that a wake waits. From then on, the store says what
// there is to deliver of it.
func (d *Dispatcher) parked(it *item, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	it.parking = false
	switch {
	case d.stopped || d.slots.queued[it.key] != it:
	case it.again:
		it.again = false
		d.parkLater(it)
	default:
		it.delivery = nil
		if errors.Is(err, fsm.ErrUnavailable) {
			d.parkAgain(it)
		}
	}
}

// askLater frees the slot of a wake that the store did not answer for. It keeps the wake, to ask for it again.
func (d *Dispatcher) askLater(sl slot, it *item) {
	d.mu.Lock()
	d.slots.release(sl)
	stopped := d.stopped
	if !stopped {
		it.askAt = time.Now().Add(askPause)
		d.slots.setAside(&d.toAsk, it)
		d.askReady.Ring()
		d.pump()
	}
	d.mu.Unlock()
	if stopped {
		d.handBack([]fsm.DeliveryRef{it.ref})
	}
}

// runAsker queues again the wakes that the store did not answer for.
func (d *Dispatcher) runAsker(ctx context.Context) {
	for {
		var later <-chan time.Time
		if wait := d.askSome(); wait > 0 {
			later = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return
		case <-d.askReady:
		case <-later:
		}
	}
}

// askSome queues the wakes whose askAt has passed. It returns how long to wait for more; 0 if no wake waits.
func (d *Dispatcher) askSome() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.pump()
	most := d.toAsk.Len()
	if d.outage.lasts() {
		most = min(most, askBatch)
	}
	for e := d.toAsk.Front(); e != nil; e = d.toAsk.Front() {
		it := e.Value.(*item)
		if wait := time.Until(it.askAt); wait > 0 {
			return wait
		}
		if most--; most < 0 {
			return askPause
		}
		d.slots.comeBack(&d.toAsk, e)
	}
	return 0
}

// wakeBack is a wake that this replica does not keep, why, and how long the wake may wait.
type wakeBack struct {
	ref  fsm.DeliveryRef
	why  fsm.BlockReason
	wait time.Duration
}

// maxBack bounds how many wakes wait for giveBack's call to the store. Wakes beyond it wait for their deadlines.
const maxBack = 100_000

// giveBack lets runBack tell the store that this replica does not keep some wakes. d.mu is held.
func (d *Dispatcher) giveBack(why fsm.BlockReason, wait time.Duration, refs ...fsm.DeliveryRef) {
	for _, ref := range refs {
		if len(d.back) < maxBack {
			d.back = append(d.back, wakeBack{ref, why, wait})
		}
	}
	if len(refs) > 0 {
		d.backReady.Ring()
	}
}

// takeBack returns the wakes that runBack has not given back. It is called when runBack has ended.
func (d *Dispatcher) takeBack() (refs []fsm.DeliveryRef) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range d.back {
		refs = append(refs, b.ref)
	}
	d.back = nil
	return refs
}

// runBack tells the store of the wakes that this replica does not keep, until the store has answered for each.
func (d *Dispatcher) runBack(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.backReady:
		}
		d.mu.Lock()
		backs := d.back
		d.back = nil
		d.mu.Unlock()
		left := d.park(ctx, backs)
		d.mu.Lock()
		d.back = append(left, d.back...)
		d.mu.Unlock()
		if len(left) > 0 {
			if !bell.Sleep(ctx, askPause) {
				return
			}
			d.backReady.Ring()
		}
	}
}

// handBack tells the store that this replica will not make some attempts. The owners of their partitions then make them
// at once. An attempt that the store could not be told of waits for its deadline.
func (d *Dispatcher) handBack(waiting []fsm.DeliveryRef) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.reports), handBackTime)
	defer cancel()
	backs := make([]wakeBack, len(waiting))
	for i, ref := range waiting {
		backs[i].ref = ref
	}
	d.park(ctx, backs)
}

// park tells the store that attempts wait, and returns the ones that the store could not be told of.
func (d *Dispatcher) park(ctx context.Context, backs []wakeBack) (left []wakeBack) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	told := make([]bool, len(backs))
	var calls errgroup.Group
	calls.SetLimit(parkers)
	for i, b := range backs {
		calls.Go(func() error {
			if ctx.Err() == nil {
				out, err := d.cfg.Store.Park(ctx, b.ref, b.why, b.wait)
				d.noteStore(err)
				d.follow(out)
				told[i] = !errors.Is(err, fsm.ErrUnavailable)
			}
			return nil
		})
	}
	_ = calls.Wait()
	for i, b := range backs {
		if !told[i] {
			left = append(left, b)
		}
	}
	return left
}
