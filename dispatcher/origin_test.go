package dispatcher

import (
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec/memstore"
)

// shared is an endpoint that several subscriptions write in several ways, another one, and two replicas, on injected
// time. The second replica owns no partition.
type shared struct {
	t             *testing.T
	store, second *memStore
	one, two      *fixture
	// wakes and pushes have one origin, other has another port.
	wakes, pushes, other fsm.Subscription
	// busy has wakes answered with a Retry-After.
	busy atomic.Bool
	// wait is the Retry-After of these answers, in seconds. pushed answers pushes, if it is set.
	wait   string
	pushed http.HandlerFunc
	// reading is how long a read of events takes.
	reading time.Duration

	mu sync.Mutex
	// came has when requests came, by path.
	came map[string][]time.Time
}

func withShared(t *testing.T, test func(*shared)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &shared{t: t, store: newMemStore(), came: map[string][]time.Time{}, wait: "60"}
		s.second = &memStore{Store: s.store.other, other: s.store.Store, db: s.store.db, now: time.Now}
		s.wakes = s.store.addSubscription("wakes", "http://EXAMPLE.com./wakes")
		s.pushes = s.store.pushSub("http://example.com:0080/pushes", lasting)
		s.other = s.store.addSubscription("other", "http://example.com:8080/other")
		change := func(c *Config) {
			c.DueInterval, c.ShutdownGrace = 200*time.Millisecond, time.Second
			c.ReadBatch = func(
				_ context.Context, _, _ string, at, _ fsm.Offset, _ int, _ int64, _ func([]byte) bool,
			) (fsm.Batch, error) {
				time.Sleep(s.reading)
				batch := oneEvent
				batch.From = at
				return batch, nil
			}
		}
		s.one = start(t, s.store, change, without(t, s))
		s.two = start(t, s.second, change, without(t, s))
		synctest.Wait()
		s.busy.Store(true)
		test(s)
		s.one.stop()
		s.two.stop()
	})
}

func (s *shared) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	s.mu.Lock()
	s.came[r.URL.Path] = append(s.came[r.URL.Path], time.Now())
	s.mu.Unlock()
	if r.URL.Path == "/wakes" && s.busy.Load() {
		answersWith(http.StatusTooManyRequests, "Retry-After", s.wait)(w, r)
		return
	}
	if r.URL.Path == "/pushes" && s.pushed != nil {
		s.pushed(w, r)
		return
	}
	answersDone(w)
}

// asks has the endpoint ask the first replica to wait.
func (s *shared) asks() {
	s.one.Deliver(s.store.event(s.wakes, "/wakes/1", "0001"))
	synctest.Wait()
	s.busy.Store(false)
}

// wants is how many requests have come by now.
func (s *shared) wants(when string, wakes, pushes, other int) {
	s.t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	got := []int{len(s.came["/wakes"]), len(s.came["/pushes"]), len(s.came["/other"])}
	if want := []int{wakes, pushes, other}; !slices.Equal(got, want) {
		s.t.Errorf("%s, %v requests came for wakes, pushes and others, want %v", when, got, want)
	}
}

func (s *shared) consumer(sub fsm.Subscription, path string) fsm.Consumer {
	return s.store.consumer(fsm.ConsumerID(sub.ID, path))
}

