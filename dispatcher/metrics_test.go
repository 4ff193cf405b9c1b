package dispatcher

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"reveille/fsm"
)

// awaitMetrics waits until metrics of a registry have these values: name{values of the labels} value, of histograms the
// count.
func awaitMetrics(t *testing.T, r prometheus.Gatherer, names []string, lines ...string) {
	t.Helper()
	got := func() []string {
		found := []string{}
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, name := range names {
				if f.GetName() != name {
					continue
				}
				for _, m := range f.GetMetric() {
					var labels []string
					for _, l := range m.GetLabel() {
						labels = append(labels, l.GetValue())
					}
					value := m.GetCounter().GetValue() + m.GetGauge().GetValue() +
						float64(m.GetHistogram().GetSampleCount())
					found = append(found, fmt.Sprintf("%s{%s} %g", name, strings.Join(labels, " "), value))
				}
			}
		}
		slices.Sort(found)
		return found
	}
	slices.Sort(lines)
	deadline := time.Now().Add(20 * time.Second)
	for fmt.Sprint(got()) != fmt.Sprint(lines) {
		if time.Now().After(deadline) {
			t.Fatalf("the metrics are\n%s\nwant\n%s", strings.Join(got(), "\n"), strings.Join(lines, "\n"))
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func TestAttemptsAreCountedBySubscriptionOutcomeAndStatus(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	store := newMemStore()
	f := start(t, store, func(c *Config) { c.Metrics = r })
	answers := map[string]http.HandlerFunc{
		"accepts": func(http.ResponseWriter, *http.Request) {},
		"done":    func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"done":true}`)) },
		"retires": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) },
		"moved":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusFound) },
		"cuts":    func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	}
	for id, answer := range answers {
		var again atomic.Bool
		sub := store.addSubscription(id, endpoint(t, func(w http.ResponseWriter, r *http.Request) {
			if again.Swap(true) {
				answer = answers["done"]
			}
			answer(w, r)
		}))
		f.Deliver(store.event(sub, "/"+id+"/1", "0005"))
	}
	var tries atomic.Int32
	fails := store.addSubscription("fails", endpoint(t, func(w http.ResponseWriter, _ *http.Request) {
		if tries.Add(1) < 3 {
			w.WriteHeader(http.StatusBadGateway)
		}
	}))
	seen := fsm.Sighting{At: time.Now()}
	wakes := store.event(fails, "/fails/1", "0005")
	wakes[0].Seen = seen
	f.Deliver(wakes)
	attempts := "reveille_delivery_attempts_total"
	awaitMetrics(t, r, []string{attempts},
		attempts+"{accepted 2xx accepts} 1", attempts+"{failed none cuts} 1", attempts+"{done 2xx cuts} 1",
		attempts+"{done 2xx done} 1", attempts+"{accepted 2xx fails} 1",
		attempts+"{failed 5xx fails} 2", attempts+"{failed 3xx moved} 1", attempts+"{done 2xx moved} 1",
		attempts+"{retired 4xx retires} 1")
	failures := "reveille_delivery_failures_total"
	awaitMetrics(t, r, []string{failures}, failures+"{connection} 1", failures+"{gone} 1", failures+"{redirect} 1",
		failures+"{server_error} 2")
	duration := "reveille_delivery_duration_seconds"
	awaitMetrics(t, r, []string{duration},
		duration+"{accepts} 1", duration+"{cuts} 2", duration+"{done} 1", duration+"{fails} 3",
		duration+"{moved} 2", duration+"{retires} 1")
	// Five wakes were taken, two of them after one retry and one after two.
	expected := `
# HELP reveille_wake_retries Retries until an attempt of a wake was answered with a 2xx: 0 if the first one was.
# TYPE reveille_wake_retries histogram
reveille_wake_retries_bucket{le="0"} 2
reveille_wake_retries_bucket{le="1"} 4
reveille_wake_retries_bucket{le="2"} 5
reveille_wake_retries_bucket{le="3"} 5
reveille_wake_retries_bucket{le="5"} 5
reveille_wake_retries_bucket{le="8"} 5
reveille_wake_retries_bucket{le="10"} 5
reveille_wake_retries_bucket{le="15"} 5
reveille_wake_retries_bucket{le="30"} 5
reveille_wake_retries_bucket{le="100"} 5
reveille_wake_retries_bucket{le="1000"} 5
reveille_wake_retries_bucket{le="+Inf"} 5
reveille_wake_retries_sum 4
reveille_wake_retries_count 5
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(expected), "reveille_wake_retries"); err != nil {
		t.Error(err)
	}
	delay := "reveille_append_to_wake_seconds"
	// The event that was seen counts, at its first attempt.
	awaitMetrics(t, r, []string{delay}, delay+"{gateway} 0", delay+"{tail} 1")
	awaitMetrics(t, r, []string{"reveille_webhook_requests_in_flight"}, "reveille_webhook_requests_in_flight{} 0")

	for id := range answers {
		store.deleteSubscription(t, id)
	}
	awaitMetrics(t, r, []string{attempts, duration},
		attempts+"{accepted 2xx fails} 1", attempts+"{failed 5xx fails} 2", duration+"{fails} 3")
}

func TestAWakeThatWaitedForASlotCountsFromWhenItsEventWasSeen(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	store := newMemStore()
	f := start(t, store, func(c *Config) { c.Metrics, c.MaxInFlight, c.MaxInFlightPerSubscription = r, 2, 1 })
	release := make(chan struct{})
	sub := store.addSubscription("s", endpoint(t, func(http.ResponseWriter, *http.Request) { <-release }))
	f.Deliver(store.event(sub, "/s/1", "0005"))
	wakes := store.event(sub, "/s/2", "0005")
	wakes[0].Seen = fsm.Sighting{At: time.Now().Add(-time.Hour), Gateway: true}
	f.Deliver(wakes)
	store.untilCalls(t, "Park", 1)
	awaitMetrics(t, r, []string{"reveille_webhook_requests_in_flight", "reveille_wakes_queued"},
		"reveille_wakes_queued{} 1", "reveille_webhook_requests_in_flight{} 1")
	close(release)
	delay := "reveille_append_to_wake_seconds"
	awaitMetrics(t, r, []string{delay}, delay+"{gateway} 1", delay+"{tail} 0")
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != delay {
			continue
		}
		if waited := family.GetMetric()[0].GetHistogram().GetSampleSum(); waited < time.Hour.Seconds() {
			t.Errorf("it waited for %g s, want the hour since its event was seen", waited)
		}
	}
}

