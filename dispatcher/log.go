package dispatcher

import (
	"sync"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
)

// deliveryLog is the observer that logs delivery attempts: each one for debugging, and otherwise the first of what goes
// wrong with a subscription, a summary now and then, and that it is over. It also says of each subscription when the
// first delivery is taken, and then how many were, summed over all.
type deliveryLog struct {
	log *zap.Logger
	now func() time.Time

	mu sync.Mutex
	// troubles are those of subscriptions whose attempts have failed, taken are the subscriptions that have taken one.
	troubles map[laneKey]*troubles
	taken    map[laneKey]bool
	// sums are what the attempts came to since the last summary.
	sums struct{ taken, failed, dead int }
}

// troubles are what was logged of an endpoint that fails, of one that answered 410, and of events that are dead, by the
// class of the failure.
type troubles struct {
	failing, retired fsm.Trouble
	dead             map[string]*fsm.Trouble
}

func newDeliveryLog(log *zap.Logger, now func() time.Time) *deliveryLog {
	return &deliveryLog{log: log, now: now, troubles: map[laneKey]*troubles{}, taken: map[laneKey]bool{}}
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
		switch over, first := l.took(a); {
		case over:
			l.log.Info("webhook takes deliveries again", zap.String("subscription", a.Wake.Subscription),
				zap.String("host", a.Host))
		case first:
			l.log.Info("the first delivery of a subscription was taken",
				zap.String("subscription", a.Wake.Subscription), zap.String("host", a.Host),
				zap.String("stream", a.Wake.Primary), zap.Int("status", a.Status), zap.Duration("took", a.Took))
		}
	case fsm.AttemptRetired:
		l.warn(a, "webhook answered 410: its consumers get nothing until the subscription is resumed")
	case fsm.AttemptWaiting:
		l.warn(a, "this version cannot deliver for a subscription: its wakes wait")
	case fsm.AttemptDead:
		l.warn(a, "events are dead: they are not tried again")
	case fsm.AttemptFailed:
		l.warn(a, "webhook delivery failed")
	}
}

// took notes that an endpoint works, and says whether that ends a trouble, and whether it is the first time for this
// replica.
func (l *deliveryLog) took(a fsm.Attempt) (over, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sums.taken++
	key := laneKey{a.Wake.Subscription, a.Wake.Generation}
	if first = !l.taken[key]; first {
		l.taken[key] = true
	}
	if t := l.troubles[key]; t != nil {
		failed, retired := t.failing.Over(), t.retired.Over()
		over = failed || retired
	}
	return over, first
}

// sum logs what the attempts have come to since the last time, if there were any.
func (l *deliveryLog) sum() {
	l.mu.Lock()
	sums := l.sums
	l.sums = struct{ taken, failed, dead int }{}
	l.mu.Unlock()
	if sums.taken+sums.failed+sums.dead > 0 {
		l.log.Info("deliveries", zap.Int("taken", sums.taken), zap.Int("failed", sums.failed),
			zap.Int("dead", sums.dead))
	}
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
	trouble := &t.failing
	switch r := a.Result; {
	case r == fsm.AttemptFailed:
		l.sums.failed++
	case r == fsm.AttemptRetired:
		l.sums.failed++
		trouble = &t.retired
	case r == fsm.AttemptDead: // other events may be taken meanwhile: that ends nothing
		l.sums.dead++
		if trouble = t.dead[a.Class]; trouble == nil {
			if t.dead == nil {
				t.dead = map[string]*fsm.Trouble{}
			}
			trouble = &fsm.Trouble{}
			t.dead[a.Class] = trouble
		}
	}
	return trouble.Happened(l.now())
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
	for key := range l.taken {
		if !keep(key) {
			delete(l.taken, key)
		}
	}
}

func attemptFields(a fsm.Attempt) []zap.Field {
	fields := []zap.Field{
		zap.String("subscription", a.Wake.Subscription), zap.String("host", a.Host), zap.String("reason", a.Reason),
		zap.String("consumer", a.Wake.Consumer), zap.Int64("epoch", a.Wake.Epoch), zap.String("wake_id", a.Wake.WakeID),
		zap.Int("attempt", a.Wake.Attempt),
	}
	if a.Class != "" {
		fields = append(fields, zap.String("class", a.Class))
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
