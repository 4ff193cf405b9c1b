package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

// withRaw answers with bytes of its own making, one every so often, and closes the connection.
func withRaw(answer string, every time.Duration) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		conn, _, err := rw.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		if every == 0 {
			_, _ = conn.Write([]byte(answer))
			return
		}
		for i := range len(answer) {
			if _, err := conn.Write([]byte{answer[i]}); err != nil {
				return
			}
			time.Sleep(every) // the pace of the endpoint
		}
	}
}

func TestEndpointsThatMisbehave(t *testing.T) {
	t.Parallel()
	e := start(t, options{settings: map[string]string{"REVEILLE_LIVENESS_TIMEOUT": "60s"}})
	elsewhere := harness.NewWorker(t)
	healthy := e.subscribed(t)
	healthy.begin()
	healthyWake := healthy.worker.Wake(1)
	healthy.callback(healthyWake, healthyWake.Claim(true, healthy.ack(healthy.gateway.Tail(healthy.path))))
	healthy.worker.AnswerDone()

	const ok = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	for _, tc := range []struct {
		name   string
		answer http.HandlerFunc
		// retried is true if the answer is a failure; otherwise the consumer comes to the state.
		retried bool
		state   fsm.State
	}{
		{
			"an endpoint that answers done byte by byte, slower than the waking timeout, is not woken again " +
				"meanwhile, and is done",
			func(rw http.ResponseWriter, _ *http.Request) {
				for _, b := range []byte(`{"done":true}`) {
					_, _ = rw.Write([]byte{b})
					_ = http.NewResponseController(rw).Flush()
					time.Sleep(250 * time.Millisecond) // the pace of the endpoint
				}
			}, false, fsm.Idle,
		},
		{
			"an endpoint whose header comes byte by byte is woken again by the waking timeout",
			withRaw(ok+strings.Repeat("X: y\r\n", 30)+"\r\n", 20*time.Millisecond), true, "",
		},
		{"an answer of 10 MB is a plain 2xx", withText(strings.Repeat("x", 10<<20)), false, fsm.Live},
		{
			"an answer of 10 MB that would be a done is a plain 2xx",
			withText(`{"done":true,"pad":"` + strings.Repeat("x", 10<<20) + `"}`), false, fsm.Live,
		},
		{"a failure with 10 MB is a failure", func(rw http.ResponseWriter, _ *http.Request) {
			rw.WriteHeader(http.StatusBadGateway)
			_, _ = rw.Write(make([]byte, 10<<20))
		}, true, ""},
		{"an answer of invalid JSON is a plain 2xx", withText(`{"done":true,}`), false, fsm.Live},
		{"an endpoint that closes the connection at once has failed", withRaw("", 0), true, ""},
		{"an endpoint that closes the connection in its header has failed", withRaw(ok[:20], 0), true, ""},
		{
			"an endpoint that closes the connection in the body of a 2xx has taken the wake",
			withRaw(ok+"Content-Length: 100\r\n\r\n{\"done\":true}", 0), false, fsm.Live,
		},
		{"an endpoint that does not speak HTTP has failed", withRaw("220 mail.example.com ESMTP\r\n", 0), true, ""},
		{
			"an endpoint that redirects to a private address has failed",
			withStatus(http.StatusTemporaryRedirect, "Location", elsewhere.URL), true, "",
		},
		{
			"an endpoint that hangs is woken again by the waking timeout",
			func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, true, "",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := e.subscribed(t)
			s.answers(tc.answer, withStatus(http.StatusNoContent))
			tail := s.begin()
			first := s.worker.Wake(1)
			before := len(healthy.worker.Wakes())
			healthy.gateway.Append(healthy.path, `"meanwhile"`)
			healthy.worker.Wake(before + 1)
			if tc.retried {
				s.sameCycle(first, s.worker.Wake(2))
				s.awaitState(fsm.Live)
			} else {
				c := s.awaitState(tc.state)
				if done := string(c.Links[s.path].Acked) == tail; done != (tc.state == fsm.Idle) {
					t.Errorf("the consumer is %s with %q acked", c.State, c.Links[s.path].Acked)
				}
				s.noWakeAfter(1, quiet)
			}
		})
	}
	if n := len(elsewhere.Wakes()); n > 0 {
		t.Errorf("%d wakes followed a redirect", n)
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
		rounds                 = 15
	)
	e := start(t, options{settings: map[string]string{
		"REVEILLE_MAX_IN_FLIGHT":                  fmt.Sprint(inAll),
		"REVEILLE_MAX_IN_FLIGHT_PER_SUBSCRIPTION": fmt.Sprint(perSubscription),
		"REVEILLE_LIVENESS_TIMEOUT":               "60s",
	}})
	healthy := e.subscribed(t)
	healthy.beginIdle()
	healthy.worker.AnswerDone()
	// latency is the median time from an append to the wake, over some of them.
	latency := func() time.Duration {
		var took []time.Duration
		for range rounds {
			healthy.awaitState(fsm.Idle)
			next := len(healthy.worker.Wakes()) + 1
			began := time.Now()
			healthy.gateway.Append(healthy.path, `"event"`)
			took = append(took, healthy.worker.Wake(next).At.Sub(began))
		}
		slices.Sort(took)
		return took[len(took)/2]
	}
	before := latency()

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
	// Long enough for the waking timeout of 2 s to have asked for more. A wake that stands behind one of them waits for
	// as long as that.
	for began := time.Now(); time.Since(began) < 4*time.Second; {
		if during := latency(); during > before+1500*time.Millisecond {
			t.Errorf("with hanging endpoints beside it a wake takes %s, without them %s", during, before)
			break
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t.Logf("a wake takes %s; the most open at a time were %d, of which %v", before, h.mostAll, h.most)
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
