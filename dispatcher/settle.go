package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/fsm/bell"
)

// reportRetry is the first pause before a result is offered to the store again. The pause doubles, up to
// reportRetryMax.
const (
	reportRetry    = 100 * time.Millisecond
	reportRetryMax = 2 * time.Second
)

// settle reports the result of an attempt to the observers and the store. It returns what the store asks for.
func (d *Dispatcher) settle(ctx context.Context, a *attempt) fsm.Outcome {
	over := a.over()
	d.traces.end(ctx, over)
	d.noteStanding(a.slot, over)
	if !a.passesOver() {
		d.cfg.Outcomes.Attempted(over)
	}
	return d.report(a)
}

// report tells the store the result of an attempt, and returns what the store asks for. While the store is unavailable,
// it tries again for reportTimeout; then the attempt's deadline decides.
func (d *Dispatcher) report(a *attempt) fsm.Outcome {
	ctx, cancel := context.WithTimeout(d.reports, reportTimeout)
	defer cancel()
	for pause := reportRetry; ; pause = min(2*pause, reportRetryMax) {
		d.noteEndpoint(ctx, a)
		out, err := d.tell(ctx, a)
		if err == nil {
			d.losses.note(a)
			return out
		}
		if errors.Is(err, fsm.ErrUnavailable) {
			d.noteStore(err)
			if bell.Sleep(ctx, pause) {
				continue
			}
		}
		d.giveUp(a.delivery, err)
		return fsm.Outcome{}
	}
}

func (d *Dispatcher) tell(ctx context.Context, a *attempt) (fsm.Outcome, error) {
	if err := d.retire(ctx, a); err != nil {
		return fsm.Outcome{}, err
	}
	w, v := a.delivery, a.verdict
	switch v.Result {
	case fsm.AttemptAccepted:
		return d.cfg.Store.Accept(ctx, w.Ref())
	case fsm.AttemptDone, fsm.AttemptEmpty, fsm.AttemptDead:
		return a.kind.ack(ctx, a)
	case fsm.AttemptBlocked:
		return d.wait(ctx, w, v.Blocked, v.Wait)
	case fsm.AttemptAbandoned:
		return fsm.Outcome{}, nil
	case fsm.AttemptFailed, fsm.AttemptRetired:
	}
	b := a.content.Batch
	f := fsm.Failure{
		RetryAfter: v.RetryAfter, Retired: v.Result == fsm.AttemptRetired, Reason: v.Reason,
		Profile: a.sub.Profile(), Span: b.Span(),
	}
	if a.content.Event.ID != "" {
		f.Event, f.Status = a.content.Event.ID, a.status
	}
	if f.Profile.Aside {
		f.To, f.Within, f.Tail = b.To, b.Within, b.Tail
	}
	return d.cfg.Store.Fail(ctx, w.Ref(), f)
}

// wait has the store hold a delivery back for a time. What ends some reasons earlier may have come just before. Then
// the delivery is handed back.
func (d *Dispatcher) wait(
	ctx context.Context, w fsm.Delivery, why fsm.BlockReason, wait time.Duration,
) (fsm.Outcome, error) {
	out, err := d.cfg.Store.Park(ctx, w.Ref(), why, cmp.Or(wait, parkTime))
	over := false
	switch {
	case err != nil:
	case why == fsm.BlockedPaused, why == fsm.BlockedRetired:
		over, err = d.resumed(ctx, w)
	case why == fsm.BlockedConsent:
		over, err = d.consented(ctx, w)
	case why == fsm.BlockedDown, why == fsm.BlockedAskedToWait:
		over = d.recovered(w)
	}
	if !over || err != nil {
		return out, err
	}
	return d.cfg.Store.Park(ctx, w.Ref(), "", 0)
}

func (d *Dispatcher) giveUp(w fsm.Delivery, err error) {
	d.metrics.lost.Inc()
	if times, log := d.unreported.Happened(d.cfg.Clock()); log {
		d.log.Error("the result of a delivery attempt was not stored; its deadline decides what happens next",
			zap.Int("times", times),
			zap.String("subscription", w.Subscription), zap.String("consumer", w.Consumer),
			zap.Int64("epoch", w.Epoch), zap.String("wake_id", w.WakeID), zap.Int("attempt", w.Attempt),
			zap.Error(err))
	}
}

// noteStore logs that the store failed or refused a call, unless this program is stopping.
func (d *Dispatcher) noteStore(err error) {
	switch {
	case err == nil || d.reports.Err() != nil:
	case errors.Is(err, fsm.ErrUnavailable):
		d.outage.failed(err)
	default:
		if times, log := d.broken.Happened(d.cfg.Clock()); log {
			d.log.Error("redis refused a call", zap.Int("times", times), zap.Error(err))
		}
	}
}

// noteStanding notes in the subscription's lane how its endpoint answered an attempt.
func (d *Dispatcher) noteStanding(sl slot, a fsm.Attempt) {
	if a.Tells() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.slots.ended(sl, ending{answered: a.Status != 0, ok: a.Result.OK()}, d.cfg.Clock())
	}
}
