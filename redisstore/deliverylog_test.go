package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"reveille/fsm"
	"reveille/fsm/router"
	"reveille/redisstore"
	"reveille/test/harness"
)

// logging is a replica that keeps delivery attempts.
type logging struct {
	*world
	outcomes *router.Router
	metrics  *prometheus.Registry
	lines    *observer.ObservedLogs
}

// openLogging opens one whose time is that of Redis.
func openLogging(t *testing.T, url string, mode fsm.DeliveryLog) *logging {
	t.Helper()
	core, lines := observer.New(zap.WarnLevel)
	l := &logging{outcomes: router.New(), metrics: prometheus.NewPedanticRegistry(), lines: lines}
	l.world = openWith(t, url, nil, redisstore.Options{
		Partitions: 8, Embedded: url == redisstore.Embedded, DeliveryLog: mode, Outcomes: l.outcomes,
		LoggedAnswers: fsm.LogFailures,
		Metrics:       l.metrics, Logger: zap.New(core),
	})
	l.later(time.Since(l.now))
	return l
}

func (l *logging) create(t *testing.T, id string) fsm.Subscription {
	t.Helper()
	sub, _, err := l.CreateSubscription(t.Context(), subscription(id))
	if err != nil {
		t.Fatal(err)
	}
	return sub
}

// attempt is the nth of a subscription.
func attempt(sub fsm.Subscription, n int, r fsm.AttemptResult) fsm.Attempt {
	path := fmt.Sprint("/a/", n)
	return fsm.Attempt{
		Delivery: fsm.Delivery{
			Subscription: sub.ID, Generation: sub.Generation, Consumer: fsm.ConsumerID(sub.ID, path), Primary: path,
			WakeID: fmt.Sprint("w_", n), Epoch: int64(n) << 20, Attempt: n,
		},
		Began: time.UnixMicro(1_790_000_000_000_123), Took: 1234 * time.Microsecond, Result: r, Sent: true,
		DeliveryID: fmt.Sprint("evt_", n), Events: 2, Bytes: 300, From: fsm.Start.At(int64(n), "0009"),
	}
}

func (l *logging) attempts(sub fsm.Subscription, from, to int) {
	for n := from; n < to; n++ {
		l.outcomes.Attempted(attempt(sub, n, fsm.AttemptDone))
	}
}

