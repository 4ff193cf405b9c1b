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
	e := start(t, options{settings: patient})

	t.Run("D7: one callback is processed in the order claim, acks, subscribe, unsubscribe, done", func(t *testing.T) {
		s := e.trial(t)
		tail := s.begin()
		added, passing := s.folder+"-added/stream", s.folder+"-passing/stream"
		addedTail := s.streams.Create(added)
		s.streams.Create(passing)
		w := s.worker.Wake(1)
		got := s.ok(w, harness.Callback{
			Epoch: w.Epoch, WakeID: w.WakeID,
			// The ack of a stream that is only subscribed to afterwards is ignored, whatever it says.
			Acks:        []harness.StreamOffset{s.ack(tail), {Path: added, Offset: beyond}},
			Subscribe:   []string{added, passing},
			Unsubscribe: []string{passing},
			Done:        true,
		})
		if len(got) != 2 || got[s.path] != tail || got[added] != addedTail {
			t.Errorf("the streams are %v, want %s at %s and %s at %s", got, s.path, tail, added, addedTail)
		}
		s.noWake(2, quiet) // done came last, when nothing was pending any more
		s.gateway.Append(passing, `"nobody's"`)
		s.noWake(2, quiet)
		s.gateway.Append(added, `"pending"`)
		if w := s.worker.Wake(2); len(w.TriggeredBy) != 1 || w.TriggeredBy[0] != added {
			t.Errorf("the second wake was triggered by %v, want %s", w.TriggeredBy, added)
		}
	})

	t.Run("D7: unsubscribing comes after acks and before done", func(t *testing.T) {
		s := e.trial(t)
		s.begin()
		other := s.folder + "-other/stream"
		s.streams.Create(other)
		w := s.worker.Wake(1)
		s.ok(w, harness.Callback{Epoch: w.Epoch, WakeID: w.WakeID, Subscribe: []string{other}})
		leave := harness.Callback{Epoch: w.Epoch, Unsubscribe: []string{s.path}, Done: true}
		leave.Acks = []harness.StreamOffset{s.ack(beyond)}
		s.refused(w, leave, http.StatusConflict, fsm.CodeInvalidOffset)
		leave.Acks = nil
		s.ok(w, leave)
		s.noWake(2, quiet) // the event of the stream that was left is pending no more
	})

	t.Run("D7: unsubscribing from the last stream answers with no streams, and the consumer is gone", func(t *testing.T) {
		s := e.trial(t)
		s.begin()
		w := s.worker.Wake(1)
		a := s.gateway.Callback(w, harness.Callback{Epoch: w.Epoch, WakeID: w.WakeID, Unsubscribe: []string{s.path}, Done: true})
		if a.Status != http.StatusOK || !strings.Contains(a.Body, `"streams":[]`) || a.Token == "" {
			t.Errorf("the answer is %d %s, want 200 with a token and \"streams\":[]", a.Status, a.Body)
		}
		s.refused(w, w.Claim(false), http.StatusGone, fsm.CodeConsumerGone)
		s.gateway.Append(s.path, `"nobody's"`)
		s.noWake(2, quiet)
	})

	t.Run("D7: in WAKING a callback without wake_id is processed and claims nothing, and a done in it ends the wake", func(t *testing.T) {
		s := e.trial(t)
		s.worker.AnswerStatus(http.StatusInternalServerError)
		tail := s.begin()
		w := s.worker.Wake(1)
		s.ok(w, harness.Callback{Epoch: w.Epoch, Acks: []harness.StreamOffset{s.ack(tail)}})
		again := s.worker.Wake(len(s.worker.Wakes()) + 1)
		s.sameCycle(w, again)
		s.woken(again, 1, tail)
		s.ok(again, harness.Callback{Epoch: w.Epoch, Done: true})
		// An attempt that was out at that moment may still arrive; none comes after it.
		s.untilState(fsm.Idle)
		s.noWake(len(s.worker.Wakes())+2, 2*time.Second)
		s.worker.AnswerStatus(http.StatusOK)
		s.gateway.Append(s.path, `"next"`)
		harness.Eventually(t, soon, "the next wake", harness.True(func() bool {
			wakes := s.worker.Wakes()
			return wakes[len(wakes)-1].Epoch == 2
		}, "it has not come"))
	})
}
