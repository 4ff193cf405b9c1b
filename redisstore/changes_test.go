package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sync/errgroup"

	"reveille/fsm"
	"reveille/redisstore"
)

// TestARefreshReadsWhatHasChanged has one replica change the list of subscriptions and another follow. What the list
// holds that was never noted as a change shows whether all of it was read.
func TestARefreshReadsWhatHasChanged(t *testing.T) {
	t.Parallel()
	const all, version, changes = "rv:{subs}:all", "rv:{subs}:version", "rv:{subs}:changes"
	unnoted := func(ctx context.Context, t *testing.T, rdb redis.UniversalClient, id string) {
		t.Helper()
		text := fmt.Sprintf(
			`{"id":%q,"generation":"g","pattern":"/**","webhook":"https://example.com/","created_at":1}`, id)
		if err := rdb.HSet(ctx, all, id, text).Err(); err != nil {
			t.Fatal(err)
		}
	}
	create := func(ctx context.Context, t *testing.T, w *world, ids ...string) {
		t.Helper()
		for _, id := range ids {
			if _, created, err := w.CreateSubscription(ctx, subscription(id)); err != nil || !created {
				t.Fatal(created, err)
			}
		}
	}
	remove := func(ctx context.Context, t *testing.T, w *world, id string) {
		t.Helper()
		if err := w.DeleteSubscription(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	many := make([]string, 1001)
	for i := range many {
		many[i] = fmt.Sprintf("many-%04d", i)
	}
	for _, c := range []struct {
		name   string
		change func(context.Context, *testing.T, *world)
		want   []string
		// whole says that all must have been read.
		whole bool
	}{
		{
			"one is created", func(ctx context.Context, t *testing.T, w *world) { create(ctx, t, w, "c") },
			[]string{"a", "b", "c"},
			false,
		},
		{
			"one is deleted", func(ctx context.Context, t *testing.T, w *world) { remove(ctx, t, w, "a") },
			[]string{"b"},
			false,
		},
		{"one is created and deleted", func(ctx context.Context, t *testing.T, w *world) {
			create(ctx, t, w, "c")
			remove(ctx, t, w, "c")
		}, []string{"a", "b"}, false},
		{"one is deleted and created", func(ctx context.Context, t *testing.T, w *world) {
			remove(ctx, t, w, "b")
			create(ctx, t, w, "b")
		}, []string{"a", "b"}, false},
		{
			"so much has changed that not all of it is kept",
			func(ctx context.Context, t *testing.T, w *world) { create(ctx, t, w, many...) },
			append([]string{"a", "b"}, many...), true,
		},
		{"the latest change was lost", func(ctx context.Context, t *testing.T, w *world) {
			noted := must[[]string](t)(w.rdb.ZRange(ctx, changes, 0, -1).Result())
			last, before := noted[len(noted)-1], ""
			if _, err := fmt.Sscan(noted[len(noted)-2], &before); err != nil {
				t.Fatal(err)
			}
			if err := w.rdb.ZRem(ctx, changes, last).Err(); err != nil {
				t.Fatal(err)
			}
			if err := w.rdb.HDel(ctx, all, "b").Err(); err != nil {
				t.Fatal(err)
			}
			if err := w.rdb.Set(ctx, version, before, 0).Err(); err != nil {
				t.Fatal(err)
			}
			create(ctx, t, w, "c")
		}, []string{"a", "c"}, true},
		{"all was lost", func(ctx context.Context, t *testing.T, w *world) {
			if err := w.rdb.FlushAll(ctx).Err(); err != nil {
				t.Fatal(err)
			}
			create(ctx, t, w, "c")
		}, []string{"c"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := t.Context()
			url := redisstore.EmptyRedis(t).URL
			one, two := open(t, url, 1), open(t, url, 1)
			create(ctx, t, one, "a", "b")
			ids := func(w *world) (ids []string) {
				t.Helper()
				if err := w.RefreshCatalog(ctx); err != nil {
					t.Fatal(err)
				}
				for _, sub := range w.Catalog().All() {
					if got, _ := w.Catalog().Get(sub.ID); !got.Equal(sub) {
						t.Errorf("%s is %+v by its ID, not %+v", sub.ID, got, sub)
					}
					ids = append(ids, sub.ID)
				}
				return ids
			}
			if got := ids(two); !slices.Equal(got, []string{"a", "b"}) {
				t.Fatalf("it begins with %v", got)
			}
			c.change(ctx, t, one)
			unnoted(ctx, t, one.rdb, "z")
			want := c.want
			if c.whole {
				want = append(slices.Clone(want), "z")
			}
			if got := ids(two); !slices.Equal(got, want) {
				t.Errorf("it has %v, want %v", got, want)
			}
			fresh := open(t, url, 1)
			create(ctx, t, one, "last")
			for _, w := range []*world{one, two, fresh} {
				if _, there := w.Catalog().Get("last"); w == one && !there {
					t.Error("whoever creates a subscription does not know it")
				}
				if got := ids(w); !slices.Contains(got, "last") {
					t.Errorf("after one more it has %v", got)
				}
			}
			if n := must[int64](t)(one.rdb.ZCard(ctx, changes).Result()); n > 1000 {
				t.Errorf("%d changes are kept", n)
			}
		})
	}
}

// BenchmarkCreateSubscription is what a subscription costs that comes to so many others, for the
// replica that it is made by.
func BenchmarkCreateSubscription(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r := newBenchRig(b, false)
			made := 0
			create := func() {
				if _, _, err := r.CreateSubscription(context.Background(), fsm.Subscription{
					ID: fmt.Sprint("s", made), Generation: fmt.Sprint("g", made), Pattern: fmt.Sprintf("/x%d/*", made),
					Webhook: "https://example.com/", Secret: "whsec_x",
				}); err != nil {
					b.Fatal(err)
				}
				made++
			}
			for made < n {
				create()
			}
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				create()
			}
		})
	}
}

