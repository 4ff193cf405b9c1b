package e2e

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

func TestDecisionsOnDeletedStreams(t *testing.T) {
	t.Parallel()
	h := &hop{}
	e := beside(t, options{upstream: h.before(t), settings: map[string]string{"REVEILLE_TAIL_CHECK": "100ms"}})
	hidden := func(c fsm.Consumer) bool { return !c.HiddenAt.IsZero() }

	t.Run("D8: a DELETE seen by the gateway removes the consumer at once, "+
		"and a new stream of that name starts afresh", func(t *testing.T) {
		s := e.subscribed(t)
		w, _ := s.beginIdle()
		s.gateway.DeleteStream(s.path)
		if c, err := s.consumerOf(s.path); !errors.Is(err, fsm.ErrNotFound) {
			t.Errorf("after the answer to the DELETE the consumer is there: %+v, %v", c, err)
		}
		s.refused(w, w.Claim(false), fsm.CodeConsumerGone)
		s.gateway.Create(s.path)
		again := s.worker.Wake(2)
		if again.Offset(s.path) != "-1" || again.Epoch <= w.Epoch {
			t.Errorf("the new stream's wake has epoch %d and offset %q, want an epoch above %d and -1", again.Epoch,
				again.Offset(s.path), w.Epoch)
		}
		// The name is in use again, and the old consumer's worker is a zombie.
		s.refused(w, w.Claim(false), fsm.CodeStaleEpoch)
	})

	t.Run("D8: a 404 for everything hides consumers, "+
		"and when upstream is back they carry on at their offsets", func(t *testing.T) {
		s := e.subscribed(t)
		w, tail := s.beginIdle()
		var looks atomic.Int64
		h.do(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == s.path {
				looks.Add(1)
			}
			w.WriteHeader(http.StatusNotFound)
			return true
		})
		defer h.do(nil)
		// The callback is the first to notice, or the watch was; either way it is gone at once.
		s.refused(w, w.Claim(false), fsm.CodeConsumerGone)
		c := s.await("consumer hidden", hidden)
		if string(c.Links[s.path].Acked) != tail {
			t.Errorf("the hidden consumer is at %q, want its offset %q kept", c.Links[s.path].Acked, tail)
		}
		next := s.streams.Append(s.path, `"while it was away"`)
		seen := looks.Load()
		harness.Eventually(t, soon, "two more looks at it",
			harness.True(func() bool { return looks.Load() >= seen+2 }, "there were fewer"))
		s.refused(w, w.Claim(false), fsm.CodeConsumerGone)
		s.wantWakes(s.path, 1)
		h.do(nil)
		again := s.worker.Wake(2)
		s.woken(again, 2, tail)
		s.callback(again, again.Claim(true, s.ack(next)))
		s.worker.AnswerDone()
		s.wakesOnAppend(s.path, next)
		s.wantWakes(s.path, 3)
	})

	t.Run("D8: a consumer that is awake when its stream is hidden goes on with "+
		"its callbacks when it is back", func(t *testing.T) {
		s := e.subscribed(t)
		tail := s.begin()
		w := s.worker.Wake(1)
		s.callback(w, w.Claim(false))
		// Reads that are under way see nothing of it, so the callback may be the only one to notice.
		h.change(func(res *http.Response) {
			if res.Request.Method == http.MethodHead && res.Request.URL.Path == s.path {
				res.StatusCode = http.StatusNotFound
			}
		})
		s.refused(w, w.Claim(true), fsm.CodeConsumerGone)
		h.change(nil)
		s.await("consumer shown", func(c fsm.Consumer) bool { return !hidden(c) })
		if got := offsetsOf(s.callback(w, w.Claim(true, s.ack(tail)))); got[s.path] != tail {
			t.Errorf("the offset is %q, want %q", got[s.path], tail)
		}
		s.worker.AnswerDone()
		s.wakesOnAppend(s.path, tail)
		s.wantWakes(s.path, 2)
	})

	t.Run("D8: a stream whose tail moved backwards is a new one under an old name: "+
		"it starts over at -1", func(t *testing.T) {
		s := e.subscribed(t)
		w, tail := s.beginIdle()
		s.streams.DeleteStream(s.path)
		s.streams.Create(s.path)
		again := s.worker.Wake(2)
		if again.Offset(s.path) != "-1" || again.Epoch <= w.Epoch {
			t.Errorf("the wake has epoch %d and offset %q, want an epoch above %d and -1 (the old stream's was %q)",
				again.Epoch, again.Offset(s.path), w.Epoch, tail)
		}
		s.refused(w, w.Claim(false), fsm.CodeStaleEpoch)
	})

	t.Run("D8: one HEAD that shows a tail moved backwards is not believed without a second", func(t *testing.T) {
		s := e.subscribed(t)
		_, tail := s.beginIdle()
		var heads atomic.Int64
		h.change(func(res *http.Response) {
			if res.Request.Method == http.MethodHead && res.Request.URL.Path == s.path && heads.Add(1) == 1 {
				res.Header.Set("Stream-Next-Offset", "0000000000000000_0000000000000000")
			}
		})
		defer h.change(nil)
		harness.Eventually(t, soon, "the stale HEAD and two more",
			harness.True(func() bool { return heads.Load() >= 3 }, "there were fewer"))
		s.gateway.Append(s.path, `"next"`)
		s.woken(s.worker.Wake(2), 2, tail)
	})
}

func TestD8AStreamThatStaysAwayForTheGraceHasItsConsumerRemovedForGood(t *testing.T) {
	t.Parallel()
	h := &hop{}
	const grace = time.Second
	e := beside(t, options{
		upstream: h.before(t), settings: map[string]string{"REVEILLE_STREAM_GONE_GRACE": grace.String()},
	})
	s := e.subscribed(t)
	w, _ := s.beginIdle()
	began := time.Now()
	h.answer(http.StatusNotFound)
	s.awaitRemoved(s.path, soon)
	if took := time.Since(began); took < grace-grace/40 {
		t.Errorf("the consumer was removed after %s, before the grace of %s", took, grace)
	}
	s.refused(w, w.Claim(false), fsm.CodeConsumerGone)
	h.do(nil) // from now on a new consumer may come at any time
	s.gateway.Append(s.path, `"for a new consumer"`)
	if again := s.worker.Wake(2); again.Epoch <= w.Epoch {
		t.Errorf("the new consumer's wake has epoch %d, want one above %d", again.Epoch, w.Epoch)
	}
	s.refused(w, w.Claim(false), fsm.CodeStaleEpoch)
}
