package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"reveille/dispatcher/format"
	"reveille/fsm"
)

// Deliveries that wait for the same moment are spread from then on: heldPace for each that this replica has held back,
// heldSpread at most. Those that have failed before come retryLag later, and are counted by themselves: the next probe
// goes to one that has not failed yet, if there is any, however many wait for a retry.
const (
	heldPace   = 10 * time.Millisecond
	heldSpread = 30 * time.Second
	retryLag   = time.Second
)

// releaseTime bounds how long the consumers of an endpoint that is up again are told.
const releaseTime = time.Minute

// allowEndpoint has a delivery wait whose endpoint is to be left alone. That is no attempt. While the endpoint is in
// trouble, the store says whether a delivery may begin: it knows what other replicas have seen a moment ago, and what
// an operator has asked for.
func (d *Dispatcher) allowEndpoint(ctx context.Context, a *attempt) bool {
	if !a.kind.spares {
		return true
	}
	e, now, trouble := d.cfg.Store.Endpoints().Get(a.wake.Generation)
	if !trouble || !e.LeftAlone(now) {
		return true
	}
	if wait := d.cfg.Store.Endpoints().Ahead(a.wake.Generation); wait > 0 {
		return d.hold(a, wait)
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	probe, err := d.cfg.Store.ProbeEndpoint(ctx, a.sub, cmp.Or(a.wake.Patience, a.sub.Profile().Attempt))
	a.probe = probe.Slot
	switch {
	case d.requests.Err() != nil:
		return a.ends(format.Verdict{Result: fsm.AttemptAbandoned})
	case err != nil:
		d.noteStore(err)
		return d.hold(a, max(fsm.ProbePause, e.Wait(now)))
	case !probe.Allowed:
		return d.hold(a, probe.Wait)
	}
	return true
}

// hold has a delivery wait.
func (d *Dispatcher) hold(a *attempt, wait time.Duration) bool {
	again := a.wake.Attempt > 1
	spread := min(time.Duration(d.cfg.Store.Endpoints().Hold(a.wake.Generation, again))*heldPace, heldSpread)
	if again {
		wait += retryLag
	}
	return a.ends(format.Verdict{
		Result: fsm.AttemptHeld, Reason: "the endpoint is left alone", Wait: wait + rand.N(spread),
	})
}

// holdAgain looks whether the endpoint of a delivery that the store was told to hold back is still in trouble. What
// ends that is stored before the consumers are released. So either this one is released later than the store was told,
// or it is found here, as far as this replica has heard of it.
func (d *Dispatcher) holdAgain(ctx context.Context, w fsm.Wake) (fsm.Outcome, error) {
	if e, now, trouble := d.cfg.Store.Endpoints().Get(w.Generation); trouble && e.LeftAlone(now) {
		return fsm.Outcome{}, nil
	}
	return d.cfg.Store.Park(ctx, w.Ref(), 0)
}

// noteEndpoint tells the store what an attempt says of its endpoint, if that is news. What became of the attempt is
// told all the same: in a cluster, other nodes keep that, and a later attempt says how the endpoint does.
func (d *Dispatcher) noteEndpoint(ctx context.Context, a *attempt) {
	if a.noted {
		return
	}
	err := d.tellEndpoint(ctx, a)
	d.noteStore(err)
	a.noted = !errors.Is(err, fsm.ErrUnavailable)
}

// refused says whether the endpoint has refused for good what it was sent.
func (a *attempt) refused() bool {
	r := a.verdict.Result
	return a.status != 0 && (r == fsm.AttemptRetired || r == fsm.AttemptDead && !a.failed)
}

func (d *Dispatcher) tellEndpoint(ctx context.Context, a *attempt) error {
	store, v := d.cfg.Store, a.verdict
	e, now, trouble := store.Endpoints().Get(a.wake.Generation)
	f := fsm.EndpointFailure{Probe: a.probe, Refused: a.refused(), Shown: !a.kind.spares, Reason: v.Reason}
	switch {
	case v.Result.OK() && (!trouble || e.Since.IsZero() && e.AskedToWait(now)):
		return nil
	case !v.Result.OK() && (f.Refused || f.Shown) && f.Probe.IsZero() && e.Shows(f): // no news
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout/4) // the report of the attempt itself needs time, too
	defer cancel()
	switch {
	case v.Result.OK():
		up, err := store.RecoverEndpoint(ctx, a.sub)
		if up {
			d.log.Info("the endpoint of a subscription is up again", zap.String("subscription", a.sub.ID),
				zap.String("host", a.host))
		}
		if up || err == nil && e.Down() { // the reply that said so may have been lost
			d.do(func() bool { d.releaseHeld(a.sub); return true })
		}
		return err
	case (a.failed || f.Refused) && v.Class.OfEndpoint(): // whether or not it was sent
		if v.RetryAfter > 0 && a.kind.spares && !f.Refused {
			// It counts from the answer on, however late the store takes it. The other deliveries of this replica go by
			// it at once.
			f.RetryAfter = max(time.Millisecond, v.RetryAfter-time.Since(a.began.Add(a.took)))
			store.Endpoints().Pause(a.wake.Generation, f.RetryAfter)
		}
		down, err := store.FailEndpoint(ctx, a.sub, f)
		if down {
			d.log.Warn("the endpoint of a subscription is down: it gets one delivery at a time until it takes one",
				zap.String("subscription", a.sub.ID), zap.String("host", a.host), zap.String("reason", v.Reason))
		}
		return err
	case !a.probe.IsZero():
		return store.ReturnProbe(ctx, a.sub, a.probe, a.sent)
	}
	return nil
}

// releaseHeld has what waits for an endpoint attempted at once. What it does not reach comes by its own deadline.
func (d *Dispatcher) releaseHeld(sub fsm.Subscription) {
	ctx, cancel := context.WithTimeout(d.reports, releaseTime)
	defer cancel()
	out, err := d.cfg.Store.ReleaseHeld(ctx, sub)
	d.noteStore(err)
	d.follow(out)
}