func (l *logging) write(t *testing.T) {
	t.Helper()
	if err := l.WriteLog(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func places(sub fsm.Subscription, before string) []fsm.LogPlace {
	return []fsm.LogPlace{{Subscription: sub, Before: before}}
}

// logged returns the numbers of the attempts that the log has, page by page, the latest first.
func (l *logging) logged(t *testing.T, sub fsm.Subscription, atATime int) (numbers []int) {
	t.Helper()
	for before := ""; ; {
		page := must[[][]fsm.LoggedAttempt](t)(l.LoggedAttempts(t.Context(), places(sub, before), atATime))[0]
		if len(page) > atATime {
			t.Fatalf("%d come at a time, want %d", len(page), atATime)
		}
		for _, a := range page {
			numbers, before = append(numbers, a.Attempt), a.ID
			if !fsm.ValidLogID(a.ID) {
				t.Fatalf("an entry has the id %q", a.ID)
			}
		}
		if len(page) < atATime {
			return numbers
		}
	}
}

// TestTheDeliveryLogOnEveryKindOfRedis holds that what is kept of attempts is read as it was, the latest first and page
// by page, and goes with its subscription.
func TestTheDeliveryLogOnEveryKindOfRedis(t *testing.T) {
	t.Parallel()
	for name, url := range serversAndEmbedded {
		t.Run(name, func(t *testing.T) {
			l := openLogging(t, url(t), fsm.LogAll)
			subs := make([]fsm.Subscription, 12)
			for i := range subs { // on all nodes of a cluster
				subs[i] = l.create(t, fmt.Sprint("s", i))
				l.attempts(subs[i], 1, 4)
			}
			whole := attempt(subs[0], 4, fsm.AttemptFailed)
			whole.Status, whole.Class, whole.Reason = 500, "server_error", strings.Repeat("x", fsm.MaxReason+1)
			whole.Waited, whole.Exchanged = 34*time.Microsecond, 1200*time.Microsecond
			whole.MaxAttempts, whole.Answer = 9, "over\ncapacity"
			whole.Extent = func() fsm.Extent {
				return fsm.Extent{Shape: "0123abcd", Sum: "89abcdef", At: "0007", Span: 2, Replay: true}
			}
			whole.Remote, whole.HTTP, whole.TLS = "192.0.2.7:443", "1.1", "1.3"
			wake := attempt(subs[0], 5, fsm.AttemptAccepted)
			wake.DeliveryID, wake.Events, wake.From = wake.Delivery.WakeID, 0, ""
			wake.Answer = "of a 2xx"
			wake.Extent = func() fsm.Extent {
				return fsm.Extent{
					Shape: "0123abcd", Streams: []fsm.WokenStream{{Path: "/a/5", Acked: "-1", Pending: true}},
				}
			}
			wake.Delivery.Consumer = "s0:%2Fa%2F5:7"
			l.outcomes.Attempted(whole)
			l.outcomes.Attempted(wake)
			l.write(t)
			kept := must[[][]fsm.LoggedAttempt](t)(l.LoggedAttempts(t.Context(), places(subs[0], ""), 2))[0]
			for i, a := range []fsm.Attempt{wake, whole} {
				want := fsm.LoggedAttemptOf(a, fsm.LogFailures)
				if want.ID = kept[i].ID; !reflect.DeepEqual(kept[i], want) {
					t.Errorf("kept is\n%+v, want\n%+v", kept[i], want)
				}
			}
			if kept[0].Answer != "" || kept[1].Answer != whole.Answer {
				t.Errorf("of the answers, %q and %q are kept", kept[0].Answer, kept[1].Answer)
			}
			for i, sub := range subs {
				want := []int{3, 2, 1}
				if i == 0 {
					want = []int{5, 4, 3, 2, 1}
				}
				for _, atATime := range []int{1, 2, 100} {
					if got := l.logged(t, sub, atATime); !slices.Equal(got, want) {
						t.Errorf("%s, %d at a time: %v, want %v", sub.ID, atATime, got, want)
					}
				}
			}
			several := slices.Concat(places(subs[3], ""), places(subs[0], ""), places(fsm.Subscription{ID: "none"}, ""),
				places(subs[7], ""))
			lists := must[[][]fsm.LoggedAttempt](t)(l.LoggedAttempts(t.Context(), several, 4))
			for i, want := range []int{3, 4, 0, 3} {
				if len(lists[i]) != want || want > 0 && lists[i][0].Subscription != several[i].Subscription.ID {
					t.Errorf("of several logs, the list %d is %+v", i, lists[i])
				}
			}
			for _, sub := range subs {
				if err := l.DeleteSubscription(t.Context(), sub.ID); err != nil {
					t.Fatal(err)
				}
			}
			l.attempts(subs[0], 6, 7) // it was out
			l.write(t)
			if keys := leftovers(t, l.world); len(keys) > 0 {
				t.Errorf("left behind: %v", keys)
			}
		})
	}
}

// TestTheDeliveryLogIsBounded holds that the latest thousand are kept, and a little more, and none for longer than a
// week, be it that further ones come or not.
func TestTheDeliveryLogIsBounded(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{
		"redis-server": redisstore.EmptyRedis(t).URL, "embedded": redisstore.Embedded,
	} {
		l := openLogging(t, url, fsm.LogAll)
		sub := l.create(t, "s")
		for n := 0; n < 3000; n += 500 {
			l.attempts(sub, n, n+500)
			l.write(t)
		}
		got := l.logged(t, sub, 200)
		if len(got) < 1000 || len(got) > 1200 || got[0] != 2999 {
			t.Errorf("%s: %d are kept, the latest is %d", name, len(got), got[0])
		}
		const week = 7 * 24 * time.Hour
		left := must[time.Duration](t)(l.rdb.TTL(t.Context(), l.LogKey(sub)).Result())
		if left > week || left < week-time.Hour {
			t.Errorf("%s: the log is kept for %s", name, left)
		}
		l.later(week + time.Hour)
		if got := l.logged(t, sub, 200); len(got) > 0 {
			t.Errorf("%s: after a week, %d are shown", name, len(got))
		}
		l.attempts(sub, 5000, 5001)
		l.write(t)
		// What was just written is as old for this clock, which is ahead of that of Redis.
		if n := must[int64](t)(l.rdb.XLen(t.Context(), l.LogKey(sub)).Result()); n > 1 {
			t.Errorf("%s: after a week, %d are kept", name, n)
		}
	}
}

// TestTheDeliveryLogKeepsWhatTheSettingSays holds that what is not asked for has no observer, no key and no metric.
func TestTheDeliveryLogKeepsWhatTheSettingSays(t *testing.T) {
	t.Parallel()
	server := redisstore.EmptyRedis(t)
	for mode, want := range map[fsm.DeliveryLog][]int{
		fsm.LogAll: {6, 4, 3, 2, 1, 0}, fsm.LogFailures: {6, 1, 0}, fsm.LogOff: nil, "": nil,
	} {
		l := openLogging(t, server.URL, mode)
		sub := l.create(t, "s"+string(mode))
		for r := range fsm.AttemptResults { // 5 is empty and 7 blocked: neither was made
			l.outcomes.Attempted(attempt(sub, r, fsm.AttemptResult(r)))
		}
		unsent := attempt(sub, 99, fsm.AttemptAbandoned) // the program stopped as it read the events
		unsent.Sent, unsent.DeliveryID = false, ""
		l.outcomes.Attempted(unsent)
		if want != nil {
			l.write(t)
		}
		if got := l.logged(t, sub, 100); !slices.Equal(got, want) {
			t.Errorf("%q keeps %v, want %v", mode, got, want)
		}
		if _, has := figures(t, l.metrics, "reveille_delivery_log_dropped_total")[""]; has != (want != nil) {
			t.Errorf("%q has the metric: %t", mode, has)
		}
	}
}

// writes is a hook that is called before a delivery log is written, and may have that fail.
type writes func() error

func (w writes) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (w writes) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (w writes) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() != "xadd" {
			return next(ctx, cmds)
		}
		err := w()
		if err == nil {
			return next(ctx, cmds)
		}
		for _, c := range cmds {
			c.SetErr(err)
		}
		return err
	}
}

