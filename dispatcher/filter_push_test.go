package dispatcher

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"reveille/dispatcher/format"
	"reveille/fsm"
	"reveille/fsm/bell"
	"reveille/fsm/router"
)

// chunks is a Config.ReadBatch of a stream of n events. Each read shows size events. An event's offset is its number,
// and its type says whether it is wanted.
func chunks(n, size int, wanted ...int) BatchReader {
	return func(
		_ context.Context, _, _ string, at, end fsm.Offset, most int, span int64, matches func([]byte) bool,
	) (fsm.Batch, error) {
		base, skip := at.Split()
		first := 0
		if base != fsm.Start {
			_, _ = fmt.Sscanf(string(base), "%d", &first) // it is one of those below
		}
		next := min(first+size, n)
		tail := fsm.Offset(fmt.Sprintf("%09d", next))
		b := fsm.Batch{ContentType: "application/json", JSON: true, From: at, To: tail, Within: tail, Tail: tail}
		for i := first + int(skip); i < next; i++ {
			over := span > 0 && int64(i-first)-skip == span
			if over || len(b.Events) == most || end != "" && !end.After(base.At(int64(i-first), tail)) {
				b.To, b.Within = base.At(int64(i-first), tail), base.At(int64(i-first), tail)
				break
			}
			event := fmt.Appendf(nil, `{"type":"other","n":%d}`, i)
			if slices.Contains(wanted, i) {
				event = fmt.Appendf(nil, `{"type":"wanted","n":%d}`, i)
			}
			if matches != nil && !matches(event) {
				b.Passed++
				continue
			}
			b.Events, b.Places = append(b.Events, event), append(b.Places, int64(i-first)-skip)
		}
		return b, nil
	}
}

func wants(types ...string) func(*fsm.Subscription) {
	return func(s *fsm.Subscription) { s.Filter.Events = types }
}

