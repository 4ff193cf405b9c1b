package dispatcher

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/fsm/throttle"
)

// deliveryLog is the observer that logs delivery attempts: each one for debugging, and otherwise the first of what goes
// wrong with a subscription, and that it is over. What goes wrong again is summed over all subscriptions in one line
// now and then. It also says of each subscription when the first delivery is taken, and then how many were, summed over
// all.
type deliveryLog struct {
	log *zap.Logger
	now func() time.Time

	mu sync.Mutex
	// troubles are those of subscriptions whose attempts have failed, taken are the subscriptions that have taken one.
	troubles map[laneKey]map[cause]*naming
	taken    map[laneKey]bool
	// sums are what the attempts came to since the last summary.
	sums struct{ taken, failed, dead int }
	// again is what has gone wrong again since the last line that says so, repeats thins out these lines, and latest is
	// when anything went wrong last.
	again   repeated
	repeats throttle.Trouble
	latest  time.Time
}

// cause is what goes wrong with a subscription: what follows of it, and the class of the failure.
type cause struct {
	result fsm.AttemptResult
	class  string
}

// naming is what was logged of a cause by itself.
type naming struct {
	// told is true if a line has named it, and it goes on; begins thins out these lines where it comes and goes.
	told   bool
	begins throttle.Trouble
	latest time.Time
}

const (
	// namedAgain is how long a cause has not shown until it is named again.
	namedAgain = time.Hour
	// quiet is how long nothing goes wrong until what has gone wrong again is summed: nothing else would.
	quiet = 10 * time.Minute
)

// happened says whether to name the cause in a line of its own.
func (t *naming) happened(now time.Time) bool {
	goesOn := t.told && now.Sub(t.latest) <= namedAgain
	t.latest = now
	if goesOn {
		return false
	}
	_, t.told = t.begins.Happened(now)
	return t.told
}

// repeated adds up what has gone wrong again.
type repeated struct {
	times         int
	subscriptions map[string]int
	classes       map[string]int
}

// worstMost is how many subscriptions a line names.
const worstMost = 5

func (r *repeated) add(a fsm.Attempt) {
	if r.times++; r.times == 1 {
		r.subscriptions, r.classes = map[string]int{}, map[string]int{}
	}
	r.subscriptions[a.Delivery.Subscription]++
	r.classes[a.Class]++
}

// fields are those of the line. The worst subscriptions are those in which most has gone wrong.
func (r *repeated) fields() []zap.Field {
	worst := slices.SortedFunc(maps.Keys(r.subscriptions), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.subscriptions[b], r.subscriptions[a]), cmp.Compare(a, b))
	})
	return []zap.Field{
		zap.Int("times", r.times), zap.Int("subscriptions", len(worst)), zap.Any("classes", r.classes),
		zap.Strings("worst", worst[:min(len(worst), worstMost)]),
	}
}

func newDeliveryLog(log *zap.Logger, now func() time.Time) *deliveryLog {
	return &deliveryLog{log: log, now: now, troubles: map[laneKey]map[cause]*naming{}, taken: map[laneKey]bool{}}
}

// attempted is router.Observer's Attempt. It logs without the lock: a log that is held up holds up no other attempt.
func (l *deliveryLog) attempted(a fsm.Attempt) {
	if c := l.log.Check(zap.DebugLevel, "delivery attempt"); c != nil {
		c.Write(append(attemptFields(a), zap.Stringer("result", a.Result), zap.Int("status", a.Status),
			zap.Duration("took", a.Took))...)
	}
	switch a.Result {
	case fsm.AttemptAbandoned, fsm.AttemptEmpty:
	case fsm.AttemptAccepted, fsm.AttemptDone:
		switch over, first := l.took(a); {
		case over:
			l.log.Info("webhook takes deliveries again", zap.String("subscription", a.Delivery.Subscription),
				zap.String("host", a.Host))
		case first:
			l.log.Info("the first delivery of a subscription was taken",
				zap.String("subscription", a.Delivery.Subscription), zap.String("host", a.Host),
				zap.String("stream", a.Delivery.Primary), zap.Int("status", a.Status), zap.Duration("took", a.Took))
		}
	case fsm.AttemptRetired:
		l.warn(a, "webhook answered 410: the subscription gets nothing until it is resumed")
	case fsm.AttemptBlocked:
		if a.Blocked == fsm.BlockedUnknown {
			l.warn(a, "this version cannot deliver for a subscription: its wakes wait")
		}
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
	key := laneKey{a.Delivery.Subscription, a.Delivery.Generation}
	if first = !l.taken[key]; first {
		l.taken[key] = true
	}
	for c, t := range l.troubles[key] {
		if c.result != fsm.AttemptDead { // other events may be taken meanwhile: that ends nothing
			over, t.told = over || t.told, false
		}
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
	named, again := l.happened(a)
	if named {
		l.log.Warn(says, attemptFields(a)...)
	}
	l.goOn(again)
}

// goOn logs what has gone wrong again, if anything has.
func (l *deliveryLog) goOn(again repeated) {
	if again.times > 0 {
		l.log.Warn("deliveries go on failing", again.fields()...)
	}
}

// happened notes what has gone wrong. It says whether that is to be logged by itself, and returns what has gone wrong
// again and is to be logged now.
func (l *deliveryLog) happened(a fsm.Attempt) (named bool, again repeated) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.Result == fsm.AttemptFailed || a.Result == fsm.AttemptRetired {
		l.sums.failed++
	}
	if a.Result == fsm.AttemptDead {
		l.sums.dead++
	}
	key, of := laneKey{a.Delivery.Subscription, a.Delivery.Generation}, cause{a.Result, a.Class}
	if l.troubles[key] == nil {
		l.troubles[key] = map[cause]*naming{}
	}
	t := l.troubles[key][of]
	if t == nil {
		t = &naming{}
		l.troubles[key][of] = t
	}
	l.latest = l.now()
	if named = t.happened(l.latest); !named {
		l.again.add(a)
	}
	if _, due := l.repeats.Happened(l.latest); due {
		again, l.again = l.again, repeated{}
	}
	return named, again
}

// flush logs what has gone wrong again and is not logged yet, once nothing goes wrong any more, or at the end.
func (l *deliveryLog) flush(end bool) {
	l.mu.Lock()
	var again repeated
	if end || l.now().Sub(l.latest) > quiet {
		again, l.again = l.again, repeated{}
	}
	l.mu.Unlock()
	l.goOn(again)
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
		zap.String("subscription", a.Delivery.Subscription), zap.String("host", a.Host), zap.String("reason", a.Reason),
		zap.String("consumer", a.Delivery.Consumer), zap.Int64("epoch", a.Delivery.Epoch),
		zap.String("wake_id", a.Delivery.WakeID), zap.Int("attempt", a.Delivery.Attempt),
	}
	if a.Class != "" {
		fields = append(fields, zap.String("class", a.Class))
	}
	if a.Repeated {
		fields = append(fields, zap.Bool("repeated", true))
	}
	if a.From != "" {
		from, skip := a.From.Split()
		fields = append(fields, zap.String("delivery_id", a.DeliveryID), zap.String("stream", a.Delivery.Primary),
			zap.String("from", from.Value()), zap.Int64("skip", skip), zap.Int("events", a.Events))
	}
	return fields
}
