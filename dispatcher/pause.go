package dispatcher

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"reveille/fsm"
)

// pauseStep is the least time before a delivery of a stopped subscription is looked at again. On average, half of it
// comes on top. A resumption releases the deliveries, so nothing waits for this. The store makes up for a resumption
// that Redis has lost.
const pauseStep = 5 * time.Minute

// allowSubscription holds a delivery back while its subscription is stopped: an operator has paused it, or its endpoint
// has answered 410 (CloudEvents webhook spec, Delivery Response). That is no attempt. A test delivery is sent all the
// same: an operator has asked for it, maybe to find out whether the subscription can be resumed.
func (d *Dispatcher) allowSubscription(_ context.Context, a *attempt) bool {
	sub, ok := subscriptionOf(d.cfg.Store.Catalog(), a.delivery)
	switch wait := pauseStep + rand.N(pauseStep); {
	case a.test || !ok:
	case sub.Paused:
		return a.blocked(fsm.BlockedPaused, wait)
	case sub.Retired:
		return a.blocked(fsm.BlockedRetired, wait)
	}
	return true
}

// resumed says whether the subscription is not stopped any more, after the store was told to hold a delivery back. A
// resumption is stored before it visits the consumers. So either it visits this one after that, or resumed sees it.
func (d *Dispatcher) resumed(ctx context.Context, w fsm.Delivery) (bool, error) {
	if err := d.cfg.Store.RefreshCatalog(ctx); err != nil {
		return false, err
	}
	sub, ok := subscriptionOf(d.cfg.Store.Catalog(), w)
	return !ok || !sub.Stopped(), nil
}

// retire stops a subscription whose endpoint has answered 410, once for each such answer: a resumption that follows
// counts. A later subscription, or another webhook, is not stopped by an answer to the former one: that is a failure as
// any other.
func (d *Dispatcher) retire(ctx context.Context, a *attempt) error {
	if a.verdict.Result != fsm.AttemptRetired || a.retired {
		return nil
	}
	switch err := d.cfg.Store.RetireSubscription(ctx, a.sub); {
	case errors.Is(err, fsm.ErrUnavailable):
		return err
	case errors.Is(err, fsm.ErrNotFound):
		a.verdict.Result = fsm.AttemptFailed
	default:
		a.retired = true
		d.noteStore(err)
	}
	return nil
}
