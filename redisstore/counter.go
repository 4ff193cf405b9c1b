package redisstore

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/fsm/bell"
	"reveille/fsm/throttle"
)

const (
	// countPause is how long the first counted attempt waits, so that others go with it. Counts that Redis could not
	// take wait as long again.
	countPause = time.Second
	// countsAtATime bounds the subscriptions whose counts go in one pipeline.
	countsAtATime = 500
)

// counter is the observer that counts delivery attempts, by minute and by hour, for each subscription and for all of
// them. It writes the counts later: no delivery waits for it. The counts go in batches with numbers. The script adds a
// batch once, so one that was not answered is sent again. An attempt counts in the minute in which its batch is made:
// about a second later, or once Redis answers again.
type counter struct {
	s *Store
	// process names this process, also among those with the same replica ID before it.
	process string
	// ready rings when counts wait.
	ready bell.Bell

	mu      sync.Mutex
	waiting map[subOf]*fsm.AttemptTally

	// The rest is for run only. sending are the batches that Redis may not have taken.
	sending map[subOf]*countsSent
	batch   int64
	refused throttle.Trouble
}

// overall has the counts of all subscriptions.
var overall = subOf{}

// countsSent is what a batch adds to the counts of a subscription.
type countsSent struct {
	number       int64
	hour, minute string
	fields       []any
}

func newCounter(s *Store) *counter {
	return &counter{
		s: s, process: countedBy + randomDraw().Nonce, ready: bell.New(), waiting: map[subOf]*fsm.AttemptTally{},
		sending: map[subOf]*countsSent{},
	}
}

// attempted is the Attempt of the router.Observer.
func (c *counter) attempted(a fsm.Attempt) {
	if !fsm.Counted(a) {
		return
	}
	c.mu.Lock()
	c.of(overall).Count(a)
	c.of(subOf{a.Delivery.Subscription, a.Delivery.Generation}).Count(a)
	c.mu.Unlock()
	c.ready.Ring()
}

// of returns the counts that wait to be written. The caller holds mu.
func (c *counter) of(sub subOf) *fsm.AttemptTally {
	t := c.waiting[sub]
	if t == nil {
		t = &fsm.AttemptTally{}
		c.waiting[sub] = t
	}
	return t
}

// run writes counts until ctx is done, and then the rest.
func (c *counter) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			c.stop(context.WithoutCancel(ctx))
			return
		case <-c.ready:
		}
		bell.Sleep(ctx, countPause)
		// A write that is cut off may have happened, and comes again.
		if err := c.write(context.WithoutCancel(ctx)); err != nil || c.left() {
			c.ready.Ring()
		}
	}
}

// stop writes what waits, and says if Redis does not take it in time.
func (c *counter) stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.s.opts.limits.stop)
	defer cancel()
	for c.left() {
		if err := c.write(ctx); err != nil && ctx.Err() != nil {
			c.lost(c.s.opts.Logger, err)
			return
		} else if err != nil {
			bell.Sleep(ctx, countPause/5)
		}
	}
}

func (c *counter) lost(log *zap.Logger, err error) {
	log.Warn("delivery attempts may be missing from the statistics: redis did not take them", zap.Error(err))
}

// left says whether anything waits, or is on its way.
func (c *counter) left() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting)+len(c.sending) > 0
}

