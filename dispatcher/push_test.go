package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/fsm/router"
)

// pushSub stores a push subscription that retries one failure.
func (s *memStore) pushSub(webhook string, change func(*fsm.Subscription)) fsm.Subscription {
	sub := fsm.Subscription{
		ID: "s", Generation: "g-s", Pattern: "/s/*", Webhook: webhook, Secret: "whsec_c19zZWNyZXQ=",
		Mode: fsm.ModePush, Retry: []time.Duration{time.Millisecond},
	}
	if change != nil {
		change(&sub)
	}
	sub = sub.WithDefaults()
	s.db.PutSubscription(sub)
	return sub
}

// reads is a Config.ReadBatch that gives the answers in turn. It repeats the last one for ever.
func reads(answers ...any) BatchReader {
	var n atomic.Int32
	return func(
		_ context.Context, _, _ string, at, _ fsm.Offset, _ int, _ int64, _ func([]byte) bool,
	) (fsm.Batch, error) {
		switch a := answers[min(int(n.Add(1)), len(answers))-1].(type) {
		case error:
			return fsm.Batch{}, a
		case fsm.Batch:
			a.From = at
			return a, nil
		}
		panic("an answer is a Batch or an error")
	}
}

// TestAPush holds what becomes of the events of a stream, by the result of reading them and the answer of the endpoint.
func TestAPush(t *testing.T) {
	event := fsm.Batch{
		ContentType: "application/json", JSON: true, Events: [][]byte{[]byte(`{"n":1}`)}, To: "0005", Tail: "0005",
	}
	some := event
	text := fsm.Batch{ContentType: "text/plain", Events: [][]byte{[]byte("x")}, To: "0005", Tail: "0005"}
	some.To, some.Tail = fsm.Start.At(1, "0005"), "0005"
	for _, tc := range []struct {
		name     string
		reads    []any
		statuses []int // of the answers in turn, the last one for ever
		change   func(*fsm.Subscription)
		requests int
		acked    fsm.Offset
		state    fsm.State
		results  []string
		gone     []string
		letter   fsm.DeadLetter // what it says beside the delivery
	}{
		{
			name: "is done with a 2xx", reads: []any{event}, statuses: []int{200}, requests: 1, acked: "0005",
			state: fsm.Idle, results: []string{"done"},
		},
		{
			name: "of some of what a read shows goes on with the rest", reads: []any{some, event}, statuses: []int{204},
			requests: 2, acked: "0005", state: fsm.Idle, results: []string{"done", "done"},
		},
		{
			name:  "that fails is sent again",
			reads: []any{event}, statuses: []int{503, 200}, requests: 2, acked: "0005", state: fsm.Idle,
			results: []string{"failed", "done"},
		},
		{
			name:  "whose last attempt fails is dead",
			reads: []any{event}, statuses: []int{503}, requests: 2, acked: "0005", state: fsm.Idle,
			results: []string{"failed", "dead"},
			letter: fsm.DeadLetter{
				Events: 1, Attempts: 2, Class: "unavailable", Reason: "status 503", Status: 503, Answer: "why not",
			},
		},
		{
			name: "that is refused is dead", reads: []any{event}, statuses: []int{422}, requests: 1, acked: "0005",
			state: fsm.Idle, results: []string{"dead"},
			letter: fsm.DeadLetter{
				Events: 1, Attempts: 1, Class: "client_error", Reason: "status 422", Status: 422, Answer: "why not",
			},
		},
		{
			name: "of an event that is too large is dead", reads: []any{fsm.Batch{TooLarge: true, To: "0005"}},
			acked: "0005", state: fsm.Idle, results: []string{"dead"},
			letter: fsm.DeadLetter{
				Events: 1, Class: "too_large", Reason: "the event is larger than a delivery may be",
			},
		},
		{
			name:  "of an event that is nested too deep is dead",
			reads: []any{fsm.Batch{TooDeep: true, To: "0005"}}, acked: "0005", state: fsm.Idle,
			results: []string{"dead"},
			letter: fsm.DeadLetter{
				Events: 1, Class: "too_deep", Reason: "the event is nested deeper than a delivery may be",
			},
		},
		{
			name:  "of events that are not kept is dead",
			reads: []any{fsm.Batch{NotKept: true, To: "0005"}}, acked: "0005", state: fsm.Idle,
			results: []string{"dead"},
			letter: fsm.DeadLetter{
				Class: "not_kept", Reason: "the stream server does not keep the events any more",
			},
		},
		{
			name:   "of a stream that is not JSON is dead where there is a filter",
			reads:  []any{text},
			change: func(s *fsm.Subscription) { s.Filter.Events = []string{"a"} },
			acked:  "0005", state: fsm.Idle, results: []string{"dead"},
			letter: fsm.DeadLetter{
				Events: 1, Class: "not_json", Reason: "the subscription has a filter, and the stream is not JSON",
			},
		},
		{
			name: "by a filter that only a later version knows waits", reads: []any{event},
			change: func(s *fsm.Subscription) { s.Filter.Values = map[string][]fsm.Value{"a.#": {"1"}} },
			acked:  fsm.Start, state: fsm.Waking, results: []string{"blocked"},
		},
		{
			name: "of any stream is as before where the filter takes all", statuses: []int{200}, requests: 1,
			reads:  []any{text},
			change: func(s *fsm.Subscription) { s.Filter.Events = []string{"a", "*"} },
			acked:  "0005", state: fsm.Idle, results: []string{"done"},
		},
		{
			name: "without events is done", reads: []any{fsm.Batch{To: "0005", Tail: "0005"}}, acked: "0005",
			state: fsm.Idle, results: []string{"empty"},
		},
		{
			name: "that is answered 410 waits for a resumption", reads: []any{event}, statuses: []int{410}, requests: 1,
			acked: fsm.Start, state: fsm.Waking, results: []string{"retired"},
		},
		{
			name: "whose events cannot be read waits", reads: []any{errors.New("no answer")}, acked: fsm.Start,
			state: fsm.Waking, results: []string{"blocked"},
		},
		{
			name: "of a stream that is gone waits, and has the stream looked at", reads: []any{fsm.ErrNoStream},
			acked: fsm.Start, state: fsm.Waking, results: []string{"blocked"}, gone: []string{"/s/1"},
		},
		{
			name: "that is not answered in its own time fails", reads: []any{event}, statuses: []int{0, 200},
			change:   func(s *fsm.Subscription) { s.Timeout = 100 * time.Millisecond },
			requests: 2, acked: "0005", state: fsm.Idle, results: []string{"failed", "done"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var requests atomic.Int32
			hook := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				status := tc.statuses[min(int(requests.Add(1)), len(tc.statuses))-1]
				if status == 0 {
					<-r.Context().Done()
					return
				}
				w.WriteHeader(status)
				_, _ = io.WriteString(w, "why\x00 not\xff")
			})
			results := make(chan string, 10)
			f := start(t, newMemStore(), func(c *Config) { c.ReadBatch = reads(tc.reads...) }, func(d *Dispatcher) {
				d.cfg.Outcomes.Observe(router.Observer{Attempt: func(a fsm.Attempt) { results <- a.Result.String() }})
			})
			f.Deliver(f.store.event(f.store.pushSub(hook, tc.change), "/s/1", "0005"))
			for _, want := range tc.results {
				if got := <-results; got != want {
					t.Fatalf("an attempt is %s, want %s", got, want)
				}
			}
			f.store.until(t, "the consumer is as it should be", func() bool {
				c := f.store.consumer("s:%2Fs%2F1")
				return c.State == tc.state && c.Links["/s/1"].Acked == tc.acked && (!c.Sent || tc.state == fsm.Idle)
			})
			f.stop()
			f.letter(t, tc.letter)
			if n := int(requests.Load()); n != tc.requests {
				t.Errorf("the endpoint got %d requests, want %d", n, tc.requests)
			}
			if got := f.idle.missed(); !slices.Equal(got, tc.gone) {
				t.Errorf("the streams %q were to be looked at, want %q", got, tc.gone)
			}
		})
	}
}

