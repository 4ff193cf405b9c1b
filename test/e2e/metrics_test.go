package e2e

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"reveille/fsm"
	"reveille/test/harness"
)

// scrape returns the metrics by their names with their labels, as Prometheus would read them, and the text.
func (e *env) scrape(t *testing.T) (map[string]float64, string) {
	t.Helper()
	res := harness.NewClient(t, e.rev.Operator).Do(http.MethodGet, "/metrics", "")
	if res.Status != http.StatusOK {
		t.Fatalf("GET /metrics: status %d: %s", res.Status, res.Body)
	}
	found := map[string]float64{}
	for line := range strings.Lines(res.Body) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		value, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		found[line[:at]] = value
	}
	return found, res.Body
}

// awaitMetrics waits until metrics have these values, and returns the last scrape.
func (e *env) awaitMetrics(t *testing.T, want map[string]float64) (found map[string]float64) {
	t.Helper()
	harness.Eventually(t, soon, "the metrics say what has happened", func() error {
		found, _ = e.scrape(t)
		for name, value := range want {
			if got, ok := found[name]; !ok || got != value {
				return fmt.Errorf("%s is %g (%v), want %g", name, got, ok, value)
			}
		}
		return nil
	})
	return found
}

// TestMetricsSayWhatHasHappened compares the metrics of a run with what its workers and clients have seen.
func TestMetricsSayWhatHasHappened(t *testing.T) {
	t.Parallel()
	e := beside(t, options{})
	attempts := func(outcome, status, subscription string) string {
		return fmt.Sprintf("reveille_delivery_attempts_total{outcome=%q,status=%q,subscription=%q}", outcome, status,
			subscription)
	}
	count := func(name, label, value string) string { return fmt.Sprintf("%s{%s=%q}", name, label, value) }
	gateway := func(kind, status string) string {
		return fmt.Sprintf("reveille_gateway_requests_total{kind=%q,status=%q}", kind, status)
	}
	consumers := func(state string) string { return count("reveille_consumers", "state", state) }
	removed := func(cause string) string { return count("reveille_consumers_removed_total", "cause", cause) }
	code := func(c string) string { return count("reveille_callbacks_total", "code", c) }
	e.awaitMetrics(t, map[string]float64{
		"reveille_redis_up": 1, "reveille_upstream_up": 1, "reveille_partitions": 64, "reveille_partitions_owned": 64,
		"reveille_replicas":      1,
		"reveille_subscriptions": 0, consumers("idle"): 0, "reveille_oldest_pending_wake_seconds": 0,
		"reveille_overdue_seconds": 0,
	})

	// One subscription works: each of its streams leads to a wake when it is made and to one more when it gets an
	// event.
	const streams = 4
	works := e.empty(t)
	works.worker.AnswerDone()
	works.subscribe(works.folder + "/*")
	for i := range streams {
		works.path = fmt.Sprintf("%s/%d", works.folder, i)
		works.gateway.Create(works.path)
		works.worker.Wake(2*i + 1)
		works.awaitState(fsm.Idle)
		works.append()
		works.worker.Wake(2*i + 2)
		works.awaitState(fsm.Idle)
	}

	// Another has an endpoint that fails until it is seen to.
	fails := e.empty(t)
	var mended, failed atomic.Int64
	fails.worker.Answer(func(rw http.ResponseWriter, _ *http.Request, _ harness.Wake) {
		if mended.Load() == 0 {
			failed.Add(1)
			rw.WriteHeader(http.StatusBadGateway)
		}
	})
	fails.subscribe(fails.folder + "/*")
	fails.gateway.Create(fails.path)
	fails.worker.Wake(1)
	harness.Eventually(t, soon, "the wake that fails is seen to wait", func() error {
		found, _ := e.scrape(t)
		return harness.True(func() bool {
			return found["reveille_oldest_pending_wake_seconds"] > 0 && found[consumers("waking")] == 1
		}, "it is not")()
	})
	mended.Store(1)
	fails.awaitState(fsm.Live)
	failures, wakes := float64(failed.Load()), fails.worker.Wakes()
	wake := wakes[len(wakes)-1]
	if failures == 0 || len(wakes) != int(failures)+1 {
		t.Fatalf("%g of %d wakes failed, want all but the last", failures, len(wakes))
	}

	// Its worker calls back, rightly and wrongly.
	tail := fails.gateway.Tail(fails.path)
	for _, cb := range []struct {
		body harness.Callback
		code string
	}{
		{wake.Claim(false), ""},
		{harness.Callback{Epoch: wake.Epoch, Acks: []harness.StreamOffset{at(fails.path, beyond)}}, "INVALID_OFFSET"},
		{harness.Callback{Epoch: wake.Epoch + 1}, "STALE_EPOCH"},
		{harness.Callback{Epoch: wake.Epoch + 2}, "STALE_EPOCH"},
		{harness.Callback{Epoch: wake.Epoch, WakeID: "w_other"}, "ALREADY_CLAIMED"},
	} {
		if a := fails.gateway.Callback(wake, cb.body); a.Error.Code != cb.code {
			t.Fatalf("callback %+v: got %q, want %q", cb.body, a.Error.Code, cb.code)
		}
	}
	fails.gateway.RawCallback(wake.Callback, "forged", "{}")
	fails.gateway.RawCallback(wake.Callback, wake.Token, "{")
	e.awaitMetrics(t,
		map[string]float64{consumers("live"): 1, consumers("waking"): 0, "reveille_oldest_pending_wake_seconds": 0})
	fails.gateway.Callback(wake, wake.Claim(true, at(fails.path, tail)))
	fails.awaitState(fsm.Idle)

	seen := e.awaitMetrics(t, map[string]float64{
		attempts("done", "2xx",
			works.sub.ID): float64(len(works.worker.Wakes())),
		attempts("failed", "5xx", fails.sub.ID):                                         failures,
		attempts("accepted", "2xx", fails.sub.ID):                                       1,
		count("reveille_delivery_duration_seconds_count", "subscription", works.sub.ID): 2 * streams,
		count("reveille_delivery_duration_seconds_count", "subscription", fails.sub.ID): failures + 1,
		"reveille_wake_retries_count":                                                   2*streams + 1,
		"reveille_wake_retries_sum":                                                     failures,
		code("OK"):                                                                      2,
		code("INVALID_OFFSET"):                                                          1,
		code("STALE_EPOCH"):                                                             2,
		code("ALREADY_CLAIMED"):                                                         1,
		code("TOKEN_INVALID"):                                                           1,
		code("INVALID_REQUEST"):                                                         1,
		code("CONSUMER_GONE"):                                                           0,
		"reveille_callback_duration_seconds_count":                                      8,
		gateway("write", "2xx"):                                                         2*streams + 1,
		gateway("read", "2xx"):                                                          1,
		"reveille_subscriptions":                                                        2,
		"reveille_streams_known":                                                        streams + 1,
		consumers("idle"):                                                               streams + 1,
		consumers("waking"):                                                             0,
		consumers("live"):                                                               0,
		consumers("retired"):                                                            0,
		count("reveille_watched_streams", "mode", "live"):                               streams + 1,
		"reveille_webhook_requests_in_flight":                                           0,
		"reveille_wakes_queued":                                                         0,
		"reveille_wakes_dropped_total":                                                  0,
	})
	delay := "reveille_append_to_wake_seconds_count"
	if n := seen[count(delay, "source", "gateway")] + seen[count(delay, "source", "tail")]; n != 2*streams+1 {
		t.Errorf("%g events were seen to set off a wake, want %d", n, 2*streams+1)
	}
	if seen[`reveille_upstream_requests_total{kind="head",outcome="ok"}`] == 0 {
		t.Error("no stream was looked at with HEAD")
	}
	for name, n := range seen {
		// A Redis that pauses is away, which is no fault of a script.
		if strings.HasPrefix(name, "reveille_redis_script_errors_total") && n != 0 &&
			!strings.Contains(name, `kind="unavailable"`) {
			t.Errorf("%s is %g", name, n)
		}
	}

	// A stream is deleted, and then the subscription of the others, whose series end.
	fails.gateway.DeleteStream(fails.path)
	works.gateway.DeleteSubscription("/**", works.sub.ID)
	seen = e.awaitMetrics(t, map[string]float64{
		removed("stream_deleted"): 1, removed("subscription_deleted"): streams, removed("given_up"): 0,
		removed("stream_gone"): 0,
		consumers("idle"):      0, "reveille_subscriptions": 1, gateway("delete", "2xx"): 1,
	})
	harness.Eventually(t, soon, "the series of the deleted subscription end", func() error {
		found, _ := e.scrape(t)
		for name := range found {
			if strings.Contains(name, works.sub.ID) {
				return fmt.Errorf("there is %s", name)
			}
		}
		return nil
	})
	if seen[attempts("failed", "5xx", fails.sub.ID)] != failures {
		t.Error("the other subscription's series have changed")
	}

	found, text := e.scrape(t)
	for name := range found {
		if strings.HasPrefix(name, "reveille_build_info") {
			continue
		}
		if _, labels, _ := strings.Cut(name, "{"); strings.ContainsAny(labels, "/%") {
			t.Errorf("%s: a label has a path or a URL", name)
		}
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}
