package redisstore

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"reveille/fsm"
)

// The bounds of the delivery log.
const (
	// logLength is how many entries a subscription has at least before the oldest go: Redis drops them a hundred or so
	// at a time. Those older than logAge are not shown, and go with the next one that is written.
	logLength = 1000
	logAge    = 7 * 24 * time.Hour
	// logWaiting is how many entries may wait to be written; more are dropped. Of those that Redis could not take, the
	// latest logLeft wait on: what is for other nodes of a cluster has room, too.
	logWaiting, logLeft = 10_000, logWaiting / 2
	// Entries are written logPause after the first of them came.
	logPause = 100 * time.Millisecond
	// logRetry is how long entries wait that Redis could not take, and logStop bounds the last write of a program that
	// stops.
	logRetry = time.Second
	logStop  = 2 * time.Second
)

// deliveryLog is the observer that keeps delivery attempts for operators, in a stream of Redis for each subscription.
// It is written behind what it tells of, in batches: no delivery waits for it. It is no state, so that no script has to
// do with it: plain commands write it, and nothing is wrong if some of them are not carried out, or twice.
type deliveryLog struct {
	s       *Store
	dropped prometheus.Counter
	// ready has word when something waits.
	ready chan struct{}

	mu      sync.Mutex
	waiting []*logEntry

	// unsaid counts those that were dropped without a word in the log of the program.
	unsaid atomic.Int64
	said   fsm.Trouble
	// written are the logs that this replica has written to, of subscriptions that are not deleted as far as it knows.
	// Only run uses it.
	written map[logOf]struct{}
}

// logOf names the log of a subscription.
type logOf struct{ id, generation string }

type logEntry struct {
	of logOf
	fsm.LoggedAttempt
}

func newDeliveryLog(s *Store) *deliveryLog {
	return &deliveryLog{
		s: s, ready: make(chan struct{}, 1), written: map[logOf]struct{}{},
		dropped: promauto.With(s.opts.Metrics).NewCounter(prometheus.CounterOpts{
			Name: "reveille_delivery_log_dropped_total",
			Help: "Delivery attempts of this replica that are missing from the delivery log, because Redis did not " +
				"take them in time. What a crash has cost is not known.",
		}),
	}
}

// attempted is fsm.Observer's Attempt. It only puts the attempt aside. One that a stop has cut off before anything was
// sent is none.
func (l *deliveryLog) attempted(a fsm.Attempt) {
	if !l.s.opts.DeliveryLog.Takes(a.Result) || a.Result == fsm.AttemptAbandoned && !a.Sent {
		return
	}
	e := &logEntry{logOf{a.Wake.Subscription, a.Wake.Generation}, fsm.LoggedAttemptOf(a)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) >= logWaiting {
		l.drop(1)
		return
	}
	l.waiting = append(l.waiting, e)
	signal(l.ready)
}

func (l *deliveryLog) drop(n int) {
	l.dropped.Add(float64(n))
	l.unsaid.Add(int64(n))
}

// run writes what waits until ctx is done, and then what still waits.
func (l *deliveryLog) run(ctx context.Context) {
	catalog := l.s.catalog
	for changed := catalog.Changed(); ; {
		select {
		case <-ctx.Done():
			l.stop(ctx)
			return
		case <-changed:
			changed = catalog.Changed() // before sweep looks
		case <-l.ready:
		}
		pause(ctx, logPause)
		err := l.write(context.WithoutCancel(ctx)) // one that is cut off may have been carried out, and comes again
		l.sweep(ctx)
		l.say(err, false)
		if errors.Is(err, fsm.ErrUnavailable) {
			pause(ctx, logRetry)
			signal(l.ready)
		}
	}
}

// pause waits for a time, or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// stop writes what waits, and gives up on the rest.
func (l *deliveryLog) stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), logStop)
	defer cancel()
	err := l.write(ctx)
	l.sweep(ctx)
	l.mu.Lock()
	left := len(l.waiting)
	l.waiting = nil
	l.mu.Unlock()
	l.drop(left)
	l.say(err, true)
}

// say logs what was dropped, thinned out unless it is the last word.
func (l *deliveryLog) say(err error, last bool) {
	if l.unsaid.Load() == 0 {
		return
	}
	if _, log := l.said.Happened(time.Now()); log || last {
		l.s.opts.Logger.Warn("delivery attempts are missing from the delivery log: redis did not take them in time",
			zap.Int64("attempts", l.unsaid.Swap(0)), zap.Error(err))
	}
}

// write writes all that waits, in one go: on a cluster, what one node does not take must not hold up the others'. What
// Redis could not take waits on, in its order, and the error is why. What it refuses is dropped, what is too much, and
// what it did not answer for in time.
func (l *deliveryLog) write(ctx context.Context) error {
	l.mu.Lock()
	batch := l.waiting
	l.mu.Unlock()
	if len(batch) == 0 {
		return nil
	}
	left, refused, err := l.send(ctx, batch)
	over := max(0, len(left)-logLeft)
	left = left[over:]
	l.drop(refused + over)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = slices.Concat(left, l.waiting[len(batch):])
	return err
}

