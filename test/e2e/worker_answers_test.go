package e2e

import (
	"io"
	"net/http"
	"sync/atomic"

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
