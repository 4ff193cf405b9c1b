package dispatcher

import (
	"net/http"
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
