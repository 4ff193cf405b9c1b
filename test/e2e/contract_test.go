package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/fsm/token"
	"reveille/test/harness"
)

// TestWakes holds how wakes begin and end (webhook spec, State Transitions, Safety Invariants, Liveness Properties).
func TestWakes(t *testing.T) {
	hold(t, []rule{
		{"an event wakes an idle consumer: the webhook gets the new epoch and wake_id", func(t *testing.T, e *env) {
			s := e.idle(t)
			before := s.consumer()
			s.hold()
			s.append()
			wake := s.worker.Wake(1)
			s.wantPayload(wake, before.Epoch+1, []harness.StreamOffset{s.ack(s.tail)}, s.path)
			if c := s.consumer(); c.State != fsm.Waking || c.Epoch != wake.Epoch || c.WakeID != wake.WakeID {
				t.Errorf("%s was sent, and the store has %+v", wake, c)
			}
		}},
		{"the wake_id can be claimed again and again, and no other can", func(t *testing.T, e *env) {
			s, wake := e.waking(t)
			before := s.consumer()
			for range 3 {
				s.callback(wake, wake.Claim(false))
			}
			if c := s.consumer(); c.State != fsm.Live || !c.Deadline.After(before.Deadline) {
				t.Errorf("the claim took it from %+v to %+v", before, c)
			}
			forged := wake
			forged.WakeID = "w_another"
			s.refused(wake, forged.Claim(false), fsm.CodeAlreadyClaimed)
		}},
		{"a synchronous done acks all and comes to rest until the next event", func(t *testing.T, e *env) {
			s := e.idle(t)
			s.worker.AnswerDone()
			tail := s.append()
			wake := s.worker.Wake(1)
			s.awaitIdle(s.path, tail)
			s.rests(wake)
			s.append()
			s.next(wake, s.worker.Wake(2), s.ack(tail))
		}},
		{"a synchronous done acks what its wake was sent with, and what landed meanwhile wakes again", whileItIsAtIt},
		{"a new, empty stream wakes once, and an ack of its tail settles it", func(t *testing.T, e *env) {
			s := e.subscribed(t)
			tail := s.gateway.Create(s.path)
			wake := s.worker.Wake(1)
			s.wantPayload(wake, wake.Epoch, []harness.StreamOffset{s.ack("-1")}, s.path)
			s.callback(wake, wake.Claim(true, s.ack(tail)))
			s.append()
			s.next(wake, s.worker.Wake(2), s.ack(tail))
		}},
		{
			"done with nothing pending comes to rest, also if it is sent again, until the next event",
			func(t *testing.T, e *env) {
				s, wake := e.live(t)
				tail := s.streams.Tail(s.path)
				final := wake.Claim(true, s.ack(tail))
				for range 3 {
					s.wantStreams(s.callback(wake, final), s.ack(tail))
					s.rests(wake)
				}
				s.append()
				s.next(wake, s.worker.Wake(2), s.ack(tail))
				s.refused(wake, final, fsm.CodeStaleEpoch)
			},
		},
		{"done with work pending wakes again at once, and the wake before is stale", func(t *testing.T, e *env) {
			s, first := e.live(t)
			s.callback(first, first.Claim(true))
			if c := s.consumer(); c.State == fsm.Idle || c.Epoch != first.Epoch+1 {
				t.Errorf("when done was answered: %+v", c)
			}
			second := s.worker.Wake(2)
			s.next(first, second, s.ack(s.tail))
			s.refused(first, first.Claim(true), fsm.CodeStaleEpoch)
			s.refused(first, second.Claim(true), fsm.CodeStaleEpoch)
			s.callback(second, second.Claim(false))
		}},
		{"an attempt that fails is made again, with the same wake_id and what is known by then", failing},
	})
}

func whileItIsAtIt(t *testing.T, e *env) {
	s := e.idle(t)
	g := make(gate)
	s.worker.Answer(func(rw http.ResponseWriter, r *http.Request, _ harness.Wake) {
		g.wait(r)
		answerDone(rw)
	})
	tail := s.append()
	first := s.worker.Wake(1)
	// Reveille knows of the event before it gets the answer: the tail at the time of the answer includes it.
	meanwhile := s.append()
	s.awaitTail(s.path, meanwhile)
	close(g)
	s.next(first, s.worker.Wake(2), s.ack(tail))
	s.awaitIdle(s.path, meanwhile)
}