// TestAVersionOfTheListNeverComesTwice is about a list that has lost its latest change while the
// server's clock is behind.
func TestAVersionOfTheListNeverComesTwice(t *testing.T) {
	t.Parallel()
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	ctx := t.Context()
	const far = int64(8_000_000_000_000_000) // as if the clock had been there when the list was last changed
	seen := map[int64]bool{}
	highest := far
	for i := range 50 {
		// The list as it was at first.
		if err := w.rdb.Set(ctx, "rv:{subs}:version", far, 0).Err(); err != nil {
			t.Fatal(err)
		}
		if _, created, err := w.CreateSubscription(ctx, subscription(fmt.Sprint("s", i))); err != nil || !created {
			t.Fatal(created, err)
		}
		version := w.Catalog().Version()
		if seen[version] || version <= highest {
			t.Fatalf("version %d came after %d", version, highest)
		}
		seen[version], highest = true, version
	}
}

// gate has the first command wait until it is let go, and counts all.
type gate struct {
	n    atomic.Int32
	came chan struct{}
	free chan struct{}
}

func (*gate) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if h.n.Add(1) == 1 {
			close(h.came)
			<-h.free
		}
		return next(ctx, cmd)
	}
}

func (*gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// arriving tells once that a call has begun to wait.
type arriving struct {
	context.Context
	once sync.Once
	wg   *sync.WaitGroup
}

func (a *arriving) Done() <-chan struct{} {
	a.once.Do(a.wg.Done)
	return a.Context.Done()
}

// TestThoseWhoWaitForTheCatalogShareIt holds that what many ask for at a time is read twice at most: what began before
// a call came may lack what there was by then.
func TestThoseWhoWaitForTheCatalogShareIt(t *testing.T) {
	t.Parallel()
	url := redisstore.EmptyRedis(t).URL
	w, other := open(t, url, 1), open(t, url, 1)
	if err := w.RefreshCatalog(t.Context()); err != nil {
		t.Fatal(err)
	}
	h := &gate{came: make(chan struct{}), free: make(chan struct{})}
	w.rdb.AddHook(h)
	var g errgroup.Group
	g.Go(func() error { return w.RefreshCatalog(t.Context()) })
	<-h.came
	if _, _, err := other.CreateSubscription(t.Context(), subscription("later")); err != nil {
		t.Fatal(err)
	}
	const callers = 50
	var waiting sync.WaitGroup
	waiting.Add(callers)
	for range callers {
		g.Go(func() error {
			err := w.RefreshCatalog(&arriving{Context: t.Context(), wg: &waiting})
			if _, there := w.Catalog().Get("later"); err == nil && !there {
				err = errors.New("the catalog lacks what was there before it was asked for")
			}
			return err
		})
	}
	waiting.Wait()
	close(h.free)
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	if n := h.n.Load(); n > 4 {
		t.Errorf("it took %d commands, want a version and a list for each of two reads at most", n)
	}
}

// TestSubscriptionsThatRedisHasLostAreNamed has a replica find that the list is not what it was.
func TestSubscriptionsThatRedisHasLostAreNamed(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for name, c := range map[string]struct {
		happen func(t *testing.T, rdb redis.UniversalClient, other *world)
		lost   []any
	}{
		"all is gone": {func(t *testing.T, rdb redis.UniversalClient, _ *world) {
			t.Helper()
			if err := rdb.FlushAll(ctx).Err(); err != nil {
				t.Fatal(err)
			}
		}, []any{"a", "b", "c"}},
		"all is gone, and one was made since": {func(t *testing.T, rdb redis.UniversalClient, other *world) {
			t.Helper()
			if err := rdb.FlushAll(ctx).Err(); err != nil {
				t.Fatal(err)
			}
			if _, _, err := other.CreateSubscription(ctx, subscription("d")); err != nil {
				t.Fatal(err)
			}
		}, []any{"a", "b", "c"}},
		"the latest changes are gone": {func(t *testing.T, rdb redis.UniversalClient, _ *world) {
			t.Helper()
			// As if the last one had never been made.
			version := must[[]redis.Z](t)(rdb.ZRevRangeWithScores(ctx, "rv:{subs}:changes", 0, 1).Result())
			for _, err := range []error{
				rdb.HDel(ctx, "rv:{subs}:all", "c").Err(),
				rdb.ZRemRangeByRank(ctx, "rv:{subs}:changes", -1, -1).Err(),
				rdb.Set(ctx, "rv:{subs}:version", fmt.Sprintf("%.0f", version[1].Score), 0).Err(),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
		}, []any{"c"}},
		"all were deleted": {func(t *testing.T, _ redis.UniversalClient, other *world) {
			t.Helper()
			for _, id := range []string{"a", "b", "c"} {
				if err := other.DeleteSubscription(ctx, id); err != nil {
					t.Fatal(err)
				}
			}
		}, nil},
		"more has changed than is kept": {func(t *testing.T, rdb redis.UniversalClient, other *world) {
			t.Helper()
			if err := other.DeleteSubscription(ctx, "a"); err != nil {
				t.Fatal(err)
			}
			if err := rdb.ZRemRangeByRank(ctx, "rv:{subs}:changes", 0, -2).Err(); err != nil {
				t.Fatal(err)
			}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redisstore.EmptyRedis(t)
			core, logs := observer.New(zap.ErrorLevel)
			metrics := prometheus.NewPedanticRegistry()
			w := openWith(t, server.URL, nil,
				redisstore.Options{Partitions: 1, Logger: zap.New(core), Metrics: metrics})
			other := open(t, server.URL, 1)
			for _, id := range []string{"a", "b", "c"} {
				if _, _, err := w.CreateSubscription(ctx, subscription(id)); err != nil {
					t.Fatal(err)
				}
			}
			if err := other.RefreshCatalog(ctx); err != nil {
				t.Fatal(err)
			}
			c.happen(t, w.rdb, other)
			for range 2 { // it is said once
				if err := w.RefreshCatalog(ctx); err != nil {
					t.Fatal(err)
				}
			}
			var lost []any
			for _, line := range logs.FilterMessageSnippet("lost subscriptions").All() {
				lost = append(lost, line.ContextMap()["ids"].([]any)...)
				if n := line.ContextMap()["subscriptions"]; n != int64(len(c.lost)) {
					t.Errorf("it says that %v are lost", n)
				}
			}
			if counted := figures(t, metrics, "reveille_subscriptions_lost_total")[""]; !slices.Equal(lost, c.lost) ||
				int(counted) != len(c.lost) {
				t.Errorf("lost: %v, counted %g, want %v", lost, counted, c.lost)
			}
		})
	}
}