// letter holds which dead letter is kept; none if want is zero.
func (f *fixture) letter(t *testing.T, want fsm.DeadLetter) {
	t.Helper()
	list, err := f.store.DeadLetters(t.Context(), fsm.LetterSpan{
		Partition: f.store.PartitionOf("/s/1"), Through: fsm.MaxLetterNumber,
	}, 10)
	if err != nil {
		t.Fatal(err)
	}
	if want == (fsm.DeadLetter{}) && len(list) == 0 {
		return
	}
	if len(list) != 1 {
		t.Fatalf("%d dead letters are kept: %+v", len(list), list)
	}
	got := list[0]
	if got.Stream != "/s/1" || got.Consumer != "s:%2Fs%2F1" || got.Subscription != "s" || got.Generation != "g-s" ||
		got.From != fsm.Start || got.To != "0005" || got.DeliveryID == "" {
		t.Errorf("the letter is of %+v", got)
	}
	got = fsm.DeadLetter{
		Events: got.Events, Attempts: got.Attempts, Class: got.Class, Reason: got.Reason, Status: got.Status,
		Answer: got.Answer,
	}
	if got != want {
		t.Errorf("the letter says %+v, want %+v", got, want)
	}
}

// TestAPushSaysWhetherItsEventsHaveBeenRead holds that a retry differs from a push that brings events for the first
// time.
func TestAPushSaysWhetherItsEventsHaveBeenRead(t *testing.T) {
	statuses := []int{http.StatusServiceUnavailable, http.StatusOK}
	var requests atomic.Int32
	hook := endpoint(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(statuses[requests.Add(1)-1])
	})
	said := make(chan int64, 10)
	read := reads(fsm.Batch{JSON: true, Events: [][]byte{[]byte("1")}, To: "0005", Tail: "0005"})
	f := start(t, newMemStore(), func(c *Config) {
		c.ReadBatch = func(
			ctx context.Context, reader, path string, at, end fsm.Offset, events int, span int64,
			matches func([]byte) bool,
		) (fsm.Batch, error) {
			said <- span
			return read(ctx, reader, path, at, end, events, span, matches)
		}
	})
	f.Deliver(f.store.event(f.store.pushSub(hook, nil), "/s/1", "0005"))
	for i, want := range []int64{0, 1} {
		if got := <-said; got != want {
			t.Errorf("read %d is of a span of %d", i+1, got)
		}
	}
	f.stop()
}