func failing(t *testing.T, e *env) {
	s := e.idle(t)
	g := make(gate)
	s.answers(
		func(rw http.ResponseWriter, r *http.Request) {
			g.wait(r)
			rw.WriteHeader(http.StatusInternalServerError)
		},
		func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, // the connection is cut
		withStatus(http.StatusNoContent),
	)
	tail := s.append()
	first := s.worker.Wake(1)
	s.awaitTail(s.path, s.append())
	// A callback that claims nothing leaves the consumer waking.
	s.callback(first, harness.Callback{Epoch: first.Epoch, Acks: []harness.StreamOffset{s.ack(tail)}})
	close(g)
	for n := 2; n <= 3; n++ {
		again := s.worker.Wake(n)
		s.sameCycle(first, again)
		s.wantPayload(again, first.Epoch, []harness.StreamOffset{s.ack(tail)}, s.path)
	}
	s.awaitState(fsm.Live)
}

// TestCallbacks holds what a callback does and how it is refused (webhook spec, Callback API and Error Responses).
func TestCallbacks(t *testing.T) {
	hold(t, []rule{
		{"one callback is processed in the order claim, acks, subscribe, unsubscribe, done", inOrder},
		{"each refusal has its status and code, the first fault answers, and it changes nothing", refusing},
		{"an expired token is answered with a fresh one, which is never for a newer epoch", func(t *testing.T, e *env) {
			s, first := e.live(t)
			fresh := first
			fresh.Token = s.expired(first)
			fresh.Token = s.refused(fresh, first.Claim(false), fsm.CodeTokenExpired).Token
			s.callback(fresh, first.Claim(true))
			second := s.worker.Wake(2)
			fresh.Token = s.expired(first)
			for range 2 { // what it gets for the expired token, and for that
				a := s.answer(fresh.Callback, fresh.Token, jsonOf(t, second.Claim(true)))
				if epoch := s.parseToken(a.Token).Epoch; a.OK || epoch != first.Epoch {
					t.Errorf("a token of epoch %d was traded for one of %d: %s", first.Epoch, epoch, a.Body)
				}
				fresh.Token = a.Token
			}
			s.refused(fresh, second.Claim(true), fsm.CodeStaleEpoch)
			s.callback(second, second.Claim(false))
		}},
		{"each success is answered with a token that the next callback can use", func(t *testing.T, e *env) {
			s, wake := e.waking(t)
			own := s.parseToken(wake.Token)
			old := time.Now().Add(token.Refresh/2 - token.TTL)
			wake.Token = tokens(t, harness.TokenKey).Mint(own.Consumer, own.Generation, own.Epoch, old)
			other := s.folder + "-other/stream"
			for i, cb := range []harness.Callback{
				{Epoch: wake.Epoch},
				wake.Claim(false),
				{Epoch: wake.Epoch, Acks: []harness.StreamOffset{s.ack(s.streams.Tail(s.path))}},
				{Epoch: wake.Epoch, Subscribe: []string{other}},
				{Epoch: wake.Epoch, Unsubscribe: []string{other}},
				{Epoch: wake.Epoch, Done: true},
				{Epoch: wake.Epoch, Acks: []harness.StreamOffset{s.ack("-1")}}, // idle by now
				{Epoch: wake.Epoch, Unsubscribe: []string{s.path}},
			} {
				wake.Token = s.callback(wake, cb).Token
				if left := time.Until(s.parseToken(wake.Token).Expires); i == 0 && left < token.Refresh {
					t.Errorf("a token near its end was answered with one that has %s left", left)
				}
			}
		}},
		{"the acked offset never goes back, though acks race each other", racing},
		{"an ack of an event that came behind Reveille's back counts, one beyond the tail does not", unseen},
	})
}

func inOrder(t *testing.T, e *env) {
	s, wake := e.waking(t)
	tail := s.streams.Tail(s.path)
	added, passing := s.folder+"-added/stream", s.folder+"-passing/stream"
	addedTail := s.gateway.Create(added)
	s.gateway.Create(passing)
	final := wake.Claim(true, s.ack(tail), pastTail(added)) // an ack before the subscription is ignored
	final.Subscribe, final.Unsubscribe = []string{added, passing}, []string{passing}
	s.wantStreams(s.callback(wake, final), s.ack(tail), at(added, addedTail))
	s.rests(wake) // done came last, when nothing was pending any more
	s.gateway.Append(passing, `"for nobody"`)
	s.gateway.Append(added, `"pending"`)
	second := s.worker.Wake(2)
	s.next(wake, second, at(added, addedTail))
	s.wantPayload(second, second.Epoch, []harness.StreamOffset{s.ack(tail), at(added, addedTail)}, added)
}

