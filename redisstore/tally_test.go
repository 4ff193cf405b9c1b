package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
	"reveille/redisstore"
)

// TestConsumersAreTalliedByStateAndCondition has consumers of several subscriptions in all states, in all partitions,
// and has them counted all at once and few at a time, which must be the same.
func TestConsumersAreTalliedByStateAndCondition(t *testing.T) {
	t.Parallel()
	for name, url := range serversAndEmbedded {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			w := open(t, url(t), 4)
			create := func(sub fsm.Subscription) fsm.Subscription {
				t.Helper()
				stored, _, err := w.CreateSubscription(ctx, sub)
				if err != nil {
					t.Fatal(err)
				}
				return stored
			}
			// woken links streams below a root, with one event, and returns their wakes.
			woken := func(sub fsm.Subscription, root string, n int) (wakes []fsm.Delivery) {
				t.Helper()
				for i := range n {
					if i%3 > 0 { // some come at the same time
						w.later(time.Millisecond)
					}
					path := fmt.Sprintf("/%s/%s/%d", sub.ID, root, i)
					wakes = append(wakes, must[fsm.Outcome](t)(w.Link(ctx, sub, path, "1", "2")).Deliveries...)
				}
				return wakes
			}
			fail := func(sub fsm.Subscription, wakes []fsm.Delivery, why string, retired bool) {
				t.Helper()
				for _, wake := range wakes {
					must[fsm.Outcome](t)(w.Fail(ctx, wake.Ref(), fsm.Failure{
						Reason: why, Retired: retired, Profile: sub.Profile(),
					}))
				}
			}

			once := subscription("once")
			once.Retry = []time.Duration{time.Second}
			once = create(once.WithDefaults())
			givenUpAt := w.now
			fail(once, woken(once, "away", 1), "status 500", false)
			w.later(2 * time.Second)
			o, _, err := w.Due(ctx, w.PartitionOf("/once/away/0"), 100)
			if err != nil {
				t.Fatal(err)
			}
			fail(once, o.Deliveries, "status 502", false)

			one := create(subscription("one"))
			for i := range 30 {
				must[fsm.Outcome](t)(w.Link(ctx, one, fmt.Sprint("/one/idle/", i), "2", "2"))
			}
			oneAt := w.now
			woken(one, "waking", 11)
			for _, wake := range woken(one, "live", 9) {
				must[fsm.Outcome](t)(w.Accept(ctx, wake.Ref()))
			}
			since := w.now
			fail(one, woken(one, "failing", 1), "status 503", false)
			w.later(time.Second)
			fail(one, woken(one, "failing later", 7), "status 500", false)
			fail(one, woken(one, "retired", 5), "status 410", true)
			for _, wake := range woken(one, "hidden", 3) {
				must[fsm.Outcome](t)(w.Hide(ctx, wake.Primary, fsm.MissingAnew))
			}

			push := create(unordered("one.push")) // its ID begins like another
			pushedAt := w.now
			w.fillAside(t, push, "/a", 2)
			// A replay for a consumer whose endpoint has answered 410 waits, too, though it has never failed.
			retired := create(unordered("retired"))
			retiredAt := w.now
			gone := woken(retired, "away", 1)
			fail(retired, gone, "status 410", true)
			ref := fsm.ConsumerRef{ID: gone[0].Consumer, Home: gone[0].Primary}
			if _, _, err := w.ReplaySpan(ctx, ref, gone[0].Born, fsm.ReplaySpan{From: "0", To: "1"}); err != nil {
				t.Fatal(err)
			}
			// Those of a deleted subscription count neither for it nor for the next one of its ID.
			former := subscription("former")
			former.Generation = "g-earlier"
			former = create(former)
			fail(former, woken(former, "failing", 5), "status 503", false)
			if err := w.DeleteSubscription(ctx, former.ID); err != nil {
				t.Fatal(err)
			}
			next := create(subscription("former"))
			nextAt := w.now
			woken(next, "waking", 1)

			subs := []fsm.Subscription{one, push, once, former, subscription("none"), retired, next}
			want := []fsm.Tally{
				{
					Consumers: 66, Idle: 30, Waking: 27, Live: 9, Pending: 31,
					Failing: 8, Retired: 5, Hidden: 3, FailingSince: since, LastError: "status 503",
					WaitingSince: oneAt,
				},
				{
					Consumers: 1, Asides: 2, Waking: 3, Pending: 3, Failing: 2,
					FailingSince: pushedAt, LastError: "status 500", WaitingSince: pushedAt,
				},
				{Consumers: 1, GivenUp: 1, Failing: 1, FailingSince: givenUpAt, LastError: "status 502"},
				{},
				{},
				{
					Consumers: 1, Asides: 1, Waking: 2, Retired: 2, FailingSince: retiredAt, LastError: "status 410",
					WaitingSince: retiredAt,
				},
				{Consumers: 1, Waking: 1, Pending: 1, WaitingSince: nextAt},
			}
			each := func(ctx context.Context, subs []fsm.Subscription, most int) ([]fsm.Tally, error) {
				return w.TallyEachFew(ctx, subs, max(most, 66), 1000) // most bounds what it looks at of one
			}
			for way, tally := range map[string]func(context.Context, []fsm.Subscription, int) ([]fsm.Tally, error){
				"along the lists": w.TallyFew, "one by one": each,
			} {
				for _, most := range []int{1, 2, 7, 100, 10_000} {
					// Each generation by itself: the list of subscriptions has an ID once.
					got := must[[]fsm.Tally](t)(tally(ctx, subs[:6], most))
					got = append(got, must[[]fsm.Tally](t)(tally(ctx, subs[6:], most))...)
					for i := range subs {
						if fmt.Sprintf("%+v", got[i]) != fmt.Sprintf("%+v", want[i]) {
							t.Errorf("%s, %d at a time, %s is counted as\n%+v, want\n%+v",
								way, most, subs[i].ID, got[i], want[i])
						}
					}
				}
			}
		})
	}
}

