package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec/memstore"
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
	// breaks makes the stream that is read next unreadable for good. broken names it.
	breaks atomic.Bool
	broken atomic.Value
	// pauses makes the next read of a stream pause the subscription.
	pauses atomic.Bool
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
		p.fixture = start(t, store, func(c *Config) {
			c.DueInterval = 200 * time.Millisecond // hours pass
			c.ReadBatch = func(
				_ context.Context, _, path string, at, _ fsm.Offset, _ int, _ int64, _ func([]byte) bool,
			) (fsm.Batch, error) {
				if p.breaks.Load() && p.broken.CompareAndSwap(nil, path) || p.broken.Load() == path {
					return fsm.Batch{}, errors.New("no answer")
				}
				if p.pauses.CompareAndSwap(true, false) {
					p.store.pause(t, p.sub.ID)
				}
				batch := event
				batch.From = at
				return batch, nil
			}
		}, without(t, p.hook))
		test(p)
		p.stop()
	})
}

func (p *pushed) event(path string) { p.Deliver(p.store.event(p.sub, path, "0005")) }

func (p *pushed) consumer(path string) fsm.Consumer {
	return p.store.consumer(fsm.ConsumerID(p.sub.ID, path))
}

// TestARetryAfterHoldsForTheWholeEndpoint holds that no delivery begins before the time that the endpoint asked for in
// one answer, whichever replica got that answer. Waiting is no attempt.
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
			if _, err := p.store.other.FailEndpoint(t.Context(), p.sub, failure); err != nil {
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

// lasting is a subscription whose retries come long after any probe.
func lasting(s *fsm.Subscription) { s.Retry = []time.Duration{10 * time.Hour, 10 * time.Hour} }

// down makes deliveries fail until the endpoint is down; then some events wait.
func (p *pushed) down(t *testing.T, waiting int) (failed, waits []string) {
	t.Helper()
	had := p.hook.requests()
	p.hook.answers(answersWith(http.StatusServiceUnavailable))
	for i := range fsm.DownAfter {
		failed = append(failed, fmt.Sprint("/s/failed-", i))
		p.event(failed[i])
	}
	synctest.Wait()
	for i := range waiting {
		waits = append(waits, fmt.Sprint("/s/waits-", i))
		p.event(waits[i])
	}
	synctest.Wait()
	if n := p.hook.requests() - had; n != fsm.DownAfter {
		t.Fatalf("%d requests came, want those that failed", n)
	}
	return failed, waits
}

// logged is how often something was logged.
func (p *pushed) logged(line string) int { return p.logs.FilterMessageSnippet(line).Len() }

// TestAnEndpointThatIsDownGetsOneRequestAtATime holds when probes are sent. A delivery that is not sent is no attempt.
// The first 2xx releases all deliveries that wait, even the ones that wait for their schedule.
func TestAnEndpointThatIsDownGetsOneRequestAtATime(t *testing.T) {
	const isDown, isUp = "the endpoint of a subscription is down", "the endpoint of a subscription is up again"
	inPushTime(t, lasting, func(p *pushed) {
		failed, waits := p.down(t, 40)
		had := p.hook.requests()
		for i, pause := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
			pass(pause*time.Second - time.Millisecond)
			if n := p.hook.requests() - had; n != i {
				t.Fatalf("%d probes were sent before the pause was over, want %d", n, i)
			}
			for p.hook.requests() == had+i { // they are spread
				pass(time.Millisecond)
			}
			if n := p.hook.requests() - had; n != i+1 {
				t.Fatalf("%d probes were sent, want %d", n, i+1)
			}
		}
		probes, attempts := p.hook.requests()-had, 0
		for _, path := range waits {
			c := p.consumer(path)
			if attempts += c.Attempt; c.Attempt != len(p.hook.times(path)) {
				t.Errorf("%s got %d requests: %+v", path, len(p.hook.times(path)), c)
			}
		}
		if attempts != probes {
			t.Errorf("%d attempts count, %d were sent", attempts, probes)
		}
		if n := p.logged(isDown); n != 1 || p.logged(isUp) != 0 {
			t.Errorf("that it is down was logged %d times", n)
		}
		if down := p.store.other.Endpoints().Down(); down != 1 {
			t.Errorf("another replica knows of %d that are down", down)
		}
		p.hook.answers(answersWith(http.StatusOK))
		pass(91 * time.Second)
		for _, path := range slices.Concat(failed, waits) {
			if c := p.consumer(path); c.State != fsm.Idle {
				t.Errorf("%s waits: %+v", path, c)
			}
		}
		if p.logged(isDown) != 1 || p.logged(isUp) != 1 || len(p.store.db.Endpoints()) != 0 {
			t.Errorf("that it is up was logged %d times; %v is kept", p.logged(isUp), p.store.db.Endpoints())
		}
	})
}