// change lets another replica change subscription s.
func (s *memStore) change(t *testing.T, change func(*fsm.Subscription)) {
	t.Helper()
	_, err := s.other.ChangeSubscription(t.Context(), "s", func(sub fsm.Subscription) (fsm.Subscription, error) {
		change(&sub)
		return sub, nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestAFilterCostsNoAttempts holds that events that do not match are skipped as far as a read goes, by one call to the
// store. There is no attempt: no request, no word to the observers, and none about the endpoint. The short form has a
// tenth of the events.
func TestAFilterCostsNoAttempts(t *testing.T) {
	events, chunk := 1_000_000, 5000
	if testing.Short() {
		events /= 10
	}
	tail := fsm.Offset(fmt.Sprintf("%09d", events))
	var bodies, results []string
	var mu sync.Mutex
	hook := endpoint(t, func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		bodies = append(bodies, r.Header.Get(format.IDHeader))
	})
	store := newMemStore()
	f := start(t, store, func(c *Config) { c.ReadBatch = chunks(events, chunk, 70_001) }, func(d *Dispatcher) {
		d.cfg.Outcomes.Observe(router.Observer{Attempt: func(a fsm.Attempt) {
			mu.Lock()
			defer mu.Unlock()
			results = append(results, fmt.Sprint(a.Result, " ", a.Events, " from ", a.From))
		}})
	})
	wakes := store.event(store.pushSub(hook, wants("wanted")), "/s/1", tail)
	f.Deliver(wakes)
	store.until(t, "all is passed over", func() bool {
		c := store.consumer("s:%2Fs%2F1")
		return c.State == fsm.Idle && c.Links["/s/1"].Acked == tail
	})
	f.stop()
	at := fsm.Offset("000070000").At(1, tail)
	if want := []string{fsm.EventID(wakes[0], at)}; !slices.Equal(bodies, want) {
		t.Errorf("the endpoint got %q, want %q", bodies, want)
	}
	if want := []string{"done 1 from " + string(at)}; !slices.Equal(results, want) {
		t.Errorf("attempts are %q, want %q", results, want)
	}
	// The chunk of the event that matches takes two: up to it, and what follows.
	if n, most := store.called("Deliver"), events/chunk+1; n > most {
		t.Errorf("the store was called %d times, want %d at most", n, most)
	}
	for _, op := range []string{"Fail", "Park", "ProbeEndpoint", "FailEndpoint", "RecoverEndpoint", "ReturnProbe"} {
		if n := store.called(op); n > 0 {
			t.Errorf("%s was called %d times", op, n)
		}
	}
}

// TestABatchOfWhatMatchesIsSentAgainUnderItsID holds that a retry brings the same events, and that they step aside and
// die together.
func TestABatchOfWhatMatchesIsSentAgainUnderItsID(t *testing.T) {
	for _, ordering := range fsm.Orderings {
		t.Run(string(ordering), func(t *testing.T) {
			got := make(chan string, 10)
			hook := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
				got <- r.Header.Get(format.IDHeader)
				w.WriteHeader(http.StatusServiceUnavailable)
			})
			store := newMemStore()
			f := start(t, store, func(c *Config) { c.ReadBatch = chunks(20, 10, 3, 4, 7, 12) })
			sub := store.pushSub(hook, func(s *fsm.Subscription) {
				s.Batch, s.Ordering, s.Filter.Events = 3, ordering, []string{"wanted"}
			})
			f.Deliver(store.event(sub, "/s/1", "000000020"))
			times := map[string]int{}
			for range 4 { // two attempts of each
				times[<-got]++
			}
			if len(times) != 2 {
				t.Errorf("the endpoint got %v", times)
			}
			store.until(t, "all is dead", func() bool {
				c := store.consumer("s:%2Fs%2F1")
				return c.State == fsm.Idle && c.Links["/s/1"].Acked == "000000020" && c.Asides == 0
			})
			f.stop()
			letters, err := store.DeadLetters(t.Context(), fsm.LetterSpan{
				Partition: store.PartitionOf("/s/1"), Through: fsm.MaxLetterNumber,
			}, 10)
			if err != nil || len(letters) != 2 {
				t.Fatalf("letters are %+v, %v", letters, err)
			}
			// Each begins at the first event that matches.
			begins := map[fsm.Offset]int64{fsm.Start.At(3, "9"): 3, fsm.Offset("000000010").At(2, "9"): 1}
			for _, l := range letters {
				if times[l.DeliveryID] != 2 || l.Events != begins[l.From] {
					t.Errorf("a letter is %+v", l)
				}
			}
		})
	}
}

