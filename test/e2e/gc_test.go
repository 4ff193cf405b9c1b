package e2e

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

// watched says whether any partition holds a consumer that is subscribed to a stream.
func (s *play) watched(path string) bool {
	s.t.Helper()
	for p := range s.store.Partitions() {
		list, err := s.store.WatchedSince(s.t.Context(), p, 0)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, w := range list {
			if w.Path == path {
				return true
			}
		}
	}
	return false
}

// TestGarbageCollection has a subtest for each row of the table of conditions (webhook spec, Garbage Collection). In each of
// them the consumer is subscribed to a second stream too.
func TestGarbageCollection(t *testing.T) {
	t.Parallel()
	e := start(t, options{settings: calm})

	// withSecond is a live play whose consumer is subscribed to a second stream, and is told of it.
	withSecond := func(t *testing.T) (s *play, wake harness.Wake, second string) {
		s, wake = e.live(t)
		second = s.folder + "-second/stream"
		s.streams.Create(second)
		s.callback(wake, harness.Callback{Epoch: wake.Epoch, WakeID: wake.WakeID, Subscribe: []string{second}})
		if !s.watched(second) {
			t.Fatal("the second stream is not watched")
		}
		return s, wake, second
	}
	// collected checks that nothing is left of a consumer.
	collected := func(s *play, wake harness.Wake, second string) {
		s.t.Helper()
		s.refused(wake, wake.Claim(true), fsm.CodeConsumerGone)
		s.awaitRemoved(s.path)
		harness.Eventually(s.t, soon, "the second stream is let go", harness.True(func() bool { return !s.watched(second) }, "it is watched"))
		s.streams.Append(second, `{"event":"for nobody"}`)
		s.noWakeAfter(len(s.worker.Wakes()))
		s.refused(wake, harness.Callback{Epoch: wake.Epoch}, fsm.CodeConsumerGone)
	}

	t.Run("primary stream deleted, through the gateway: consumer removed", func(t *testing.T) {
		s, wake, second := withSecond(t)
		s.gateway.DeleteStream(s.path)
		if c, err := s.consumerOf(s.path); !errors.Is(err, fsm.ErrNotFound) {
			t.Errorf("when the deletion was answered there was still %+v (%v)", c, err)
		}
		collected(s, wake, second)
	})

	t.Run("primary stream deleted, behind the gateway's back: consumer removed", func(t *testing.T) {
		s, wake, second := withSecond(t)
		s.streams.DeleteStream(s.path)
		collected(s, wake, second)
	})

	t.Run("primary stream deleted, behind the gateway's back, and no callback comes: consumer removed", func(t *testing.T) {
		s, wake, second := withSecond(t)
		s.callback(wake, harness.Callback{Epoch: wake.Epoch, Acks: []harness.StreamOffset{s.ack(s.streams.Tail(s.path))}, Done: true})
		s.streams.DeleteStream(s.path)
		s.awaitRemoved(s.path)
		collected(s, wake, second)
	})

	t.Run("another stream than the primary deleted: consumer stays", func(t *testing.T) {
		s, wake, second := withSecond(t)
		s.gateway.DeleteStream(second)
		s.callback(wake, harness.Callback{Epoch: wake.Epoch})
		tail := s.append()
		s.callback(wake, wake.Claim(true, s.ack(tail)))
		s.append()
		s.worker.Wake(2)
	})

	t.Run("the same stream made anew after its deletion: a new consumer, which begins at its start", func(t *testing.T) {
		s, wake, _ := withSecond(t)
		s.gateway.DeleteStream(s.path)
		s.awaitRemoved(s.path)
		s.gateway.Create(s.path)
		anew := s.worker.Wake(2)
		s.wantPayload(anew, anew.Epoch, []harness.StreamOffset{s.ack("-1")}, s.path)
		if anew.Epoch <= wake.Epoch {
			t.Errorf("epoch %d was followed by %d", wake.Epoch, anew.Epoch)
		}
		// The old one's wakes are those of an earlier epoch now.
		s.refused(wake, wake.Claim(true), fsm.CodeStaleEpoch)
		s.refused(wake, anew.Claim(true), fsm.CodeStaleEpoch)
	})

	t.Run("subscription deleted: all consumers removed, those of another subscription stay", func(t *testing.T) {
		s, wake, second := withSecond(t)
		other := e.empty(t)
		other.path, other.folder = s.path, s.folder
		other.subscribe(s.folder + "/*")
		more := []string{s.folder + "/b", s.folder + "/c"}
		for _, p := range more {
			s.gateway.Create(p)
		}
		s.worker.Wake(3) // one for each of the new streams
		other.worker.Wake(2)
		s.gateway.DeleteSubscription(s.sub.Pattern, s.sub.ID)
		for _, w := range s.worker.Wakes() {
			s.refused(w, w.Claim(true), fsm.CodeConsumerGone)
		}
		for _, p := range more {
			s.awaitRemoved(p)
			s.gateway.Append(p, `{"event":"for nobody"}`)
		}
		collected(s, wake, second)
		for _, w := range other.worker.Wakes() {
			other.callback(w, w.Claim(false))
		}
	})

	t.Run("subscription deleted while a webhook request is open: its answer changes nothing", func(t *testing.T) {
		s := e.idle(t)
		answered := make(chan struct{})
		s.worker.Answer(func(w http.ResponseWriter, r *http.Request, _ harness.Wake) {
			select {
			case <-answered:
				_, _ = w.Write([]byte(`{"done":true}`))
			case <-r.Context().Done():
			}
		})
		s.append()
		wake := s.worker.Wake(1)
		s.gateway.DeleteSubscription(s.sub.Pattern, s.sub.ID)
		close(answered)
		s.refused(wake, wake.Claim(false), fsm.CodeConsumerGone)
		s.awaitRemoved(s.path)
		s.append()
		s.noWakeAfter(1)
	})

	t.Run("unsubscribed from all streams: consumer removed", func(t *testing.T) {
		s, wake, second := withSecond(t)
		a := s.callback(wake, harness.Callback{Epoch: wake.Epoch, Unsubscribe: []string{second}})
		s.wantStreams(a, s.ack(s.tail))
		a = s.callback(wake, harness.Callback{Epoch: wake.Epoch, Unsubscribe: []string{s.path}})
		s.wantStreams(a)
		s.append()
		collected(s, wake, second)
	})

	t.Run("unsubscribed from all streams in one callback that also says done: consumer removed", func(t *testing.T) {
		s, wake, second := withSecond(t)
		s.wantStreams(s.callback(wake, harness.Callback{Epoch: wake.Epoch, Unsubscribe: []string{s.path, second}, Done: true}))
		collected(s, wake, second)
	})
}

