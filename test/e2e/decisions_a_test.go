package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

// patient are times that none of the tests that use them runs into.
var patient = map[string]string{"REVEILLE_WAKING_TIMEOUT": "30s", "REVEILLE_LIVENESS_TIMEOUT": "60s"}

func TestDecisionsOnDone(t *testing.T) {
	t.Parallel()
	e := start(t, options{settings: patient})

	t.Run("D1: a synchronous done acks what the attempt was sent with, and what landed meanwhile wakes again at once", func(t *testing.T) {
		s := e.trial(t)
		appended := make(chan string, 1)
		s.worker.Answer(func(rw http.ResponseWriter, _ *http.Request, w harness.Wake) {
			if s.cycle(w) == 1 {
				tail := s.gateway.Append(s.path, `"meanwhile"`)
				// Reveille knows of the event before it gets the answer: the tail at the time of the answer includes it.
				s.untilTail(tail)
				appended <- tail
			}
			answerDone(rw)
		})
		first := s.begin()
		s.woken(s.worker.Wake(1), 1, "-1")
		second := s.worker.Wake(2)
		s.woken(second, 2, first)
		if len(second.TriggeredBy) != 1 || second.TriggeredBy[0] != s.path {
			t.Errorf("the second wake was triggered by %q, want the stream", second.TriggeredBy)
		}
		c := s.untilState(fsm.Idle)
		if want := <-appended; string(c.Links[s.path].Acked) != want {
			t.Errorf("the second done acked %q, want %q", c.Links[s.path].Acked, want)
		}
		s.noWake(3, quiet)
	})

	t.Run("D1: each attempt records the tails as it is sent, so a done of a later attempt acks what came before it", func(t *testing.T) {
		s := e.trial(t)
		s.worker.Answer(func(rw http.ResponseWriter, _ *http.Request, _ harness.Wake) {
			if len(s.worker.Wakes()) > 1 {
				answerDone(rw)
				return
			}
			s.untilTail(s.gateway.Append(s.path, `"meanwhile"`))
			rw.WriteHeader(http.StatusInternalServerError)
		})
		s.begin()
		s.sameCycle(s.worker.Wake(1), s.worker.Wake(2))
		if c := s.untilState(fsm.Idle); string(c.Links[s.path].Acked) != s.gateway.Tail(s.path) {
			t.Errorf("the second attempt's done acked %q, want all", c.Links[s.path].Acked)
		}
		s.noWake(3, quiet)
	})

	t.Run("D2: a new, empty stream wakes once, and an ack of its tail settles it", func(t *testing.T) {
		s := e.trial(t)
		tail := s.gateway.Create(s.path)
		w := s.worker.Wake(1)
		s.woken(w, 1, "-1")
		if len(w.TriggeredBy) != 1 || w.TriggeredBy[0] != s.path {
			t.Errorf("the wake was triggered by %q, want the empty stream", w.TriggeredBy)
		}
		s.ok(w, w.Claim(true, s.ack(tail)))
		s.noWake(2, quiet)
		s.gateway.Append(s.path, `"event"`)
		s.woken(s.worker.Wake(2), 2, tail)
	})

	t.Run("D2: a synchronous done settles an empty stream, too", func(t *testing.T) {
		s := e.trial(t)
		s.worker.AnswerDone()
		tail := s.gateway.Create(s.path)
		s.worker.Wake(1)
		s.untilState(fsm.Idle)
		s.noWake(2, quiet)
		s.gateway.Append(s.path, `"event"`)
		s.woken(s.worker.Wake(2), 2, tail)
	})

	t.Run("D5: the same final callback, sent again after a lost answer, succeeds again until the next wake", func(t *testing.T) {
		s := e.trial(t)
		tail := s.begin()
		w := s.worker.Wake(1)
		final := w.Claim(true, s.ack(tail))
		for i := range 3 {
			if got := s.ok(w, final); got[s.path] != tail {
				t.Errorf("answer %d shows the offset %q, want %q", i+1, got[s.path], tail)
			}
		}
		s.noWake(2, quiet)
		s.gateway.Append(s.path, `"next"`)
		s.woken(s.worker.Wake(2), 2, tail)
		s.refused(w, final, http.StatusConflict, fsm.CodeStaleEpoch)
	})

	t.Run("D5: any callback of a wake can be repeated and comes to the same", func(t *testing.T) {
		s := e.trial(t)
		tail := s.begin()
		other := s.folder + "-other/stream"
		otherTail := s.streams.Create(other)
		w := s.worker.Wake(1)
		steps := []struct {
			cb   harness.Callback
			want map[string]string
		}{
			{w.Claim(false), map[string]string{s.path: "-1"}},
			{w.Claim(false, s.ack(tail)), map[string]string{s.path: tail}},
			{harness.Callback{Epoch: w.Epoch, Subscribe: []string{other}}, map[string]string{s.path: tail, other: otherTail}},
			{harness.Callback{Epoch: w.Epoch, Unsubscribe: []string{s.path}}, map[string]string{other: otherTail}},
		}
		for _, step := range steps {
			for range 2 {
				got := s.ok(w, step.cb)
				if len(got) != len(step.want) {
					t.Errorf("after %+v the streams are %v, want %v", step.cb, got, step.want)
				}
				for path, offset := range step.want {
					if got[path] != offset {
						t.Errorf("after %+v the streams are %v, want %v", step.cb, got, step.want)
					}
				}
			}
		}
	})
}

