package dispatcher

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec/memstore"
)

// hook is a webhook on injected time. It is reached without a network, so that time passes while requests hang.
type hook struct {
	t      *testing.T
	answer answering

	mu  sync.Mutex
	got []attempted
}

// answering answers the nth attempt of all.
type answering func(n int, w http.ResponseWriter, r *http.Request)

// attempted is a request that a hook got.
type attempted struct {
	payload
	at time.Time
}

// offset is the acked offset of the stream, by the wake.
func (a attempted) offset() string { return a.Streams[0].Offset }

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := attempted{at: time.Now()}
	if err := json.NewDecoder(r.Body).Decode(&a.payload); err != nil {
		h.t.Error(err)
	}
	h.mu.Lock()
	h.got = append(h.got, a)
	n := len(h.got)
	h.mu.Unlock()
	h.answer(n, w, r)
}

func (h *hook) attempts() []attempted {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]attempted(nil), h.got...)
}

// timed is a Dispatcher on injected time, with one subscription and its hook.
type timed struct {
	*fixture
	t    *testing.T
	hook *hook
	sub  fsm.Subscription
}

// hookURL is the URL of the hook of a timed Dispatcher: no address there is dialled.
const hookURL = "http://10.0.0.1/hook"

const (
	timedStream   = "/s/1"
	timedConsumer = "s:%2Fs%2F1"
)

// inTime runs a test on injected time.
func inTime(t *testing.T, timing fsm.Timing, answer answering, test func(f *timed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := newMemStore()
		store.db.SetTiming(timing)
		f := &timed{
			t: t, hook: &hook{t: t, answer: answer}, sub: store.addSubscription("s", hookURL),
			fixture: &fixture{store: store},
		}
		f.run()
		test(f)
		f.stop()
	})
}

// run starts a Dispatcher, or one more after a stop.
func (f *timed) run() {
	f.fixture = start(f.t, f.store, func(c *Config) { c.DueInterval, c.ShutdownGrace = 5*time.Second, time.Second },
		without(f.t, f.hook))
}

// without makes a Dispatcher reach a handler without a network.
func without(t *testing.T, handler http.Handler) func(*Dispatcher) {
	dial := func(context.Context, string, string) (net.Conn, error) {
		conn, peer := net.Pipe()
		var requests sync.WaitGroup
		t.Cleanup(func() {
			_, _ = conn.Close(), peer.Close()
			requests.Wait()
		})
		only := make(chan net.Conn, 1)
		only <- peer
		close(only)
		srv := &http.Server{ReadHeaderTimeout: time.Hour, Handler: http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				defer requests.Done()
				handler.ServeHTTP(w, r)
			})}
		go func() { _ = srv.Serve(given(only)) }()
		return conn, nil
	}
	return func(d *Dispatcher) { d.sender.dial = dial }
}

// given is a listener for connections that are there already.
type given <-chan net.Conn

func (g given) Accept() (net.Conn, error) {
	if c, ok := <-g; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (given) Close() error   { return nil }
func (given) Addr() net.Addr { return &net.TCPAddr{} }

// event makes the stream longer, and delivers the wakes that follow.
func (f *timed) event(tail fsm.Offset) { f.Deliver(f.store.event(f.sub, timedStream, tail)) }

func (f *timed) consumer() fsm.Consumer { return f.store.consumer(timedConsumer) }

// callback makes a callback, which another replica takes.
func (f *timed) callback(p payload, change func(*fsm.Callback)) {
	f.t.Helper()
	cb := fsm.Callback{
		Consumer: f.consumer().Ref(), Primary: timedStream, Generation: f.sub.Generation, Epoch: p.Epoch,
		TokenEpoch: p.Epoch, MaxStreams: 10,
	}
	change(&cb)
	out, err := f.store.other.Callback(f.t.Context(), cb)
	if err != nil || out.Code != "" {
		f.t.Fatalf("callback %+v: %s %v", cb, out.Code, err)
	}
	f.follow(out.Outcome)
}

// told is how often the store was told the result of an attempt.
func (s *memStore) told() int { return s.called("Accept") + s.called("Finish") + s.called("Fail") }

// pass lets time pass, and waits for all that is due then.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// until lets time pass, a second at a time, until a condition is met.
func (f *timed) until(what string, limit time.Duration, cond func() bool) {
	f.t.Helper()
	synctest.Wait()
	for began := time.Now(); !cond(); pass(time.Second) {
		if time.Since(began) > limit {
			f.t.Fatalf("not within %s: %s; the consumer is %+v", limit, what, f.consumer())
		}
	}
}

// attempt returns the nth attempt of all. It lets as much time pass as the attempt needs to come.
func (f *timed) attempt(n int) attempted {
	f.t.Helper()
	f.until("attempt "+strconv.Itoa(n), time.Hour, func() bool { return len(f.hook.attempts()) >= n })
	return f.hook.attempts()[n-1]
}

func (f *timed) sameWake(a, b attempted) {
	f.t.Helper()
	if a.Epoch != b.Epoch || a.WakeID != b.WakeID {
		f.t.Errorf("attempts of different wakes: %+v and %+v", a, b)
	}
}

func fails(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) }

func answersDone(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"done":true}`) }

func hangs(r *http.Request) { <-r.Context().Done() }

// timings returns the default timings with a change.
func timings(change func(*fsm.Timing)) fsm.Timing {
	timing := memstore.DefaultTiming
	change(&timing)
	return timing
}

// openRequests is a handler that hangs if the query of a request says so, and counts these requests.
type openRequests struct {
	mu   sync.Mutex
	open map[string]int
}

func (o *openRequests) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	who := r.URL.RawQuery
	if who == "" {
		answersDone(w)
		return
	}
	o.change(who, 1)
	defer o.change(who, -1)
	hangs(r)
}

func (o *openRequests) change(who string, by int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open[who] += by
}

// now returns how many requests are open, in all and for each query.
func (o *openRequests) now() (all int, each map[string]int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range o.open {
		all += n
	}
	return all, maps.Clone(o.open)
}
