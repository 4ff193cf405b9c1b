package e2e

import (
	"net/http"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

func TestDecisionsOnDone(t *testing.T) {
	t.Parallel()
	e := start(t, options{})

	t.Run("D1: a synchronous done acks what the attempt was sent with, "+
		"and what landed meanwhile wakes again at once", func(t *testing.T) {
		s := e.subscribed(t)
		appended := make(chan string, 1)
		s.worker.Answer(func(rw http.ResponseWriter, _ *http.Request, w harness.Wake) {
			if s.cycle(w) == 1 {
				tail := s.gateway.Append(s.path, `"meanwhile"`)
				// Reveille knows of the event before it gets the answer: the tail at the time of the answer includes
				// it.
				s.awaitTail(s.path, tail)
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
		c := s.awaitState(fsm.Idle)
		if want := <-appended; string(c.Links[s.path].Acked) != want {
			t.Errorf("the second done acked %q, want %q", c.Links[s.path].Acked, want)
		}
		s.noWakeAfter(2, quiet)
	})

	t.Run("D1: each attempt records the tails as it is sent, "+
		"so a done of a later attempt acks what came before it", func(t *testing.T) {
		s := e.subscribed(t)
		s.worker.Answer(func(rw http.ResponseWriter, _ *http.Request, _ harness.Wake) {
			if len(s.worker.Wakes()) > 1 {
				answerDone(rw)
				return
			}
			s.awaitTail(s.path, s.gateway.Append(s.path, `"meanwhile"`))
			rw.WriteHeader(http.StatusInternalServerError)
		})
		s.begin()
		s.sameCycle(s.worker.Wake(1), s.worker.Wake(2))
		if c := s.awaitState(fsm.Idle); string(c.Links[s.path].Acked) != s.gateway.Tail(s.path) {
			t.Errorf("the second attempt's done acked %q, want all", c.Links[s.path].Acked)
		}
		s.noWakeAfter(2, quiet)
	})

	t.Run("D2: a new, empty stream wakes once, and an ack of its tail settles it", func(t *testing.T) {
		s := e.subscribed(t)
		tail := s.gateway.Create(s.path)
		w := s.worker.Wake(1)
		s.woken(w, 1, "-1")
		if len(w.TriggeredBy) != 1 || w.TriggeredBy[0] != s.path {
			t.Errorf("the wake was triggered by %q, want the empty stream", w.TriggeredBy)
		}
		s.callback(w, w.Claim(true, s.ack(tail)))
		s.noWakeAfter(1, quiet)
		s.gateway.Append(s.path, `"event"`)
		s.woken(s.worker.Wake(2), 2, tail)
	})

	t.Run("D2: a synchronous done settles an empty stream, too", func(t *testing.T) {
		s := e.subscribed(t)
		s.worker.AnswerDone()
		tail := s.gateway.Create(s.path)
		s.worker.Wake(1)
		s.awaitState(fsm.Idle)
		s.noWakeAfter(1, quiet)
		s.gateway.Append(s.path, `"event"`)
		s.woken(s.worker.Wake(2), 2, tail)
	})

	t.Run("D5: the same final callback, sent again after a lost answer, "+
		"succeeds again until the next wake", func(t *testing.T) {
		s := e.subscribed(t)
		tail := s.begin()
		w := s.worker.Wake(1)
		final := w.Claim(true, s.ack(tail))
		for i := range 3 {
			if got := offsetsOf(s.callback(w, final)); got[s.path] != tail {
				t.Errorf("answer %d shows the offset %q, want %q", i+1, got[s.path], tail)
			}
		}
		s.noWakeAfter(1, quiet)
		s.gateway.Append(s.path, `"next"`)
		s.woken(s.worker.Wake(2), 2, tail)
		s.refused(w, final, fsm.CodeStaleEpoch)
	})

	t.Run("D5: any callback of a wake can be repeated and comes to the same", func(t *testing.T) {
		s := e.subscribed(t)
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
			{
				harness.Callback{Epoch: w.Epoch, Subscribe: []string{other}},
				map[string]string{s.path: tail, other: otherTail},
			},
			{harness.Callback{Epoch: w.Epoch, Unsubscribe: []string{s.path}}, map[string]string{other: otherTail}},
		}
		for _, step := range steps {
			for range 2 {
				got := offsetsOf(s.callback(w, step.cb))
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

func TestDecisionsOnLoopsWithoutProgress(t *testing.T) {
	t.Parallel()
	e := start(t, options{})
	t.Run("D14: done without progress wakes at once three times, "+
		"then by the retry schedule, until an offset moves", func(t *testing.T) {
		s := e.subscribed(t)
		s.streams.Create(s.path)
		half := s.streams.Append(s.path, `"first"`)
		s.streams.Append(s.path, `"second"`)
		// The seventh wake acks the first event; by then the schedule would wait 3.2 s or more.
		const moves = 7
		s.worker.Answer(func(_ http.ResponseWriter, _ *http.Request, w harness.Wake) {
			cb := w.Claim(true)
			if s.cycle(w) == moves {
				cb.Acks = []harness.StreamOffset{s.ack(half)}
			}
			if s.cycle(w) <= moves+2 {
				s.gateway.Callback(w, cb)
			}
		})
		s.mustOperator(http.MethodPost, s.path)
		first := s.worker.Wake(1)
		s.worker.Wake(moves + 2)
		wakes := s.worker.Wakes()
		gap := func(n int) time.Duration { return wakes[n].At.Sub(wakes[n-1].At) }
		for n := 1; n < 3; n++ {
			if gap(n) > 5*time.Second {
				t.Errorf("wake %d came %s after the one before, want at once", n+1, gap(n))
			}
		}
		for n, least := 3, 200*time.Millisecond; n < moves; n, least = n+1, 2*least {
			if gap(n) < least || gap(n) > least+time.Second+soon/5 {
				t.Errorf("wake %d came %s after the one before, want %s and up to 1s", n+1, gap(n), least)
			}
		}
		for n := moves; n < moves+2; n++ {
			if gap(n) > 5*time.Second {
				t.Errorf("wake %d came %s after an offset had moved, want at once", n+1, gap(n))
			}
		}
		s.woken(wakes[moves], moves+1, half)
		within := 0
		for i, w := range wakes {
			if s.cycle(w) != int64(i+1) {
				t.Errorf("wake %d is of cycle %d: each is a cycle of its own", i+1, s.cycle(w))
			}
			if w.At.Sub(first.At) < 2*time.Second {
				within++
			}
		}
		if within > 6 {
			t.Errorf("there were %d wakes in 2 s, want 6 at most", within)
		}
	})
}
