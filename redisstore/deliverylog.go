package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	"reveille/fsm/bell"
	"reveille/fsm/throttle"
)

// The bounds of the delivery log.
const (
	// logLength is how many of its latest entries a subscription keeps at least. Redis drops older entries about a
	// hundred at a time. Entries older than logAge are not shown, and the next write removes them.
	logLength = 1000
	logAge    = 7 * 24 * time.Hour
	// logWaiting is how many entries may wait for a write; further entries are dropped. If Redis could not take
	// entries, the latest logLeft of them go on waiting. So there is space left for new entries, which may be for other
	// nodes of a cluster.
	logWaiting, logLeft = 10_000, logWaiting / 2
	// logPause is how long the first waiting entry waits, so that others go with it.
	logPause = 100 * time.Millisecond
	// logRetry is how long entries wait that Redis could not take.
	logRetry = time.Second
	// indexEvery is how often the index of the logs is compared with the logs, and indexedAtATime how many at once.
	indexEvery     = 10 * time.Minute
	indexedAtATime = 500
)

// logWriter is the observer that keeps delivery attempts for operators, in one Redis stream per subscription. It
// writes them later, in batches: no delivery waits for it. The log is not part of the state, so plain commands write it
// and its index, and no transition uses them. A command that is lost or carried out twice does no harm.
type logWriter struct {
	s       *Store
	dropped prometheus.Counter
	// ready rings when entries wait.
	ready bell.Bell

	mu      sync.Mutex
	waiting []*logEntry

	// unsaid counts dropped entries that the program's own log does not mention yet.
	unsaid atomic.Int64
	said   throttle.Trouble
	// written are the logs that this replica has written to, of subscriptions that it does not know to be deleted. Only
	// run uses it.
	written map[subOf]struct{}
	// unindexed are the latest entries that the index lacks, by subscription. Only run uses it.
	unindexed map[string]int64
	// indexed is true once indexAll has compared all logs.
	indexed atomic.Bool
}

type logEntry struct {
	of subOf
	fsm.LoggedAttempt
}

func newLogWriter(s *Store) *logWriter {
	return &logWriter{
		s: s, ready: bell.New(), written: map[subOf]struct{}{}, unindexed: map[string]int64{},
		dropped: promauto.With(s.opts.Metrics).NewCounter(prometheus.CounterOpts{
			Name: "reveille_delivery_log_dropped_total",
			Help: "Delivery attempts of this replica that are missing from the delivery log, because Redis did not " +
				"take them in time. What a crash has cost is not known.",
		}),
	}
}

// attempted is the Attempt of the router.Observer. It only queues the attempt. It ignores an attempt that a stop of the
// program ended before anything was sent.
func (l *logWriter) attempted(a fsm.Attempt) {
	if !l.s.opts.DeliveryLog.Takes(a.Result) || a.Result == fsm.AttemptAbandoned && !a.Sent {
		return
	}
	of := subOf{a.Delivery.Subscription, a.Delivery.Generation}
	e := &logEntry{of, fsm.LoggedAttemptOf(a, l.s.opts.LoggedAnswers)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) >= logWaiting {
		l.drop(1)
		return
	}
	l.waiting = append(l.waiting, e)
	l.ready.Ring()
}

func (l *logWriter) drop(n int) {
	l.dropped.Add(float64(n))
	l.unsaid.Add(int64(n))
}

// run writes waiting entries until ctx is done. Then it writes the rest (stop).
func (l *logWriter) run(ctx context.Context) {
	catalog := l.s.catalog
	for changed := catalog.Changed(); ; {
		select {
		case <-ctx.Done():
			l.stop(ctx)
			return
		case <-changed:
			changed = catalog.Changed() // before sweep reads the catalog
		case <-l.ready:
		}
		bell.Sleep(ctx, logPause)
		err := l.writeAll(context.WithoutCancel(ctx)) // a write that is cut off may have happened, and comes again
		l.sweep(ctx)
		l.say(err, false)
		if errors.Is(err, fsm.ErrUnavailable) {
			bell.Sleep(ctx, logRetry)
			l.ready.Ring()
		}
	}
}

// stop writes the waiting entries, and drops the rest.
func (l *logWriter) stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.s.opts.limits.stop)
	defer cancel()
	err := l.writeAll(ctx)
	l.sweep(ctx)
	l.mu.Lock()
	left := len(l.waiting)
	l.waiting = nil
	l.mu.Unlock()
	l.drop(left)
	l.say(err, true)
}

// say logs how many entries were dropped. Unless it is the last time, it skips some reports of a long trouble.
func (l *logWriter) say(err error, last bool) {
	if l.unsaid.Load() == 0 {
		return
	}
	if _, log := l.said.Happened(time.Now()); log || last {
		l.s.opts.Logger.Warn("delivery attempts are missing from the delivery log: redis did not take them in time",
			zap.Int64("attempts", l.unsaid.Swap(0)), zap.Error(err))
	}
}

// writeAll writes all waiting entries, and keeps that in the index.
func (l *logWriter) writeAll(ctx context.Context) error {
	return cmp.Or(l.write(ctx), l.indexLatest(ctx))
}

