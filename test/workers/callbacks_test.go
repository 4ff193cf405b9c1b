package workers

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"reveille/test/harness"
)

// traceparent is what each wake of these tests carries; the callbacks must carry it too.
const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// callbackAnswer is how a callback is answered.
type callbackAnswer struct {
	status int
	body   string
}

// callbackServer stands for Reveille: it answers callbacks as it was told, one after the other, and any further with
// 418.
type callbackServer struct {
	url string

	mu     sync.Mutex
	tokens []string
	acks   []harness.StreamOffset
}

func answerCallbacks(t *testing.T, answers []callbackAnswer) *callbackServer {
	s := &callbackServer{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if got := r.Header.Get("traceparent"); got != traceparent {
			t.Errorf("a callback with the traceparent %q, want that of the wake", got)
		}
		s.tokens = append(s.tokens, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		var body struct{ Acks []harness.StreamOffset }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Errorf("the body of a callback: %v", err)
		}
		s.acks = append(s.acks, body.Acks...)
		if len(s.tokens) > len(answers) {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		a := answers[len(s.tokens)-1]
		if a.status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "1")
		}
		w.WriteHeader(a.status)
		_, _ = io.WriteString(w, a.body)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	s.url = server.URL
	return s
}

// sent returns the tokens of the callbacks so far.
func (s *callbackServer) sent() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.tokens)
}

// acked returns the offsets that were acknowledged so far.
func (s *callbackServer) acked() []harness.StreamOffset {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.acks)
}