func refusing(t *testing.T, e *env) {
	s, first, wake, tail := e.settledLive(t)
	other, deleted := e.live(t)
	other.gateway.DeleteStream(other.path)
	body := func(epoch int64, wakeID string, acks ...harness.StreamOffset) string {
		return jsonOf(t, harness.Callback{
			Epoch: epoch, WakeID: wakeID, Acks: acks, Done: true,
			Subscribe: []string{s.folder + "-other/x"}, Unsubscribe: []string{s.path},
		})
	}
	own := s.parseToken(wake.Token)
	forged := tokens(t, strings.Repeat("another key ", 4)).Mint(own.Consumer, own.Generation, own.Epoch, time.Now())
	for _, tt := range []struct {
		fault string
		to    harness.Wake
		token string
		body  string
		code  fsm.Code
	}{
		{"no token, before a body that is not JSON", wake, "", "{", fsm.CodeTokenInvalid},
		{"forged token, before a missing epoch", wake, forged, "{}", fsm.CodeTokenInvalid},
		{"token of another consumer, before its end", wake, other.expired(deleted), "{", fsm.CodeTokenInvalid},
		{"body that is not JSON, before a consumer that is gone", deleted, deleted.Token, "{", fsm.CodeInvalidRequest},
		{"missing epoch, before an expired token", wake, s.expired(wake), `{"wake_id":"x"}`, fsm.CodeInvalidRequest},
		{
			"consumer that is gone, before an expired token", deleted, other.expired(deleted),
			body(deleted.Epoch+7, ""), fsm.CodeConsumerGone,
		},
		{
			"expired token, before a stale epoch", wake, s.expired(wake), body(first.Epoch, first.WakeID),
			fsm.CodeTokenExpired,
		},
		{"stale epoch, before another wake_id", wake, wake.Token, body(first.Epoch, "w_other"), fsm.CodeStaleEpoch},
		{"epoch of the future", wake, wake.Token, body(wake.Epoch+1, wake.WakeID), fsm.CodeStaleEpoch},
		{
			"another wake_id, before an ack beyond the tail", wake, wake.Token,
			body(wake.Epoch, first.WakeID, pastTail(s.path)), fsm.CodeAlreadyClaimed,
		},
		{
			"a good ack and one beyond the tail", wake, wake.Token,
			body(wake.Epoch, wake.WakeID, s.ack(tail), pastTail(s.path)), fsm.CodeInvalidOffset,
		},
		{"an ack that is no offset", wake, wake.Token, body(wake.Epoch, "", s.ack("a,b")), fsm.CodeInvalidOffset},
	} {
		s.unchanged(tt.fault, tt.to.Callback, tt.token, tt.body, tt.code)
	}
	s.wantStreams(s.callback(wake, wake.Claim(true, s.ack(tail))), s.ack(tail))
}

func racing(t *testing.T, e *env) {
	s, wake := e.live(t)
	var offsets []string
	for range 12 {
		offsets = append(offsets, s.append())
	}
	highest := offsets[len(offsets)-1]
	answers := make(chan harness.CallbackAnswer)
	for _, i := range []int{5, 11, 0, 7, 3, 10, 1, 9, 2, 8, 4, 6} {
		body := fmt.Sprintf(`{"epoch":%d,"acks":[%s]}`, wake.Epoch, jsonOf(t, s.ack(offsets[i])))
		go func() { answers <- s.answer(wake.Callback, wake.Token, body) }()
	}
	for range offsets {
		if a := <-answers; !a.OK {
			t.Errorf("an ack was refused: %d %s", a.Status, a.Body)
		}
	}
	for _, acks := range [][]harness.StreamOffset{nil, {s.ack(offsets[0])}, {s.ack(highest), s.ack("-1")}} {
		s.wantStreams(s.callback(wake, wake.Claim(false, acks...)), s.ack(highest))
	}
	s.callback(wake, wake.Claim(true, s.ack(offsets[0])))
	s.append()
	s.next(wake, s.worker.Wake(2), s.ack(highest))
}

func unseen(t *testing.T, e *env) {
	s, wake := e.live(t)
	second, _ := s.subscribes(wake)
	for _, path := range []string{s.path, second} {
		a := s.refused(wake, wake.Claim(true, pastTail(path)), fsm.CodeInvalidOffset)
		if !strings.Contains(a.Error.Message, path) {
			t.Errorf("the message %q does not name the stream %s", a.Error.Message, path)
		}
	}
	late, lateSecond := s.streams.Append(s.path, `"unseen"`), s.streams.Append(second, `"unseen"`)
	s.wantStreams(s.callback(wake, wake.Claim(true, s.ack(late), at(second, lateSecond))),
		s.ack(late), at(second, lateSecond))
	s.rests(wake)
	s.append()
	s.next(wake, s.worker.Wake(2), s.ack(late))
}