// TestPushesInFlightAreBoundedInMemory holds that no more events are in memory than the limit allows.
func TestPushesInFlightAreBoundedInMemory(t *testing.T) {
	store := newMemStore()
	s := newSlots(1000, 900, 1000, maxInFlightBytes, newMetrics(nil, 10))
	l := s.lane(laneKey{"s", "g"}, (*Dispatcher)(nil).newKinds()[fsm.ModePush].size)
	n := 0
	for now := store.now(); s.mayStart(l, 100, now); n++ {
		s.take(l, 100, now)
	}
	most := maxInFlightBytes / pushSize
	if n > most/2 || n < most/3 {
		t.Errorf("%d pushes of a new subscription are in flight, want less than half of %d", n, most)
	}
	for k := range 2 * most { // many new ones
		if l := s.lane(laneKey{fmt.Sprint(k), "g"}, pushSize); s.mayStart(l, 100, store.now()) {
			s.take(l, 100, store.now())
			n++
		}
	}
	if n > most || n < most/2 {
		t.Errorf("%d pushes are in flight, want about %d", n, most)
	}
	working := s.lane(laneKey{"works", "g"}, pushSize)
	if s.mayStart(working, 100, store.now()) {
		t.Error("a push of a new subscription may start beside them")
	}
	if working.standing = proven; !s.mayStart(working, 100, store.now()) {
		t.Error("a push whose endpoint works may not start beside those of a new one")
	}
	wakes := s.lane(laneKey{"new", "g"}, 0)
	if !s.mayStart(wakes, 100, store.now()) {
		t.Error("a new subscription's wake may not start beside them")
	}
	wakes.standing = failing
	if !s.mayStart(wakes, 100, store.now()) {
		t.Error("a wake whose endpoint has failed may not start beside them")
	}
}
