package dispatcher

import (
	"context"
	"math/rand/v2"
	"time"

	"reveille/fsm"
)

// pauseStep is the least time before a delivery of a paused subscription is looked at again. On average, half of it
// comes on top. A resumption releases the deliveries, so nothing waits for this.
const pauseStep = 5 * time.Minute

// allowSubscription holds a delivery back while its subscription is paused. That is no attempt. A test delivery is sent
// all the same: an operator has asked for it, maybe to find out whether the subscription can be resumed.
func (d *Dispatcher) allowSubscription(_ context.Context, a *attempt) bool {
	if a.test || !d.paused(a.wake) {
		return true
	}
	return a.blocked(fsm.BlockedPaused, pauseStep+rand.N(pauseStep))
}

func (d *Dispatcher) paused(w fsm.Wake) bool {
	sub, ok := subscriptionOf(d.cfg.Store.Catalog(), w)
	return ok && sub.Paused
}

// resumed says whether the subscription is not paused any more, after the store was told to hold a delivery back. A
// resumption is stored before it visits the consumers. So either it visits this one after that, or resumed sees it.
func (d *Dispatcher) resumed(ctx context.Context, w fsm.Wake) (bool, error) {
	if err := d.cfg.Store.RefreshCatalog(ctx); err != nil {
		return false, err
	}
	return !d.paused(w), nil
}
