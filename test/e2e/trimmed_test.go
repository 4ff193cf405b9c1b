package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"reveille/test/anycable"
	"reveille/test/harness"
)

// TestAPushGoesOnBehindEventsThatAreNotKept has a server drop events while those before them are being delivered.
func TestAPushGoesOnBehindEventsThatAreNotKept(t *testing.T) {
	t.Parallel()
	const kept = 10
	for name, tt := range map[string]struct {
		batch int
		// status is the answer to the first delivery, during which the events are dropped, and to so many more.
		status, more int
	}{
		"one by one":                            {batch: 1, status: http.StatusNoContent},
		"in batches":                            {batch: 4, status: http.StatusNoContent},
		"and one of them is that which is sent": {batch: 1, status: http.StatusServiceUnavailable},
		"and the one behind them fails once":    {batch: 1, status: http.StatusServiceUnavailable, more: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startBroker(t, anycable.Options{History: kept}, nil, nil)
			receiver := harness.NewReceiver(t)
			got, release := make(chan struct{}), make(chan struct{})
			receiver.Answer(func(n int, _ harness.Push) int {
				switch {
				case n == 1:
					close(got)
					<-release
				case n > 1+tt.more:
					return http.StatusNoContent
				}
				return tt.status
			})
			a := c.gateway.PutSubscription("/t1", "s", jsonOf(t, map[string]any{
				"mode": "push", "webhook": receiver.URL, "batch": tt.batch,
				"retry": map[string]any{"schedule": []string{"1s"}},
			}))
			if a.Status != http.StatusCreated {
				t.Fatalf("PUT: %d %s", a.Status, a.Body)
			}
			numbers := func(from, to int) (list []string) {
				for n := from; n <= to; n++ {
					list = append(list, strconv.Itoa(n))
				}
				return list
			}
			c.server.Publish("t1", "1")
			<-got
			c.server.Publish("t1", numbers(2, 50)...)
			close(release)
			want := numbers(50-kept+1, 50)
			if tt.status == http.StatusNoContent {
				want = slices.Insert(want, 0, "1")
			}
			receiver.Await("/t1", len(want))
			c.server.Publish("t1", "51")
			want = append(want, "51")
			ids, events := receiver.Await("/t1", len(want))
			if !slices.Equal(events, want) {
				t.Errorf("it took %q, want %q", events, want)
			}
			base := ids[0][:strings.LastIndex(ids[0], "_")]
			for i, id := range ids {
				n, _ := strconv.Atoi(events[i])
				if id != fmt.Sprintf("%s_%d", base, n-1) {
					t.Errorf("event %s has the id %s, beside %s", events[i], id, ids[0])
				}
			}
			if tt.status != http.StatusNoContent {
				return // it stands at the start, behind which a server may have dropped anything
			}
			const lost = 50 - kept - 1
			c.awaitLog(t, `"stream":"/t1"`, "the stream server dropped events before they were pushed",
				fmt.Sprintf(`"events":%d,`, lost))
			c.awaitMetrics(t, map[string]float64{"reveille_events_not_kept_total": lost})
		})
	}
}
