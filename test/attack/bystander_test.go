package attack

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"reveille/redisstore"

	"reveille/fsm"
	"reveille/test/harness"
)

// bystander is a subscription that has nothing to do with an attack: a writer appends to its streams behind Reveille's
// back, and its worker is done at once.
type bystander struct {
	*rig
	paths []string
	wakes chan harness.Wake
	tails map[string]string
}

const (
	// bystanderStreams is how many streams it has; they take turns.
	bystanderStreams = 8
	// bystanderPause is how long it waits after each wake: an event a moment, not a load test.
	bystanderPause = 10 * time.Millisecond
	// wakeWithin is how long a wake may take at all before it counts as one that hangs. Times are for the full form.
	wakeWithin = 10 * time.Minute
)

func newBystander(r *rig) *bystander {
	r.t.Helper()
	b := &bystander{rig: r, wakes: make(chan harness.Wake, 1000), tails: map[string]string{}}
	worker := harness.NewWorker(r.t)
	worker.Answer(func(w http.ResponseWriter, _ *http.Request, wake harness.Wake) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"done":true}`)
		b.wakes <- wake
	})
	r.gateway.Subscribe("/bystander/*", "bystander", worker)
	for n := range bystanderStreams {
		path := fmt.Sprintf("/bystander/%d", n)
		b.paths = append(b.paths, path)
		b.tails[path] = r.gateway.Create(path)
	}
	b.rest()
	return b
}

// rest waits until its consumers have nothing left to be woken for.
func (b *bystander) rest() {
	b.t.Helper()
	store := redisstore.New(b.redis.Client(), redisstore.Options{})
	for path, tail := range b.tails {
		harness.Eventually(b.t, wakeWithin, path+" is at rest with every event acked", func() error {
			c, err := store.Consumer(b.t.Context(), fsm.RefOf("bystander", path))
			if err == nil && (c.State != fsm.Idle || string(c.Links[path].Acked) != tail) {
				err = fmt.Errorf("it is %s with %+v, want %s", c.State, c.Links, tail)
			}
			return err
		})
	}
	for len(b.wakes) > 0 {
		<-b.wakes
	}
}

// latencies appends n events, one after the other, and returns how long each took to lead to a wake.
func (b *bystander) latencies(n int) []time.Duration {
	b.t.Helper()
	list := make([]time.Duration, 0, n)
	for i := range n {
		path := b.paths[i%len(b.paths)]
		began := time.Now()
		b.tails[path] = b.streams.Append(path, fmt.Sprintf(`{"n":%d}`, i))
		timeout := time.After(wakeWithin)
		for woken := false; !woken; {
			select {
			case w := <-b.wakes:
				if woken = w.PrimaryStream == path; woken {
					list = append(list, w.At.Sub(began))
				}
			case <-timeout:
				b.t.Fatalf("event %d of %s led to no wake within %s", i, path, wakeWithin)
			}
		}
		time.Sleep(bystanderPause)
	}
	b.rest()
	return list
}

func percentile(list []time.Duration, p int) time.Duration {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[min(len(sorted)-1, len(sorted)*p/100)]
}

func TestPercentile(t *testing.T) {
	var list []time.Duration
	for n := 100; n > 0; n-- {
		list = append(list, time.Duration(n))
	}
	if p50, p99 := percentile(list, 50), percentile(list, 99); p50 != 51 || p99 != 100 {
		t.Errorf("p50 %d, p99 %d", p50, p99)
	}
}
