package dispatcher

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"reveille/fsm"
)

// TestAPushThatStepsAside holds that later events go on without it. Its retry reads and brings what the first attempt
// did, under the same ids, and nothing else. The subscription's batch has become smaller meanwhile.
func TestAPushThatStepsAside(t *testing.T) {
	const events, path = 6, "/s/1"
	type reading struct {
		at, end fsm.Offset
		most    int
	}
	type request struct{ id, body string }
	var (
		mu       sync.Mutex
		readings []reading
		requests []request
	)
	hook := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		n := len(requests)
		requests = append(requests, request{r.Header.Get("Webhook-Id"), string(body)})
		mu.Unlock()
		if n == 0 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	store := newMemStore()
	f := start(t, store, func(c *Config) {
		c.ReadBatch = func(
			_ context.Context, _, _ string, at, end fsm.Offset, most int, _ int64, _ func([]byte) bool,
		) (fsm.Batch, error) {
			mu.Lock()
			defer mu.Unlock()
			readings = append(readings, reading{at, end, most})
			b := fsm.Batch{ContentType: "application/json", JSON: true, From: at, Tail: "0009", To: "0009"}
			_, n := at.Split()
			to := int64(events)
			if end != "" {
				_, to = end.Split()
			}
			if to = min(to, n+int64(most)); to < events {
				b.To = fsm.Start.At(to, "0009")
			}
			for ; n < to; n++ {
				b.Events = append(b.Events, fmt.Append(nil, n))
			}
			b.Within = fsm.Start.At(to, "0009")
			return b, nil
		}
	})
	sub := store.pushSub(hook, func(s *fsm.Subscription) {
		s.Batch, s.Ordering, s.Retry = 2, fsm.OrderingNone, []time.Duration{time.Hour}
	})
	f.Deliver(store.event(sub, path, "0009"))
	const consumer, aside = "s:%2Fs%2F1", "s:%2Fs%2F1:1"
	store.until(t, "it steps aside", func() bool { return store.consumer(consumer).Asides == 1 })
	store.until(t, "the stream goes on", func() bool {
		return store.consumer(consumer).Links[path].Acked == "0009"
	})
	sub.Batch = 1
	store.db.PutSubscription(sub)
	store.db.ChangeConsumer(aside, func(c *fsm.Consumer) { c.Deadline = store.now() })
	store.until(t, "it is done", func() bool { return store.consumer(consumer).Asides == 0 })
	f.stop()
	if _, there := store.db.Consumer(aside); there {
		t.Error("the aside is still there")
	}
	if len(requests) != 5 || !slices.Equal(requests[:3], []request{
		{requests[0].id, "[0,1]"}, {requests[1].id, "[2,3]"}, {requests[2].id, "[4,5]"},
	}) {
		t.Fatalf("the endpoint got %v", requests)
	}
	first, _ := strings.CutSuffix(requests[0].id, "_0-1")
	if got := requests[3:]; !slices.Equal(got, []request{{first + "_0", "0"}, {first + "_1", "1"}}) {
		t.Errorf("the retry of %v is %v", requests[0], got)
	}
	end := fsm.Start.At(2, "0009")
	want := []reading{{fsm.Start, end, 1}, {fsm.Start.At(1, "0009"), end, 1}}
	if got := readings[len(readings)-2:]; !slices.Equal(got, want) {
		t.Errorf("it has read %v, want %v", got, want)
	}
}
