package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
	"reveille/redisstore"
	"reveille/test/harness"
)

// scriptCalls is how many scripts a server has run so far.
func scriptCalls(t testing.TB, w *world) (n int64) {
	t.Helper()
	info, err := w.rdb.Info(context.Background(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(info) {
		for _, command := range []string{"cmdstat_fcall:calls=", "cmdstat_evalsha:calls=", "cmdstat_eval:calls="} {
			if rest, ok := strings.CutPrefix(line, command); ok {
				calls, _, _ := strings.Cut(rest, ",")
				v, err := strconv.ParseInt(calls, 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				n += v
			}
		}
	}
	return n
}

// linkMany makes consumers of a subscription on the stated number of streams, in many calls at once.
func linkMany(t testing.TB, w *world, sub fsm.Subscription, streams int) {
	t.Helper()
	var wg sync.WaitGroup
	for from := range 16 {
		wg.Go(func() {
			for i := from; i < streams; i += 16 {
				if _, err := w.Link(context.Background(), sub, fmt.Sprint("/agents/", i), "0", "0"); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

func (w *world) callbackCode(t testing.TB, sub fsm.Subscription, path string) fsm.Code {
	t.Helper()
	r, err := w.Callback(context.Background(), fsm.Callback{
		Consumer: fsm.RefOf(sub.ID, path), Primary: path, Generation: sub.Generation, Epoch: 1, TokenEpoch: 1,
		MaxStreams: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r.Code
}

// TestADeletionCostsWhatItsOwnSubscriptionCosts holds that of many deletions at a time each does its own work only.
func TestADeletionCostsWhatItsOwnSubscriptionCosts(t *testing.T) {
	t.Parallel()
	const deletions, partitions, consumers = 20, 8, 20
	w := open(t, redisstore.EmptyRedis(t).URL, partitions)
	var subs []fsm.Subscription
	for i := range deletions {
		sub, _, err := w.CreateSubscription(t.Context(), subscription(fmt.Sprint("s", i)))
		if err != nil {
			t.Fatal(err)
		}
		linkMany(t, w, sub, consumers)
		subs = append(subs, sub)
	}
	before := scriptCalls(t, w)
	var wg sync.WaitGroup
	for _, sub := range subs {
		wg.Go(func() {
			if err := w.DeleteSubscription(t.Context(), sub.ID); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	// Off the list, the list read again, and each partition told once and cleared once; twice while the
	// scripts are not loaded.
	if n, most := scriptCalls(t, w)-before, int64(deletions*(2+2*partitions)*2); n > most {
		t.Errorf("%d deletions took %d scripts, want at most %d", deletions, n, most)
	}
	if left := leftovers(t, w); len(left) > 0 {
		t.Errorf("they have left %v", left)
	}
}

// comeAndGo creates the subscriptions of some numbers and deletes them again, eight at a time.
func comeAndGo(t *testing.T, w *world, first, n int) {
	t.Helper()
	var wg sync.WaitGroup
	for from := range 8 {
		wg.Go(func() {
			for i := first + from; i < first+n; i += 8 {
				sub := subscription(fmt.Sprintf("passing-%06d", i))
				sub.Generation = fmt.Sprintf("%032x", i) // as long as a real one
				_, _, err := w.CreateSubscription(t.Context(), sub)
				if err == nil {
					err = w.DeleteSubscription(t.Context(), sub.ID)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// held is how much memory a store takes in Redis, in bytes.
func held(t *testing.T, w *world) (sum int64) {
	t.Helper()
	for _, key := range allKeys(t, w) {
		sum += must[int64](t)(w.rdb.MemoryUsage(t.Context(), key, 0).Result())
	}
	return sum
}

// TestWhatDeletedSubscriptionsLeaveDoesNotGrow holds that no client fills Redis by subscriptions that it creates and
// deletes.
func TestWhatDeletedSubscriptionsLeaveDoesNotGrow(t *testing.T) {
	t.Parallel()
	// full is how many it takes until the list of changes is full, which keeps the latest thousand. slack is for what
	// counts, and gets more digits, and for how the latest thousand lie in memory; the shortest key that each left
	// behind would take several times that.
	const full, more, partitions, slack = 550, 400, 16, 400 * 10
	for name, url := range servers {
		t.Run(name, func(t *testing.T) {
			if name == "cluster" {
				harness.Long(t)
			}
			w := open(t, url(t), partitions)
			comeAndGo(t, w, 0, full)
			before := held(t, w)
			comeAndGo(t, w, full, more)
			after := held(t, w)
			t.Logf("%d bytes after %d subscriptions, %d after %d more: %d for each", before, full, after, more,
				(after-before)/more)
			if after > before+slack {
				t.Errorf("%d more subscriptions have left %d bytes", more, after-before)
			}
			if left := leftovers(t, w); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// TestALargeDeletionAnswersAtOnceAndGoesOn holds that callbacks find the consumers of a large subscription gone when
// its deletion returns, and that they are removed whichever replica lives.
func TestALargeDeletionAnswersAtOnceAndGoesOn(t *testing.T) {
	t.Parallel()
	const consumers = 1500
	server := redisstore.EmptyRedis(t)
	w := open(t, server.URL, 4)
	sub, _, err := w.CreateSubscription(t.Context(), subscription("s"))
	if err != nil {
		t.Fatal(err)
	}
	linkMany(t, w, sub, consumers)
	before := scriptCalls(t, w)
	if err := w.DeleteSubscription(t.Context(), sub.ID); err != nil {
		t.Fatal(err)
	}
	if n := scriptCalls(t, w) - before; n > 2*(2+4) { // not yet loaded, each counts twice
		t.Errorf("it took %d scripts", n)
	}
	if left := leftovers(t, w); len(left) < consumers {
		t.Errorf("it has removed consumers: %d keys are left", len(left))
	}
	for i := range consumers {
		if code := w.callbackCode(t, sub, fmt.Sprint("/agents/", i)); code != fsm.CodeConsumerGone {
			t.Fatalf("a callback of consumer %d was answered %q", i, code)
		}
	}
	// The replica that answered is gone: nothing was removed by it, and another goes on.
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	other := openWith(t, server.URL, nil, redisstore.Options{Partitions: 4, Poll: 20 * time.Millisecond})
	go func() { ended <- other.Run(ctx) }()
	harness.Eventually(t, harness.Wait, "the consumers are removed", func() error {
		if keys := leftovers(t, w); len(keys) > 0 {
			return fmt.Errorf("left: %d keys", len(keys))
		}
		return nil
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestConsumersThatAreYetToBeRemovedAreGone holds that nothing acts on the consumers of a deleted subscription that are
// so many that their removal goes on in the background, whatever else is deleted meanwhile, and however often.
func TestConsumersThatAreYetToBeRemovedAreGone(t *testing.T) {
	t.Parallel()
	const consumers = 250
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	ctx := t.Context()
	sub, _, err := w.CreateSubscription(ctx, subscription("s"))
	if err != nil {
		t.Fatal(err)
	}
	path := func(i int) string { return fmt.Sprint("/agents/", i) }
	var wakes []fsm.Delivery
	for i := range consumers {
		wakes = append(wakes, must[fsm.Outcome](t)(w.Link(ctx, sub, path(i), "0", "1")).Deliveries...)
	}
	must[fsm.Outcome](t)(w.Finish(ctx, wakes[0].Ref(), wakes[0].Streams)) // it rests
	late := w.decide(t, "/agents/late", sub)
	if err := w.DeleteSubscription(ctx, sub.ID); err != nil {
		t.Fatal(err)
	}
	comeAndGo(t, w, 0, 20)
	few, _, err := w.CreateSubscription(ctx, subscription("few"))
	if err != nil {
		t.Fatal(err)
	}
	must[fsm.Outcome](t)(w.Link(ctx, few, path(0), "0", "0"))
	if err := errors.Join(w.DeleteSubscription(ctx, few.ID), w.DropIn(ctx, 0, few)); err != nil { // by two replicas
		t.Fatal(err)
	}
	if left := leftovers(t, w); len(left) < consumers {
		t.Fatalf("it has removed consumers: %d keys are left", len(left))
	}
	for _, wake := range wakes {
		if r := must[fsm.CallbackReply](t)(w.Callback(ctx, of(wake))); r.Code != fsm.CodeConsumerGone {
			t.Fatalf("a callback of %s was answered %q", wake.Consumer, r.Code)
		}
		if c, err := w.Consumer(ctx, wake.Ref().Consumer); !errors.Is(err, fsm.ErrNotFound) {
			t.Fatalf("it is shown: %+v, %v", c, err)
		}
	}
	if list, next, err := w.ScanConsumers(ctx, sub, 0, "0", 100); err != nil || len(list) > 0 || next != "0" {
		t.Errorf("%d are listed, next %q, %v", len(list), next, err)
	}
	if o := must[fsm.Observation](t)(w.Observe(ctx, 0, wakes[0].Primary, "2", false)); len(o.Deliveries) > 0 {
		t.Errorf("an event has woken %+v", o.Deliveries)
	}
	w.later(timing.Waking)
	if o, n, err := w.Due(ctx, 0, 10); err != nil || n != 10 || len(o.Deliveries) > 0 || len(o.Removed) != 10 {
		t.Errorf("%d were due, %d woken, %d removed, %v", n, len(o.Deliveries), len(o.Removed), err)
	}
	if woken := w.make(t, late); len(woken) > 0 {
		t.Errorf("a link has woken %v", woken)
	}
}

// TestAConsumerThatIsRemovedWhileItIsReadIsNotFound is about one that is read just before its subscription is deleted.
func TestAConsumerThatIsRemovedWhileItIsReadIsNotFound(t *testing.T) {
	t.Parallel()
	server := redisstore.EmptyRedis(t)
	w, other := open(t, server.URL, 1), open(t, server.URL, 1)
	sub, _, err := w.CreateSubscription(t.Context(), subscription("s"))
	if err != nil {
		t.Fatal(err)
	}
	must[fsm.Outcome](t)(w.Link(t.Context(), sub, "/a", "1", "1"))
	consumer := fsm.RefOf("s", "/a")
	must[fsm.Consumer](t)(w.Consumer(t.Context(), consumer)) // it connects
	reads := 0
	w.rdb.AddHook(beforePipeline{func() {
		if reads++; reads == 2 {
			if err := other.DeleteSubscription(t.Context(), sub.ID); err != nil {
				t.Error(err)
			}
		}
	}})
	if c, err := w.Consumer(t.Context(), consumer); !errors.Is(err, fsm.ErrNotFound) || reads < 2 {
		t.Errorf("after %d reads: %+v, %v", reads, c, err)
	}
}

// TestADeletionIsToldToEveryPartitionBeforeItIsAnswered holds that one that was cut short answers with an error, and
// that the same request again finishes it, although the subscription is off the list by then.
func TestADeletionIsToldToEveryPartitionBeforeItIsAnswered(t *testing.T) {
	t.Parallel()
	w := open(t, redisstore.EmptyRedis(t).URL, 4)
	ctx := t.Context()
	sub, _, err := w.CreateSubscription(ctx, subscription("s"))
	if err != nil {
		t.Fatal(err)
	}
	linkMany(t, w, sub, 20)
	broken, cancel := context.WithCancel(ctx)
	w.rdb.AddHook(beforePipeline{cancel})
	if err := w.DeleteSubscription(broken, sub.ID); !errors.Is(err, fsm.ErrUnavailable) {
		t.Fatalf("cut short, but: %v", err)
	}
	if err := w.DeleteSubscription(ctx, sub.ID); err != nil {
		t.Fatal(err)
	}
	if left := leftovers(t, w); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// beforePipeline calls something before each pipeline is sent.
type beforePipeline struct{ call func() }

// DialHook implements redis.Hook.
func (beforePipeline) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (beforePipeline) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (h beforePipeline) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.call()
		return next(ctx, cmds)
	}
}