func TestDecisionsOnClocks(t *testing.T) {
	t.Parallel()
	e := start(t, options{settings: map[string]string{
		"REVEILLE_WAKING_TIMEOUT": "1s", "REVEILLE_WEBHOOK_TIMEOUT": "6s", "REVEILLE_LIVENESS_TIMEOUT": "60s",
	}})
	// firstHangs has the first attempt hang until the gate opens, and the others fail.
	firstHangs := func(s *trial, g gate, answer func(http.ResponseWriter)) {
		s.worker.Answer(func(rw http.ResponseWriter, r *http.Request, _ harness.Wake) {
			if len(s.worker.Wakes()) > 1 {
				rw.WriteHeader(http.StatusInternalServerError)
				return
			}
			g.wait(r)
			answer(rw)
		})
	}

	t.Run("D3: without a 2xx or a claim the next attempt has the same wake_id, and a late 2xx of the first stops the retries", func(t *testing.T) {
		s, g := e.trial(t), make(gate)
		firstHangs(s, g, func(rw http.ResponseWriter) { rw.WriteHeader(http.StatusNoContent) })
		tail := s.begin()
		first, second := s.worker.Wake(1), s.worker.Wake(2)
		s.sameCycle(first, second)
		if gap := second.At.Sub(first.At); gap < time.Second {
			t.Errorf("the next attempt came after %s, before the waking timeout of 1s", gap)
		}
		s.until("second attempt failed", func(c fsm.Consumer) bool { return c.Attempt == 2 && !c.Sent || c.Attempt > 2 })
		before := len(s.worker.Wakes())
		close(g)
		s.untilState(fsm.Live)
		// A third attempt may have been on its way; the schedule's next would be at most 2.6 s after it.
		s.noWake(before+2, 3*time.Second)
		s.ok(first, first.Claim(true, s.ack(tail)))
	})

	t.Run("D3: a late done of the first attempt counts for what the first attempt was sent with", func(t *testing.T) {
		s, g := e.trial(t), make(gate)
		firstHangs(s, g, answerDone)
		tail := s.begin()
		first := s.worker.Wake(1)
		s.untilTail(s.gateway.Append(s.path, `"meanwhile"`))
		s.sameCycle(first, s.worker.Wake(2))
		close(g)
		s.until("next cycle", func(c fsm.Consumer) bool { return s.cycleOf(c.Epoch) == 2 && string(c.Links[s.path].Acked) == tail })
	})

	t.Run("D3: a claim by callback stops the retries while the request is still open", func(t *testing.T) {
		s, g := e.trial(t), make(gate)
		firstHangs(s, g, func(http.ResponseWriter) {})
		s.begin()
		w := s.worker.Wake(1)
		s.ok(w, w.Claim(false))
		s.noWake(2, 2500*time.Millisecond) // waking timeout and first retry: at most 2.2 s
		close(g)
	})

	t.Run("D3: the request stays open for the webhook timeout and no longer", func(t *testing.T) {
		s := e.trial(t)
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

func TestDecisionsOnJudgement(t *testing.T) {
	t.Parallel()
	e := start(t, options{settings: patient})
	tokens, err := fsm.NewTokens(harness.TokenKey)
	if err != nil {
		t.Fatal(err)
	}
	forger, err := fsm.NewTokens("a key that Reveille does not have, of more than 32 bytes")
	if err != nil {
		t.Fatal(err)
	}
	// expired is the wake's token, two hours on.
	expired := func(w harness.Wake) string {
		said, err := tokens.Parse(w.Token)
		if err != nil {
			t.Fatalf("the wake's token cannot be read: %v", err)
		}
		return tokens.Mint(said.Consumer, said.Generation, said.Epoch, time.Now().Add(-2*fsm.TokenTTL))
	}

	t.Run("D4: of two faults the one that comes first in the order answers", func(t *testing.T) {
		s, gone := e.trial(t), e.trial(t)
		// The consumer is in its second wake, so that a stale epoch is one that it once had.
		_, first := s.beginIdle()
		s.gateway.Append(s.path, `"second"`)
		w := s.worker.Wake(2)
		now, stale := w.Epoch, w.Epoch-1
		s.ok(w, w.Claim(false))
		gone.begin()
		deleted := gone.worker.Wake(1)
		gone.gateway.DeleteStream(gone.path)

		body := func(epoch int64, wakeID, offset string) string {
			b, _ := json.Marshal(harness.Callback{Epoch: epoch, WakeID: wakeID, Acks: []harness.StreamOffset{s.ack(offset)}})
			return string(b)
		}
		said, _ := tokens.Parse(w.Token)
		forged := forger.Mint(said.Consumer, said.Generation, said.Epoch, time.Now())
		for _, tc := range []struct {
			name, url, token, body string
			status                 int
			code                   fsm.Code
		}{
			{"no token, body not JSON", w.Callback, "", "{", 401, fsm.CodeTokenInvalid},
			{"token cut short, consumer gone", deleted.Callback, deleted.Token[:len(deleted.Token)-4], body(now, "", first), 401, fsm.CodeTokenInvalid},
			{"forged token, epoch missing", w.Callback, forged, "{}", 401, fsm.CodeTokenInvalid},
			{"token of another consumer, body not JSON", w.Callback, deleted.Token, "nonsense", 401, fsm.CodeTokenInvalid},
			{"token of another consumer that has expired", w.Callback, expired(deleted), body(now, "", first), 401, fsm.CodeTokenInvalid},
			{"body not JSON, consumer gone", deleted.Callback, deleted.Token, "{", 400, fsm.CodeInvalidRequest},
			{"epoch missing, token expired", w.Callback, expired(w), `{"wake_id":"w_other"}`, 400, fsm.CodeInvalidRequest},
			{"a field of the wrong type, epoch stale", w.Callback, w.Token, fmt.Sprintf(`{"epoch":%d,"done":"yes"}`, stale), 400, fsm.CodeInvalidRequest},
			{"consumer gone, token expired", deleted.Callback, expired(deleted), body(deleted.Epoch, "", first), 410, fsm.CodeConsumerGone},
			{"consumer gone, epoch wrong", deleted.Callback, deleted.Token, body(deleted.Epoch+7, "", first), 410, fsm.CodeConsumerGone},
			{"token expired, epoch stale", w.Callback, expired(w), body(stale, "w_other", beyond), 401, fsm.CodeTokenExpired},
			{"epoch stale, wake_id wrong", w.Callback, w.Token, body(stale, "w_other", first), 409, fsm.CodeStaleEpoch},
			{"epoch stale, ack beyond the tail", w.Callback, w.Token, body(stale, w.WakeID, beyond), 409, fsm.CodeStaleEpoch},
			{"epoch of the future, wake_id wrong", w.Callback, w.Token, body(now+1, "w_other", first), 409, fsm.CodeStaleEpoch},
			{"wake_id wrong, ack no offset", w.Callback, w.Token, body(now, "w_other", "now"), 409, fsm.CodeAlreadyClaimed},
			{"wake_id wrong, ack beyond the tail", w.Callback, w.Token, body(now, "w_other", beyond), 409, fsm.CodeAlreadyClaimed},
			{"ack no offset", w.Callback, w.Token, body(now, w.WakeID, "a,b"), 409, fsm.CodeInvalidOffset},
			{"ack beyond the tail", w.Callback, w.Token, body(now, w.WakeID, beyond), 409, fsm.CodeInvalidOffset},
		} {
			a := s.gateway.RawCallback(tc.url, tc.token, tc.body)
			if a.Status != tc.status || a.Error.Code != string(tc.code) || a.OK || a.Error.Message == "" {
				t.Errorf("%s: the answer is %d %s, want %d %s", tc.name, a.Status, a.Body, tc.status, tc.code)
			}
		}
		if got := s.ok(w, w.Claim(false)); len(got) != 1 || got[s.path] != first {
			t.Errorf("after all refusals the streams are %v, want the stream at %q", got, first)
		}
	})

	t.Run("D4: nothing of a refused callback takes effect", func(t *testing.T) {
		s := e.trial(t)
		s.worker.AnswerStatus(http.StatusInternalServerError)
		tail := s.begin()
		w := s.worker.Wake(1)
		other := s.folder + "-other/stream"
		s.refused(w, harness.Callback{
			Epoch: w.Epoch, WakeID: w.WakeID, Acks: []harness.StreamOffset{s.ack(tail), s.ack(beyond)},
			Subscribe: []string{other}, Unsubscribe: []string{s.path}, Done: true,
		}, http.StatusConflict, fsm.CodeInvalidOffset)
		// Not claimed and not done: the retries go on, from where the consumer was.
		again := s.worker.Wake(len(s.worker.Wakes()) + 1)
		s.sameCycle(w, again)
		s.woken(again, 1, "-1")
		if len(again.Streams) != 1 {
			t.Errorf("the retry names the streams %v, want the one", again.Streams)
		}
	})

	t.Run("D4: TOKEN_EXPIRED brings a fresh token that the callback succeeds with", func(t *testing.T) {
		s := e.trial(t)
		tail := s.begin()
		w := s.worker.Wake(1)
		w.Token = expired(w)
		a := s.refused(w, w.Claim(true, s.ack(tail)), http.StatusUnauthorized, fsm.CodeTokenExpired)
		w.Token = a.Token
		s.ok(w, w.Claim(true, s.ack(tail)))
	})

	t.Run("D4: a token in a refusal is never for a newer epoch, so a zombie cannot trade up", func(t *testing.T) {
		s := e.trial(t)
		zombie, _ := s.beginIdle()
		s.gateway.Append(s.path, `"second"`)
		w := s.worker.Wake(2)
		fresh := zombie.Token
		zombie.Token = expired(zombie)
		refusals := []harness.CallbackAnswer{
			s.refused(zombie, zombie.Claim(true), http.StatusUnauthorized, fsm.CodeTokenExpired),
			s.refused(zombie, harness.Callback{Epoch: w.Epoch, WakeID: w.WakeID}, http.StatusUnauthorized, fsm.CodeTokenExpired),
		}
		zombie.Token = fresh
		refusals = append(refusals,
			s.refused(zombie, zombie.Claim(true), http.StatusConflict, fsm.CodeStaleEpoch),
			s.refused(zombie, harness.Callback{Epoch: w.Epoch, WakeID: w.WakeID}, http.StatusConflict, fsm.CodeStaleEpoch))
		for _, a := range refusals {
			said, err := tokens.Parse(a.Token)
			if err != nil || said.Epoch != zombie.Epoch {
				t.Errorf("%s came with a token for epoch %d (%v), want %d", a.Error.Code, said.Epoch, err, zombie.Epoch)
			}
			zombie.Token = a.Token
			s.refused(zombie, harness.Callback{Epoch: w.Epoch, WakeID: w.WakeID, Done: true}, http.StatusConflict, fsm.CodeStaleEpoch)
		}
		s.ok(w, w.Claim(false))
	})
}