// TestFailureClock is the row "3 days continuous webhook failure", with days that are seconds.
func TestFailureClock(t *testing.T) {
	t.Parallel()
	const gcAfter = 6 * time.Second
	e := start(t, options{settings: map[string]string{
		"REVEILLE_GC_AFTER": gcAfter.String(), "REVEILLE_WEBHOOK_TIMEOUT": "1s", "REVEILLE_WAKING_TIMEOUT": "10s", "REVEILLE_LIVENESS_TIMEOUT": "60s",
	}})
	failures := map[string]func(w http.ResponseWriter, r *http.Request, wake harness.Wake){
		"an error status": func(w http.ResponseWriter, _ *http.Request, _ harness.Wake) {
			w.WriteHeader(http.StatusInternalServerError)
		},
		"a client error": func(w http.ResponseWriter, _ *http.Request, _ harness.Wake) { w.WriteHeader(http.StatusNotFound) },
		"a redirect": func(w http.ResponseWriter, r *http.Request, _ harness.Wake) {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		},
		"a cut connection": func(http.ResponseWriter, *http.Request, harness.Wake) { panic(http.ErrAbortHandler) },
		"a hanging request": func(_ http.ResponseWriter, r *http.Request, _ harness.Wake) {
			<-r.Context().Done()
		},
		"the endpoint is gone (410)": func(w http.ResponseWriter, _ *http.Request, _ harness.Wake) { w.WriteHeader(http.StatusGone) },
	}

	t.Run("a consumer whose webhook fails without a break for that long is removed", func(t *testing.T) {
		plays := map[string]*play{}
		for name, fail := range failures {
			s := e.idle(t)
			s.worker.Answer(fail)
			s.append()
			plays[name] = s
		}
		there := maps.Clone(plays)
		harness.Eventually(t, soon, "all are removed", func() error {
			for name, s := range there {
				_, err := s.consumerOf(s.path)
				switch {
				case err != nil && !errors.Is(err, fsm.ErrNotFound):
					return err
				case err != nil:
					if age := time.Since(s.worker.Wake(1).At); age < gcAfter {
						t.Errorf("with %s the consumer was removed %s after the first attempt", name, age)
					}
					delete(there, name)
				}
			}
			return harness.True(func() bool { return len(there) == 0 }, "%d are there", len(there))()
		})
		for _, s := range plays {
			wake, n := s.worker.Wake(1), len(s.worker.Wakes())
			s.refused(wake, wake.Claim(true), fsm.CodeConsumerGone)
			s.append()
			s.noWakeAfter(n)
		}
	})

	t.Run("a 2xx or a claim in between starts the clock anew", func(t *testing.T) {
		for name, end := range map[string]func(s *play){
			"a 2xx":   func(s *play) { s.worker.AnswerStatus(http.StatusOK) },
			"done":    func(s *play) { s.worker.AnswerDone() },
			"a claim": func(s *play) { w := s.worker.Wake(1); s.callback(w, w.Claim(false)) },
		} {
			s := e.idle(t)
			s.worker.AnswerStatus(http.StatusInternalServerError)
			s.append()
			s.await("the failure is booked", func(c fsm.Consumer) bool { return !c.FirstFailure.IsZero() })
			end(s)
			c := s.await("the failure is forgotten after "+name, func(c fsm.Consumer) bool { return c.FirstFailure.IsZero() })
			if c.State == fsm.Waking {
				t.Errorf("%s: %+v", name, c)
			}
		}
	})

	t.Run("the clock runs on over the end of a wake", func(t *testing.T) {
		s := e.idle(t)
		s.worker.AnswerStatus(http.StatusInternalServerError)
		first := s.append()
		began := s.await("the failure is booked", func(c fsm.Consumer) bool { return !c.FirstFailure.IsZero() }).FirstFailure
		wake := s.worker.Wake(1)
		// Without a claim this says nothing about the endpoint.
		s.callback(wake, harness.Callback{Epoch: wake.Epoch, Acks: []harness.StreamOffset{s.ack(first)}, Done: true})
		if c := s.consumer(); c.State != fsm.Idle || !c.FirstFailure.Equal(began) {
			t.Fatalf("after done: %+v", c)
		}
		s.append()
		harness.Eventually(t, soon, "the next wake", func() error {
			c, err := s.consumerOf(s.path)
			switch {
			case errors.Is(err, fsm.ErrNotFound):
				return nil // the time was up meanwhile
			case err != nil:
				return err
			case c.Epoch == wake.Epoch:
				return fmt.Errorf("it is %+v", c)
			case !c.FirstFailure.Equal(began):
				t.Errorf("the clock was set from %s to %s", began, c.FirstFailure)
			}
			return nil
		})
		s.awaitRemoved(s.path)
	})
}