// send writes entries, but for those of subscriptions that are deleted. It returns those that Redis could not take, how
// many it refused, and why.
func (l *deliveryLog) send(ctx context.Context, batch []*logEntry) (left []*logEntry, refused int, failure error) {
	ctx, cancel := context.WithTimeout(ctx, l.s.opts.limits.all)
	defer cancel()
	now, err := l.s.now(ctx)
	if err != nil {
		return batch, 0, err
	}
	pipe := l.s.rdb.Pipeline()
	adds, touched := make([]*redis.StringCmd, len(batch)), map[logOf]struct{}{}
	for i, e := range batch {
		if l.listed(e.of) {
			touched[e.of] = struct{}{}
			adds[i] = pipe.XAdd(ctx, &redis.XAddArgs{
				Stream: l.s.keys.deliveryLog(e.of.id, e.of.generation), MaxLen: logLength, Approx: true,
				Values: writeLogged(e.of.id, e.LoggedAttempt),
			})
		}
	}
	for of := range touched {
		l.written[of] = struct{}{}
		key := l.s.keys.deliveryLog(of.id, of.generation)
		pipe.XTrimMinID(ctx, key, oldestLogged(now))
		pipe.Expire(ctx, key, logAge)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, add := range adds {
		if add == nil || add.Val() != "" { // which counts, as in together
			continue
		}
		// What Redis may have been too slow to answer for it may have written: again and again, that would fill a log.
		var late net.Error
		if err := wrap(add.Err()); errors.Is(err, fsm.ErrUnavailable) && !(errors.As(err, &late) && late.Timeout()) {
			left, failure = append(left, batch[i]), err
		} else {
			refused++
			failure = cmp.Or(failure, err)
		}
	}
	return left, refused, failure
}

// sweep removes the logs of subscriptions that are deleted: an entry may have been written after they were removed
// (markDeleted), when this replica did not know of it yet. Those that it cannot remove now go the next time, or expire.
func (l *deliveryLog) sweep(ctx context.Context) {
	var gone []logOf
	for of := range l.written {
		if !l.listed(of) {
			gone = append(gone, of)
		}
	}
	if len(gone) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, l.s.opts.limits.all)
	defer cancel()
	pipe := l.s.rdb.Pipeline()
	cmds := make([]*redis.IntCmd, len(gone))
	for i, of := range gone {
		cmds[i] = pipe.Unlink(ctx, l.s.keys.deliveryLog(of.id, of.generation))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, of := range gone {
		if cmds[i].Err() == nil {
			delete(l.written, of)
		}
	}
}

func (l *deliveryLog) listed(of logOf) bool {
	sub, there := l.s.catalog.Get(of.id)
	return there && sub.Generation == of.generation
}

// oldestLogged is below the IDs of the entries that are not too old.
func oldestLogged(now time.Time) string { return strconv.FormatInt(now.Add(-logAge).UnixMilli(), 10) }

// LoggedAttempts implements fsm.LogStore.
func (s *Store) LoggedAttempts(
	ctx context.Context, sub fsm.Subscription, before string, most int,
) ([]fsm.LoggedAttempt, error) {
	now, err := s.now(ctx)
	if err != nil {
		return nil, err
	}
	from := "+"
	if before != "" {
		from = "(" + before
	}
	entries, err := s.rdb.XRevRangeN(ctx, s.keys.deliveryLog(sub.ID, sub.Generation), from, oldestLogged(now),
		int64(most)).Result()
	if err = wrap(err); err != nil {
		return nil, err
	}
	list := make([]fsm.LoggedAttempt, len(entries))
	for i, e := range entries {
		list[i] = readLogged(sub.ID, e)
	}
	return list, nil
}

// writeLogged returns the fields of an entry. They are always the same ones: Redis then keeps their names once for a
// hundred entries.
func writeLogged(sub string, a fsm.LoggedAttempt) []any {
	consumer, delivery := a.Consumer, a.DeliveryID
	if consumer == fsm.ConsumerID(sub, a.Stream) {
		consumer = ""
	}
	if delivery == a.WakeID {
		delivery = ""
	}
	return []any{
		"t", a.At.UnixMicro(), "d", a.Took.Microseconds(), "s", a.Stream, "c", consumer, "w", a.WakeID, "e", a.Epoch,
		"i", delivery, "a", a.Attempt, "r", a.Result, "h", a.Status, "k", a.Class, "y", a.Reason, "n", a.Events,
		"b", a.Bytes, "f", string(a.From),
	}
}

// readLogged is the reverse of writeLogged.
func readLogged(sub string, e redis.XMessage) fsm.LoggedAttempt {
	text := func(field string) string { s, _ := e.Values[field].(string); return s }
	number := func(field string) int64 { n, _ := strconv.ParseInt(text(field), 10, 64); return n }
	a := fsm.LoggedAttempt{
		ID: e.ID, At: time.UnixMicro(number("t")), Took: time.Duration(number("d")) * time.Microsecond,
		Stream: text("s"), Consumer: text("c"), WakeID: text("w"), Epoch: number("e"), DeliveryID: text("i"),
		Attempt: int(number("a")), Result: text("r"), Status: int(number("h")),
		Class: text("k"), Reason: text("y"), Events: int(number("n")),
		Bytes: int(number("b")), From: fsm.Offset(text("f")),
	}
	if a.Consumer == "" {
		a.Consumer = fsm.ConsumerID(sub, a.Stream)
	}
	if a.DeliveryID == "" {
		a.DeliveryID = a.WakeID
	}
	return a
}