func TestTheSubscriptionsWithSeriesOfTheirOwnAreBounded(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	m := newMetrics(r, 2)
	s := newSlots(10, 10, 10, 1<<20, m)
	end := func(id, generation string) {
		s.lane(laneKey{id, generation}, 0)
		m.attempted(fsm.Attempt{
			Delivery: fsm.Delivery{Subscription: id, Attempt: 1}, Result: fsm.AttemptAccepted,
			Status: http.StatusNoContent,
		})
	}
	for i := range 5 {
		end(fmt.Sprint("s", i), "g")
	}
	end("s0", "anew")
	attempts := "reveille_delivery_attempts_total"
	awaitMetrics(t, r, []string{attempts},
		attempts+"{accepted 2xx _other} 3", attempts+"{accepted 2xx s0} 2", attempts+"{accepted 2xx s1} 1")
	s.forget(func(k laneKey) bool { return k.id != "s0" || k.generation != "g" })
	awaitMetrics(t, r, []string{attempts},
		attempts+"{accepted 2xx _other} 3", attempts+"{accepted 2xx s0} 2", attempts+"{accepted 2xx s1} 1")
	s.forget(func(k laneKey) bool { return k.id == "s4" })
	awaitMetrics(t, r, []string{attempts}, attempts+"{accepted 2xx _other} 3")
	s.forget(func(laneKey) bool { return false })
	end("s9", "g")
	awaitMetrics(t, r, []string{attempts}, attempts+"{accepted 2xx s9} 1")
}