// TestTheFilterThatHoldsDecides holds that a failed delivery ends without a request once the filter leaves it out.
func TestTheFilterThatHoldsDecides(t *testing.T) {
	var requests atomic.Int32
	store := newMemStore()
	hook := endpoint(t, func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		store.change(t, wants("another"))
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	f := start(t, store, func(c *Config) { c.ReadBatch = chunks(20, 10, 3) })
	f.Deliver(store.event(store.pushSub(hook, wants("wanted")), "/s/1", "000000020"))
	store.until(t, "all is passed over", func() bool {
		c := store.consumer("s:%2Fs%2F1")
		return c.State == fsm.Idle && c.Links["/s/1"].Acked == "000000020" && c.LastError == ""
	})
	f.stop()
	f.letter(t, fsm.DeadLetter{})
	if n := requests.Load(); n != 1 {
		t.Errorf("the endpoint got %d requests, want 1", n)
	}
}

// TestAFilterHoldsUpNobody holds that others have their turn while a consumer skips a stream without an end.
func TestAFilterHoldsUpNobody(t *testing.T) {
	taken := make(chan struct{})
	hook := endpoint(t, func(http.ResponseWriter, *http.Request) { close(taken) })
	store := newMemStore()
	passed := bell.New()
	f := start(t, store, func(c *Config) {
		c.MaxInFlight, c.MaxInFlightPerSubscription = 2, 1
		read := chunks(1, 1, 0)
		c.ReadBatch = func(
			ctx context.Context, reader, path string, at, end fsm.Offset, most int, span int64,
			matches func([]byte) bool,
		) (fsm.Batch, error) {
			if path == "/s/2" {
				return read(ctx, reader, path, at, end, most, span, matches)
			}
			passed.Ring()
			base, n := at.Split()
			to := base.At(n+1, "9")
			return fsm.Batch{JSON: true, From: at, To: to, Within: to, Tail: "9", Passed: 1}, nil
		}
	})
	sub := store.pushSub(hook, wants("wanted"))
	f.Deliver(store.event(sub, "/s/1", "9"))
	<-passed
	f.Deliver(store.event(sub, "/s/2", "000000001"))
	<-taken
	f.stop()
}

// TestAFormerFilterLeavesOutNothing holds that a replica that has not heard of a filter's change skips no event that
// came after it.
func TestAFormerFilterLeavesOutNothing(t *testing.T) {
	taken := make(chan struct{})
	hook := endpoint(t, func(http.ResponseWriter, *http.Request) { close(taken) })
	store := newMemStore()
	sub := store.pushSub(hook, wants("another"))
	f := start(t, store, func(c *Config) { c.ReadBatch = chunks(20, 10, 15) })
	store.SetStale(true)
	store.change(t, wants("wanted"))
	f.Deliver(store.event(sub, "/s/1", "000000020"))
	<-taken
	f.stop()
}

// TestARetryUnderAnotherFilterBringsNoLaterEvents holds that no event is dead for the attempts of other events. So a
// retry does not read behind the events of the first attempt.
func TestARetryUnderAnotherFilterBringsNoLaterEvents(t *testing.T) {
	store := newMemStore()
	got := make(chan string, 10)
	hook := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(format.IDHeader)
		got <- id
		if strings.HasSuffix(id, "_3") {
			store.change(t, func(s *fsm.Subscription) {
				s.Filter = fsm.Filter{Values: map[string][]fsm.Value{"n": {"5"}}}
			})
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	f := start(t, store, func(c *Config) { c.ReadBatch = chunks(20, 10, 3, 5) })
	f.Deliver(store.event(store.pushSub(hook, wants("wanted")), "/s/1", "000000020"))
	store.until(t, "all is over", func() bool {
		c := store.consumer("s:%2Fs%2F1")
		return c.State == fsm.Idle && c.Links["/s/1"].Acked == "000000020"
	})
	f.stop()
	close(got)
	times := map[string]int{}
	for id := range got {
		times[id[strings.LastIndexByte(id, '_'):]]++
	}
	if times["_3"] != 1 || times["_5"] != 2 {
		t.Errorf("event 3 was sent %d times, want 1, and event 5 %d times, want 2", times["_3"], times["_5"])
	}
}

// TestALateReplicaPassesOverNothingThatHasFailedSince makes a replica stand still after it asked whether its filter
// holds, before it tells the store what it has skipped. Meanwhile the filter changes, and another replica fails to
// deliver an event that matches now.
func TestALateReplicaPassesOverNothingThatHasFailedSince(t *testing.T) {
	store := newMemStore()
	reached, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	release := sync.OnceFunc(func() { close(goOn) })
	defer release()
	store.hold = func(op string) {
		if op == "Deliver" {
			once.Do(func() {
				close(reached)
				<-goOn
			})
		}
	}
	const consumer = "s:%2Fs%2F1"
	sub := store.pushSub(endpoint(t, func(http.ResponseWriter, *http.Request) {}), wants("another"))
	f := start(t, store, func(c *Config) { c.ReadBatch, c.DueInterval = chunks(20, 10, 3), time.Hour })
	f.Deliver(store.event(sub, "/s/1", "000000020"))
	<-reached
	store.change(t, wants("wanted"))
	store.db.ChangeConsumer(consumer, func(c *fsm.Consumer) { c.Deadline = store.now().Add(-time.Second) })
	due, _, err := store.other.Due(t.Context(), 0, 10)
	if err != nil || len(due.Deliveries) != 1 {
		t.Fatalf("due are %+v, %v", due.Deliveries, err)
	}
	if _, err := store.other.Fail(t.Context(), due.Deliveries[0].Ref(), fsm.Failure{
		Reason: "status 503", Profile: sub.Profile(), Span: 4,
	}); err != nil {
		t.Fatal(err)
	}
	release()
	f.stop()
	if c := store.consumer(consumer); c.Links["/s/1"].Acked != fsm.Start || c.LastError == "" {
		t.Errorf("what has failed is passed over: %+v", c)
	}
}

// TestWhatTheFilterCannotBeAskedForWaits holds that a stream is not read over and over while a change of the filter is
// possible.
func TestWhatTheFilterCannotBeAskedForWaits(t *testing.T) {
	store := newMemStore()
	store.err = func(op string) error {
		if op == "RefreshCatalog" {
			return fsm.ErrUnavailable
		}
		return nil
	}
	hook := endpoint(t, func(http.ResponseWriter, *http.Request) {})
	f := start(t, store, func(c *Config) { c.ReadBatch = chunks(20, 10, 15) })
	began := store.now().Truncate(time.Millisecond) // deadlines have no more
	f.Deliver(store.event(store.pushSub(hook, wants("wanted")), "/s/1", "000000020"))
	store.untilCalls(t, "Park", 1)
	if due := store.consumer("s:%2Fs%2F1").Deadline; due.Before(began.Add(filterWait)) {
		t.Errorf("it is asked for again %s after it was", due.Sub(began))
	}
	f.stop()
}

// TestAFilterPassesOverNothingForOneThatIsPaused holds that even if another replica has paused the subscription. It
// also holds that a stream of bytes is not dead by a filter that another replica has removed.
func TestAFilterPassesOverNothingForOneThatIsPaused(t *testing.T) {
	for name, tc := range map[string]struct {
		read   BatchReader
		change func(*fsm.Subscription)
	}{
		"it is paused": {chunks(20, 10, 15), func(s *fsm.Subscription) { s.Paused = true }},
		"the filter is taken off": {
			reads(fsm.Batch{ContentType: "text/plain", Events: [][]byte{[]byte("x")}, To: "9", Within: "9", Tail: "9"}),
			func(s *fsm.Subscription) { s.Filter = fsm.Filter{} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			hook := endpoint(t, func(http.ResponseWriter, *http.Request) {})
			store := newMemStore()
			sub := store.pushSub(hook, wants("another"))
			f := start(t, store, func(c *Config) { c.ReadBatch = tc.read })
			store.SetStale(true)
			store.change(t, tc.change)
			f.Deliver(store.event(sub, "/s/1", "000000020"))
			store.until(t, "it waits", func() bool { return store.called("Park")+store.called("Deliver") > 0 })
			f.stop()
			f.letter(t, fsm.DeadLetter{})
			if n := store.called("Deliver"); n > 0 {
				t.Errorf("%d steps were taken", n)
			}
		})
	}
}

// mute is a store that does not answer whether a filter holds.
type mute struct{ *memStore }

func (mute) RefreshCatalog(ctx context.Context) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", fsm.ErrUnavailable, ctx.Err())
}

// TestAStoreThatDoesNotSayWhetherAFilterHoldsHoldsUpNoSlot holds that a push frees its slot, and waits.
func TestAStoreThatDoesNotSayWhetherAFilterHoldsHoldsUpNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemStore()
		sub := store.pushSub("http://127.0.0.1/", wants("wanted"))
		f := start(t, store, func(c *Config) { c.Store, c.ReadBatch = mute{store}, chunks(20, 10, 15) })
		f.Deliver(store.event(sub, "/s/1", "000000020"))
		time.Sleep(sub.Profile().Attempt - time.Millisecond) // then it is made again all the same
		if store.called("Park") == 0 {
			t.Error("it was not put off")
		}
		f.stop()
	})
}
