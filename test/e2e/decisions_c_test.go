package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

// untilRemoved waits until the store has no such consumer any more.
func (s *trial) untilRemoved(within time.Duration) {
	s.t.Helper()
	harness.Eventually(s.t, within, "consumer removed", func() error {
		if _, err := s.consumer(); !errors.Is(err, fsm.ErrNotFound) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
}

func TestDecisionsOnDeletedStreams(t *testing.T) {
	t.Parallel()
	h := &hop{}
	e := start(t, options{upstream: h.before(t), settings: map[string]string{
		"REVEILLE_WAKING_TIMEOUT": "30s", "REVEILLE_LIVENESS_TIMEOUT": "60s", "REVEILLE_STREAM_GONE_GRACE": "4s",
	}})
	hidden := func(c fsm.Consumer) bool { return !c.HiddenAt.IsZero() }

	t.Run("D8: a DELETE seen by the gateway removes the consumer at once, and a new stream of that name starts afresh", func(t *testing.T) {
		s := e.trial(t)
		w, _ := s.beginIdle()
		s.gateway.DeleteStream(s.path)
		if c, err := s.consumer(); !errors.Is(err, fsm.ErrNotFound) {
			t.Errorf("after the answer to the DELETE the consumer is there: %+v, %v", c, err)
		}
		s.refused(w, w.Claim(false), http.StatusGone, fsm.CodeConsumerGone)
		s.gateway.Create(s.path)
		again := s.worker.Wake(2)
		if again.Offset(s.path) != "-1" || again.Epoch <= w.Epoch {
			t.Errorf("the new stream's wake has epoch %d and offset %q, want an epoch above %d and -1", again.Epoch, again.Offset(s.path), w.Epoch)
		}
		// The name is in use again, and the old consumer's worker is a zombie.
		s.refused(w, w.Claim(false), http.StatusConflict, fsm.CodeStaleEpoch)
	})

	t.Run("D8: a 404 for everything hides consumers, and when upstream is back they carry on at their offsets", func(t *testing.T) {
		s := e.trial(t)
		w, tail := s.beginIdle()
		h.answer(http.StatusNotFound)
		defer h.do(nil)
		// The callback is the first to notice, or the watch was; either way it is gone at once.
		s.refused(w, w.Claim(false), http.StatusGone, fsm.CodeConsumerGone)
		c := s.until("consumer hidden", hidden)
		if string(c.Links[s.path].Acked) != tail {
			t.Errorf("the hidden consumer is at %q, want its offset %q kept", c.Links[s.path].Acked, tail)
		}
		next := s.streams.Append(s.path, `"while it was away"`)
		s.noWake(2, 1200*time.Millisecond) // two checks: no wakes while hidden
		s.refused(w, w.Claim(false), http.StatusGone, fsm.CodeConsumerGone)
		h.do(nil)
		again := s.worker.Wake(2)
		s.woken(again, 2, tail)
		s.ok(again, again.Claim(true, s.ack(next)))
		s.noWake(3, quiet)
	})

	t.Run("D8: a consumer that is awake when its stream is hidden goes on with its callbacks when it is back", func(t *testing.T) {
		s := e.trial(t)
		tail := s.begin()
		w := s.worker.Wake(1)
		s.ok(w, w.Claim(false))
		// Reads that are under way see nothing of it, so the callback may be the only one to notice.
		h.change(func(res *http.Response) {
			if res.Request.Method == http.MethodHead && res.Request.URL.Path == s.path {
				res.StatusCode = http.StatusNotFound
			}
		})
		s.refused(w, w.Claim(true), http.StatusGone, fsm.CodeConsumerGone)
		h.change(nil)
		s.until("consumer shown", func(c fsm.Consumer) bool { return !hidden(c) })
		if got := s.ok(w, w.Claim(true, s.ack(tail))); got[s.path] != tail {
			t.Errorf("the offset is %q, want %q", got[s.path], tail)
		}
		s.noWake(2, quiet)
	})

	t.Run("D8: a stream that stays away for the grace has its consumer removed for good", func(t *testing.T) {
		s := e.trial(t)
		w, _ := s.beginIdle()
		began := time.Now()
		h.answer(http.StatusNotFound)
		defer h.do(nil)
		s.untilRemoved(4*time.Second + soon)
		if took := time.Since(began); took < 3900*time.Millisecond {
			t.Errorf("the consumer was removed after %s, before the grace of 4s", took)
		}
		h.do(nil)
		s.refused(w, w.Claim(false), http.StatusGone, fsm.CodeConsumerGone)
		s.gateway.Append(s.path, `"for a new consumer"`)
		if again := s.worker.Wake(2); again.Epoch <= w.Epoch {
			t.Errorf("the new consumer's wake has epoch %d, want one above %d", again.Epoch, w.Epoch)
		}
		s.refused(w, w.Claim(false), http.StatusConflict, fsm.CodeStaleEpoch)
	})

	t.Run("D8: a stream whose tail moved backwards is a new one under an old name: it starts over at -1", func(t *testing.T) {
		s := e.trial(t)
		w, tail := s.beginIdle()
		s.streams.DeleteStream(s.path)
		s.streams.Create(s.path)
		again := s.worker.Wake(2)
		if again.Offset(s.path) != "-1" || again.Epoch <= w.Epoch {
			t.Errorf("the wake has epoch %d and offset %q, want an epoch above %d and -1 (the old stream's was %q)",
				again.Epoch, again.Offset(s.path), w.Epoch, tail)
		}
		s.refused(w, w.Claim(false), http.StatusConflict, fsm.CodeStaleEpoch)
	})

	t.Run("D8: one HEAD that shows a tail moved backwards is not believed without a second", func(t *testing.T) {
		s := e.trial(t)
		_, tail := s.beginIdle()
		var heads atomic.Int64
		h.change(func(res *http.Response) {
			if res.Request.Method == http.MethodHead && res.Request.URL.Path == s.path && heads.Add(1) == 1 {
				res.Header.Set("Stream-Next-Offset", "0000000000000000_0000000000000000")
			}
		})
		defer h.change(nil)
		harness.Eventually(t, soon, "the stale HEAD and two more", harness.True(func() bool { return heads.Load() >= 3 }, "there were fewer"))
		s.noWake(2, quiet)
		s.gateway.Append(s.path, `"next"`)
		s.woken(s.worker.Wake(2), 2, tail)
	})
}

func TestDecisionsOnDeletionsInTheRegistry(t *testing.T) {
	t.Parallel()
	e := start(t, options{
		ref: harness.RefOptions{Registry: true},
		settings: map[string]string{
			"REVEILLE_REGISTRY_STREAM": "/__registry__", "REVEILLE_STREAM_GONE_GRACE": "1h",
			"REVEILLE_WAKING_TIMEOUT": "30s", "REVEILLE_LIVENESS_TIMEOUT": "60s",
		},
	})
	t.Run("D8: a DELETE seen in the registry removes the consumer without any grace", func(t *testing.T) {
		s := e.trial(t)
		s.streams.Create(s.path)
		w := s.worker.Wake(1)
		s.streams.DeleteStream(s.path)
		s.untilRemoved(soon)
		s.refused(w, w.Claim(false), http.StatusGone, fsm.CodeConsumerGone)
	})
}

func TestDecisionsOnTheFailureClock(t *testing.T) {
	t.Parallel()
	e := start(t, options{settings: map[string]string{"REVEILLE_GC_AFTER": "30s", "REVEILLE_LIVENESS_TIMEOUT": "60s"}})
	failing := func(c fsm.Consumer) bool { return !c.FirstFailure.IsZero() }

	t.Run("D9: the failure clock is set by the first failure, lives across wake cycles, and any 2xx clears it", func(t *testing.T) {
		s := e.trial(t)
		s.worker.AnswerStatus(http.StatusInternalServerError)
		tail := s.begin()
		w := s.worker.Wake(1)
		first := s.until("first failure noted", failing).FirstFailure
		s.worker.Wake(2)
		s.ok(w, harness.Callback{Epoch: w.Epoch, Acks: []harness.StreamOffset{s.ack(tail)}, Done: true})
		s.gateway.Append(s.path, `"next"`)
		c := s.until("a failure in the second cycle", func(c fsm.Consumer) bool { return s.cycleOf(c.Epoch) == 2 && c.Attempt > 0 && !c.Sent })
		if !c.FirstFailure.Equal(first) {
			t.Errorf("the clock began at %s in the second cycle, want %s as in the first", c.FirstFailure, first)
		}
		s.worker.AnswerStatus(http.StatusAccepted)
		if c := s.untilState(fsm.Live); !c.FirstFailure.IsZero() {
			t.Errorf("after a 2xx the clock still stands at %s", c.FirstFailure)
		}
	})
}

func TestDecisionsOnTheFailureClockOverARestart(t *testing.T) {
	t.Parallel()
	const gcAfter = 15 * time.Second
	e := start(t, options{settings: map[string]string{"REVEILLE_GC_AFTER": gcAfter.String()}})
	t.Run("D9: the failure clock survives a restart, and when its time is up the consumer is removed", func(t *testing.T) {
		s := e.trial(t)
		s.worker.AnswerStatus(http.StatusInternalServerError)
		s.begin()
		w := s.worker.Wake(1)
		first := s.until("first failure noted", func(c fsm.Consumer) bool { return !c.FirstFailure.IsZero() }).FirstFailure
		e.rev.Kill()
		attempts := len(s.worker.Wakes())
		e.rev.Start()
		s.sameCycle(w, s.worker.Wake(attempts+1))
		if c, err := s.consumer(); err != nil || !c.FirstFailure.Equal(first) {
			t.Errorf("after the restart the clock began at %s (%v), want %s", c.FirstFailure, err, first)
		}
		s.untilRemoved(gcAfter + soon)
		if age := time.Since(first); age < gcAfter {
			t.Errorf("the consumer was removed %s after the first failure, want %s at least", age, gcAfter)
		}
		s.refused(w, w.Claim(false), http.StatusGone, fsm.CodeConsumerGone)
		attempts = len(s.worker.Wakes())
		s.gateway.Append(s.path, `"nobody's"`)
		s.noWake(attempts+1, quiet)
	})
}