// TestTheDeliveryLogHoldsUpNobody holds that the observer returns while the writer stands still, that what does not fit
// is counted, and that all else is written in its order once Redis takes it.
func TestTheDeliveryLogHoldsUpNobody(t *testing.T) {
	t.Parallel()
	l := openLogging(t, redisstore.EmptyRedis(t).URL, fsm.LogAll)
	one, other := l.create(t, "one"), l.create(t, "other")
	entered, let, written := make(chan struct{}, 2), make(chan error, 2), make(chan error, 1)
	l.rdb.AddHook(writes(func() error {
		entered <- struct{}{}
		return <-let
	}))
	l.attempts(one, 0, 3)
	go func() { written <- l.WriteLog(context.Background()) }()
	<-entered
	l.attempts(other, 0, redisstore.LogWaiting+7) // all of this returns
	let <- io.EOF
	if err := <-written; !errors.Is(err, fsm.ErrUnavailable) {
		t.Errorf("a write to a Redis that is away: %v", err)
	}
	if got := figures(t, l.metrics, "reveille_delivery_log_dropped_total")[""]; got != 10 {
		t.Errorf("%g are counted, want those beyond the bound: 10", got)
	}
	let <- nil
	l.write(t)
	if got := l.logged(t, one, 100); !slices.Equal(got, []int{2, 1, 0}) {
		t.Errorf("of those that Redis had not taken, %v are kept", got)
	}
	if got := l.logged(t, other, 200); len(got) < 1000 || got[0] != redisstore.LogWaiting-4 {
		t.Errorf("of those that waited, %d are kept, and the latest is %d", len(got), got[0])
	}
}

