package dispatcher

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"reveille/dispatcher/format"
	"reveille/fsm"
)

// Deliveries that wait for the same moment are spread from then on: heldPace for each that this replica has held back,
// heldSpread at most.
const (
	heldPace   = 10 * time.Millisecond
	heldSpread = 30 * time.Second
)

// allowEndpoint has a delivery wait whose endpoint is to be left alone. That is no attempt.
func (d *Dispatcher) allowEndpoint(_ context.Context, a *attempt) bool {
	if !a.kind.spares {
		return true
	}
	e, now, trouble := d.cfg.Store.Endpoints().Get(a.wake.Generation)
	if wait := e.Until.Sub(now); trouble && wait > 0 {
		return d.hold(a, wait)
	}
	return true
}

// hold has a delivery wait.
func (d *Dispatcher) hold(a *attempt, wait time.Duration) bool {
	spread := min(time.Duration(d.cfg.Store.Endpoints().Hold(a.wake.Generation))*heldPace, heldSpread)
	return a.ends(format.Verdict{
		Result: fsm.AttemptHeld, Reason: "the endpoint is left alone", Wait: wait + rand.N(spread),
	})
}

// noteEndpoint tells the store what an attempt says of its endpoint, if that is news. The other deliveries of this
// replica go by it before the store has answered.
func (d *Dispatcher) noteEndpoint(ctx context.Context, a *attempt) error {
	if !a.kind.spares || a.noted {
		return nil
	}
	var err error
	endpoints := d.cfg.Store.Endpoints()
	switch e, now, trouble := endpoints.Get(a.wake.Generation); {
	case a.verdict.RetryAfter > 0: // which counts from the answer on, however late the store takes it
		pause := max(1, a.verdict.RetryAfter-time.Since(a.began.Add(a.took)))
		endpoints.Pause(a.wake.Generation, pause)
		err = d.cfg.Store.FailEndpoint(ctx, a.sub, fsm.EndpointFailure{RetryAfter: pause})
	case trouble && a.verdict.Result.OK() && !e.Until.After(now):
		err = d.cfg.Store.RecoverEndpoint(ctx, a.sub)
	}
	if err != nil && errors.Is(err, fsm.ErrUnavailable) {
		return err
	}
	d.noteStore(err) // what became of the attempt is told all the same
	a.noted = true
	return nil
}
