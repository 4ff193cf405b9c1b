package dispatcher

import (
	"context"
	"time"

	"reveille/fsm"
)

const (
	// probeLook is how often endpoints that are down are looked at.
	probeLook = time.Second
	// probeLate is how long a due probe waits for an ordinary delivery before another one is sent in its place.
	probeLate = time.Second
	// probeAgain is the pause until another delivery is tried, if the last one did not become the probe. While no
	// delivery waits, the pause doubles, up to probeAgainMax.
	probeAgain    = 5 * time.Second
	probeAgainMax = 30 * time.Second
)

// probing is what is done about an endpoint that is down, as long as it is.
type probing struct {
	// next is when a delivery may be looked for, pause how long that was put off last.
	next  time.Time
	pause time.Duration
	// after is since when the delivery waits that has carried the last probe.
	after time.Time
}

// runProbes has an endpoint that is down probed when its own clock says so, though no delivery is due for hours.
func (d *Dispatcher) runProbes(ctx context.Context) {
	down := map[string]*probing{}
	for sleep(ctx, probeLook) {
		d.carryProbes(ctx, down)
	}
}

// carryProbes has the delivery that has waited for longest carry the probe of each endpoint whose time it is. They take
// turns, so that one whose events the endpoint cannot take does not hide that it takes others. The replica does it that
// owns the partition of the subscription's ID.
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
		if !overdue[sub.Generation] || sub.Paused || !store.Ownership().Owns(store.PartitionOf(sub.ID)) {
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

// carryProbe says whether a delivery is to carry the probe of an endpoint.
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
	return d.cfg.Store.ProbeWake(ctx, r)
}