// TestARetryAfterHoldsForEachSubscriptionOfItsOrigin holds that no request of any replica or subscription goes to a
// scheme, host and port before the time that it asked for in one answer (CloudEvents webhooks, section 2.2). Nothing
// takes turns meanwhile. Another port goes on.
func TestARetryAfterHoldsForEachSubscriptionOfItsOrigin(t *testing.T) {
	for name, tc := range map[string]struct {
		// meanwhile happens after half a minute, and then so many wakes have come.
		meanwhile     func(*shared)
		wakes, pushes int
		// So many come after the time.
		lateWakes, latePushes int
	}{
		"it lasts": {meanwhile: func(*shared) {}, wakes: 1, lateWakes: 2, latePushes: 2},
		"the subscription that was asked is deleted": {meanwhile: func(s *shared) {
			s.store.deleteSubscription(s.t, s.wakes.ID)
		}, wakes: 1, latePushes: 2},
		"the subscription that was asked moves": {meanwhile: func(s *shared) {
			s.wakes.Webhook = "http://example.com:8081/wakes"
			s.store.db.PutSubscription(s.wakes)
		}, wakes: 1, lateWakes: 2, latePushes: 2},
		"an operator retries": {meanwhile: func(s *shared) {
			if _, err := s.store.RetrySubscription(s.t.Context(), s.wakes.ID); err != nil {
				s.t.Error(err)
			}
			pass(time.Second)
			s.one.Deliver(s.store.event(s.pushes, "/s/3", "0005"))
		}, wakes: 3, pushes: 1, latePushes: 2},
		"an operator retries the other subscription": {meanwhile: func(s *shared) {
			s.second.SetStale(true) // it has not heard of that
			if _, err := s.store.RetrySubscription(s.t.Context(), s.pushes.ID); err != nil {
				s.t.Error(err)
			}
			pass(time.Second)
			s.two.Deliver(s.store.event(s.pushes, "/s/3", "0005"))
		}, wakes: 1, pushes: 3, lateWakes: 2},
	} {
		t.Run(name, func(t *testing.T) {
			withShared(t, func(s *shared) {
				s.asks()
				asked := time.Now()
				s.wants("at first", 1, 0, 0)
				s.two.Deliver(s.store.event(s.pushes, "/s/1", "0005"))
				s.one.Deliver(s.store.event(s.pushes, "/s/2", "0005"))
				s.two.Deliver(s.store.event(s.wakes, "/wakes/2", "0001"))
				s.two.Deliver(s.store.event(s.other, "/other/1", "0001"))
				pass(time.Second)
				s.wants("after it was asked", 1, 0, 1)
				for _, path := range []string{"/s/1", "/s/2"} {
					if c := s.consumer(s.pushes, path); c.Held != fsm.BlockedAskedToWait || c.Attempt != 0 {
						t.Errorf("it is no wait: %+v", c)
					}
				}
				if c := s.consumer(s.wakes, "/wakes/2"); c.Held != fsm.BlockedAskedToWait || c.Attempt != 0 {
					t.Errorf("it is no wait: %+v", c)
				}
				begun, parked := s.store.called("Begin"), s.store.called("Park")
				pass(29 * time.Second)
				if n, m := s.store.called("Begin")-begun, s.store.called("Park")-parked; n+m > 0 {
					t.Errorf("meanwhile %d were begun, and %d parked", n, m)
				}
				tc.meanwhile(s)
				pass(2 * time.Second)
				s.wants("after that", tc.wakes, tc.pushes, 1)
				pass(time.Until(asked.Add(time.Minute - time.Millisecond)))
				s.wants("before the time", tc.wakes, tc.pushes, 1)
				pass(5 * time.Second)
				s.wants("after the time", tc.wakes+tc.lateWakes, tc.pushes+tc.latePushes, 1)
				for _, path := range []string{"/s/1", "/s/2"} {
					if c := s.consumer(s.pushes, path); c.State != fsm.Idle {
						t.Errorf("%s waits: %+v", path, c)
					}
				}
				if kept := s.store.db.Endpoints(); len(kept) != 0 {
					t.Errorf("%+v is kept of endpoints", kept)
				}
			})
		})
	}
}

// TestWhatIsReadWhileItsOriginAsksToWaitIsNotSent is about an answer that comes between the two looks at the endpoint.
// It is no attempt.
func TestWhatIsReadWhileItsOriginAsksToWaitIsNotSent(t *testing.T) {
	withShared(t, func(s *shared) {
		s.reading = 5 * time.Second
		s.two.Deliver(s.store.event(s.pushes, "/s/1", "0005"))
		pass(time.Second)
		s.asks()
		pass(time.Minute - time.Millisecond)
		s.wants("before the time", 1, 0, 0)
		if c := s.consumer(s.pushes, "/s/1"); c.Held != fsm.BlockedAskedToWait || c.Attempt != 0 {
			t.Errorf("it is no wait: %+v", c)
		}
		pass(10 * time.Second)
		s.wants("after the time", 2, 1, 0)
	})
}

