package dispatcher

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"reveille/fsm"
)

// pause lets another replica pause a subscription.
func (s *memStore) pause(t *testing.T, id string) {
	t.Helper()
	if _, err := s.other.ChangeSubscription(t.Context(), id, func(now fsm.Subscription) (fsm.Subscription, error) {
		now.Paused = true
		return now, nil
	}); err != nil {
		t.Error(err)
	}
}

// resume lets another replica resume it.
func (f *fixture) resume(t *testing.T, id string) {
	t.Helper()
	_, out, err := f.store.other.ResumeSubscription(t.Context(), id)
	if err != nil {
		t.Error(err)
	}
	f.follow(out)
}

// TestAPausedSubscriptionGetsNothing holds that no attempt is begun or counted, not even a probe. Waiting costs the
// store little. A resumption sends at once what was held back. Failed deliveries follow once the endpoint has taken one
// delivery.
func TestAPausedSubscriptionGetsNothing(t *testing.T) {
	inPushTime(t, lasting, func(p *pushed) {
		failed, waits := p.down(t, 20)
		p.store.pause(t, p.sub.ID)
		synctest.Wait()
		had, parked, probes := p.hook.requests(), p.store.called("Park"), p.store.called("ProbeEndpoint")
		late := []string{"/s/late-1", "/s/late-2"}
		for _, path := range late {
			p.event(path)
		}
		const long = time.Hour
		pass(long)
		if n := p.hook.requests() - had; n != 0 {
			t.Errorf("%d requests came", n)
		}
		if n := p.store.called("ProbeEndpoint") - probes; n != 0 {
			t.Errorf("%d times the store was asked for a probe", n)
		}
		waits = append(waits, late...)
		for _, path := range waits {
			if c := p.consumer(path); c.State != fsm.Waking || c.Attempt != 0 || c.Sent {
				t.Errorf("%s: %+v", path, c)
			}
		}
		// At first some wait for a probe, which is less than a minute.
		if n, most := p.store.called("Park")-parked, len(waits)*(int(long/pauseStep)+2); n > most {
			t.Errorf("the store was told %d times that one of %d waits, want %d at most", n, len(waits), most)
		}
		p.hook.answers(answersWith(http.StatusOK))
		p.resume(t, p.sub.ID)
		pass(5 * time.Second) // one is the probe, the others come after it: at once, or when they ask for the next one
		for _, path := range waits {
			if c := p.consumer(path); c.State != fsm.Idle || len(p.hook.times(path)) != 1 {
				t.Errorf("once resumed, %s got %d requests: %+v", path, len(p.hook.times(path)), c)
			}
		}
		for _, path := range failed {
			if c := p.consumer(path); c.State != fsm.Idle || len(p.hook.times(path)) != 2 {
				t.Errorf("once resumed, %s got %d requests: %+v", path, len(p.hook.times(path)), c)
			}
		}
	})
}

// TestAPauseEndsForAReplicaThatHasNotHeardOfIt holds that such a replica holds nothing back for long: it asks the
// store.
func TestAPauseEndsForAReplicaThatHasNotHeardOfIt(t *testing.T) {
	inPushTime(t, nil, func(p *pushed) {
		p.store.pause(t, p.sub.ID)
		p.event("/s/1")
		pass(time.Minute)
		p.store.SetStale(true)
		p.resume(t, p.sub.ID)
		p.event("/s/2")
		pass(time.Second)
		for _, path := range []string{"/s/1", "/s/2"} {
			if c := p.consumer(path); c.State != fsm.Idle || len(p.hook.times(path)) != 1 {
				t.Errorf("%s got %d requests: %+v", path, len(p.hook.times(path)), c)
			}
		}
	})
}

