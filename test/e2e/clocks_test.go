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

func TestDecisionsOnClocks(t *testing.T) {
	t.Parallel()
	e := start(t, options{settings: map[string]string{
		"REVEILLE_WAKING_TIMEOUT": "1s", "REVEILLE_WEBHOOK_TIMEOUT": "6s", "REVEILLE_LIVENESS_TIMEOUT": "60s",
	}})
	// firstHangs has the first attempt hang until the gate opens, and the others fail.
	firstHangs := func(s *fixture, g gate, answer func(http.ResponseWriter)) {
		s.worker.Answer(func(rw http.ResponseWriter, r *http.Request, _ harness.Wake) {
			if len(s.worker.Wakes()) > 1 {
				rw.WriteHeader(http.StatusInternalServerError)
				return
			}
			g.wait(r)
			answer(rw)
		})
	}

	t.Run("D3: without a 2xx or a claim the next attempt has the same wake_id, "+
		"and a late 2xx of the first stops the retries", func(t *testing.T) {
		s, g := e.subscribed(t), make(gate)
		firstHangs(s, g, func(rw http.ResponseWriter) { rw.WriteHeader(http.StatusNoContent) })
		tail := s.begin()
		first, second := s.worker.Wake(1), s.worker.Wake(2)
		s.sameCycle(first, second)
		if gap := second.At.Sub(first.At); gap < time.Second {
			t.Errorf("the next attempt came after %s, before the waking timeout of 1s", gap)
		}
		s.await("second attempt failed",
			func(c fsm.Consumer) bool { return c.Attempt == 2 && !c.Sent || c.Attempt > 2 })
		before := len(s.worker.Wakes())
		close(g)
		s.awaitState(fsm.Live)
		// A third attempt may have been on its way; the schedule's next would be at most 2.6 s after it.
		s.noWakeAfter(before+1, 3*time.Second)
		s.callback(first, first.Claim(true, s.ack(tail)))
	})

	t.Run("D3: a late done of the first attempt counts for what the first attempt was sent with", func(t *testing.T) {
		s, g := e.subscribed(t), make(gate)
		firstHangs(s, g, answerDone)
		tail := s.begin()
		first := s.worker.Wake(1)
		s.awaitTail(s.path, s.gateway.Append(s.path, `"meanwhile"`))
		s.sameCycle(first, s.worker.Wake(2))
		close(g)
		s.await("next cycle",
			func(c fsm.Consumer) bool { return s.cycleOf(c.Epoch) == 2 && string(c.Links[s.path].Acked) == tail })
	})

	t.Run("D3: a claim by callback stops the retries while the request is still open", func(t *testing.T) {
		s, g := e.subscribed(t), make(gate)
		firstHangs(s, g, func(http.ResponseWriter) {})
		s.begin()
		w := s.worker.Wake(1)
		s.callback(w, w.Claim(false))
		s.noWakeAfter(1, 2500*time.Millisecond) // waking timeout and first retry: at most 2.2 s
		close(g)
	})

	t.Run("D3: the request stays open for the webhook timeout and no longer", func(t *testing.T) {
		s := e.subscribed(t)
		open := make(chan time.Duration, 1)
		s.worker.Answer(func(rw http.ResponseWriter, r *http.Request, _ harness.Wake) {
			if len(s.worker.Wakes()) == 1 {
				began := time.Now()
				<-r.Context().Done()
				open <- time.Since(began)
			}
		})
		s.begin()
		select {
		case took := <-open:
			if took < 5*time.Second {
				t.Errorf("the request was given up after %s, want 6s", took)
			}
		case <-time.After(6*time.Second + soon):
			t.Error("the request was not given up at the webhook timeout of 6s")
		}
	})
}

func TestDecisionsOnTheFailureClock(t *testing.T) {
	t.Parallel()
	e := start(t, options{settings: map[string]string{"REVEILLE_GC_AFTER": "30s", "REVEILLE_LIVENESS_TIMEOUT": "60s"}})
	failing := func(c fsm.Consumer) bool { return !c.FirstFailure.IsZero() }

	t.Run("D9: the failure clock is set by the first failure, "+
		"lives across wake cycles, and any 2xx clears it", func(t *testing.T) {
		s := e.subscribed(t)
		s.worker.AnswerStatus(http.StatusInternalServerError)
		tail := s.begin()
		w := s.worker.Wake(1)
		first := s.await("first failure noted", failing).FirstFailure
		s.worker.Wake(2)
		s.callback(w, harness.Callback{Epoch: w.Epoch, Acks: []harness.StreamOffset{s.ack(tail)}, Done: true})
		s.gateway.Append(s.path, `"next"`)
		c := s.await("a failure in the second cycle",
			func(c fsm.Consumer) bool { return s.cycleOf(c.Epoch) == 2 && c.Attempt > 0 && !c.Sent })
		if !c.FirstFailure.Equal(first) {
			t.Errorf("the clock began at %s in the second cycle, want %s as in the first", c.FirstFailure, first)
		}
		s.worker.AnswerStatus(http.StatusAccepted)
		if c := s.awaitState(fsm.Live); !c.FirstFailure.IsZero() {
			t.Errorf("after a 2xx the clock still stands at %s", c.FirstFailure)
		}
	})
}

