package dispatcher

import (
	"sync"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
)

// deliveryLog is the observer that logs delivery attempts: each one for debugging, and otherwise the first of what goes
// wrong with a subscription, a summary now and then, and that it is over.
type deliveryLog struct {
	log *zap.Logger
	now func() time.Time

	mu sync.Mutex
	// troubles are those of subscriptions whose attempts have failed.
	troubles map[laneKey]*troubles
}

// troubles are what was logged of an endpoint that fails, and of one that answered 410.
type troubles struct{ failing, retired fsm.Trouble }

func newDeliveryLog(log *zap.Logger, now func() time.Time) *deliveryLog {
	return &deliveryLog{log: log, now: now, troubles: map[laneKey]*troubles{}}
}

// attempted is fsm.Observer's Attempt. It logs without the lock: a log that is held up holds up no other attempt.
func (l *deliveryLog) attempted(a fsm.Attempt) {
	if c := l.log.Check(zap.DebugLevel, "delivery attempt"); c != nil {
		c.Write(append(attemptFields(a), zap.Stringer("result", a.Result), zap.Int("status", a.Status),
			zap.Duration("took", a.Took))...)
	}
	switch a.Result {
	case fsm.AttemptAbandoned, fsm.AttemptEmpty, fsm.AttemptUnread, fsm.AttemptHeld:
	case fsm.AttemptAccepted, fsm.AttemptDone:
		if l.over(a) {
			l.log.Info("webhook takes deliveries again", zap.String("subscription", a.Wake.Subscription),
				zap.String("host", a.Host))
		}
	case fsm.AttemptRetired:
		l.warn(a, "webhook answered 410: its consumers get nothing until the subscription is resumed")
	case fsm.AttemptWaiting:
		l.warn(a, "this version cannot deliver for a subscription: its wakes wait")
	case fsm.AttemptDead: // each is told: what is kept of it is bounded
		l.log.Warn("events are dead: they are not tried again", attemptFields(a)...)
	case fsm.AttemptFailed:
		l.warn(a, "webhook delivery failed")
	}
}

// over notes that an endpoint works, and says whether that is news.
func (l *deliveryLog) over(a fsm.Attempt) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.troubles[laneKey{a.Wake.Subscription, a.Wake.Generation}]
	if t == nil {
		return false
	}
	failed, retired := t.failing.Over(), t.retired.Over()
	return failed || retired
}

func (l *deliveryLog) warn(a fsm.Attempt, says string) {
	if times, log := l.happened(a); log {
		l.log.Warn(says, append(attemptFields(a), zap.Int("times", times))...)
	}
}

// happened notes a failure, and says how many there were and whether that is to be logged.
func (l *deliveryLog) happened(a fsm.Attempt) (times int, log bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := laneKey{a.Wake.Subscription, a.Wake.Generation}
	t := l.troubles[key]
	if t == nil {
		t = &troubles{}
		l.troubles[key] = t
	}
	if a.Result == fsm.AttemptRetired {
		return t.retired.Happened(l.now())
	}
	return t.failing.Happened(l.now())
}

// forget drops what is known of the subscriptions that keep says no to.
func (l *deliveryLog) forget(keep func(laneKey) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.troubles {
		if !keep(key) {
			delete(l.troubles, key)
		}
	}
}

func attemptFields(a fsm.Attempt) []zap.Field {
	fields := []zap.Field{
		zap.String("subscription", a.Wake.Subscription), zap.String("host", a.Host), zap.String("reason", a.Reason),
		zap.String("consumer", a.Wake.Consumer), zap.Int64("epoch", a.Wake.Epoch), zap.String("wake_id", a.Wake.WakeID),
		zap.Int("attempt", a.Wake.Attempt),
	}
	if a.Repeated {
		fields = append(fields, zap.Bool("repeated", true))
	}
	if a.From != "" {
		from, skip := a.From.Split()
		fields = append(fields, zap.String("delivery_id", a.DeliveryID), zap.String("stream", a.Wake.Primary),
			zap.String("from", from.Value()), zap.Int64("skip", skip), zap.Int("events", a.Events))
	}
	return fields
}