// TestTheFirst2xxIsToldToAllThatIsHeldBack lets the endpoint take the only delivery under way. Then all deliveries that
// were held back for a probe are sent at once. That is so even if the store is told of the 2xx twice, because its first
// reply was lost.
func TestTheFirst2xxIsToldToAllThatIsHeldBack(t *testing.T) {
	for _, twice := range []bool{false, true} {
		t.Run(fmt.Sprint("told twice: ", twice), func(t *testing.T) {
			inPushTime(t, lasting, func(p *pushed) {
				_, waits := p.down(t, 20)
				took := make(chan struct{})
				p.hook.answers(func(w http.ResponseWriter, _ *http.Request) { <-took })
				for range 50 {
					pass(20 * time.Millisecond) // the probe is out now
				}
				p.hook.answers(answersWith(http.StatusOK))
				p.store.db.SetHooks(memstore.Hooks{Before: func(c memstore.Call) (err error) {
					if twice && c.Replica != "other" && c.Method == "RecoverEndpoint" {
						_, err = p.store.other.RecoverEndpoint(context.Background(), p.sub)
					}
					return err
				}})
				close(took)
				pass(time.Second)
				for _, path := range waits {
					if c := p.consumer(path); c.State != fsm.Idle {
						t.Errorf("%s waits: %+v", path, c)
					}
				}
			})
		})
	}
}

