package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"reveille/fsm"
	"reveille/test/harness"
)

// withRaw answers with bytes of its own making and closes the connection.
func withRaw(answer string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		if conn, _, err := rw.(http.Hijacker).Hijack(); err == nil {
			_, _ = io.WriteString(conn, answer)
			_ = conn.Close()
		}
	}
}

// TestEndpointsThatMisbehave has one of each kind; the tests of package dispatcher have all of them.
func TestEndpointsThatMisbehave(t *testing.T) {
	t.Parallel()
	e := shared(t)
	for _, tc := range []struct {
		name   string
		answer http.HandlerFunc
		// retried is true if the answer is a failure; otherwise the consumer is live after it.
		retried bool
	}{
		{
			"an answer of 10 MB that would be a done is a plain 2xx",
			withText(`{"done":true,"pad":"` + strings.Repeat("x", 10<<20) + `"}`), false,
		},
		{"a failure with 10 MB is a failure", func(rw http.ResponseWriter, _ *http.Request) {
			rw.WriteHeader(http.StatusBadGateway)
			_, _ = rw.Write(make([]byte, 10<<20))
		}, true},
		{
			"an endpoint that closes the connection has failed",
			func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, true,
		},
		{
			"an endpoint that closes the connection in the body of a 2xx has taken the wake",
			func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Content-Length", "100")
				_, _ = io.WriteString(rw, `{"done":true}`)
				_ = http.NewResponseController(rw).Flush()
				panic(http.ErrAbortHandler)
			}, false,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel() // they wait for retries
			s := e.subscribed(t)
			s.answers(tc.answer, withStatus(http.StatusNoContent))
			tail := s.begin()
			first := s.worker.Wake(1)
			wakes := 1
			if tc.retried {
				s.sameCycle(first, s.worker.Wake(2))
				wakes = 2
			}
			if c := s.awaitState(fsm.Live); string(c.Links[s.path].Acked) == tail {
				t.Errorf("%q is acked", tail)
			}
			s.callback(first, first.Claim(true, s.ack(tail)))
			s.wantNoMore(wakes)
		})
	}
}

// hanging is how many requests the hanging endpoints hold, and the most they ever held, by subscription and in all.
type hanging struct {
	mu        sync.Mutex
	now, most map[string]int
	nowAll    int
	mostAll   int
}

func (h *hanging) change(subscription string, by int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now[subscription] += by
	h.nowAll += by
	h.most[subscription] = max(h.most[subscription], h.now[subscription])
	h.mostAll = max(h.mostAll, h.nowAll)
}

func TestEndpointsThatHangTakeNothingFromOthers(t *testing.T) {
	t.Parallel()
	const (
		inAll, perSubscription = 20, 4
		hangers, streamsOfEach = 5, 10
		rounds                 = 5
	)
	e := start(t, options{settings: map[string]string{
		"REVEILLE_MAX_IN_FLIGHT":                  fmt.Sprint(inAll),
		"REVEILLE_MAX_IN_FLIGHT_PER_SUBSCRIPTION": fmt.Sprint(perSubscription),
		"REVEILLE_WEBHOOK_TIMEOUT":                "1h",
	}})
	healthy := e.subscribed(t)
	healthy.beginIdle()
	healthy.worker.AnswerDone()
	h := &hanging{now: map[string]int{}, most: map[string]int{}}
	all := make([]*fixture, hangers)
	for i := range all {
		s := e.subscribed(t)
		all[i] = s
		s.worker.Answer(func(_ http.ResponseWriter, r *http.Request, w harness.Wake) {
			h.change(w.Subscription(), 1)
			defer h.change(w.Subscription(), -1)
			<-r.Context().Done()
		})
		for n := range streamsOfEach {
			e.gateway.Create(fmt.Sprintf("%s/hang%d", s.folder, n))
		}
	}
	harness.Eventually(t, soon, "every hanging endpoint has requests open, and half of all there may be are",
		func() error {
			h.mu.Lock()
			defer h.mu.Unlock()
			if len(h.now) < hangers || h.nowAll < inAll/2 {
				return fmt.Errorf("open are %v", h.now)
			}
			return nil
		})
	// They hang for longer than the test waits: a wake that stood behind one of them would not come.
	for range rounds {
		healthy.awaitState(fsm.Idle)
		next := len(healthy.worker.Wakes()) + 1
		healthy.gateway.Append(healthy.path, `"event"`)
		healthy.worker.Wake(next)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t.Logf("the most open at a time were %d, of which %v", h.mostAll, h.most)
	if h.mostAll > inAll {
		t.Errorf("%d requests were open at once, want %d at most", h.mostAll, inAll)
	}
	for id, n := range h.most {
		if n > perSubscription {
			t.Errorf("subscription %s had %d requests open at once, want %d at most", id, n, perSubscription)
		}
	}
	for _, s := range all {
		if len(s.worker.Wakes()) == 0 {
			t.Errorf("subscription %s was never woken", s.sub.ID)
		}
	}
}
