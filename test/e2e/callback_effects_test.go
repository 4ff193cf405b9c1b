package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

func TestDecisionsOnCallbacks(t *testing.T) {
	t.Parallel()
	e := start(t, options{})

	t.Run("D7: one callback is processed in the order claim, acks, subscribe, unsubscribe, done", func(t *testing.T) {
		s := e.subscribed(t)
		tail := s.begin()
		added, passing := s.folder+"-added/stream", s.folder+"-passing/stream"
		addedTail := s.streams.Create(added)
		s.streams.Create(passing)
		w := s.worker.Wake(1)
		got := offsetsOf(s.callback(w, harness.Callback{
			Epoch: w.Epoch, WakeID: w.WakeID,
			// The ack of a stream that is only subscribed to afterwards is ignored, whatever it says.
			Acks:        []harness.StreamOffset{s.ack(tail), {Path: added, Offset: beyond}},
			Subscribe:   []string{added, passing},
			Unsubscribe: []string{passing},
			Done:        true,
		}))
		if len(got) != 2 || got[s.path] != tail || got[added] != addedTail {
			t.Errorf("the streams are %v, want %s at %s and %s at %s", got, s.path, tail, added, addedTail)
		}
		s.noWakeAfter(1, quiet) // done came last, when nothing was pending any more
		s.gateway.Append(passing, `"nobody's"`)
		s.noWakeAfter(1, quiet)
		s.gateway.Append(added, `"pending"`)
		if w := s.worker.Wake(2); len(w.TriggeredBy) != 1 || w.TriggeredBy[0] != added {
			t.Errorf("the second wake was triggered by %v, want %s", w.TriggeredBy, added)
		}
	})

	t.Run("D7: unsubscribing comes after acks and before done", func(t *testing.T) {
		s := e.subscribed(t)
		s.begin()
		other := s.folder + "-other/stream"
		s.streams.Create(other)
		w := s.worker.Wake(1)
		s.callback(w, harness.Callback{Epoch: w.Epoch, WakeID: w.WakeID, Subscribe: []string{other}})
		leave := harness.Callback{Epoch: w.Epoch, Unsubscribe: []string{s.path}, Done: true}
		leave.Acks = []harness.StreamOffset{s.ack(beyond)}
		s.refused(w, leave, fsm.CodeInvalidOffset)
		leave.Acks = nil
		s.callback(w, leave)
		s.noWakeAfter(1, quiet) // the event of the stream that was left is pending no more
	})

	t.Run("D7: unsubscribing from the last stream answers with no streams, "+
		"and the consumer is gone", func(t *testing.T) {
		s := e.subscribed(t)
		s.begin()
		w := s.worker.Wake(1)
		a := s.gateway.Callback(w,
			harness.Callback{Epoch: w.Epoch, WakeID: w.WakeID, Unsubscribe: []string{s.path}, Done: true})
		if a.Status != http.StatusOK || !strings.Contains(a.Body, `"streams":[]`) || a.Token == "" {
			t.Errorf("the answer is %d %s, want 200 with a token and \"streams\":[]", a.Status, a.Body)
		}
		s.refused(w, w.Claim(false), fsm.CodeConsumerGone)
		s.gateway.Append(s.path, `"nobody's"`)
		s.noWakeAfter(1, quiet)
	})

	t.Run("D7: in WAKING a callback without wake_id is processed and claims nothing, "+
		"and a done in it ends the wake", func(t *testing.T) {
		s := e.subscribed(t)
		s.worker.AnswerStatus(http.StatusInternalServerError)
		tail := s.begin()
		w := s.worker.Wake(1)
		s.callback(w, harness.Callback{Epoch: w.Epoch, Acks: []harness.StreamOffset{s.ack(tail)}})
		again := s.worker.Wake(len(s.worker.Wakes()) + 1)
		s.sameCycle(w, again)
		s.woken(again, 1, tail)
		s.callback(again, harness.Callback{Epoch: w.Epoch, Done: true})
		// An attempt that was out at that moment may still arrive; none comes after it.
		s.awaitState(fsm.Idle)
		s.noWakeAfter(len(s.worker.Wakes())+1, 2*time.Second)
		s.worker.AnswerStatus(http.StatusOK)
		s.gateway.Append(s.path, `"next"`)
		harness.Eventually(t, soon, "the next wake", harness.True(func() bool {
			wakes := s.worker.Wakes()
			return s.cycle(wakes[len(wakes)-1]) == 2
		}, "it has not come"))
	})
}