func TestDecisionsOnTheFailureClockOverARestart(t *testing.T) {
	t.Parallel()
	const gcAfter = 15 * time.Second
	e := start(t, options{settings: map[string]string{"REVEILLE_GC_AFTER": gcAfter.String()}})
	t.Run("D9: the failure clock survives a restart, "+
		"and when its time is up the consumer is given up until the next event", func(t *testing.T) {
		s := e.subscribed(t)
		s.worker.AnswerStatus(http.StatusInternalServerError)
		s.begin()
		w := s.worker.Wake(1)
		first := s.await("first failure noted",
			func(c fsm.Consumer) bool { return !c.FirstFailure.IsZero() }).FirstFailure
		e.rev.Kill()
		attempts := len(s.worker.Wakes())
		e.rev.Start()
		s.sameCycle(w, s.worker.Wake(attempts+1))
		if c, err := s.consumerOf(s.path); err != nil || !c.FirstFailure.Equal(first) {
			t.Errorf("after the restart the clock began at %s (%v), want %s", c.FirstFailure, err, first)
		}
		s.awaitGivenUp(s.path, gcAfter+soon)
		if age := time.Since(first); age < gcAfter {
			t.Errorf("the consumer was given up %s after the first failure, want %s at least", age, gcAfter)
		}
		s.refused(w, w.Claim(false), fsm.CodeConsumerGone)
		attempts = len(s.worker.Wakes())
		s.noWakeAfter(attempts, quiet)
		s.gateway.Append(s.path, `"another"`)
		again := s.worker.Wake(attempts + 1)
		if again.Epoch <= w.Epoch || again.Offset(s.path) != w.Offset(s.path) {
			t.Errorf("the next event woke %+v, after %+v", again, w)
		}
	})
}

// TestFailureClock is the row "3 days continuous webhook failure", with days that are seconds.
func TestFailureClock(t *testing.T) {
	t.Parallel()
	const gcAfter = 6 * time.Second
	e := start(t, options{settings: map[string]string{
		"REVEILLE_GC_AFTER": gcAfter.String(), "REVEILLE_WEBHOOK_TIMEOUT": "1s", "REVEILLE_WAKING_TIMEOUT": "10s",
		"REVEILLE_LIVENESS_TIMEOUT": "60s",
	}})
	failures := map[string]func(w http.ResponseWriter, r *http.Request, wake harness.Wake){
		"an error status": func(w http.ResponseWriter, _ *http.Request, _ harness.Wake) {
			w.WriteHeader(http.StatusInternalServerError)
		},
		"a client error": func(w http.ResponseWriter, _ *http.Request, _ harness.Wake) {
			w.WriteHeader(http.StatusNotFound)
		},
		"a redirect": func(w http.ResponseWriter, r *http.Request, _ harness.Wake) {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		},
		"a cut connection": func(http.ResponseWriter, *http.Request, harness.Wake) { panic(http.ErrAbortHandler) },
		"a hanging request": func(_ http.ResponseWriter, r *http.Request, _ harness.Wake) {
			<-r.Context().Done()
		},
	}

	t.Run("a consumer whose webhook fails for that long is given up, and the next event wakes it", func(t *testing.T) {
		fixtures := map[string]*fixture{}
		for name, fail := range failures {
			s := e.idle(t)
			s.worker.Answer(fail)
			s.append()
			fixtures[name] = s
		}
		there := maps.Clone(fixtures)
		harness.Eventually(t, soon, "all are given up", func() error {
			for name, s := range there {
				c, err := s.consumerOf(s.path)
				switch {
				case err != nil:
					return err
				case c.State == fsm.GivenUp:
					if age := time.Since(s.worker.Wake(1).At); age < gcAfter {
						t.Errorf("with %s the consumer was given up %s after the first attempt", name, age)
					}
					delete(there, name)
				}
			}
			return harness.True(func() bool { return len(there) == 0 }, "%d are there", len(there))()
		})
		for _, s := range fixtures {
			wake, n := s.worker.Wake(1), len(s.worker.Wakes())
			s.refused(wake, wake.Claim(true), fsm.CodeConsumerGone)
			s.noWakeAfter(n, quiet)
			s.append()
			if again := s.worker.Wake(n + 1); again.Epoch <= wake.Epoch || again.Offset(s.path) != wake.Offset(s.path) {
				t.Errorf("the next event woke %+v, after %+v", again, wake)
			}
		}
	})

	t.Run("an endpoint that answers 410 for longer is left alone until it is resumed", func(t *testing.T) {
		s := e.idle(t)
		s.worker.AnswerStatus(http.StatusGone)
		s.append()
		wake := s.worker.Wake(1)
		s.noWakeAfter(1, gcAfter+2*time.Second)
		s.worker.AnswerDone()
		s.admin().Do(http.MethodPost, "/api/v1/subscriptions/"+s.sub.ID+"/resume", "")
		s.sameCycle(wake, s.worker.Wake(2))
	})

	t.Run("a 2xx or a claim in between starts the clock anew", func(t *testing.T) {
		for name, end := range map[string]func(s *fixture){
			"a 2xx":   func(s *fixture) { s.worker.AnswerStatus(http.StatusOK) },
			"done":    func(s *fixture) { s.worker.AnswerDone() },
			"a claim": func(s *fixture) { w := s.worker.Wake(1); s.callback(w, w.Claim(false)) },
		} {
			s := e.idle(t)
			s.worker.AnswerStatus(http.StatusInternalServerError)
			s.append()
			s.await("the failure is booked", func(c fsm.Consumer) bool { return !c.FirstFailure.IsZero() })
			end(s)
			c := s.await("the failure is forgotten after "+name,
				func(c fsm.Consumer) bool { return c.FirstFailure.IsZero() })
			if c.State == fsm.Waking {
				t.Errorf("%s: %+v", name, c)
			}
		}
	})

	t.Run("the clock runs on over the end of a wake", func(t *testing.T) {
		s := e.idle(t)
		s.worker.AnswerStatus(http.StatusInternalServerError)
		first := s.append()
		began := s.await("the failure is booked",
			func(c fsm.Consumer) bool { return !c.FirstFailure.IsZero() }).FirstFailure
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
		s.awaitGivenUp(s.path, soon)
	})
}
