package redisstore_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"reveille/fsm"
	"reveille/redisstore"
	"reveille/test/harness"
)

// figures returns the values of a metric, of histograms the count, by the values of its labels.
func figures(t *testing.T, r prometheus.Gatherer, name string) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			found[strings.Join(labels, " ")] = m.GetCounter().GetValue() + m.GetGauge().GetValue() +
				float64(m.GetHistogram().GetSampleCount())
		}
	}
	return found
}

// owning is a world that owns all of its partitions, with a registry of its metrics.
func owning(t *testing.T, url string, partitions int) (*world, *prometheus.Registry) {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	w := openWith(t, url, nil, redisstore.Options{Partitions: partitions, Metrics: r})
	w.Ownership().Replace(fsm.AllPartitions(partitions))
	return w, r
}

// TestWhatIsDueAndNotActedOnIsOverdue holds that a wake which waits for its deadline, or for its endpoint, is not late,
// and that one whose deadline has passed is, until a replica acts on it.
func TestWhatIsDueAndNotActedOnIsOverdue(t *testing.T) {
	t.Parallel()
	w, r := owning(t, redisstore.EmptyRedis(t).URL, 1)
	ctx := t.Context()
	want := func(step string, overdue float64) {
		t.Helper()
		w.Ownership().Replace(nil) // the figures are those of a moment ago, unless this has changed
		figures(t, r, "reveille_redis_up")
		w.Ownership().Replace(fsm.AllPartitions(1))
		if got := figures(t, r, "reveille_overdue_seconds")[""]; got != overdue {
			t.Errorf("%s: %v s overdue, want %v", step, got, overdue)
		}
	}
	want("nothing is to be done", 0)
	sub, _, err := w.CreateSubscription(ctx, subscription("s"))
	if err != nil {
		t.Fatal(err)
	}
	must[fsm.Outcome](t)(w.Link(ctx, sub, "/a", fsm.Start, "1"))
	w.later(timing.Waking)
	want("the deadline is now", 0)
	w.later(5 * time.Second)
	want("it has passed", 5)
	if _, n, err := w.Due(ctx, 0, 10); n != 1 || err != nil {
		t.Fatalf("%d were due: %v", n, err)
	}
	want("it was acted on", 0)
	w.later(time.Minute) // the next attempt is due
	out, _, err := w.Due(ctx, 0, 10)
	if err != nil || len(out.Deliveries) != 1 {
		t.Fatalf("%+v, %v", out, err)
	}
	must[fsm.Outcome](t)(w.Fail(ctx, out.Deliveries[0].Ref(), fsm.Failure{RetryAfter: time.Hour}))
	w.later(time.Minute)
	want("the endpoint is waited for", 0)
}

func TestTheFiguresOfTheOwnedPartitionsAreThoseOfTheDatabase(t *testing.T) {
	t.Parallel()
	for name, url := range servers {
		t.Run(name, func(t *testing.T) {
			w, r := owning(t, url(t), 8)
			ctx := t.Context()
			want := func(step, metric string, want map[string]float64) {
				t.Helper()
				// The figures are those of a moment ago, unless the list of subscriptions or of partitions has changed.
				w.Ownership().Replace(nil)
				figures(t, r, metric)
				w.Ownership().Replace(fsm.AllPartitions(8))
				if got := figures(t, r, metric); !maps.Equal(got, want) {
					t.Fatalf("%s: %s is %v, want %v", step, metric, got, want)
				}
			}
			one := func(v float64) map[string]float64 { return map[string]float64{"": v} }
			const consumers, oldest = "reveille_consumers", "reveille_oldest_pending_wake_seconds"
			want("at the start", oldest, one(0))
			sub, _, err := w.CreateSubscription(ctx, subscription("s"))
			if err != nil {
				t.Fatal(err)
			}
			var wakes []fsm.Delivery
			for i := range 7 {
				path := fmt.Sprint("/", i)
				if err := w.note(ctx, path, i == 0); err != nil {
					t.Fatal(err)
				}
				wakes = append(wakes, must[fsm.Outcome](t)(w.Link(ctx, sub, path, fsm.Start, "1")).Deliveries...)
				w.later(time.Second)
			}
			want("seven wakes", consumers,
				map[string]float64{
					"waking": 7, "aside": 0, "retired": 0, "live": 0, "given_up": 0,
					"quarantined": 0, "idle": 0,
				})
			want("seven wakes", oldest, one(7))
			want("seven wakes", "reveille_streams_known", one(7))
			want("seven wakes", "reveille_subscriptions", one(1))
			want("seven wakes", "reveille_subscriptions_paused", one(0))
			pause := func(now fsm.Subscription) (fsm.Subscription, error) {
				now.Paused = true
				return now, nil
			}
			if _, err := w.ChangeSubscription(ctx, "s", pause); err != nil {
				t.Fatal(err)
			}
			want("seven wakes of one that is paused", "reveille_subscriptions_paused", one(1))
			want("seven wakes", "reveille_partitions", one(8))
			want("seven wakes", "reveille_partitions_owned", one(8))
			must[fsm.Outcome](t)(w.Fail(ctx, wakes[0].Ref(), fsm.Failure{Retired: true}))
			must[fsm.Outcome](t)(w.Finish(ctx, wakes[1].Ref(), wakes[1].Streams))
			if _, err := w.Accept(ctx, wakes[2].Ref()); err != nil {
				t.Fatal(err)
			}
			must[fsm.Outcome](t)(w.Fail(ctx, wakes[3].Ref(), fsm.Failure{}))
			w.failOne(t, unordered("s"), wakes[4])
			want("a 410, a done, a 2xx, a failure, and one of a push that steps aside", consumers,
				map[string]float64{
					"waking": 4, "aside": 1, "retired": 1, "live": 1, "given_up": 0,
					"quarantined": 0, "idle": 1,
				})
			want("the first three wait no more", oldest, one(4))
			if err := w.DeleteSubscription(ctx, "s"); err != nil {
				t.Fatal(err)
			}
			want("the deletion", consumers,
				map[string]float64{
					"waking": 0, "aside": 0, "retired": 0, "live": 0, "given_up": 0,
					"quarantined": 0, "idle": 0,
				})
			want("the deletion", oldest, one(0))
			want("the deletion", "reveille_redis_up", one(1))
		})
	}
}