// In these, nothing but the callback itself can tell Reveille what became of a stream: its reads hang.
func TestDecisionsOnWhatACallbackSees(t *testing.T) {
	t.Parallel()
	h := &hop{}
	e := start(t, options{upstream: h.before(t), settings: map[string]string{
		"REVEILLE_WAKING_TIMEOUT": "30s", "REVEILLE_LIVENESS_TIMEOUT": "60s", "REVEILLE_TAIL_CHECK": "10m",
	}})
	h.holdReads()

	t.Run("D6: an ack below the recorded offset changes nothing and is no error", func(t *testing.T) {
		s := e.subscribed(t)
		first := s.begin()
		w := s.worker.Wake(1)
		second := s.streams.Append(s.path, `"second"`)
		for _, offset := range []string{second, first, "-1", second} {
			if got := offsetsOf(s.callback(w, w.Claim(false, s.ack(offset)))); got[s.path] != second {
				t.Errorf("after an ack of %q the offset is %q, want %q", offset, got[s.path], second)
			}
		}
	})

	t.Run("D6: an ack for a path that the consumer is not subscribed to is ignored", func(t *testing.T) {
		s := e.subscribed(t)
		tail := s.begin()
		w := s.worker.Wake(1)
		got := offsetsOf(s.callback(w,
			w.Claim(false, s.ack(tail), harness.StreamOffset{Path: s.path + "-other", Offset: beyond})))
		if len(got) != 1 || got[s.path] != tail {
			t.Errorf("the streams are %v, want the one at %q", got, tail)
		}
	})

	t.Run("D6: an ack beyond the tail that is known but not beyond upstream's is right", func(t *testing.T) {
		s := e.subscribed(t)
		s.begin()
		other := s.folder + "-other/stream"
		s.streams.Create(other)
		w := s.worker.Wake(1)
		s.callback(w, harness.Callback{Epoch: w.Epoch, WakeID: w.WakeID, Subscribe: []string{other}})
		h.untilHeld(t, s.path)
		h.untilHeld(t, other)
		want := map[string]string{s.path: s.streams.Append(s.path, `"new"`), other: s.streams.Append(other, `"new"`)}
		if c, err := s.consumerOf(s.path); err != nil || string(c.Links[other].Tail) == want[other] {
			t.Fatalf("Reveille knows the new tail already (%v): the test shows nothing", err)
		}
		got := offsetsOf(s.callback(w,
			w.Claim(true, s.ack(want[s.path]), harness.StreamOffset{Path: other, Offset: want[other]})))
		if got[s.path] != want[s.path] || got[other] != want[other] {
			t.Errorf("the streams are %v, want %v", got, want)
		}
		s.noWakeAfter(1, quiet)
	})

	t.Run("D6: an ack beyond upstream's tail is refused, for any of the streams", func(t *testing.T) {
		s := e.subscribed(t)
		tail := s.begin()
		other := s.folder + "-other/stream"
		otherTail := s.streams.Create(other)
		w := s.worker.Wake(1)
		s.callback(w, harness.Callback{Epoch: w.Epoch, WakeID: w.WakeID, Subscribe: []string{other}})
		for _, path := range []string{s.path, other} {
			a := s.refused(w, w.Claim(true, harness.StreamOffset{Path: path, Offset: beyond}), fsm.CodeInvalidOffset)
			if !strings.Contains(a.Error.Message, path) {
				t.Errorf("the message %q does not name the stream %s", a.Error.Message, path)
			}
		}
		got := offsetsOf(s.callback(w, w.Claim(true, s.ack(tail))))
		if got[s.path] != tail || got[other] != otherTail {
			t.Errorf("the streams are %v, want %q and %q", got, tail, otherTail)
		}
	})

	t.Run("D7: in IDLE a late callback of the current epoch may still ack", func(t *testing.T) {
		s := e.subscribed(t)
		w, tail := s.beginIdle()
		h.untilHeld(t, s.path)
		late := s.streams.Append(s.path, `"read by the worker before it went"`)
		got := offsetsOf(s.callback(w, harness.Callback{Epoch: w.Epoch, Acks: []harness.StreamOffset{s.ack(late)}}))
		if got[s.path] != late {
			t.Errorf("the offset is %q, want %q (it was %q)", got[s.path], late, tail)
		}
		s.noWakeAfter(1, quiet)
		s.gateway.Append(s.path, `"next"`)
		s.woken(s.worker.Wake(2), 2, late)
	})

	t.Run("D8: a callback finds the primary stream deleted even if nobody told Reveille", func(t *testing.T) {
		s := e.subscribed(t)
		tail := s.begin()
		w := s.worker.Wake(1)
		s.callback(w, w.Claim(false))
		h.untilHeld(t, s.path)
		s.streams.DeleteStream(s.path)
		s.refused(w, w.Claim(true, s.ack(tail)), fsm.CodeConsumerGone)
	})

	t.Run("D8: if upstream cannot be asked the callback proceeds", func(t *testing.T) {
		s := e.subscribed(t)
		tail := s.begin()
		w := s.worker.Wake(1)
		defer h.holdReads()
		h.answer(http.StatusServiceUnavailable)
		s.callback(w, w.Claim(false))
		h.do(func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true })
		if got := offsetsOf(s.callback(w, w.Claim(true, s.ack(tail)))); got[s.path] != tail {
			t.Errorf("the offset is %q, want %q", got[s.path], tail)
		}
	})
}
