package dispatcher

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/tidwall/gjson"
	"go.uber.org/zap"

	"reveille/dispatcher/format"
	"reveille/fsm"
)

const (
	// readTimeout bounds how long a push waits for its events, including the wait for a connection to read them.
	readTimeout = 10 * time.Second
	// unreadWait is how long a push waits after its events could not be read.
	unreadWait = 5 * time.Second
	// filterWait is how long a push waits if its filter has changed, or may have.
	filterWait = time.Second
	// pushSize is about how much memory the events of a push need while its request is in flight, in bytes. They are
	// there twice: as they were read, and as they are sent.
	pushSize = 2 * fsm.MaxDeliveryBytes
	// eventSize is about how much memory an event needs beside its own bytes, in bytes.
	eventSize = 1 << 10
)

// read reads the events that a push brings.
func (d *Dispatcher) read(ctx context.Context, a *attempt) bool {
	w := a.delivery
	matches, err := a.matches()
	if err != nil {
		return a.ends(format.Verdict{
			Result: fsm.AttemptBlocked, Blocked: fsm.BlockedUnknown,
			Class: format.ClassUnknownFormat, Reason: "this version does not know the filter: " + err.Error(),
		})
	}
	// A stream that is created again has another consumer: its Born differs, even if its ID does not.
	reader := w.Generation + " " + w.Consumer + " " + strconv.FormatInt(w.Born, 10)
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	batch, err := d.cfg.ReadBatch(
		reading, reader, w.Primary, w.At(w.Primary), w.End(), a.format.Most(a.content), w.Span, matches,
	)
	switch {
	case d.requests.Err() != nil:
		return a.ends(format.Verdict{Result: fsm.AttemptAbandoned})
	case errors.Is(err, fsm.ErrNoStream):
		d.follow(fsm.Outcome{Hidden: []string{a.delivery.Primary}})
		return a.ends(unread("the stream server has no such stream"))
	case err != nil:
		if times, log := d.unreadable.Happened(d.cfg.Clock()); log {
			d.log.Warn("the events of a push cannot be read; they are asked for again", zap.Int("times", times),
				zap.String("subscription", a.delivery.Subscription), zap.String("stream", a.delivery.Primary),
				zap.Error(err))
		}
		return a.ends(unread("the stream server cannot be read"))
	}
	unfit := matches != nil && !batch.JSON && len(batch.Events) > 0
	if (unfit || batch.Passed > 0) && !d.filterHolds(ctx, a) {
		return a.blocked(fsm.BlockedFilter, filterWait)
	}
	a.content.ID, a.content.Batch = batch.DeliveryID(a.delivery), batch
	if a.sub.Format == fsm.FormatOJS && batch.JSON && len(batch.Events) > 0 {
		a.eventType = textOf(at(gjson.ParseBytes(batch.Events[0]), []string{fsm.DefaultTypePath}))
	}
	d.holds(a)
	d.metrics.filtered.Add(float64(batch.Passed))
	switch {
	case unfit:
		return a.ends(format.Verdict{
			Result: fsm.AttemptDead, Class: format.ClassNotJSON,
			Reason: "the subscription has a filter, and the stream is not JSON",
		})
	case batch.TooLarge:
		return a.ends(format.Verdict{
			Result: fsm.AttemptDead, Class: format.ClassTooLarge,
			Reason: "the event is larger than a delivery may be",
		})
	case batch.TooDeep:
		return a.ends(format.Verdict{
			Result: fsm.AttemptDead, Class: format.ClassTooDeep,
			Reason: "the event is nested deeper than a delivery may be",
		})
	case batch.NotKept:
		return a.ends(format.Verdict{
			Result: fsm.AttemptDead, Class: format.ClassNotKept,
			Reason: "the stream server does not keep the events any more",
		})
	case len(batch.Events) == 0:
		return a.ends(format.Verdict{Result: fsm.AttemptEmpty})
	}
	return true
}

// matches returns the filter of the subscription; nil without one.
func (a *attempt) matches() (func([]byte) bool, error) {
	if a.sub.Filter.IsZero() {
		return nil, nil
	}
	f, err := newFilter(a.sub.Filter)
	if err != nil {
		return nil, err
	}
	return f.matches, nil
}

