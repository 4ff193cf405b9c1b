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

func TestDecisionsOnJudgement(t *testing.T) {
	t.Parallel()
	e := start(t, options{})
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
		s, gone := e.subscribed(t), e.subscribed(t)
		// The consumer is in its second wake, so that a stale epoch is one that it once had.
		_, first := s.beginIdle()
		s.gateway.Append(s.path, `"second"`)
		w := s.worker.Wake(2)
		now, stale := w.Epoch, w.Epoch-1
		s.callback(w, w.Claim(false))
		gone.begin()
		deleted := gone.worker.Wake(1)
		gone.gateway.DeleteStream(gone.path)

		body := func(epoch int64, wakeID, offset string) string {
			b, _ := json.Marshal(harness.Callback{
				Epoch: epoch, WakeID: wakeID,
				Acks: []harness.StreamOffset{s.ack(offset)},
			})
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
			{
				"token cut short, consumer gone", deleted.Callback, deleted.Token[:len(deleted.Token)-4],
				body(now, "", first), 401, fsm.CodeTokenInvalid,
			},
			{"forged token, epoch missing", w.Callback, forged, "{}", 401, fsm.CodeTokenInvalid},
			{
				"token of another consumer, body not JSON", w.Callback, deleted.Token, "nonsense", 401,
				fsm.CodeTokenInvalid,
			},
			{
				"token of another consumer that has expired", w.Callback, expired(deleted), body(now, "", first), 401,
				fsm.CodeTokenInvalid,
			},
			{"body not JSON, consumer gone", deleted.Callback, deleted.Token, "{", 400, fsm.CodeInvalidRequest},
			{
				"epoch missing, token expired", w.Callback, expired(w), `{"wake_id":"w_other"}`, 400,
				fsm.CodeInvalidRequest,
			},
			{
				"a field of the wrong type, epoch stale", w.Callback, w.Token,
				fmt.Sprintf(`{"epoch":%d,"done":"yes"}`, stale), 400, fsm.CodeInvalidRequest,
			},
			{
				"consumer gone, token expired", deleted.Callback, expired(deleted), body(deleted.Epoch, "", first), 410,
				fsm.CodeConsumerGone,
			},
			{
				"consumer gone, epoch wrong", deleted.Callback, deleted.Token, body(deleted.Epoch+7, "", first), 410,
				fsm.CodeConsumerGone,
			},
			{
				"token expired, epoch stale", w.Callback, expired(w), body(stale, "w_other", beyond), 401,
				fsm.CodeTokenExpired,
			},
			{"epoch stale, wake_id wrong", w.Callback, w.Token, body(stale, "w_other", first), 409, fsm.CodeStaleEpoch},
			{
				"epoch stale, ack beyond the tail", w.Callback, w.Token, body(stale, w.WakeID, beyond), 409,
				fsm.CodeStaleEpoch,
			},
			{
				"epoch of the future, wake_id wrong", w.Callback, w.Token, body(now+1, "w_other", first), 409,
				fsm.CodeStaleEpoch,
			},
			{
				"wake_id wrong, ack no offset", w.Callback, w.Token, body(now, "w_other", "now"), 409,
				fsm.CodeAlreadyClaimed,
			},
			{
				"wake_id wrong, ack beyond the tail", w.Callback, w.Token, body(now, "w_other", beyond), 409,
				fsm.CodeAlreadyClaimed,
			},
			{"ack no offset", w.Callback, w.Token, body(now, w.WakeID, "a,b"), 409, fsm.CodeInvalidOffset},
			{"ack beyond the tail", w.Callback, w.Token, body(now, w.WakeID, beyond), 409, fsm.CodeInvalidOffset},
		} {
			a := s.gateway.RawCallback(tc.url, tc.token, tc.body)
			if a.Status != tc.status || a.Error.Code != string(tc.code) || a.OK || a.Error.Message == "" {
				t.Errorf("%s: the answer is %d %s, want %d %s", tc.name, a.Status, a.Body, tc.status, tc.code)
			}
		}
		if got := offsetsOf(s.callback(w, w.Claim(false))); len(got) != 1 || got[s.path] != first {
			t.Errorf("after all refusals the streams are %v, want the stream at %q", got, first)
		}
	})

	t.Run("D4: nothing of a refused callback takes effect", func(t *testing.T) {
		s := e.subscribed(t)
		s.worker.AnswerStatus(http.StatusInternalServerError)
		tail := s.begin()
		w := s.worker.Wake(1)
		other := s.folder + "-other/stream"
		s.refused(w, harness.Callback{
			Epoch: w.Epoch, WakeID: w.WakeID, Acks: []harness.StreamOffset{s.ack(tail), s.ack(beyond)},
			Subscribe: []string{other}, Unsubscribe: []string{s.path}, Done: true,
		}, fsm.CodeInvalidOffset)
		// Not claimed and not done: the retries go on, from where the consumer was.
		again := s.worker.Wake(len(s.worker.Wakes()) + 1)
		s.sameCycle(w, again)
		s.woken(again, 1, "-1")
		if len(again.Streams) != 1 {
			t.Errorf("the retry names the streams %v, want the one", again.Streams)
		}
	})

	t.Run("D4: TOKEN_EXPIRED brings a fresh token that the callback succeeds with", func(t *testing.T) {
		s := e.subscribed(t)
		tail := s.begin()
		w := s.worker.Wake(1)
		w.Token = expired(w)
		a := s.refused(w, w.Claim(true, s.ack(tail)), fsm.CodeTokenExpired)
		w.Token = a.Token
		s.callback(w, w.Claim(true, s.ack(tail)))
	})

	t.Run("D4: a token in a refusal is never for a newer epoch, so a zombie cannot trade up", func(t *testing.T) {
		s := e.subscribed(t)
		zombie, _ := s.beginIdle()
		s.gateway.Append(s.path, `"second"`)
		w := s.worker.Wake(2)
		fresh := zombie.Token
		zombie.Token = expired(zombie)
		refusals := []harness.CallbackAnswer{
			s.refused(zombie, zombie.Claim(true), fsm.CodeTokenExpired),
			s.refused(zombie, harness.Callback{Epoch: w.Epoch, WakeID: w.WakeID}, fsm.CodeTokenExpired),
		}
		zombie.Token = fresh
		refusals = append(refusals,
			s.refused(zombie, zombie.Claim(true), fsm.CodeStaleEpoch),
			s.refused(zombie, harness.Callback{Epoch: w.Epoch, WakeID: w.WakeID}, fsm.CodeStaleEpoch))
		for _, a := range refusals {
			said, err := tokens.Parse(a.Token)
			if err != nil || said.Epoch != zombie.Epoch {
				t.Errorf("%s came with a token for epoch %d (%v), want %d", a.Error.Code, said.Epoch, err, zombie.Epoch)
			}
			zombie.Token = a.Token
			s.refused(zombie, harness.Callback{Epoch: w.Epoch, WakeID: w.WakeID, Done: true}, fsm.CodeStaleEpoch)
		}
		s.callback(w, w.Claim(false))
	})
}