// write writes what waits. The counts of a subscription whose batch before was not answered wait for that. Counts that
// Redis has refused are dropped. After an error that wraps fsm.ErrUnavailable, some batches are on their way.
func (c *counter) write(ctx context.Context) (failure error) {
	ctx, cancel := context.WithTimeout(ctx, c.s.opts.limits.all)
	defer cancel()
	now, err := c.s.now(ctx)
	if err != nil {
		return err
	}
	c.take(now)
	var refused error
	for some := range slices.Chunk(slices.Collect(maps.Keys(c.sending)), countsAtATime) {
		for i, r := range c.s.pipeline(ctx, scriptCountAttempts, len(some), func(i int) ([]string, []any) {
			b := c.sending[some[i]]
			return []string{b.hour, b.minute}, append([]any{
				c.process, b.number, hoursKept.Milliseconds(), minutesKept.Milliseconds(),
			}, b.fields...)
		}) {
			r.yes()
			if r.err() != nil {
				failure = r.err()
			}
			if !errors.Is(r.err(), fsm.ErrUnavailable) {
				delete(c.sending, some[i])
				refused = cmp.Or(refused, r.err())
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	if refused != nil {
		c.lost(c.refused.Log(c.s.opts.Logger, time.Now()), refused)
	}
	return failure
}

// take makes batches of what waits, except of deleted subscriptions.
func (c *counter) take(now time.Time) {
	for of := range c.sending {
		if !c.counts(of) {
			delete(c.sending, of)
		}
	}
	c.mu.Lock()
	waiting := c.waiting
	c.waiting = map[subOf]*fsm.AttemptTally{}
	c.mu.Unlock()
	c.batch++
	for of, t := range waiting {
		switch {
		case !c.counts(of):
		case c.sending[of] != nil:
			c.mu.Lock()
			c.of(of).Add(*t)
			c.mu.Unlock()
		default:
			c.sending[of] = &countsSent{
				number: c.batch, hour: c.s.keys.countedHour(of, hourOf(now)),
				minute: c.s.keys.countedMinute(of, minuteOf(now)), fields: writeTally(*t),
			}
		}
	}
}

func (c *counter) counts(of subOf) bool { return of == overall || c.s.knows(of) }

// The counts are kept for as long as they may be shown.
const (
	minutesKept = (fsm.CountedMinutes + 1) * time.Minute
	hoursKept   = (fsm.CountedHours + 1) * time.Hour
)

// hourOf and minuteOf number the hours and the minutes since 1970.
func hourOf(t time.Time) int64   { return t.Unix() / int64(time.Hour/time.Second) }
func minuteOf(t time.Time) int64 { return t.Unix() / int64(time.Minute/time.Second) }

// The fields of counts begin with these.
const (
	countedResult = "r:"
	countedClass  = "k:"
	countedTime   = "t:"
	countedEvents = "e"
	countedBy     = "p:" // counter.process
)

func writeTally(t fsm.AttemptTally) (fields []any) {
	for result, n := range t.Results {
		fields = append(fields, countedResult+result, n)
	}
	for class, n := range t.Failures {
		fields = append(fields, countedClass+class, n)
	}
	for bucket, n := range t.Times {
		fields = append(fields, countedTime+strconv.Itoa(bucket), n)
	}
	if t.Events > 0 {
		fields = append(fields, countedEvents, t.Events)
	}
	return fields
}

// readTally is the reverse of writeTally.
func readTally(fields map[string]string) (t fsm.AttemptTally) {
	for name, value := range fields {
		n, _ := strconv.ParseInt(value, 10, 64)
		if result, ok := strings.CutPrefix(name, countedResult); ok {
			t.Add(fsm.AttemptTally{Results: map[string]int64{result: n}})
		} else if class, ok := strings.CutPrefix(name, countedClass); ok {
			t.Add(fsm.AttemptTally{Failures: map[string]int64{class: n}})
		} else if bucket, ok := strings.CutPrefix(name, countedTime); ok {
			of, _ := strconv.Atoi(bucket)
			t.Add(fsm.AttemptTally{Times: fsm.Times{of: n}})
		} else if name == countedEvents {
			t.Events = n
		}
	}
	return t
}

// CountedAttempts implements control.Store.
func (s *Store) CountedAttempts(ctx context.Context, sub fsm.Subscription) (fsm.AttemptCounts, error) {
	return s.readCounts(ctx, subOf{sub.ID, sub.Generation})
}

// AllCountedAttempts implements control.Store.
func (s *Store) AllCountedAttempts(ctx context.Context) (fsm.AttemptCounts, error) {
	return s.readCounts(ctx, overall)
}

func (s *Store) readCounts(ctx context.Context, of subOf) (counts fsm.AttemptCounts, err error) {
	if counts.Now, err = s.now(ctx); err != nil {
		return counts, err
	}
	names := s.keys.counted(of, counts.Now)
	cmds, pipe := make([]*redis.MapStringStringCmd, len(names)), s.rdb.Pipeline()
	for i, name := range names {
		cmds[i] = pipe.HGetAll(ctx, name)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return counts, wrap(err)
	}
	all := make([]fsm.AttemptTally, len(cmds))
	for i, cmd := range cmds {
		all[i] = readTally(cmd.Val())
	}
	counts.Minutes, counts.Hours = all[:fsm.CountedMinutes], all[fsm.CountedMinutes:]
	return counts, nil
}