// TestWhatTheDeliveryLogCannotKeepIsDropped holds that what Redis refuses is counted, and holds up no other log.
func TestWhatTheDeliveryLogCannotKeepIsDropped(t *testing.T) {
	t.Parallel()
	l := openLogging(t, redisstore.EmptyRedis(t).URL, fsm.LogAll)
	broken, fine := l.create(t, "broken"), l.create(t, "fine")
	if err := l.rdb.Set(t.Context(), l.LogKey(broken), "no stream", 0).Err(); err != nil {
		t.Fatal(err)
	}
	l.attempts(broken, 0, 2)
	l.attempts(fine, 0, 2)
	if err := l.WriteLog(t.Context()); err == nil || errors.Is(err, fsm.ErrUnavailable) {
		t.Errorf("the error is %v", err)
	}
	l.attempts(fine, 2, 3)
	l.write(t)
	if got := l.logged(t, fine, 100); !slices.Equal(got, []int{2, 1, 0}) {
		t.Errorf("of the other subscription %v are kept", got)
	}
	if got := figures(t, l.metrics, "reveille_delivery_log_dropped_total")[""]; got != 2 {
		t.Errorf("%g are counted", got)
	}
}

// TestAStopWritesTheDeliveryLog holds that what waits is written as Run ends, and that what Redis does not take then is
// counted and said.
func TestAStopWritesTheDeliveryLog(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		answer  error
		kept    []int
		dropped float64
	}{
		{"redis takes it", nil, []int{1, 0}, 0},
		{"redis is away", io.EOF, nil, 2},
	} {
		l := openLogging(t, redisstore.EmptyRedis(t).URL, fsm.LogAll)
		sub := l.create(t, "s")
		l.attempts(sub, 0, 2)
		l.rdb.AddHook(writes(func() error { return c.answer }))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if got := l.logged(t, sub, 100); !slices.Equal(got, c.kept) {
			t.Errorf("%s: %v are kept", c.name, got)
		}
		if got := figures(t, l.metrics, "reveille_delivery_log_dropped_total")[""]; got != c.dropped {
			t.Errorf("%s: %g are counted", c.name, got)
		}
		lines := l.lines.FilterMessageSnippet("missing from the delivery log").All()
		if said := len(lines) == 1 && lines[0].ContextMap()["attempts"] == int64(2); said != (c.dropped > 0) {
			t.Errorf("%s: the log says %+v", c.name, lines)
		}
	}
}