// TestWhatDoesNotChangeIsTalliedExactly holds that the consumers that others pass on their lists are neither left out
// nor counted twice, though a tally takes many calls.
func TestWhatDoesNotChangeIsTalliedExactly(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	w := open(t, redisstore.EmptyRedis(t).URL, 2)
	steady, busy := subscription("steady"), subscription("busy")
	type pair struct{ wake, other fsm.Delivery }
	var pairs []pair
	for i := range 60 {
		w.later(time.Millisecond)
		of := func(sub fsm.Subscription) fsm.Delivery {
			path := fmt.Sprintf("/%s/%d", sub.ID, i)
			return must[fsm.Outcome](t)(w.Link(ctx, sub, path, tail(1), tail(2))).Deliveries[0]
		}
		pairs = append(pairs, pair{of(steady), of(busy)})
	}
	fail := func(ctx context.Context, wake fsm.Delivery) error {
		_, err := w.Fail(ctx, wake.Ref(), fsm.Failure{Reason: "status 503"})
		return err
	}
	for _, p := range pairs {
		w.later(time.Millisecond)
		for _, wake := range []fsm.Delivery{p.wake, p.other} {
			if err := fail(ctx, wake); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := must[[]fsm.Tally](t)(w.TallyConsumers(ctx, []fsm.Subscription{steady}))
	if want[0].Failing != 60 || want[0].Pending != 60 {
		t.Fatalf("they are counted as %+v", want[0])
	}
	// Those of the other subscription recover, come to rest, wake and fail again, one after the other.
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		stopped <- func() error {
			for n := 3; ; n++ {
				for i := range pairs {
					select {
					case <-stop:
						return nil
					default:
					}
					w.later(time.Millisecond)
					wake := pairs[i].other
					path := wake.Primary
					cb := of(wake)
					cb.Acks = []fsm.Ack{{Path: path, Offset: tail(n - 1)}}
					cb.Done = true
					if _, err := w.Callback(ctx, cb); err != nil {
						return err
					}
					o, err := w.Observe(ctx, w.PartitionOf(path), path, tail(n), false)
					if err != nil {
						return err
					}
					if len(o.Deliveries) != 1 {
						return fmt.Errorf("%s in round %d: %d wakes", path, n, len(o.Deliveries))
					}
					pairs[i].other = o.Deliveries[0]
					if err := fail(ctx, o.Deliveries[0]); err != nil {
						return err
					}
				}
			}
		}()
	}()
	for range 20 {
		got := must[[]fsm.Tally](t)(w.TallyFew(ctx, []fsm.Subscription{steady, busy}, 4))
		if got[0] != want[0] {
			t.Errorf("counted as %+v, want %+v", got[0], want[0])
		}
		if n := got[1].Consumers; n != 60 {
			t.Errorf("of the others there are %d", n)
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
}

// TestATallyIsBounded holds that a tally looks at no more consumers than its bound, is exact on one side of it, and on
// the other side says what is only partly known: no number is too high, and no time too early.
func TestATallyIsBounded(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	w := open(t, redisstore.EmptyRedis(t).URL, 4)
	drawn := rand.New(rand.NewPCG(1, 2))
	var subs []fsm.Subscription
	total := 0
	for _, n := range []int{3, 0, 40, 200, 1, 25} {
		sub, _, err := w.CreateSubscription(ctx, subscription(fmt.Sprint("of", n)))
		if err != nil {
			t.Fatal(err)
		}
		subs, total = append(subs, sub), total+n
		for i := range n {
			w.later(time.Millisecond)
			path := fmt.Sprintf("/%s/%d", sub.ID, i)
			tail := []fsm.Offset{"1", "2"}[drawn.IntN(2)]
			for _, wake := range must[fsm.Outcome](t)(w.Link(ctx, sub, path, "1", tail)).Deliveries {
				switch drawn.IntN(4) {
				case 0:
					must[fsm.Outcome](t)(w.Accept(ctx, wake.Ref()))
				case 1, 2:
					failure := fsm.Failure{Reason: "status 503", Retired: drawn.IntN(3) == 0}
					must[fsm.Outcome](t)(w.Fail(ctx, wake.Ref(), failure))
				}
			}
			if drawn.IntN(10) == 0 {
				must[fsm.Outcome](t)(w.Hide(ctx, path, fsm.MissingAnew))
			}
		}
	}
	whole := must[[]fsm.Tally](t)(w.TallyFew(ctx, subs, total))
	const largest = 3
	smallest := []int{1, 4, 0, 5, 2, largest}
	for bound := 0; bound <= total+1; bound += 1 + bound/4 {
		before := w.calls(t, "get")
		got := must[[]fsm.Tally](t)(w.TallyWithin(ctx, subs, total, bound))
		if looked := w.calls(t, "get") - before; looked > bound {
			t.Errorf("with a bound of %d it looks at %d consumers", bound, looked)
		}
		left := bound
		for _, i := range smallest { // they are looked at in this order
			is, want := got[i], whole[i]
			all := want.Consumers + want.Asides
			switch {
			case is.Partial && left >= all || !is.Partial && is != want:
				t.Errorf("with a bound of %d, %s is counted as\n%+v, want\n%+v", bound, subs[i].ID, is, want)
			case is.Consumers != want.Consumers, is.Idle > want.Idle, is.Waking > want.Waking, is.Live > want.Live,
				is.Pending > want.Pending, is.Failing > want.Failing, is.Retired > want.Retired,
				is.Hidden > want.Hidden,
				!is.FailingSince.IsZero() && is.FailingSince.Before(want.FailingSince),
				!is.WaitingSince.IsZero() && is.WaitingSince.Before(want.WaitingSince):
				t.Errorf("with a bound of %d, %s is counted as\n%+v, more than\n%+v", bound, subs[i].ID, is, want)
			}
			left = max(0, left-all)
		}
		if last := got[largest]; bound >= total && last.Partial {
			t.Errorf("with a bound of %d it is partial: %+v", bound, last)
		}
	}
}

// TestATallySaysThatASubscriptionHasGrown holds that consumers which came since they were counted are not taken for
// idle.
func TestATallySaysThatASubscriptionHasGrown(t *testing.T) {
	t.Parallel()
	ctx, server := t.Context(), redisstore.EmptyRedis(t)
	w, other := open(t, server.URL, 1), open(t, server.URL, 1)
	sub, _, err := w.CreateSubscription(ctx, subscription("s"))
	if err != nil {
		t.Fatal(err)
	}
	link := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			must[fsm.Outcome](t)(other.Link(ctx, sub, fmt.Sprint("/", i), "1", "2"))
		}
	}
	link(0, 300)
	grown := false
	w.rdb.AddHook(before(func(_ context.Context, cmds ...redis.Cmder) error {
		for _, cmd := range cmds {
			if scriptOf(cmd) == "tally_each" && !grown {
				grown = true
				link(300, 400)
			}
		}
		return nil
	}))
	for _, partial := range []bool{true, false} {
		is := must[[]fsm.Tally](t)(w.TallyEach(ctx, []fsm.Subscription{sub}, 1000))[0]
		if is.Partial != partial || !grown || is.Consumers != 400 || is.Waking > 400 || is.Idle > 0 {
			t.Errorf("it is counted as %+v", is)
		}
	}
}

// calls returns how often a command was carried out, also in scripts. They read a consumer's record with HMGET.
func (w *world) calls(t *testing.T, command string) int {
	t.Helper()
	stats, err := w.rdb.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(stats, "cmdstat_"+command+":calls=")
	calls, _, _ := strings.Cut(rest, ",")
	n, _ := strconv.Atoi(calls)
	return n
}