// TestAnOriginThatAskedToWaitGetsNoProbe holds that an endpoint that is down is not probed meanwhile, and that no
// delivery is made due for it. A test delivery is sent all the same.
func TestAnOriginThatAskedToWaitGetsNoProbe(t *testing.T) {
	inPushTime(t, lasting, func(p *pushed) {
		p.down(t, 3)
		another := p.store.addSubscription("another", hookURL+"/2")
		wait := fsm.EndpointFailure{RetryAfter: 20 * time.Minute}
		if _, err := p.store.other.FailEndpoint(t.Context(), another, wait); err != nil {
			t.Error(err)
		}
		had, probes := p.hook.requests(), p.store.called("ProbeDelivery")
		pass(20*time.Minute - time.Millisecond)
		if n, m := p.hook.requests()-had, p.store.called("ProbeDelivery")-probes; n+m > 0 {
			t.Errorf("%d requests came, and %d deliveries were made due", n, m)
		}
		p.hook.answers(answersWith(http.StatusOK))
		if sent, err := p.Test(context.Background(), p.sub); err != nil || sent.Status != http.StatusOK {
			t.Errorf("a test delivery is %+v, %v", sent, err)
		}
		pass(time.Minute)
		for _, path := range []string{"/s/waits-0", "/s/waits-1", "/s/waits-2"} {
			if c := p.consumer(path); c.State != fsm.Idle {
				t.Errorf("%s waits: %+v", path, c)
			}
		}
	})
}

// TestNoTurnsAreTakenForAnOriginThatAskedToWait holds that what waits for a rate costs nothing while its origin is
// left alone, and that it goes on then.
func TestNoTurnsAreTakenForAnOriginThatAskedToWait(t *testing.T) {
	withRate(t, func(r *rated) {
		f := r.start(600)
		sub, another := r.subscribe("s", hostA, 0), r.subscribe("another", hostA+":80", 0)
		r.events(f, sub, 300)
		wait := fsm.EndpointFailure{RetryAfter: time.Hour}
		if _, err := r.store.other.FailEndpoint(r.t.Context(), another, wait); err != nil {
			t.Error(err)
		}
		asked := time.Now()
		pass(time.Minute)
		had, turns, begun := len(r.to(hostA)), r.store.called("TakeTurns"), r.store.called("Begin")
		pass(time.Until(asked.Add(time.Hour - time.Millisecond)))
		came, turns, begun := len(r.to(hostA))-had, r.store.called("TakeTurns")-turns, r.store.called("Begin")-begun
		if came > 0 || turns > 1 || begun > 300 { // their deadlines
			t.Errorf("%d came; turns were asked for %d times; %d were begun", came, turns, begun)
		}
		pass(2 * time.Minute)
		if n := len(r.to(hostA)); n != 300 {
			t.Errorf("%d of 300 came in the end", n)
		}
		f.stop()
	})
}

// TestARetryAfterThatTheStoreMissedIsTold has the call or its reply be lost that tells the store of an hour. Another
// request to that origin is under way, and its answer asks for a second. No replica sends anything within the hour.
func TestARetryAfterThatTheStoreMissedIsTold(t *testing.T) {
	type hook = func(memstore.Call) error
	for name, hooks := range map[string]func(hook) memstore.Hooks{
		"the call is lost":  func(lost hook) memstore.Hooks { return memstore.Hooks{Before: lost} },
		"the reply is lost": func(lost hook) memstore.Hooks { return memstore.Hooks{After: lost} },
	} {
		t.Run(name, func(t *testing.T) {
			withShared(t, func(s *shared) {
				losses := 0
				s.store.db.SetHooks(hooks(func(c memstore.Call) error {
					if c.Method != "FailEndpoint" || losses > 0 {
						return nil
					}
					losses++
					return fsm.ErrUnavailable
				}))
				next := make(chan struct{})
				s.pushed = func(w http.ResponseWriter, r *http.Request) {
					<-next
					answersWith(http.StatusTooManyRequests, "Retry-After", "1")(w, r)
				}
				s.wait = "3600"
				s.one.Deliver(s.store.event(s.pushes, "/s/1", "0005"))
				synctest.Wait()
				s.asks()
				asked := time.Now()
				close(next)
				pass(10 * time.Second)
				s.wants("after two answers", 1, 1, 0)
				for i, f := range []*fixture{s.one, s.two} {
					rest, told := f.cfg.Store.Endpoints().Paused(s.wakes)
					if want := time.Until(asked.Add(time.Hour)); (rest-want).Abs() > time.Second || !told {
						t.Errorf("replica %d waits for %s, want %s; the store has told: %t", i, rest, want, told)
					}
				}
				if losses != 1 {
					t.Error("nothing was lost")
				}
			})
		})
	}
}
