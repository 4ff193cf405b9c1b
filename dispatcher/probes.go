package dispatcher

import (
	"context"
	"time"

	"reveille/fsm"
	"reveille/fsm/bell"
)

const (
	// probeLook is the time between two looks at the endpoints that are down.
	probeLook = time.Second
	// probeLate is how long a due probe waits for an ordinary delivery before a waiting delivery becomes the probe.
	probeLate = time.Second
	// probeAgain is the pause before another delivery is tried, if the last one did not become the probe. While no
	// delivery waits, the pause doubles, up to probeAgainMax.
	probeAgain    = 5 * time.Second
	probeAgainMax = 30 * time.Second
)

// probing is the search for deliveries that probe one endpoint, while it is down.
type probing struct {
	// next is when the next search may be, pause the time before it.
	next  time.Time
	pause time.Duration
	// after is since when the delivery that carried the last probe has waited.
	after time.Time
}

// runProbes probes an endpoint that is down at the time that its own clock says, even if no delivery is due for hours.
func (d *Dispatcher) runProbes(ctx context.Context) {
	down := map[string]*probing{}
	for bell.Sleep(ctx, probeLook) {
		d.carryProbes(ctx, down)
	}
}

// carryProbes makes the delivery that has waited longest carry the probe, for each endpoint whose probe is overdue.
// Deliveries take turns: the endpoint may refuse the events of one and take the events of another. Only the replica
// that owns the partition of the subscription's ID does this.
func (d *Dispatcher) carryProbes(ctx context.Context, down map[string]*probing) {
	store := d.cfg.Store
	for generation := range down {
		if e, _, trouble := store.Endpoints().Get(generation); !trouble || !e.Down() {
			delete(down, generation)
		}
	}
	overdue := map[string]bool{}
	for _, generation := range store.Endpoints().Overdue(probeLate) {
		overdue[generation] = true
	}
	if len(overdue) == 0 {
		return
	}
	for _, sub := range store.Catalog().All() {
		if !overdue[sub.Generation] || sub.Stopped() || !d.mayDeliver(sub) ||
			!store.Ownership().Owns(store.PartitionOf(sub.ID)) {
			continue
		}
		if wait, _ := store.Endpoints().Paused(sub); wait > 0 {
			continue
		}
		p := down[sub.Generation]
		if p == nil {
			p = &probing{}
			down[sub.Generation] = p
		}
		if time.Now().Before(p.next) {
			continue
		}
		carried, err := d.carryProbe(ctx, sub, p)
		d.noteStore(err)
		if p.pause = min(max(2*p.pause, probeAgain), probeAgainMax); carried {
			p.pause = probeAgain
		}
		p.next = time.Now().Add(p.pause)
	}
}

// carryProbe makes a waiting delivery carry the probe of an endpoint. It returns false if none does.
func (d *Dispatcher) carryProbe(ctx context.Context, sub fsm.Subscription, p *probing) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	r, since, ok, err := d.cfg.Store.LongestWaiting(ctx, sub, p.after)
	if err == nil && !ok && !p.after.IsZero() {
		r, since, ok, err = d.cfg.Store.LongestWaiting(ctx, sub, time.Time{})
	}
	if err != nil || !ok {
		return false, err
	}
	p.after = since
	return d.cfg.Store.ProbeDelivery(ctx, r)
}
