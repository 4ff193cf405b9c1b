package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/redisstore"
	"reveille/test/harness"
)

// beyond is an offset that lies behind every tail of these tests.
const beyond = "9999999999999999_9999999999999999"

// trial is what the test of one rule has to itself in an env that it may share: a worker, a subscription and a stream.
type trial struct {
	env
	worker *harness.Worker
	sub    harness.Subscription
	admin  *harness.Client
	// path is the stream, which nobody has made yet; folder has it and whatever else the subscription's pattern matches.
	folder, path string
}

// trial subscribes a worker to a folder of its own. The stream is not there yet.
func (e *env) trial(t *testing.T) *trial {
	t.Helper()
	// The names of rules are sentences, and those of subscriptions have an end.
	id := name(t)
	id = id[:min(len(id), 60)]
	s := &trial{env: *e, worker: harness.NewWorker(t), admin: harness.NewClient(t, e.rev.Admin), folder: "/" + id}
	s.t, s.path = t, s.folder+"/stream"
	s.streams, s.gateway = harness.NewClient(t, e.streams.Root), harness.NewClient(t, e.gateway.Root)
	s.sub = s.gateway.Subscribe(s.folder+"/*", id, s.worker)
	// A backfill that is slow would give the stream that is named next its consumer a second time, were it gone by then.
	harness.Eventually(t, soon, "the backfill is over", harness.True(func() bool {
		sub, ok := s.gateway.Subscription(id)
		return ok && sub.Backfill == nil
	}, "it goes on"))
	// The worker ends with the rule; nothing that others could trip over is left behind, unless Reveille has ended as well.
	t.Cleanup(func() { _, _ = s.gateway.Try(context.Background(), http.MethodDelete, "/**?subscription="+id, "") })
	return s
}

// begin makes the stream with one event in it, unseen by Reveille, and then tells Reveille of it: it leads to one wake, at -1,
// that knows the event. It returns the tail.
func (s *trial) begin() string {
	s.t.Helper()
	s.streams.Create(s.path)
	tail := s.streams.Append(s.path, `"first"`)
	s.name(s.path)
	return tail
}

// beginIdle is begin for a worker that is done with the event, and answers further wakes with an empty 200.
func (s *trial) beginIdle() (harness.Wake, string) {
	s.t.Helper()
	s.worker.AnswerDone()
	tail := s.begin()
	w := s.worker.Wake(1)
	s.untilState(fsm.Idle)
	s.worker.AnswerStatus(http.StatusOK)
	return w, tail
}

// name tells the operator port of a stream.
func (s *trial) name(path string) {
	s.t.Helper()
	body, _ := json.Marshal(map[string][]string{"streams": {path}})
	if res := s.admin.Do(http.MethodPost, "/api/v1/streams", string(body), "Content-Type", "application/json"); res.Status != http.StatusOK {
		s.t.Fatalf("POST /api/v1/streams: status %d: %s", res.Status, res.Body)
	}
}

// consumer is the state of the stream's consumer, for what the wire does not show.
func (s *trial) consumer() (fsm.Consumer, error) {
	store := redisstore.New(s.redis.Client(), redisstore.Options{})
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	return store.Consumer(ctx, fsm.ConsumerID(s.sub.ID, s.path), s.path)
}

// until waits for a state of the consumer and returns it.
func (s *trial) until(what string, cond func(fsm.Consumer) bool) (c fsm.Consumer) {
	s.t.Helper()
	harness.Eventually(s.t, soon, what, func() (err error) {
		if c, err = s.consumer(); err == nil && !cond(c) {
			err = errors.New("the consumer is " + string(c.State))
		}
		return err
	})
	return c
}

func (s *trial) untilState(state fsm.State) fsm.Consumer {
	s.t.Helper()
	return s.until("consumer "+string(state), func(c fsm.Consumer) bool { return c.State == state })
}

// untilTail waits until Reveille knows a tail of the stream.
func (s *trial) untilTail(tail string) {
	s.t.Helper()
	s.until("tail "+tail+" noted", func(c fsm.Consumer) bool { return string(c.Links[s.path].Tail) == tail })
}

// noWake makes sure that there is no nth wake for a while.
func (s *trial) noWake(n int, during time.Duration) {
	s.t.Helper()
	harness.Never(s.t, during, "a wake too many", harness.True(func() bool { return len(s.worker.Wakes()) >= n }, "none"))
}

// ok sends a callback that must succeed and returns the offsets of its answer by stream.
func (s *trial) ok(w harness.Wake, cb harness.Callback) map[string]string {
	s.t.Helper()
	a := s.gateway.Callback(w, cb)
	if a.Status != http.StatusOK || !a.OK {
		s.t.Fatalf("callback %+v: status %d: %s", cb, a.Status, a.Body)
	}
	return offsetsOf(a)
}

