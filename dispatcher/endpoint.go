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

// Deliveries that wait for the same moment are spread at random over the time after it. That time is heldPace for each
// delivery that this replica has held back, heldSpread at most. Retries come retryLag later and are counted apart. So
// the next probe goes to a delivery without a failure, if there is any, however many retries wait.
const (
	heldPace   = 10 * time.Millisecond
	heldSpread = 30 * time.Second
	retryLag   = time.Second
)

// releaseTime bounds how long the release of deliveries takes after their endpoint is up again.
const releaseTime = time.Minute

// allowEndpoint holds a delivery back while its endpoint is left alone. That is no attempt. While the endpoint is in
// trouble, the store says whether a delivery may begin. The store knows what other replicas saw a moment ago, and what
// an operator asked for.
func (d *Dispatcher) allowEndpoint(ctx context.Context, a *attempt) bool {
	e := d.cfg.Store.Endpoints().Of(a.sub)
	if !e.LeftAlone(e.Now) {
		return true
	}
	if wait, told := d.cfg.Store.Endpoints().Paused(a.sub); wait > 0 && !told {
		return d.hold(a, e, wait)
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	probe, err := d.cfg.Store.ProbeEndpoint(ctx, a.sub, cmp.Or(a.delivery.Patience, a.sub.Profile().Attempt))
	a.probe = probe.Slot
	switch {
	case d.requests.Err() != nil:
		return a.ends(format.Verdict{Result: fsm.AttemptAbandoned})
	case err != nil:
		d.noteStore(err)
		return d.hold(a, e, max(fsm.ProbePause, e.Wait(e.Now)))
	case !probe.Allowed:
		return d.hold(a, e, probe.Wait)
	}
	return true
}

// allowOrigin holds a delivery back if its origin has asked to wait since allowEndpoint: prepare may have read for a
// while. Another subscription may have got that answer. A test delivery is sent all the same.
func (d *Dispatcher) allowOrigin(_ context.Context, a *attempt) bool {
	wait, _ := d.cfg.Store.Endpoints().Paused(a.sub)
	if a.test || wait <= 0 {
		return true
	}
	return d.hold(a, d.cfg.Store.Endpoints().Of(a.sub), wait)
}

// hold ends an attempt because its delivery must wait for the endpoint.
func (d *Dispatcher) hold(a *attempt, e fsm.EndpointNow, wait time.Duration) bool {
	again := a.delivery.Attempt > 1
	spread := min(time.Duration(d.cfg.Store.Endpoints().Hold(a.sub, again))*heldPace, heldSpread)
	if again {
		wait += retryLag
	}
	why := fsm.BlockedAskedToWait
	if e.Down() {
		why = fsm.BlockedDown
	}
	return a.blocked(why, wait+rand.N(spread))
}

// recovered says whether the endpoint is not left alone any more, after the store was told to hold a delivery back. The
// end of the trouble is stored before the consumers are released. So either this delivery is held before that release,
// which then includes it, or recovered sees the end. This replica must have heard of that end.
func (d *Dispatcher) recovered(w fsm.Delivery) bool {
	sub, ok := subscriptionOf(d.cfg.Store.Catalog(), w)
	e := d.cfg.Store.Endpoints().Of(sub)
	return !ok || !e.LeftAlone(e.Now)
}

// noteEndpoint tells the store what an attempt says about its endpoint, if that is news. Even if this call fails, the
// result of the attempt is reported: in a cluster, it goes to other nodes. A later attempt shows the state of the
// endpoint again.
func (d *Dispatcher) noteEndpoint(ctx context.Context, a *attempt) {
	if a.noted {
		return
	}
	err := d.tellEndpoint(ctx, a)
	d.noteStore(err)
	a.noted = !errors.Is(err, fsm.ErrUnavailable)
}

// refused says whether the endpoint has refused the request for good.
func (a *attempt) refused() bool {
	r := a.verdict.Result
	return a.status != 0 && (r == fsm.AttemptRetired || r == fsm.AttemptDead && !a.failed)
}

func (d *Dispatcher) tellEndpoint(ctx context.Context, a *attempt) error {
	store, v := d.cfg.Store, a.verdict
	e, now, trouble := store.Endpoints().Get(a.delivery.Generation)
	if (a.failed || a.refused()) && v.Class.OfEndpoint() && a.sub.Disables(e.Since, now) {
		d.disable(ctx, a.sub, e.Since)
	}
	f := fsm.EndpointFailure{Probe: a.probe, Refused: a.refused(), Shown: !a.kind.spares, Reason: v.Reason}
	switch {
	case v.Result.OK() && (!trouble || e.Since.IsZero() && e.AskedToWait(now)):
		return nil
	case !v.Result.OK() && (f.Refused || f.Shown && v.RetryAfter == 0) && f.Probe.IsZero() && e.Shows(f): // no news
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
		if up || err == nil && e.Down() { // an earlier reply that said so may be lost
			d.do(func() bool { d.releaseHeld(d.reports, a.sub, fsm.BlockedDown); return true })
		}
		return err
	case (a.failed || f.Refused) && v.Class.OfEndpoint(): // whether or not it was sent
		if v.RetryAfter > 0 && !f.Refused {
			// The pause counts from the answer, however late the store learns of it. The other deliveries of this
			// replica to the same origin obey it at once.
			f.RetryAfter = max(time.Millisecond, v.RetryAfter-time.Since(a.began.Add(a.took)))
			store.Endpoints().Pause(a.sub, f.RetryAfter)
			if rest, told := store.Endpoints().Paused(a.sub); !told { // maybe of another answer, which was not stored
				f.RetryAfter = max(f.RetryAfter, rest)
			}
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

// disable pauses a subscription whose endpoint has failed for too long. If that is not stored, the next failure will.
func (d *Dispatcher) disable(ctx context.Context, sub fsm.Subscription, since time.Time) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout/4)
	defer cancel()
	switch err := d.cfg.Store.DisableSubscription(ctx, sub); {
	case err == nil:
		d.log.Warn("a subscription was paused: its endpoint has failed for the disable_after of the subscription",
			zap.String("subscription", sub.ID), zap.Time("since", since), zap.Duration("after", sub.DisableAfter))
	case !errors.Is(err, fsm.ErrNotFound):
		d.noteStore(err)
	}
}

// releaseHeld attempts at once the deliveries that wait for an endpoint, as a reason to wait has ended. Deliveries that
// it does not reach come by their own deadlines.
func (d *Dispatcher) releaseHeld(ctx context.Context, sub fsm.Subscription, ended fsm.BlockReason) {
	ctx, cancel := context.WithTimeout(ctx, releaseTime)
	defer cancel()
	out, err := d.cfg.Store.ReleaseHeld(ctx, sub, ended)
	d.noteStore(err)
	d.follow(out)
}