func TestCallsOfRedisAreTimedAndTheirFailuresCounted(t *testing.T) {
	t.Parallel()
	server := harness.StartRedis(t)
	w, r := owning(t, server.URL, 4)
	ctx := t.Context()
	const path = "/a"
	for range 3 {
		if err := w.note(ctx, path, false); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.NextDue(ctx, []int{0, 1, 2, 3}); err != nil {
		t.Fatal(err)
	}
	took := figures(t, r, "reveille_redis_script_duration_seconds")
	if took["note_stream"] != 3 || took["next_due"] != 1 || took["link_stream"] != 0 {
		t.Errorf("timed %v", took)
	}
	// A key of another type is nothing that waiting could mend.
	if err := w.rdb.Del(ctx, fmt.Sprintf("rv:{%d}:known", w.PartitionOf(path))).Err(); err != nil {
		t.Fatal(err)
	}
	if err := w.rdb.Set(ctx, fmt.Sprintf("rv:{%d}:known", w.PartitionOf(path)), "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := w.note(ctx, path, false); err == nil {
		t.Fatal("a key of another type is taken")
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if err := w.note(gone, path, false); err == nil {
		t.Fatal("a caller that has gone is answered")
	}
	server.Kill()
	if err := w.note(ctx, path, false); err == nil {
		t.Fatal("a server that is dead answers")
	}
	w.Ownership().Replace([]int{0, 1, 2}) // the figures of a moment ago are for four partitions
	failed := figures(t, r, "reveille_redis_script_errors_total")
	if failed["refused stream"] != 1 || failed["unavailable stream"] != 1 || failed["unavailable link_stream"] != 0 {
		t.Errorf("failed %v", failed)
	}
	if up := figures(t, r, "reveille_redis_up"); up[""] != 0 {
		t.Errorf("a server that is dead is up: %v", up)
	}
	for _, name := range []string{
		"reveille_consumers", "reveille_oldest_pending_wake_seconds",
		"reveille_streams_known",
	} {
		if got := figures(t, r, name); len(got) != 0 {
			t.Errorf("%s is %v, which nobody can know", name, got)
		}
	}
	if got := figures(t, r, "reveille_partitions_owned"); got[""] != 3 {
		t.Errorf("%v partitions are owned, want 3", got)
	}
}

func TestAScrapeDoesNotWaitLongForARedisThatHangs(t *testing.T) {
	t.Parallel()
	server := harness.StartRedis(t)
	r := prometheus.NewPedanticRegistry()
	w := openImpatient(t, server.URL, redisstore.Options{Partitions: 4, Metrics: r})
	w.Ownership().Replace(fsm.AllPartitions(4))
	server.Pause()
	defer server.Resume()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Wait)
	defer cancel()
	answered := make(chan map[string]float64, 1)
	go func() { answered <- figures(t, r, "reveille_redis_up") }()
	select {
	case up := <-answered:
		if up[""] != 0 {
			t.Errorf("it is up: %v", up)
		}
	case <-ctx.Done():
		t.Fatal("the scrape hangs")
	}
	server.Resume()
	harness.Eventually(t, harness.Wait, "the figures are of the time after the outage", func() error {
		if up, oldest := figures(t, r, "reveille_redis_up"), figures(
			t, r, "reveille_oldest_pending_wake_seconds",
		); up[""] != 1 || len(oldest) != 1 {
			return fmt.Errorf("up %v, oldest %v", up, oldest)
		}
		return nil
	})
}
