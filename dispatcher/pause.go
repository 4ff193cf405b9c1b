package dispatcher

import (
	"context"
	"math/rand/v2"
	"time"

	"reveille/dispatcher/format"
	"reveille/fsm"
)

// pauseStep is how long a delivery at least waits whose subscription is paused, until that is looked at again; half as
// long on average goes on top. A resumption releases what waits, so nothing waits for this.
const pauseStep = 5 * time.Minute

// allowSubscription has a delivery wait whose subscription is paused. That is no attempt. A test is sent all the same:
// an operator has asked for it, maybe to find out whether the subscription can be resumed.
func (d *Dispatcher) allowSubscription(_ context.Context, a *attempt) bool {
	if a.test || !d.paused(a.wake) {
		return true
	}
	a.paused = true
	return a.ends(format.Verdict{
		Result: fsm.AttemptHeld, Reason: "the subscription is paused", Wait: pauseStep + rand.N(pauseStep),
	})
}

func (d *Dispatcher) paused(w fsm.Wake) bool {
	sub, ok := subscriptionOf(d.cfg.Store.Catalog(), w)
	return ok && sub.Paused
}

// pauseAgain looks whether the subscription of a delivery that the store was told to hold back is still paused. A
// resumption is stored before it visits the consumers. So either it visits this one later than the store was told, or
// it is found here.
func (d *Dispatcher) pauseAgain(ctx context.Context, w fsm.Wake) (fsm.Outcome, error) {
	if err := d.cfg.Store.RefreshCatalog(ctx); err != nil || d.paused(w) {
		return fsm.Outcome{}, err
	}
	return d.cfg.Store.Park(ctx, w.Ref(), 0)
}