// refused sends a callback that must be refused.
func (s *trial) refused(w harness.Wake, cb harness.Callback, status int, code fsm.Code) harness.CallbackAnswer {
	s.t.Helper()
	a := s.gateway.Callback(w, cb)
	s.mustRefuse(a, status, code)
	return a
}

func (s *trial) mustRefuse(a harness.CallbackAnswer, status int, code fsm.Code) {
	s.t.Helper()
	if a.Status != status || a.OK || a.Error.Code != string(code) || a.Error.Message == "" {
		s.t.Errorf("the answer is %d %s, want %d with code %s", a.Status, a.Body, status, code)
	}
}

func (s *trial) ack(offset string) harness.StreamOffset {
	return harness.StreamOffset{Path: s.path, Offset: offset}
}

// cycle counts a wake's cycle from 1. Epochs need not begin at 1: those of a new consumer lie above all that a removed one of
// its ID may have had.
func (s *trial) cycle(w harness.Wake) int64 { return s.cycleOf(w.Epoch) }

func (s *trial) cycleOf(epoch int64) int64 { return epoch - s.worker.Wakes()[0].Epoch + 1 }

// woken checks which cycle a wake is of, and the offset that it begins at.
func (s *trial) woken(w harness.Wake, cycle int64, offset string) {
	s.t.Helper()
	if s.cycle(w) != cycle || w.Offset(s.path) != offset {
		s.t.Errorf("the wake is of cycle %d with the offset %q, want cycle %d and %q", s.cycle(w), w.Offset(s.path), cycle, offset)
	}
}

func (s *trial) sameCycle(a, b harness.Wake) {
	s.t.Helper()
	if a.Epoch != b.Epoch || a.WakeID != b.WakeID {
		s.t.Errorf("the wakes are of different cycles: %s and %s", a, b)
	}
}

func offsetsOf(a harness.CallbackAnswer) map[string]string {
	m := map[string]string{}
	for _, st := range a.Streams {
		m[st.Path] = st.Offset
	}
	return m
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

// hop is a proxy between Reveille and the stream server that can be told to misbehave.
type hop struct {
	mu        sync.Mutex
	intercept func(w http.ResponseWriter, r *http.Request) bool
	alter     func(*http.Response)
	// held are the streams whose reads hang.
	held map[string]bool
	// cut ends the requests that are under way.
	cut context.CancelFunc
	now context.Context
}

// before puts the hop in front of the stream server at a URL and returns the hop's own.
func (h *hop) before(t *testing.T) func(string) string {
	h.do(nil)
	return func(upstream string) string {
		target, err := url.Parse(upstream)
		if err != nil {
			t.Fatal(err)
		}
		proxy := &httputil.ReverseProxy{
			Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(target) }, FlushInterval: -1,
			ErrorLog:     log.New(io.Discard, "", 0),
			ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
			ModifyResponse: func(res *http.Response) error {
				if alter := h.altering(); alter != nil {
					alter(res)
				}
				return nil
			},
		}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			intercept, now := h.intercepting()
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			defer context.AfterFunc(now, cancel)()
			if r = r.WithContext(ctx); intercept == nil || !intercept(w, r) {
				proxy.ServeHTTP(w, r)
			}
		}))
		t.Cleanup(func() {
			server.CloseClientConnections()
			server.Close()
		})
		return server.URL
	}
}

func (h *hop) intercepting() (func(http.ResponseWriter, *http.Request) bool, context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.intercept, h.now
}

func (h *hop) altering() func(*http.Response) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.alter
}

// do cuts the requests that are under way and has those that follow go to a function first; it returns true if it has answered.
// nil ends that.
func (h *hop) do(intercept func(w http.ResponseWriter, r *http.Request) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cut != nil {
		h.cut()
	}
	h.now, h.cut = context.WithCancel(context.Background())
	h.intercept = intercept
}

// change has answers go through a function. nil ends that.
func (h *hop) change(alter func(*http.Response)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.alter = alter
}

// answer has every request answered with a status.
func (h *hop) answer(status int) {
	h.do(func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(status); return true })
}

// holdReads lets the requests that watch streams hang, so that Reveille learns of events in other ways only.
func (h *hop) holdReads() {
	h.do(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			return false
		}
		h.hold(r.URL.Path)
		<-r.Context().Done()
		return true
	})
}

func (h *hop) hold(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held == nil {
		h.held = map[string]bool{}
	}
	h.held[path] = true
}

// untilHeld waits until Reveille reads a stream, and so has looked at it for the last time before the long check.
func (h *hop) untilHeld(t *testing.T, path string) {
	t.Helper()
	harness.Eventually(t, soon, "read of "+path, harness.True(func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.held[path]
	}, "there was none"))
}