// TestAPauseHoldsForWhatIsBeingRead holds that nothing is sent if a pause begins while its events are read. If it was a
// probe, the probe goes to another delivery.
func TestAPauseHoldsForWhatIsBeingRead(t *testing.T) {
	inPushTime(t, lasting, func(p *pushed) {
		_, waits := p.down(t, 1)
		had := p.hook.requests()
		p.pauses.Store(true)
		pass(time.Minute)
		if n := p.hook.requests() - had; n != 0 || p.pauses.Load() {
			t.Fatalf("%d requests came", n)
		}
		if c := p.consumer(waits[0]); c.Attempt != 0 || c.Sent {
			t.Errorf("%+v", c)
		}
		p.hook.answers(answersWith(http.StatusOK))
		p.resume(t, p.sub.ID)
		if pass(time.Second); p.consumer(waits[0]).State != fsm.Idle {
			t.Errorf("the endpoint is not probed: %+v", p.consumer(waits[0]))
		}
	})
}

// TestASubscriptionWhoseEndpointFailsForLongIsPaused holds that it is paused by a failure that comes so long after the
// first one, without a 2xx in between, and that its deliveries wait. A resumption begins the time anew.
func TestASubscriptionWhoseEndpointFailsForLongIsPaused(t *testing.T) {
	patient := func(s *fsm.Subscription) {
		s.DisableAfter, s.Retry = time.Hour, slices.Repeat([]time.Duration{10 * time.Minute}, 100)
	}
	inPushTime(t, patient, func(p *pushed) {
		now := func() fsm.Subscription {
			t.Helper()
			if err := p.store.RefreshCatalog(t.Context()); err != nil {
				t.Fatal(err)
			}
			sub, _ := p.store.Catalog().Get(p.sub.ID)
			return sub
		}
		fail := func() { p.hook.answers(answersWith(http.StatusServiceUnavailable)) }
		fail()
		p.event("/s/1")
		pass(55 * time.Minute)
		if now().Paused {
			t.Fatal("it is paused before its time")
		}
		p.hook.answers(answersWith(http.StatusOK))
		pass(10 * time.Minute)
		fail()
		p.event("/s/2")
		pass(55 * time.Minute)
		if now().Paused {
			t.Fatal("what failed before a 2xx counts")
		}
		pass(20 * time.Minute)
		if sub := now(); !sub.Paused || !sub.Disabled || p.logged("was paused: its endpoint has failed") != 1 {
			t.Fatalf("it is %+v", sub)
		}
		had := p.hook.requests()
		pass(24 * time.Hour)
		if n := p.hook.requests() - had; n != 0 {
			t.Errorf("%d requests came while it was paused", n)
		}
		p.resume(t, p.sub.ID)
		pass(55 * time.Minute)
		if sub := now(); sub.Paused || p.hook.requests() == had {
			t.Errorf("once it is resumed, %d requests came, and it is %+v", p.hook.requests()-had, sub)
		}
		pass(30 * time.Minute)
		if sub := now(); !sub.Disabled {
			t.Errorf("it fails for an hour again, and is %+v", sub)
		}
		p.hook.answers(answersWith(http.StatusOK))
		p.resume(t, p.sub.ID)
		pass(time.Minute)
		if c := p.consumer("/s/2"); c.State != fsm.Idle || now().Paused {
			t.Errorf("in the end the consumer is %+v", c)
		}
	})
}

// TestA410StopsTheSubscription holds that no stream of it gets a request any more, by whichever replica, until it is
// resumed, whatever webhook it has then. Another subscription goes on, also at the same endpoint.
func TestA410StopsTheSubscription(t *testing.T) {
	for name, end := range map[string]func(r *rated, f *fixture, sub fsm.Subscription){
		"resumed": func(*rated, *fixture, fsm.Subscription) {},
		"resumed with another webhook": func(r *rated, _ *fixture, sub fsm.Subscription) {
			_, err := r.store.other.ChangeSubscription(r.t.Context(), sub.ID,
				func(s fsm.Subscription) (fsm.Subscription, error) {
					s.Webhook = "http://" + hostB + "/hook"
					return s, nil
				})
			if err != nil {
				r.t.Error(err)
			}
			pass(2 * pauseStep)
			if n := len(r.to(hostB)); n != 0 {
				r.t.Errorf("%d requests came to the other webhook before", n)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			withRate(t, func(r *rated) {
				gone := true
				r.hook.answer = func(_ int, w http.ResponseWriter, req *http.Request) {
					r.mu.Lock()
					defer r.mu.Unlock()
					r.came[req.Host] = append(r.came[req.Host], time.Now())
					if gone && req.URL.Path == "/hook" {
						w.WriteHeader(http.StatusGone)
						return
					}
					answersDone(w)
				}
				f, g := r.start(0), r.start(0)
				sub := r.subscribe("s", hostA, 0)
				other := r.store.addSubscription("other", "http://"+hostA+"/other")
				r.events(f, sub, 1)
				pass(time.Second)
				for i := 1; i < 5; i++ {
					[]*fixture{f, g}[i%2].Deliver(r.store.event(sub, fmt.Sprintf("/s/%d", i), "0001"))
				}
				r.events(f, other, 3)
				pass(time.Hour)
				if n := len(r.to(hostA)); n != 1+3 {
					t.Errorf("%d requests came", n)
				}
				if c := r.store.consumer("s:%2Fs%2F3"); c.Held != fsm.BlockedRetired || c.Attempt != 0 {
					t.Errorf("one that waits is %+v", c)
				}
				r.mu.Lock()
				gone = false
				r.mu.Unlock()
				end(r, f, sub)
				f.resume(t, sub.ID)
				pass(time.Second)
				if n := len(r.to(hostA)) + len(r.to(hostB)) - 4; n != 5 {
					t.Errorf("%d of 5 came", n)
				}
				f.stop()
				g.stop()
			})
		})
	}
}

