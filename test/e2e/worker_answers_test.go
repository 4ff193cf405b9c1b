package e2e

import (
	"io"
	"net/http"
	"sync/atomic"

	"reveille/fsm"
	"reveille/test/harness"
)

// hold has the worker keep its requests open until they are given up, so that its consumers stay WAKING.
func (s *fixture) hold() {
	s.worker.Answer(func(_ http.ResponseWriter, r *http.Request, _ harness.Wake) { <-r.Context().Done() })
}

// answers has the worker answer its first wakes as given, one each, and the later ones with the last of them.
func (s *fixture) answers(list ...http.HandlerFunc) {
	var n atomic.Int64
	s.worker.Answer(func(rw http.ResponseWriter, r *http.Request, _ harness.Wake) {
		list[min(int(n.Add(1)), len(list))-1](rw, r)
	})
}

// withStatus is an answer with a status and a header or none.
func withStatus(code int, header ...string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		if len(header) == 2 {
			rw.Header().Set(header[0], header[1])
		}
		rw.WriteHeader(code)
	}
}

func withText(body string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, body) }
}

func answerDone(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"done":true}`) }

// gate is what a worker waits at before it answers: until the test opens it, or the request is given up.
type gate chan struct{}

func (g gate) wait(r *http.Request) {
	select {
	case <-g:
	case <-r.Context().Done():
	}
}

// wantNoMore checks that the consumer, which is idle, got no wake beyond the first n: the next event leads to the next
// one, and to the epoch after the last one's.
func (s *fixture) wantNoMore(n int) {
	s.t.Helper()
	last := s.worker.Wake(n)
	s.append()
	if next := s.worker.Wake(n + 1); next.Epoch != last.Epoch+1 {
		s.t.Errorf("after wake %d, %s, came %s before that of another event", n, last, next)
	}
}

// wantStill checks that the consumer is in the state that a wake led to: no other has begun since.
func (s *fixture) wantStill(state fsm.State, wake harness.Wake) {
	s.t.Helper()
	if c := s.consumer(); c.State != state || c.Epoch != wake.Epoch || c.WakeID != wake.WakeID || c.Attempt > 1 {
		s.t.Errorf("it is no longer %s by %s: %+v", state, wake, c)
	}
}