// TestWhatFailsDoesNotRunThroughItsSchedule lets an endpoint take some deliveries and fail others, so that it is down
// and up again many times. A failing delivery has one attempt that does not count, and is not dead. Beside these
// attempts there are only the probes, which do not count either.
func TestWhatFailsDoesNotRunThroughItsSchedule(t *testing.T) {
	twice := func(s *fsm.Subscription) { s.Retry = []time.Duration{time.Hour} }
	inPushTime(t, twice, func(p *pushed) {
		p.hook.answers(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.Header.Get("Reveille-Stream"), "/s/fails") {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
		var fails []string
		for turn := range 3 {
			for i := range fsm.DownAfter {
				fails = append(fails, fmt.Sprintf("/s/fails-%d-%d", turn, i))
				p.event(fails[len(fails)-1])
			}
			synctest.Wait()
			p.event(fmt.Sprint("/s/works-", turn))
			pass(12 * time.Minute) // the others may all be probes before this one is
		}
		if n := p.logged("is up again"); n < 3 {
			t.Fatalf("it was up again %d times", n)
		}
		const probes = 3 * (7 + 12) // after 1, 2, 4, 8, 16, 32 and 60 s, and then every minute
		all := 0
		for i, path := range fails {
			c, n := p.consumer(path), len(p.hook.times(path))
			if all += n; c.State != fsm.Waking || c.Attempt != 1 || n < 2 && i < fsm.DownAfter {
				t.Errorf("%s got %d requests: %+v", path, n, c)
			}
		}
		if all > 2*len(fails)+probes {
			t.Errorf("%d requests for %d deliveries that fail, and %d probes", all, len(fails), probes)
		}
		pass(65 * time.Minute)
		for _, path := range fails {
			if c := p.consumer(path); c.State != fsm.Idle {
				t.Errorf("after its last attempt: %+v", c)
			}
		}
	})
}

// TestAnOperatorHasDeliveriesMadeNow holds that waiting deliveries are sent when an operator asks for it, even on a
// replica that has not heard of that.
func TestAnOperatorHasDeliveriesMadeNow(t *testing.T) {
	inPushTime(t, lasting, func(p *pushed) {
		p.hook.answers(answersWith(http.StatusTooManyRequests, "Retry-After", "3000"))
		p.event("/s/paused")
		pass(time.Second)
		p.event("/s/waits")
		p.hook.answers(answersWith(http.StatusOK))
		pass(time.Minute)
		if n := p.hook.requests(); n != 1 {
			t.Fatalf("%d requests came within the pause", n)
		}
		paused, _, _ := p.store.Endpoints().Get(p.sub.Generation)
		if n, err := p.store.other.RetrySubscription(t.Context(), p.sub.ID); n != 2 || err != nil {
			t.Errorf("%d are retried, %v", n, err)
		}
		stale := fsm.EndpointState{Endpoint: paused, Generation: p.sub.Generation}
		stale.Version, _ = p.store.Endpoints().Version()
		p.store.Endpoints().Note(stale, time.Now())
		pass(3 * time.Second)
		for _, path := range []string{"/s/paused", "/s/waits"} {
			if c := p.consumer(path); c.State != fsm.Idle {
				t.Errorf("after a pause %s waits: %+v", path, c)
			}
		}
		_, waits := p.down(t, 2)
		pass(2 * time.Minute) // the next probe is up to a minute away
		had := p.hook.requests()
		p.hook.answers(answersWith(http.StatusOK))
		if n, err := p.store.other.RetrySubscription(t.Context(), p.sub.ID); n == 0 || err != nil {
			t.Errorf("%d are retried, %v", n, err)
		}
		pass(3 * time.Second)
		if p.hook.requests() == had {
			t.Error("no probe is sent")
		}
		for _, path := range waits {
			if c := p.consumer(path); c.State != fsm.Idle {
				t.Errorf("though the endpoint is up %s waits: %+v", path, c)
			}
		}
	})
}

// TestWhatHasNotFailedGetsTheProbeBeforeRetries makes an endpoint fail for many streams and work for one. That one must
// not wait until each of the others has had a probe.
func TestWhatHasNotFailedGetsTheProbeBeforeRetries(t *testing.T) {
	everySecond := func(s *fsm.Subscription) { s.Retry = slices.Repeat([]time.Duration{time.Second}, 100) }
	inPushTime(t, everySecond, func(p *pushed) {
		p.down(t, 40)
		p.hook.answers(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Reveille-Stream") == "/s/works" {
				w.WriteHeader(http.StatusNoContent)
				return
			}
			w.WriteHeader(http.StatusInternalServerError)
		})
		pass(time.Hour) // each of the others has failed by then
		had := p.hook.requests()
		p.event("/s/works")
		for p.consumer("/s/works").State != fsm.Idle {
			if n := p.hook.requests() - had; n > 2 { // one may have been out
				t.Fatalf("%d probes were sent, and none of them brought the event that has not failed", n)
			}
			pass(time.Second)
		}
	})
}

// TestAProbeWhoseReplicaDiesHoldsUpTheOthersForItsPatience holds that its slot has a deadline.
func TestAProbeWhoseReplicaDiesHoldsUpTheOthersForItsPatience(t *testing.T) {
	inPushTime(t, lasting, func(p *pushed) {
		_, waits := p.down(t, 3)
		had, patience := p.hook.requests(), p.sub.Profile().Attempt
		pass(time.Second - time.Millisecond)
		time.Sleep(time.Millisecond)
		if probe, err := p.store.other.ProbeEndpoint(t.Context(), p.sub, patience); err != nil || !probe.Allowed {
			t.Fatal(probe, err)
		}
		pass(patience - time.Millisecond)
		if n := p.hook.requests() - had; n != 0 {
			t.Errorf("%d probes were sent beside the one that is out", n)
		}
		p.hook.answers(answersWith(http.StatusOK))
		pass(10 * time.Second)
		for _, path := range waits {
			if c := p.consumer(path); c.State != fsm.Idle {
				t.Errorf("%s waits: %+v", path, c)
			}
		}
	})
}

