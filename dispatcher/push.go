package dispatcher

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"reveille/dispatcher/format"
	"reveille/fsm"
)

const (
	// readTimeout bounds how long a push waits for its events, and for a connection to read them by.
	readTimeout = 10 * time.Second
	// unreadWait is how long a push waits whose events could not be read.
	unreadWait = 5 * time.Second
	// pushSize is about what a push costs in memory while its request is in flight, in bytes: its events, as they were
	// read and as they are sent.
	pushSize = 2 * fsm.MaxDeliveryBytes
)

// read reads the events that a push brings. A wake brings none.
func (d *Dispatcher) read(ctx context.Context, a *attempt) bool {
	if a.sub.Mode != fsm.ModePush {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	batch, err := d.cfg.ReadBatch(ctx, a.wake.Primary, a.wake.At(a.wake.Primary), a.sub.Batch)
	switch {
	case d.requests.Err() != nil:
		return a.ends(format.Verdict{Result: fsm.AttemptAbandoned})
	case errors.Is(err, fsm.ErrNoStream):
		a.missing = true
		return a.ends(unread("the stream server has no such stream"))
	case err != nil:
		if times, log := d.unreadable.Happened(d.cfg.Clock()); log {
			d.log.Warn("the events of a push cannot be read; they are asked for again", zap.Int("times", times),
				zap.String("subscription", a.wake.Subscription), zap.String("stream", a.wake.Primary), zap.Error(err))
		}
		return a.ends(unread("the stream server cannot be read"))
	}
	a.batch = &batch
	switch {
	case batch.TooLarge:
		return a.ends(format.Verdict{
			Result: fsm.AttemptPutAside, Class: format.ClassTooLarge,
			Reason: "the event is larger than a delivery may be",
		})
	case len(batch.Events) == 0:
		return a.ends(format.Verdict{Result: fsm.AttemptEmpty})
	}
	return true
}

func unread(why string) format.Verdict {
	return format.Verdict{Result: fsm.AttemptUnread, Class: format.ClassUpstream, Reason: why}
}

// judgeLast has the events of a push put aside whose last attempt has failed.
func (a *attempt) judgeLast() {
	if a.batch != nil && a.verdict.Result == fsm.AttemptFailed && a.sub.Profile().Last(a.wake.Attempt) {
		a.verdict.Result = fsm.AttemptPutAside
	}
}

// delivered is what the store is told of a push whose events were taken, or are put aside.
func (a *attempt) delivered() fsm.Delivered {
	return fsm.Delivered{Path: a.wake.Primary, To: a.batch.To, Tail: a.batch.Tail, Profile: a.sub.Profile()}
}
