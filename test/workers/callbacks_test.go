package workers

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
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