// TestALogThatIsWrittenAfterItsDeletionGoes has a replica write of a subscription that another one has deleted, before
// it knows that.
func TestALogThatIsWrittenAfterItsDeletionGoes(t *testing.T) {
	t.Parallel()
	url := redisstore.EmptyRedis(t).URL
	one, two := openLogging(t, url, fsm.LogAll), openLogging(t, url, fsm.LogAll)
	sub := one.create(t, "s")
	if err := two.RefreshCatalog(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := one.DeleteSubscription(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	two.attempts(sub, 0, 1)
	two.write(t)
	if got := two.logged(t, sub, 100); len(got) != 1 {
		t.Fatalf("the other replica does not write: %v", got)
	}
	if err := two.RefreshCatalog(t.Context()); err != nil {
		t.Fatal(err)
	}
	two.write(t)
	if keys := leftovers(t, two.world); len(keys) > 0 {
		t.Errorf("left behind: %v", keys)
	}
}

// TestTheDeliveryLogIsWrittenWithoutBeingAskedTo holds that Run writes it, time after time.
func TestTheDeliveryLogIsWrittenWithoutBeingAskedTo(t *testing.T) {
	t.Parallel()
	l := openLogging(t, redisstore.EmptyRedis(t).URL, fsm.LogAll)
	sub := l.create(t, "s")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	for n := range 3 {
		l.attempts(sub, n, n+1)
		harness.Eventually(t, harness.Wait, "it is written", func() error {
			if got := len(l.logged(t, sub, 100)); got != n+1 {
				return fmt.Errorf("there are %d", got)
			}
			return nil
		})
	}
}

// TestANodeThatIsAwayDoesNotCrowdOutTheLogsOfOthers holds that what one node of a cluster does not take leaves room for
// what the others do.
func TestANodeThatIsAwayDoesNotCrowdOutTheLogsOfOthers(t *testing.T) {
	t.Parallel()
	l := openLogging(t, redisstore.EmptyRedis(t).URL, fsm.LogAll)
	away, fine := l.create(t, "away"), l.create(t, "fine")
	l.rdb.AddHook(cuts(func(cmd redis.Cmder) bool { return cmd.Args()[1] == l.LogKey(away) }))
	for n := range 3 {
		l.attempts(away, 0, redisstore.LogWaiting)
		for _, attempts := range []func(){func() {}, func() { l.attempts(fine, n, n+1) }} {
			attempts()
			if err := l.WriteLog(t.Context()); !errors.Is(err, fsm.ErrUnavailable) {
				t.Fatalf("a write to a node that is away: %v", err)
			}
		}
	}
	if got := l.logged(t, fine, 100); !slices.Equal(got, []int{2, 1, 0}) {
		t.Errorf("of the node that answers %v are kept", got)
	}
}

// cuts is a hook that does not have some commands of a pipeline carried out, as if their node were away.
type cuts func(redis.Cmder) bool

func (c cuts) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (c cuts) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (c cuts) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		rest := slices.DeleteFunc(slices.Clone(cmds), c)
		if len(rest) > 0 {
			if err := next(ctx, rest); err != nil {
				return err
			}
		}
		if len(rest) == len(cmds) {
			return nil
		}
		for _, cmd := range cmds {
			if c(cmd) {
				cmd.SetErr(io.EOF)
			}
		}
		return io.EOF
	}
}

// answersLate is a hook that has pipelines carried out, and their answers come when nobody waits for them any more.
type answersLate struct{}

func (answersLate) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (answersLate) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (answersLate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() != "xadd" {
			return next(ctx, cmds)
		}
		own := make([]redis.Cmder, len(cmds))
		for i, c := range cmds {
			own[i] = redis.NewCmd(ctx, c.Args()...)
		}
		if err := next(context.WithoutCancel(ctx), own); err != nil {
			return err
		}
		<-ctx.Done()
		for _, c := range cmds {
			c.SetErr(ctx.Err())
		}
		return ctx.Err()
	}
}

// TestARedisThatAnswersLateGetsNoEntryOverAndOver holds that a log is not filled with repetitions of what it has, and a
// slow Redis not kept busy with them.
func TestARedisThatAnswersLateGetsNoEntryOverAndOver(t *testing.T) {
	t.Parallel()
	l := openLogging(t, redisstore.EmptyRedis(t).URL, fsm.LogAll)
	sub := l.create(t, "s")
	l.attempts(sub, 0, 1)
	l.rdb.AddHook(answersLate{})
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		_ = l.WriteLog(ctx)
		cancel()
	}
	if got := l.logged(t, sub, 100); !slices.Equal(got, []int{0}) {
		t.Errorf("of one attempt there are the entries %v", got)
	}
}

