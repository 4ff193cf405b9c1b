package dispatcher

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/fsm/router"
	"reveille/fsm/token"
)

// never is longer than any test: no wake waits for that long.
const never = time.Hour

// shut is an endpoint that answers "done" once it is opened. It collects the requests.
type shut struct {
	url    string
	opened chan struct{}

	mu  sync.Mutex
	got []string
}

func newShut(t *testing.T) *shut {
	g := &shut{opened: make(chan struct{})}
	g.url = endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		var p payload
		_ = json.NewDecoder(r.Body).Decode(&p)
		g.mu.Lock()
		g.got = append(g.got, p.PrimaryStream)
		g.mu.Unlock()
		select {
		case <-g.opened:
		case <-r.Context().Done():
		}
		_, _ = io.WriteString(w, `{"done":true}`)
	})
	return g
}

func (g *shut) sorted() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Sorted(slices.Values(g.got))
}

func one(c *Config) {
	c.MaxInFlight, c.MaxInFlightPerSubscription, c.ShutdownGrace = 2, 1, time.Millisecond
}

func TestABurstIsDeliveredWithoutTellingTheStoreThatItsWakesWait(t *testing.T) {
	store := newMemStore()
	store.setWaking(never)
	f := start(t, store, func(c *Config) {
		one(c)
		c.WakingTimeout, c.parkAfter = never, never
	})
	g := newShut(t)
	sub := f.store.addSubscription("s", g.url)
	var want []string
	for n := range 200 {
		path := fmt.Sprintf("/s/%03d", n)
		want = append(want, path)
		f.Deliver(f.store.event(sub, path, "0001"))
	}
	close(g.opened)
	f.store.untilCalls(t, "Finish", len(want))
	if got := g.sorted(); !slices.Equal(got, want) {
		t.Errorf("got %q, want each stream once", got)
	}
	if parked, begun := f.store.called("Park"), f.store.called("Begin"); parked+begun > 0 {
		t.Errorf("the store was told of %d that wait and asked for %d", parked, begun)
	}
}

func TestAWakeIsParkedOnceItHasWaitedForAQuarterOfItsDeadlineOrASecond(t *testing.T) {
	for waking, want := range map[time.Duration]time.Duration{
		0: time.Second, time.Minute: time.Second, 2 * time.Second: 500 * time.Millisecond,
	} {
		c := Config{
			Store: newMemStore(), Outcomes: router.New(), Tokens: &token.Tokens{}, PublicURL: "http://x",
			WakingTimeout: waking,
		}
		if err := c.setDefaults(); err != nil || c.parkAfter != want {
			t.Errorf("with a waking timeout of %v it is parked after %v, want %v (%v)", waking, c.parkAfter, want, err)
		}
	}
	f := start(t, newMemStore(), func(c *Config) {
		one(c)
		c.WakingTimeout, c.parkAfter = never, 50*time.Millisecond
	})
	g := newShut(t)
	sub := f.store.addSubscription("s", g.url)
	for n := range 4 {
		f.Deliver(f.store.event(sub, fmt.Sprintf("/s/%d", n), "0001"))
	}
	f.store.untilCalls(t, "Park", 3)
	close(g.opened)
	f.store.untilCalls(t, "Begin", 3)
	f.store.untilCalls(t, "Finish", 4)
	if got := g.sorted(); !slices.Equal(got, []string{"/s/0", "/s/1", "/s/2", "/s/3"}) {
		t.Errorf("got %q", got)
	}
}

func TestRetriesAndLargeWakesAreParkedAtOnce(t *testing.T) {
	f := start(t, newMemStore(), func(c *Config) {
		one(c)
		c.WakingTimeout, c.parkAfter = never, never
	})
	g := newShut(t)
	sub := f.store.addSubscription("s", g.url)
	f.Deliver(f.store.event(sub, "/s/0", "0001"))
	first := f.store.event(sub, "/s/1", "0001")
	f.Deliver(first)
	large := f.store.event(sub, "/s/2", "0001")
	for range keptDelivery {
		large[0].Streams = append(large[0].Streams, fsm.StreamTail{Path: "/s/3", Acked: "0001", Tail: "0001"})
	}
	f.Deliver(large)
	f.store.untilCalls(t, "Park", 1)
	retry := slices.Clone(first)
	retry[0].Attempt, retry[0].Handed = 2, 2
	f.Deliver(retry) // takes the place of the first, which is not to be parked for long
	f.store.untilCalls(t, "Park", 2)
	f.mu.Lock()
	defer f.mu.Unlock()
	if waiting := f.toPark.Len() + f.toParkNow.Len(); waiting != 0 {
		t.Errorf("%d are to be parked still", waiting)
	}
}

// TestAWakeThatMayHavePassedItsDeadlineUnparkedIsAskedFor is about a frozen process, which does not know that the
// deadlines of its wakes have passed.
func TestAWakeThatMayHavePassedItsDeadlineUnparkedIsAskedFor(t *testing.T) {
	store := newMemStore()
	f := start(t, store, func(c *Config) {
		one(c)
		c.WakingTimeout, c.parkAfter, c.DueInterval = never, never, never
	})
	g := newShut(t)
	sub := store.addSubscription("s", g.url)
	for n := range 3 {
		f.Deliver(store.event(sub, fmt.Sprintf("/s/%d", n), "0001"))
	}
	f.mu.Lock()
	for _, it := range f.slots.queued {
		it.delivery.Asked = it.delivery.Asked.Add(-never)
	}
	f.mu.Unlock()
	// Meanwhile, another replica has got the second wake: by its deadline, and by the schedule.
	store.db.ChangeConsumer("s:%2Fs%2F1", func(c *fsm.Consumer) { c.Attempt, c.Handed = c.Attempt+1, c.Handed+1 })
	close(g.opened)
	store.untilCalls(t, "Begin", 2)
	store.untilCalls(t, "Finish", 2)
	if got := g.sorted(); !slices.Equal(got, []string{"/s/0", "/s/2"}) {
		t.Errorf("sent %q, want those that nobody else has", got)
	}
	if c := store.consumer("s:%2Fs%2F1"); c.Holder != (fsm.Holder{}) || !c.Sent {
		t.Errorf("what another replica has out is %+v", c)
	}
}

func TestWakesThatWaitUnparkedAreHandedBackAtAStop(t *testing.T) {
	f := start(t, newMemStore(), func(c *Config) {
		one(c)
		c.WakingTimeout, c.parkAfter = never, never
	})
	sub := f.store.addSubscription("s", newShut(t).url)
	for n := range 3 {
		f.Deliver(f.store.event(sub, fmt.Sprintf("/s/%d", n), "0001"))
	}
	f.stop()
	if parked, back := f.store.called("Park"), f.store.called("HandBack"); parked != 0 || back != 2 {
		t.Errorf("%d were parked and %d handed back, want the two that waited", parked, back)
	}
	for n := 1; n < 3; n++ {
		if c := f.store.consumer(fmt.Sprintf("s:%%2Fs%%2F%d", n)); c.Sent || c.Deadline.After(time.Now()) {
			t.Errorf("another replica has to wait for it: %+v", c)
		}
	}
}
