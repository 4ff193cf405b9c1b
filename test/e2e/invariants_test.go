package e2e

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

// TestInvariants has a subtest for each of the spec's properties (webhook spec, Safety Invariants and Liveness
// Properties).
func TestInvariants(t *testing.T) {
	t.Parallel()
	e := start(t, options{})

	t.Run("S1: epochs of a consumer strictly increase, "+
		"also over a new subscription of its id and a new stream of its name", func(t *testing.T) {
		s := e.idle(t)
		s.worker.AnswerStatus(http.StatusInternalServerError)
		s.append()
		s.worker.Wake(2) // a retry
		s.worker.AnswerDone()
		s.await("idle", func(c fsm.Consumer) bool { return c.State == fsm.Idle && !c.Pending() })
		s.worker.AnswerStatus(http.StatusOK)
		for range 3 {
			n := len(s.worker.Wakes())
			s.append()
			wake := s.worker.Wake(n + 1)
			s.callback(wake, wake.Claim(true)) // with work pending
			again := s.worker.Wake(n + 2)
			s.callback(again, again.Claim(true, s.ack(s.consumer().Links[s.path].Tail.Value())))
		}
		n := len(s.worker.Wakes())
		s.gateway.DeleteSubscription("/**", s.sub.ID)
		s.subscribe(s.folder + "/*")
		s.awaitState(fsm.Idle)
		s.append()
		s.worker.Wake(n + 1)
		s.gateway.DeleteStream(s.path)
		s.awaitRemoved(s.path, soon)
		s.gateway.Create(s.path)
		s.worker.Wake(n + 2)

		last := harness.Wake{}
		cycles := 0
		for _, wake := range s.worker.Wakes() {
			if wake.WakeID == last.WakeID {
				continue
			}
			if wake.Epoch <= last.Epoch {
				t.Errorf("epoch %d came after epoch %d", wake.Epoch, last.Epoch)
			}
			last, cycles = wake, cycles+1
		}
		if cycles < 9 {
			t.Errorf("there were %d wake cycles, want 9: the test shows less than it says", cycles)
		}
	})

	t.Run("S2: all requests of a wake cycle have its one wake_id and epoch, "+
		"and the next cycle has others", func(t *testing.T) {
		s := e.idle(t)
		s.worker.AnswerStatus(http.StatusServiceUnavailable)
		s.append()
		first := s.worker.Wake(1)
		for n := 2; n <= 3; n++ {
			if retry := s.worker.Wake(n); retry.WakeID != first.WakeID || retry.Epoch != first.Epoch {
				t.Errorf("retry %d is %s, want %s", n-1, retry, first)
			}
		}
		s.worker.AnswerDone()
		s.await("idle", func(c fsm.Consumer) bool { return c.State == fsm.Idle })
		n := len(s.worker.Wakes())
		s.append()
		if next := s.worker.Wake(n + 1); next.WakeID == first.WakeID || next.Epoch != first.Epoch+1 {
			t.Errorf("the next cycle has %s after %s", next, first)
		}
	})

	t.Run("S3: the current wake_id can be claimed again, another cannot be claimed", func(t *testing.T) {
		s, wake := e.waking(t)
		for range 3 {
			s.callback(wake, wake.Claim(false))
		}
		forged := wake
		forged.WakeID = "w_another"
		s.refused(wake, forged.Claim(false), fsm.CodeAlreadyClaimed)

		after2xx, second := e.live(t)
		after2xx.callback(second, second.Claim(false))
		after2xx.callback(second, second.Claim(true))
		third := after2xx.worker.Wake(2)
		old := third
		old.WakeID = second.WakeID
		after2xx.refused(third, old.Claim(false), fsm.CodeAlreadyClaimed)
	})

	t.Run("S4: the acknowledged offset of a stream never goes back", func(t *testing.T) {
		s, wake := e.live(t)
		first := s.consumer().Links[s.path].Tail.Value()
		second, third := s.append(), s.append()
		for _, tt := range []struct {
			acks []harness.StreamOffset
			want string
		}{
			{[]harness.StreamOffset{s.ack(second)}, second},
			{[]harness.StreamOffset{s.ack(first)}, second},
			{[]harness.StreamOffset{s.ack("-1")}, second},
			{[]harness.StreamOffset{s.ack(third), s.ack(first)}, third},
			{[]harness.StreamOffset{s.ack(second)}, third},
		} {
			s.wantStreams(s.callback(wake, wake.Claim(false, tt.acks...)), s.ack(tt.want))
		}
		s.callback(wake, harness.Callback{Epoch: wake.Epoch, Acks: []harness.StreamOffset{s.ack(first)}, Done: true})
		s.append()
		if next := s.worker.Wake(2); next.Offset(s.path) != third {
			t.Errorf("the next wake is from %s, want %s", next.Offset(s.path), third)
		}
	})

	t.Run("S4: acks that race each other leave the highest", func(t *testing.T) {
		s, wake := e.live(t)
		var offsets []string
		for range 12 {
			offsets = append(offsets, s.append())
		}
		answers := make(chan harness.CallbackAnswer)
		for _, i := range []int{5, 11, 0, 7, 3, 10, 1, 9, 2, 8, 4, 6} {
			body := `{"epoch":` + jsonOf(t, wake.Epoch) + `,"acks":[` + jsonOf(t, s.ack(offsets[i])) + `]}`
			go func() { answers <- s.gateway.RawCallback(wake.Callback, wake.Token, body) }()
		}
		for range offsets {
			if a := <-answers; !a.OK {
				t.Errorf("an ack was refused: %d %s", a.Status, a.Body)
			}
		}
		if got := s.consumer().Links[s.path].Acked.Value(); got != offsets[11] {
			t.Errorf("acked is %s, want %s", got, offsets[11])
		}
	})

	t.Run("S5: every callback that succeeds is answered with a token that the next one can use", func(t *testing.T) {
		s, wake := e.waking(t)
		tail := s.consumer().Links[s.path].Tail.Value()
		other := s.folder + "-other/stream"
		for _, cb := range []harness.Callback{
			{Epoch: wake.Epoch, WakeID: wake.WakeID},
			{Epoch: wake.Epoch},
			{Epoch: wake.Epoch, Acks: []harness.StreamOffset{s.ack(tail)}},
			{Epoch: wake.Epoch, Subscribe: []string{other}},
			{Epoch: wake.Epoch, Unsubscribe: []string{other}},
			{Epoch: wake.Epoch, Done: true},
			{Epoch: wake.Epoch, Acks: []harness.StreamOffset{s.ack(tail)}}, // idle by now
			{Epoch: wake.Epoch, Unsubscribe: []string{s.path}},
		} {
			a := s.callback(wake, cb)
			if a.Token == "" {
				t.Fatalf("%+v was answered without a token: %s", cb, a.Body)
			}
			wake.Token = a.Token
		}
	})

	t.Run("S5: a token that nears its end is replaced by one with an hour left", func(t *testing.T) {
		s, wake := e.live(t)
		own := s.parseToken(wake.Token)
		mint := func(age time.Duration) string {
			return tokens(t, harness.TokenKey).Mint(own.Consumer, own.Generation, own.Epoch, time.Now().Add(-age))
		}
		wake.Token = mint(58 * time.Minute)
		a := s.callback(wake, wake.Claim(false))
		fresh := s.parseToken(a.Token)
		if left := time.Until(fresh.Expires); left < 59*time.Minute || fresh.Consumer != own.Consumer ||
			fresh.Epoch != own.Epoch {
			t.Errorf("the new token has %s left and is for %s, epoch %d", left, fresh.Consumer, fresh.Epoch)
		}
		wake.Token = a.Token
		s.callback(wake, wake.Claim(false))
	})

	t.Run("S6: an epoch before the current one is refused, whatever the token", func(t *testing.T) {
		s, first := e.live(t)
		s.callback(first, first.Claim(true))
		second := s.worker.Wake(2)
		s.awaitState(fsm.Live)
		before := s.consumer()
		for _, tt := range []struct {
			name  string
			token harness.Wake
			cb    harness.Callback
		}{
			{"all of the last wake", first, first.Claim(true)},
			{"the epoch of the last wake with the token of this one", second, harness.Callback{Epoch: first.Epoch}},
			{"the epoch of this wake with the token of the last one", first, second.Claim(false)},
			{"an epoch before all", second, harness.Callback{Epoch: 0}},
			{"a negative epoch", second, harness.Callback{Epoch: -1}},
		} {
			a := s.refused(tt.token, tt.cb, fsm.CodeStaleEpoch)
			if got, presented := s.parseToken(a.Token).Epoch, tt.token.Epoch; got > presented {
				t.Errorf("%s: a token of epoch %d was traded for one of epoch %d", tt.name, presented, got)
			}
		}
		wantSame(t, before, s.consumer())
		s.callback(second, second.Claim(false))
	})

	t.Run("S7: after the subscription or the primary stream was deleted, "+
		"callbacks find the consumer gone", func(t *testing.T) {
		for name, remove := range map[string]func(s *fixture){
			"subscription deleted": func(s *fixture) {
				s.gateway.DeleteSubscription("/**", s.sub.ID)
			},
			"stream deleted through the gateway":       func(s *fixture) { s.gateway.DeleteStream(s.path) },
			"stream deleted behind the gateway's back": func(s *fixture) { s.streams.DeleteStream(s.path) },
			"subscription deleted and created once more": func(s *fixture) {
				s.gateway.DeleteSubscription("/**", s.sub.ID)
				s.subscribe(s.sub.Pattern)
				s.awaitState(fsm.Idle)
			},
		} {
			s, wake := e.live(t)
			remove(s)
			for range 2 {
				if a := s.refused(wake, wake.Claim(true), fsm.CodeConsumerGone); a.Token != "" {
					t.Errorf("%s: a token came with it", name)
				}
			}
		}
	})

	t.Run("S8: every request has a signature of its own that the subscription's secret verifies", func(t *testing.T) {
		s := e.idle(t)
		s.worker.AnswerStatus(http.StatusBadGateway)
		s.append()
		s.worker.Wake(3)
		s.worker.AnswerDone()
		s.awaitState(fsm.Idle)
		wakes := s.worker.Wakes()
		var headers []string
		for _, wake := range wakes {
			header := wake.Header.Values("Webhook-Signature")
			if len(header) != 1 {
				t.Fatalf("attempt has the signatures %q", header)
			}
			if err := harness.VerifySignature(s.sub.Secret, header[0], wake.Body, wake.At); err != nil {
				t.Error(err)
			}
			headers = append(headers, header[0])
		}
		if slices.Sort(headers); len(slices.Compact(headers)) < 2 {
			t.Error("retries carry the signature of the first attempt")
		}
	})

	t.Run("L1: pending work of an idle consumer is delivered, "+
		"in the end also to an endpoint that fails", func(t *testing.T) {
		s := e.idle(t)
		fail := make(chan struct{}, 3)
		for range cap(fail) {
			fail <- struct{}{}
		}
		s.worker.Answer(func(w http.ResponseWriter, _ *http.Request, _ harness.Wake) {
			select {
			case <-fail:
				panic(http.ErrAbortHandler) // the connection is cut
			default:
			}
		})
		tail := s.append()
		s.awaitState(fsm.Live)
		wake := s.worker.Wake(4)
		if messages, next := s.streams.Read(s.path, wake.Offset(s.path)); len(messages) != 1 || next != tail {
			t.Errorf("the wake leads to %s", messages)
		}
		s.noWakeAfter(4, quiet)
	})

	t.Run("L1: events that came while the consumer was live are delivered after it", func(t *testing.T) {
		s, wake := e.live(t)
		first := s.consumer().Links[s.path].Tail.Value()
		s.callback(wake, wake.Claim(true, s.ack(first)))
		s.append()
		second := s.worker.Wake(2)
		s.append()
		s.callback(second, second.Claim(true, s.ack(s.streams.Tail(s.path))))
		s.append()
		s.worker.Wake(3)
	})

	t.Run("L2: done without pending work ends in IDLE, without a wake", func(t *testing.T) {
		s, wake := e.live(t)
		s.callback(wake, wake.Claim(true, s.ack(s.streams.Tail(s.path))))
		if c := s.consumer(); c.State != fsm.Idle {
			t.Errorf("after done: %+v", c)
		}
		s.noWakeAfter(1, quiet)
		if c := s.consumer(); c.State != fsm.Idle || c.Epoch != wake.Epoch {
			t.Errorf("later: %+v", c)
		}
	})

	t.Run("L3: done with pending work begins a new wake cycle at once", func(t *testing.T) {
		s, wake := e.live(t)
		s.callback(wake, wake.Claim(true))
		if c := s.consumer(); c.Epoch != wake.Epoch+1 || c.State == fsm.Idle {
			t.Errorf("when done was answered: %+v", c)
		}
		if second := s.worker.Wake(2); second.Epoch != wake.Epoch+1 || second.WakeID == wake.WakeID {
			t.Errorf("%s was followed by %s", wake, second)
		}
	})
}