// TestTheLogsAreIndexedByTheirLatestEntries holds which logs a list of all attempts begins with. One command keeps what
// a batch changes. A log that an earlier version has written is added, and one that is deleted goes.
func TestTheLogsAreIndexedByTheirLatestEntries(t *testing.T) {
	t.Parallel()
	for name, url := range serversAndEmbedded {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			l := openLogging(t, url(t), fsm.LogAll)
			subs := map[string]fsm.Subscription{}
			for _, id := range []string{"a", "b", "c", "d"} {
				subs[id] = l.create(t, id)
			}
			index := func() {
				t.Helper()
				for range 2 {
					if err := l.IndexLogs(ctx); err != nil {
						t.Fatal(err)
					}
				}
			}
			if _, _, err := l.LatestLogs(ctx, time.Time{}, 1); !errors.Is(err, fsm.ErrUnavailable) {
				t.Errorf("before the logs are known: %v", err)
			}
			index()
			indexed := func(since time.Time, most int) ([]string, int64) {
				t.Helper()
				ids, next, err := l.LatestLogs(ctx, since, most)
				if err != nil {
					t.Fatal(err)
				}
				return ids, next
			}
			latest := func(id string) int64 {
				t.Helper()
				list, err := l.rdb.XRevRangeN(ctx, l.LogKey(subs[id]), "+", "-", 1).Result()
				if err != nil || len(list) != 1 {
					t.Fatal(list, err)
				}
				return fsm.LogMillis(list[0].ID)
			}
			for n, ids := range []string{"abc", "c", "a"} { // each batch is later by Redis' clock
				for _, id := range ids {
					l.attempts(subs[string(id)], 10*n, 10*n+5)
				}
				l.write(t)
				for began := l.millis(t); l.millis(t) == began; { // the next entries get later IDs
				}
			}
			all, next := indexed(time.Time{}, 3)
			if !slices.Equal(all, []string{"a", "c", "b"}) || next != 0 {
				t.Errorf("indexed are %v, and then %d", all, next)
			}
			if some, next := indexed(time.Time{}, 2); !slices.Equal(some, all[:2]) || next != latest("b") {
				t.Errorf("the first are %v, and then %d, want %d", some, next, latest("b"))
			}
			if some, next := indexed(time.UnixMilli(latest("c")), 2); !slices.Equal(some, all[:2]) || next != 0 {
				t.Errorf("since the second there are %v, and then %d", some, next)
			}
			if err := l.rdb.Del(ctx, "rv:{subs}:logged").Err(); err != nil {
				t.Fatal(err)
			}
			index()
			if again, _ := indexed(time.Time{}, 3); !slices.Equal(again, all) {
				t.Errorf("indexed anew are %v", again)
			}
			if err := l.DeleteSubscription(ctx, "c"); err != nil {
				t.Fatal(err)
			}
			if left, _ := indexed(time.Time{}, 3); !slices.Equal(left, []string{"a", "b"}) {
				t.Errorf("after a deletion there are %v", left)
			}
		})
	}
}

// millis is the time of Redis.
func (l *logging) millis(t *testing.T) int64 {
	t.Helper()
	return must[time.Time](t)(l.rdb.Time(t.Context()).Result()).UnixMilli()
}

// TestABatchOfTheLogIsIndexedAtOnce holds how many commands the index takes, and that it forgets what is too old.
func TestABatchOfTheLogIsIndexedAtOnce(t *testing.T) {
	t.Parallel()
	l := openLogging(t, redisstore.EmptyRedis(t).URL, fsm.LogAll)
	for i := range 20 {
		l.attempts(l.create(t, fmt.Sprint("s", i)), 0, 3)
	}
	if err := l.IndexLogs(t.Context()); err != nil {
		t.Fatal(err)
	}
	old := redis.Z{Score: float64(l.now.Add(-8 * 24 * time.Hour).UnixMilli()), Member: "old"}
	if err := l.rdb.ZAdd(t.Context(), "rv:{subs}:logged", old).Err(); err != nil {
		t.Fatal(err)
	}
	away := true
	l.rdb.AddHook(before(func(_ context.Context, cmds ...redis.Cmder) error {
		if slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Name() == "zadd" }) && away {
			away = false
			return io.ErrUnexpectedEOF
		}
		return nil
	}))
	if err := l.WriteLog(t.Context()); !errors.Is(err, fsm.ErrUnavailable) {
		t.Errorf("without the index: %v", err)
	}
	before := l.calls(t, "zadd")
	l.write(t) // nothing waits but the index
	if n := l.calls(t, "zadd") - before; n != 1 {
		t.Errorf("the index of a batch takes %d commands", n)
	}
	if ids, _, err := l.LatestLogs(t.Context(), time.Time{}, 100); len(ids) != 20 || err != nil {
		t.Errorf("indexed are %v, %v", ids, err)
	}
}