// write writes all waiting entries in one pipeline. On a cluster, a node that takes no entries must not delay the
// entries for other nodes. Entries that Redis could not take go on waiting, in their order, and the error says why.
// Dropped are excess entries, and entries that Redis refused or did not answer for in time.
func (l *logWriter) write(ctx context.Context) error {
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

// send writes entries, except entries of deleted subscriptions. It returns the entries that Redis could not take, how
// many it refused, and why.
func (l *logWriter) send(ctx context.Context, batch []*logEntry) (left []*logEntry, refused int, failure error) {
	ctx, cancel := context.WithTimeout(ctx, l.s.opts.limits.all)
	defer cancel()
	now, err := l.s.now(ctx)
	if err != nil {
		return batch, 0, err
	}
	pipe := l.s.rdb.Pipeline()
	adds, touched := make([]*redis.StringCmd, len(batch)), map[subOf]struct{}{}
	for i, e := range batch {
		if l.s.knows(e.of) {
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
		if add == nil {
			continue
		}
		if id := add.Val(); id != "" { // the value counts, not the error, as in together
			l.unindexed[batch[i].of.id] = max(l.unindexed[batch[i].of.id], fsm.LogMillis(id))
			continue
		}
		// After a timeout, Redis may have written the entry. Retries without end would fill the log with copies.
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

// indexLatest keeps when the latest entries were stored that this replica has written. What Redis does not take now
// follows with the next call.
func (l *logWriter) indexLatest(ctx context.Context) error {
	if len(l.unindexed) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.s.opts.limits.all) // a node that hangs has its own
	defer cancel()
	now, err := l.s.now(ctx)
	if err == nil {
		err = l.index(ctx, l.unindexed, now)
	}
	if !errors.Is(err, fsm.ErrUnavailable) { // what Redis refuses, it refuses again: indexAll adds it
		clear(l.unindexed)
	}
	return err
}

// index keeps when the latest entries of some logs were stored, in milliseconds, so that a list of all attempts begins
// with few logs. It forgets the logs whose entries are all too old.
func (l *logWriter) index(ctx context.Context, latest map[string]int64, now time.Time) error {
	members := make([]redis.Z, 0, len(latest))
	for id, at := range latest {
		members = append(members, redis.Z{Score: float64(at), Member: id})
	}
	if len(members) == 0 {
		return nil
	}
	pipe := l.s.rdb.Pipeline()
	pipe.ZAddArgs(ctx, l.s.keys.logged(), redis.ZAddArgs{GT: true, Members: members})
	pipe.ZRemRangeByScore(ctx, l.s.keys.logged(), "-inf", "("+oldestLogged(now))
	_, err := pipe.Exec(ctx)
	return wrap(err)
}

// runIndex compares the index with all logs again and again, until ctx is done. Each replica does so when it begins.
// Later, the one that owns the first partition does.
func (l *logWriter) runIndex(ctx context.Context) {
	for ctx.Err() == nil {
		wait := indexEvery
		if !l.indexed.Load() || l.s.ownership.Owns(0) {
			if err := l.indexAll(ctx); err != nil {
				wait = logRetry // the store logs that Redis is away
			}
		}
		bell.Sleep(ctx, wait)
	}
}

// indexAll adds to the index the logs whose writer could not reach it. It skips logs that cannot be read.
func (l *logWriter) indexAll(ctx context.Context) error {
	if err := l.s.RefreshCatalog(ctx); err != nil {
		return err
	}
	now, err := l.s.now(ctx)
	if err != nil {
		return err
	}
	for some := range slices.Chunk(l.s.catalog.All(), indexedAtATime) {
		pipe, cmds := l.s.rdb.Pipeline(), make([]*redis.XMessageSliceCmd, len(some))
		for i, sub := range some {
			cmds[i] = pipe.XRevRangeN(ctx, l.s.keys.deliveryLog(sub.ID, sub.Generation), "+", oldestLogged(now), 1)
		}
		_, _ = pipe.Exec(ctx) // each command has its own error
		latest := map[string]int64{}
		for i, cmd := range cmds {
			if err := wrap(cmd.Err()); errors.Is(err, fsm.ErrUnavailable) {
				return err
			}
			for _, e := range cmd.Val() {
				latest[some[i].ID] = fsm.LogMillis(e.ID)
			}
		}
		if err := l.index(ctx, latest, now); err != nil {
			return err
		}
	}
	l.indexed.Store(true)
	return nil
}

// LatestLogs implements control.Store.
func (s *Store) LatestLogs(ctx context.Context, since time.Time, most int) (ids []string, next int64, err error) {
	if s.log != nil && !s.log.indexed.Load() { // some may be missing
		return nil, 0, fmt.Errorf("%w: the delivery logs are not all known yet", fsm.ErrUnavailable)
	}
	from := "-inf"
	if !since.IsZero() {
		from = strconv.FormatInt(since.UnixMilli(), 10)
	}
	found, err := s.rdb.ZRevRangeByScoreWithScores(ctx, s.keys.logged(), &redis.ZRangeBy{
		Min: from, Max: "+inf", Count: int64(most) + 1,
	}).Result()
	if err != nil {
		return nil, 0, wrap(err)
	}
	for i, z := range found {
		if i == most {
			return ids, int64(z.Score), nil
		}
		id, _ := z.Member.(string)
		ids = append(ids, id)
	}
	return ids, 0, nil
}

// sweep removes the logs of deleted subscriptions. This replica may have written an entry after markDeleted removed the
// log, before it knew of the deletion. If sweep cannot remove a log now, it tries again the next time, or the log
// expires.
func (l *logWriter) sweep(ctx context.Context) {
	var gone []subOf
	for of := range l.written {
		if !l.s.knows(of) {
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
		if _, anew := l.s.catalog.Get(of.id); !anew {
			pipe.ZRem(ctx, l.s.keys.logged(), of.id)
		}
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, of := range gone {
		if cmds[i].Err() == nil {
			delete(l.written, of)
		}
	}
}

// oldestLogged is lower than the IDs of all entries that are not too old.
func oldestLogged(now time.Time) string { return strconv.FormatInt(now.Add(-logAge).UnixMilli(), 10) }

// LoggedAttempts implements control.Store.
func (s *Store) LoggedAttempts(
	ctx context.Context, places []fsm.LogPlace, most int,
) ([][]fsm.LoggedAttempt, error) {
	pipe, now := s.rdb.Pipeline(), s.draw().Now
	clock := (*redis.TimeCmd)(nil)
	if now.IsZero() {
		clock = pipe.Time(ctx)
	}
	cmds := make([]*redis.XMessageSliceCmd, len(places))
	for i, p := range places {
		to := "-"
		if !p.Since.IsZero() {
			to = strconv.FormatInt(p.Since.UnixMilli(), 10)
		}
		key := s.keys.deliveryLog(p.Subscription.ID, p.Subscription.Generation)
		cmds[i] = pipe.XRevRangeN(ctx, key, upTo(p.Before), to, int64(most))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, wrap(err)
	}
	if clock != nil {
		now = clock.Val()
	}
	lists, oldest := make([][]fsm.LoggedAttempt, len(places)), now.Add(-logAge).UnixMilli()
	for i, cmd := range cmds {
		for _, e := range cmd.Val() {
			if fsm.LogMillis(e.ID) >= oldest {
				lists[i] = append(lists[i], readLogged(places[i].Subscription.ID, e))
			}
		}
	}
	return lists, nil
}

// writeLogged returns the fields of an entry. Every entry has the same fields, so Redis stores their names once for a
// hundred entries.
func writeLogged(sub string, a fsm.LoggedAttempt) []any {
	delivery, aside := a.DeliveryID, ""
	if delivery == a.WakeID {
		delivery = ""
	}
	if a.Consumer != fsm.ConsumerID(sub, a.Stream) {
		aside = a.Consumer
	}
	return []any{
		"t", a.At.UnixMicro(), "d", a.Took.Microseconds(), "s", a.Stream, "c", aside, "w", a.WakeID, "e", a.Epoch,
		"i", delivery, "a", a.Attempt, "r", a.Result, "h", a.Status, "k", a.Class, "y", a.Reason, "n", a.Events,
		"b", a.Bytes, "f", string(a.From), "q", a.Waited.Microseconds(), "x", a.Exchanged.Microseconds(),
		"m", a.Remote, "v", a.HTTP, "l", a.TLS, "o", a.Answer, "z", a.MaxAttempts,
		"g", a.Extent.Text(a.From, a.Stream),
	}
}

// readLogged is the reverse of writeLogged.
func readLogged(sub string, e redis.XMessage) fsm.LoggedAttempt {
	text := func(field string) string { s, _ := e.Values[field].(string); return s }
	number := func(field string) int64 { n, _ := strconv.ParseInt(text(field), 10, 64); return n }
	a := fsm.LoggedAttempt{
		ID: e.ID, Subscription: sub, At: time.UnixMicro(number("t")),
		Took: time.Duration(number("d")) * time.Microsecond, Stream: text("s"), Consumer: text("c"), WakeID: text("w"),
		Epoch: number("e"), DeliveryID: text("i"), Attempt: int(number("a")), MaxAttempts: int(number("z")),
		Result: text("r"), Status: int(number("h")), Class: text("k"), Reason: text("y"),
		Events: int(number("n")), Bytes: int(number("b")), From: fsm.Offset(text("f")),
		Waited:    time.Duration(number("q")) * time.Microsecond,
		Exchanged: time.Duration(number("x")) * time.Microsecond,
		Remote:    text("m"), HTTP: text("v"), TLS: text("l"), Answer: text("o"),
	}
	a.Consumer = cmp.Or(a.Consumer, fsm.ConsumerID(sub, a.Stream))
	a.DeliveryID = cmp.Or(a.DeliveryID, a.WakeID)
	a.Extent = fsm.ReadExtent(text("g"), a.From, a.Stream)
	return a
}