// TestWhatBringsAnEndpointDown holds which deliveries count.
func TestWhatBringsAnEndpointDown(t *testing.T) {
	hang := func(_ http.ResponseWriter, r *http.Request) { hangs(r) }
	for name, tc := range map[string]struct {
		answers []http.HandlerFunc
		retry   []time.Duration
		want    int // how many failures count in the end
	}{
		"what may be tried again": {
			answers: []http.HandlerFunc{
				answersWith(408), answersWith(425), answersWith(429), answersWith(500), hang,
			},
			want: 5,
		},
		"too few": {
			answers: []http.HandlerFunc{answersWith(500), answersWith(500), answersWith(500), answersWith(500)},
			want:    4,
		},
		"a 2xx in between": {
			answers: []http.HandlerFunc{
				answersWith(500), answersWith(500), answersWith(500), answersWith(500), answersWith(204),
				answersWith(500),
			},
			want: 1,
		},
		"what is final": {
			answers: []http.HandlerFunc{
				answersWith(400), answersWith(404), answersWith(422), answersWith(301), answersWith(410),
			},
			want: 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inPushTime(t, lasting, func(p *pushed) {
				for i, answer := range tc.answers {
					p.hook.answers(answer)
					p.event(fmt.Sprint("/s/", i))
					pass(31 * time.Second)
				}
				if e := p.store.db.Endpoints()[p.sub.Generation]; e.Failures != tc.want {
					t.Errorf("%d failures count, want %d", e.Failures, tc.want)
				}
			})
		})
	}
	t.Run("the last attempt of an event", func(t *testing.T) {
		inPushTime(t, nil, func(p *pushed) { // each event is retried once
			p.hook.answers(answersWith(500))
			p.event("/s/1")
			pass(time.Minute)
			if e := p.store.db.Endpoints()[p.sub.Generation]; e.Failures != 2 || p.consumer("/s/1").State != fsm.Idle {
				t.Errorf("%d failures count, want both", e.Failures)
			}
		})
	})
}

// TestAProbeThatHasNothingToBringIsFollowedAtOnce is about a delivery whose events cannot be read.
func TestAProbeThatHasNothingToBringIsFollowedAtOnce(t *testing.T) {
	inPushTime(t, lasting, func(p *pushed) {
		_, waits := p.down(t, 10)
		p.breaks.Store(true)
		p.hook.answers(answersWith(http.StatusOK))
		pass(3 * time.Second)
		for _, path := range waits {
			if c := p.consumer(path); (c.State == fsm.Idle) == (path == p.broken.Load()) {
				t.Errorf("%s (%v cannot be read): %+v", path, p.broken.Load(), c)
			}
		}
	})
}

// TestWhatAPushCameToIsStoredThoughItsEndpointIsNot uses a store that takes deliveries, but nothing about endpoints.
// That is like a cluster whose node for these is away.
func TestWhatAPushCameToIsStoredThoughItsEndpointIsNot(t *testing.T) {
	inPushTime(t, lasting, func(p *pushed) {
		away := func(ops ...string) {
			p.store.mu.Lock()
			defer p.store.mu.Unlock()
			p.store.err = func(op string) error {
				if slices.Contains(ops, op) {
					return fsm.ErrUnavailable
				}
				return nil
			}
		}
		away("FailEndpoint")
		p.hook.answers(answersWith(http.StatusServiceUnavailable))
		p.event("/s/fails")
		synctest.Wait()
		if c := p.consumer("/s/fails"); c.Sent || c.Attempt != 1 || c.LastError == "" {
			t.Errorf("the failure is not booked: %+v", c)
		}
		away()
		p.event("/s/fails-too")
		synctest.Wait()
		away("RecoverEndpoint")
		p.hook.answers(answersWith(http.StatusOK))
		p.event("/s/works")
		synctest.Wait()
		if c := p.consumer("/s/works"); c.State != fsm.Idle {
			t.Errorf("the delivery is not acked: %+v", c)
		}
		if n := p.store.db.Calls("RecoverEndpoint"); n != 1 {
			t.Errorf("that the endpoint works was told %d times", n)
		}
	})
}

// TestAHealthyEndpointCostsNoCall holds that the store is told only of the deliveries themselves.
func TestAHealthyEndpointCostsNoCall(t *testing.T) {
	inPushTime(t, nil, func(p *pushed) {
		p.event("/s/1")
		pass(time.Second)
		for _, call := range []string{
			"FailEndpoint", "RecoverEndpoint", "ProbeEndpoint", "ReleaseHeld", "Park", "TakeTurns",
		} {
			if n := p.store.db.Calls(call); n != 0 {
				t.Errorf("%s was called %d times", call, n)
			}
		}
	})
}