// TestOneAnswer410StopsASubscriptionOnce holds that a report which fails and is repeated does not stop the subscription
// again: an operator may have resumed it meanwhile.
func TestOneAnswer410StopsASubscriptionOnce(t *testing.T) {
	withRate(t, func(r *rated) {
		r.hook.answer = func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }
		f, away := r.start(0), true
		r.store.err = func(op string) error {
			if op == "Fail" && away {
				return fsm.ErrUnavailable
			}
			return nil
		}
		sub := r.subscribe("s", hostA, 0)
		r.events(f, sub, 1)
		pass(time.Millisecond)
		if now := r.now(sub); !now.Retired || r.store.called("Fail") == 0 {
			t.Errorf("before its report it is %+v", now)
		}
		f.resume(t, sub.ID)
		r.store.mu.Lock()
		away = false
		r.store.mu.Unlock()
		pass(time.Minute)
		if n := r.store.called("RetireSubscription"); n != 1 || r.now(sub).Retired {
			t.Errorf("it was stopped %d times, and is %+v", n, r.now(sub))
		}
		f.stop()
	})
}

// TestA410OfAFormerWebhookIsAFailure holds that it does not stop the deliveries to the webhook of now.
func TestA410OfAFormerWebhookIsAFailure(t *testing.T) {
	withRate(t, func(r *rated) {
		changed := make(chan struct{})
		r.hook.answer = func(_ int, w http.ResponseWriter, req *http.Request) {
			r.mu.Lock()
			r.came[req.Host] = append(r.came[req.Host], time.Now())
			r.mu.Unlock()
			if req.Host == hostA {
				<-changed
				w.WriteHeader(http.StatusGone)
				return
			}
			answersDone(w)
		}
		f := r.start(0)
		sub := r.subscribe("s", hostA, 0)
		r.events(f, sub, 1)
		sub.Webhook = "http://" + hostB + "/hook"
		r.store.db.PutSubscription(sub)
		close(changed)
		pass(time.Millisecond)
		c := r.store.consumer("s:%2Fs%2F0")
		if r.now(sub).Retired || c.Retired || c.Attempt != 1 || c.FirstFailure.IsZero() {
			t.Errorf("the subscription is %+v, the consumer %+v", r.now(sub), c)
		}
		pass(time.Hour)
		if c := r.store.consumer("s:%2Fs%2F0"); c.State != fsm.Idle || len(r.to(hostB)) != 1 {
			t.Errorf("%d came to the webhook of now; the consumer is %+v", len(r.to(hostB)), c)
		}
		f.stop()
	})
}

// now is how a subscription is stored now.
func (r *rated) now(sub fsm.Subscription) fsm.Subscription {
	r.t.Helper()
	if err := r.store.other.RefreshCatalog(r.t.Context()); err != nil {
		r.t.Error(err)
	}
	sub, _ = r.store.other.Catalog().Get(sub.ID)
	return sub
}
