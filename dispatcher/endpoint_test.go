package dispatcher

import (
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"reveille/fsm"
)

// pushHook is an endpoint for pushes on injected time.
type pushHook struct {
	mu sync.Mutex
	// answer is what each request gets.
	answer http.HandlerFunc
	// at is when a request came, by its stream.
	at map[string][]time.Time
}

func (h *pushHook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	h.mu.Lock()
	stream := r.Header.Get("Reveille-Stream")
	h.at[stream] = append(h.at[stream], time.Now())
	answer := h.answer
	h.mu.Unlock()
	answer(w, r)
}

func (h *pushHook) answers(f http.HandlerFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answer = f
}

func (h *pushHook) times(stream string) []time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.at[stream])
}

func (h *pushHook) requests() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, times := range h.at {
		n += len(times)
	}
	return n
}

// pushed is a Dispatcher on injected time with one subscription of ModePush, and its endpoint.
type pushed struct {
	*fixture
	hook *pushHook
	sub  fsm.Subscription
}

func answersWith(code int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
	}
}

func inPushTime(t *testing.T, change func(*fsm.Subscription), test func(*pushed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		event := fsm.Batch{
			ContentType: "application/json", JSON: true, Events: [][]byte{[]byte(`{"n":1}`)}, To: "0005", Tail: "0005",
		}
		store := newMemStore()
		p := &pushed{hook: &pushHook{answer: answersWith(http.StatusOK), at: map[string][]time.Time{}}}
		p.sub = store.pushSub(hookURL, change)
		p.fixture = start(t, store, func(c *Config) { c.ReadBatch = reads(event) }, without(t, p.hook))
		test(p)
		p.stop()
	})
}

func (p *pushed) event(path string) { p.Deliver(p.store.event(p.sub, path, "0005")) }

func (p *pushed) consumer(path string) fsm.Consumer {
	return p.store.consumer(fsm.ConsumerID(p.sub.ID, path))
}

// TestARetryAfterHoldsForTheWholeEndpoint holds that no delivery begins before the time that an endpoint has asked for
// in its answer to one of them, whichever replica got that, and that waiting is no attempt.
func TestARetryAfterHoldsForTheWholeEndpoint(t *testing.T) {
	busy := answersWith(http.StatusTooManyRequests, "Retry-After", "20")
	for name, ask := range map[string]func(*pushed){
		"an answer to this replica": func(p *pushed) {
			p.hook.answers(busy)
			p.event("/s/1")
			synctest.Wait()
			p.hook.answers(answersWith(http.StatusOK))
		},
		"an answer to another replica": func(p *pushed) {
			failure := fsm.EndpointFailure{RetryAfter: 20 * time.Second}
			if err := p.store.other.FailEndpoint(t.Context(), p.sub, failure); err != nil {
				t.Error(err)
			}
		},
		"an answer that the store is not told of yet": func(p *pushed) {
			p.store.err = func(op string) error {
				if op == "FailEndpoint" {
					return fsm.ErrUnavailable
				}
				return nil
			}
			p.hook.answers(busy)
			p.event("/s/1")
			pass(5 * time.Second)
			p.hook.answers(answersWith(http.StatusOK))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inPushTime(t, nil, func(p *pushed) {
				began := time.Now()
				ask(p)
				had := p.hook.requests()
				others := []string{"/s/2", "/s/3", "/s/4"}
				for _, path := range others {
					p.event(path)
				}
				pass(time.Until(began.Add(20*time.Second - time.Millisecond)))
				if n := p.hook.requests(); n != had {
					t.Fatalf("%d requests came before the time", n-had)
				}
				for _, path := range others {
					if c := p.consumer(path); c.Attempt != 0 || c.Sent || c.State != fsm.Waking {
						t.Errorf("waiting is an attempt: %+v", c)
					}
				}
				pass(time.Second)
				for _, path := range others {
					if c := p.consumer(path); c.State != fsm.Idle || len(p.hook.times(path)) != 1 {
						t.Errorf("after the time %s got %d requests: %+v", path, len(p.hook.times(path)), c)
					}
				}
				pass(time.Minute)
				if kept := p.store.db.Endpoints(); len(kept) != 0 {
					t.Errorf("of an endpoint that works is kept %+v", kept)
				}
			})
		})
	}
}

// TestAWakeGoesByItsOwnRetryAfter holds that the schedule of the webhook spec is each consumer's own.
func TestAWakeGoesByItsOwnRetryAfter(t *testing.T) {
	inTime(t, timings(func(*fsm.Timing) {}), func(n int, w http.ResponseWriter, _ *http.Request) {
		if n == 1 {
			w.Header().Set("Retry-After", "20")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		answersDone(w)
	}, func(f *timed) {
		f.event("0001")
		f.attempt(1)
		f.Deliver(f.store.event(f.sub, "/s/2", "0001"))
		synctest.Wait()
		if n := len(f.hook.attempts()); n != 2 {
			t.Errorf("another consumer's wake was not sent at once: %d requests", n)
		}
		if kept := f.store.db.Endpoints(); len(kept) != 0 {
			t.Errorf("%+v is kept of the endpoint", kept)
		}
	})
}

// TestAHealthyEndpointCostsNoCall holds that the store is told of nothing but the deliveries themselves.
func TestAHealthyEndpointCostsNoCall(t *testing.T) {
	inPushTime(t, nil, func(p *pushed) {
		p.event("/s/1")
		pass(time.Second)
		for _, call := range []string{"FailEndpoint", "RecoverEndpoint", "Park"} {
			if n := p.store.db.Calls(call); n != 0 {
				t.Errorf("%s was called %d times", call, n)
			}
		}
	})
}