// holds counts the memory of the events that a push has read, instead of what it reserved.
func (d *Dispatcher) holds(a *attempt) {
	if a.slot.lane == nil {
		return
	}
	size := sizeOf(a.delivery)
	for _, event := range a.content.Batch.Events {
		size += pushSize/fsm.MaxDeliveryBytes*len(event) + eventSize
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slots.resize(&a.slot, size)
	d.pump()
}

// filterHolds says whether the filter that left out events is still the filter of the subscription, which must not be
// paused. Another replica may have changed the filter without this one knowing. The former filter must not leave out an
// event that came after the change.
func (d *Dispatcher) filterHolds(ctx context.Context, a *attempt) bool {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	if err := d.cfg.Store.RefreshCatalog(ctx); err != nil {
		d.noteStore(err)
		return false
	}
	sub, there := subscriptionOf(d.cfg.Store.Catalog(), a.delivery)
	return !there || !sub.Stopped() && sub.Filter.Equal(a.sub.Filter)
}

// passesOver says whether the filter left out all events that were read. Then the consumer moves on behind them, and
// there was no attempt.
func (a *attempt) passesOver() bool {
	return a.verdict.Result == fsm.AttemptEmpty && a.content.Batch.Passed > 0
}

func unread(why string) format.Verdict {
	return format.Verdict{
		Result: fsm.AttemptBlocked, Blocked: fsm.BlockedUnread, Wait: unreadWait,
		Class: format.ClassUpstream, Reason: why,
	}
}

// judgeLast makes the failure of the last attempt final, if the profile does not give up the consumer. A nudged attempt
// is not the last: it does not count.
func (a *attempt) judgeLast() {
	p := a.sub.Profile()
	last := p.Last(a.delivery.Attempt)
	if a.content.Event.ID != "" {
		last = a.delivery.Attempt >= a.most
	}
	if a.verdict.Result == fsm.AttemptFailed && p.Lasting && last && !a.delivery.Nudged {
		a.verdict.Result = fsm.AttemptDead
	}
}

// advance acks the events of a push that were taken, are dead, or were left out by the filter.
func (d *Dispatcher) advance(ctx context.Context, a *attempt) (fsm.Outcome, error) {
	b := a.content.Batch
	delivered := fsm.Delivered{
		Path: a.delivery.Primary, To: b.To, Within: b.Within, Tail: b.Tail, Profile: a.sub.Profile(), Unsent: !a.sent,
	}
	if a.content.Event.ID != "" {
		delivered.Event, delivered.Status = a.content.Event.ID, a.status
	}
	if a.verdict.Result == fsm.AttemptDead {
		delivered.Dead = a.letter()
	}
	return d.cfg.Store.Deliver(ctx, a.delivery.Ref(), delivered)
}

// letter returns the dead letter of a delivery that is not tried again.
func (a *attempt) letter() *fsm.DeadLetter {
	w, b := a.delivery, a.content.Batch
	l := &fsm.DeadLetter{
		Subscription: w.Subscription, Generation: w.Generation, Consumer: w.Receiver(),
		Stream: w.Primary, Born: w.Born, DeliveryID: a.content.ID, From: w.At(w.Primary), To: b.To, Within: b.Within,
		Events: int64(len(b.Events)), Attempts: w.Attempt, Class: string(a.verdict.Class),
		Reason: a.verdict.Reason, Status: a.status,
		Answer: a.answer,
	}
	if b.TooLarge || b.TooDeep {
		l.Events = 1
	}
	if l.From == b.From { // otherwise the server numbers its events, and may not keep earlier ones
		l.From = b.First() // the filter may have left out events before it
	}
	if !a.sent { // this attempt was not made
		l.Attempts--
	}
	return l
}

// takeEvent notes that an event which was handed over is about to be sent, and leaves out what was sent before: a
// hand-over that was repeated may have put it into its stream twice.
func (d *Dispatcher) takeEvent(ctx context.Context, a *attempt) bool {
	if a.sub.Format != fsm.FormatOutbox || a.test {
		return true
	}
	e, ok := a.handedOver()
	if !ok {
		return a.ends(format.Verdict{
			Result: fsm.AttemptDead, Class: format.ClassNotBuilt, Reason: "nobody has handed this event over",
		})
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	switch deliver, err := d.cfg.Store.TakeEvent(ctx, a.delivery.Ref(), e, a.delivery.Replay); {
	case d.requests.Err() != nil:
		return a.ends(format.Verdict{Result: fsm.AttemptAbandoned})
	case err != nil:
		d.noteStore(err)
		return a.blocked(fsm.BlockedUnread, unreadWait)
	case !deliver:
		return a.ends(format.Verdict{Result: fsm.AttemptEmpty})
	}
	a.brings(e, d.cfg.Store.Catalog().OutboxConfig())
	return true
}

// handedOver returns the event of a push that was handed over for its target.
func (a *attempt) handedOver() (e fsm.OutboxEvent, ok bool) {
	err := json.Unmarshal(a.content.Batch.Events[0], &e)
	return e, err == nil && e.ID != "" && e.Target == a.sub.Webhook
}

// brings makes an event that was handed over what the attempt delivers.
func (a *attempt) brings(e fsm.OutboxEvent, config fsm.OutboxConfig) {
	if s, ok := config.SecretOf(e.Provider); ok {
		s.Previous.Secret = cmp.Or(s.Previous.Secret, a.sub.Secret)
		a.sub.Secret, a.sub.Previous, a.content.Secret = s.Secret, s.Previous, s.Secret
	}
	a.content.Event, a.content.ID, a.most = e, e.ID, config.Most(e)
}
