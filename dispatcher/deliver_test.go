package dispatcher

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"reveille/dispatcher/format"
	"reveille/fsm"
	"reveille/fsm/router"
	"reveille/fsm/token"
)

const tokenKey = "a key for tests, at least thirty-two bytes long"

// payload is what a worker reads of a wake.
type payload struct {
	Epoch         int64  `json:"epoch"`
	WakeID        string `json:"wake_id"`
	PrimaryStream string `json:"primary_stream"`
	Streams       []struct {
		Offset string `json:"offset"`
	} `json:"streams"`
	Callback string `json:"callback"`
	Token    string `json:"token"`
}

// idles collects the streams that are reported at rest, and the streams to look at because they are gone.
type idles struct {
	mu          sync.Mutex
	paths, gone []string
}

// Hidden implements router.StreamWatcher.
func (i *idles) Hidden(path string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.gone = append(i.gone, path)
}

func (i *idles) missed() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.gone)
}

func (i *idles) Idle(paths []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.paths = append(i.paths, paths...)
}

func (i *idles) all() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.paths)
}

type fixture struct {
	*Dispatcher
	store *memStore
	idle  *idles
	logs  *observer.ObservedLogs
	stop  func()
}

// start runs a Dispatcher on a memStore until the test ends or stop is called. prepare changes it before it runs.
func start(t *testing.T, store *memStore, change func(*Config), prepare ...func(*Dispatcher)) *fixture {
	t.Helper()
	core, logs := observer.New(zapcore.DebugLevel)
	tokens, err := token.New(tokenKey)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{store: store, idle: &idles{}, logs: logs}
	outcomes := router.New()
	cfg := Config{
		Store: store, Outcomes: outcomes, Tokens: tokens, PublicURL: "http://reveille.test/", Logger: zap.New(core),
		AllowInsecure: true, UserAgent: "Reveille/test", DueInterval: 20 * time.Millisecond, parkAfter: 1, // at once
	}
	if change != nil {
		change(&cfg)
	}
	if f.Dispatcher, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	outcomes.Connect(f.Dispatcher, f.idle)
	for _, p := range prepare {
		p(f.Dispatcher)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	f.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	t.Cleanup(f.stop)
	return f
}

func endpoint(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	// A request that comes while the server is being closed must not wait for its client's time-out.
	ctx, cancel := context.WithCancel(context.Background())
	srv := httptest.NewUnstartedServer(h)
	srv.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	srv.Start()
	t.Cleanup(func() {
		cancel()
		srv.CloseClientConnections()
		srv.Close()
	})
	return srv.URL
}

// hanging is an endpoint that answers nothing until the request ends or the test is over.
func hanging(t *testing.T, hit func()) string {
	t.Helper()
	release := make(chan struct{})
	u := endpoint(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		hit()
		select {
		case <-r.Context().Done():
		case <-release:
		}
	})
	t.Cleanup(func() { close(release) })
	return u
}

func TestAttempt(t *testing.T) {
	type request struct {
		method, path string
		header       http.Header
		body         []byte
	}
	got := make(chan request, 1)
	hook := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- request{r.Method, r.URL.String(), r.Header, body}
		_, _ = io.WriteString(w, `{"done":true}`)
	})
	f := start(t, newMemStore(), nil)
	sub := f.store.addSubscription("s", hook+"/hook?key=1")
	f.Deliver(f.store.event(sub, "/s/1", "0005"))
	f.store.untilCalls(t, "Finish", 1)

	r := <-got
	if r.method != "POST" || r.path != "/hook?key=1" {
		t.Errorf("got %s %s", r.method, r.path)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", "User-Agent": "Reveille/test", "Accept-Encoding": "identity",
	} {
		if v := r.header.Get(name); v != want {
			t.Errorf("%s: got %q, want %q", name, v, want)
		}
	}
	signature := r.header.Get(format.SignatureHeader)
	if e := format.Examine(sub.Secret, signature, r.body, time.Now(), format.SignatureTolerance); !e.OK() {
		t.Errorf("the signature %s: %+v", signature, e)
	}
	var p payload
	if err := json.Unmarshal(r.body, &p); err != nil {
		t.Fatal(err)
	}
	token, err := f.cfg.Tokens.Parse(p.Token)
	if err != nil || token.Consumer != "s:%2Fs%2F1" || token.Epoch != 1 || token.Generation != "g-s" {
		t.Errorf("token: %+v, %v", token, err)
	}
	if p.Callback != "http://reveille.test/callback/s:%2Fs%2F1" || p.Epoch != 1 || p.Streams[0].Offset != "-1" {
		t.Errorf("payload: %+v", p)
	}
	c := f.store.consumer("s:%2Fs%2F1")
	if c.State != fsm.Idle || c.Links["/s/1"].Acked != "0005" {
		t.Errorf("consumer: %+v", c)
	}
	f.stop()
	if got := f.idle.all(); !slices.Equal(got, []string{"/s/1"}) {
		t.Errorf("idle: %v", got)
	}
}

// TestEndpoints tries each way in which an endpoint can behave, over a real connection, and holds what the store is
// told of it.
func TestEndpoints(t *testing.T) {
	away := endpoint(t, func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") })
	abort := func(http.ResponseWriter) { panic(http.ErrAbortHandler) }
	drip := func(w http.ResponseWriter, r *http.Request, parts ...string) {
		for _, p := range parts {
			_, _ = io.WriteString(w, p)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-time.After(time.Millisecond):
			case <-r.Context().Done():
				return
			}
		}
	}
	slowly := func(s string) []string {
		var parts []string
		for _, c := range s {
			parts = append(parts, string(c))
		}
		return parts
	}
	for _, tc := range []struct {
		name    string
		handler http.HandlerFunc
		call    string
		fail    fsm.Failure
		timeout time.Duration // of the request; 0 for the default, which a slow machine does not reach
	}{
		{name: "a plain 2xx is accepted", call: "Accept", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNoContent)
		}},
		{
			name: "a done that comes byte by byte is done", call: "Finish",
			handler: func(w http.ResponseWriter, r *http.Request) {
				drip(w, r, slowly(`{"done":true}`)...)
			},
		},
		{
			name: "an answer of 10 MB is accepted without reading it", call: "Accept",
			handler: func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write(append([]byte(`{"done":true}`), bytes.Repeat([]byte(" "), 10<<20)...))
			},
		},
		{
			name: "a done that is compressed unasked is done", call: "Finish",
			handler: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", "gzip")
				_, _ = w.Write(zipped(`{"done":true}`))
			},
		},
		{name: "invalid JSON is accepted", call: "Accept", handler: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"done":tru`)
		}},
		{
			name: "a 2xx that never ends is accepted before the timeout", call: "Accept",
			handler: func(w http.ResponseWriter, r *http.Request) {
				drip(w, r, `{"done":`)
				<-r.Context().Done()
			},
		},
		{
			name: "a 2xx cut in its body is accepted", call: "Accept",
			handler: func(w http.ResponseWriter, r *http.Request) {
				drip(w, r, `{"done":true`)
				abort(w)
			},
		},
		{
			name: "no answer until the timeout failed", call: "Fail", fail: fsm.Failure{Reason: fsm.ReasonTimeout},
			timeout: time.Second,
			handler: func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				<-r.Context().Done()
			},
		},
		{
			name: "a closed connection failed", call: "Fail",
			fail: fsm.Failure{Reason: "the connection was closed without an answer"},
			handler: func(w http.ResponseWriter, _ *http.Request) {
				abort(w)
			},
		},
		{
			name: "a redirect is not followed and failed", call: "Fail",
			fail: fsm.Failure{Reason: "status 307 to " + away + " (redirects are not followed)"},
			handler: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", away)
				w.WriteHeader(http.StatusTemporaryRedirect)
			},
		},
		{
			name: "a redirect to a metadata address is not followed and failed", call: "Fail",
			fail: fsm.Failure{Reason: "status 302 to http://169.254.169.254 (redirects are not followed)"},
			handler: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "http://169.254.169.254/latest/meta-data/")
				w.WriteHeader(http.StatusFound)
			},
		},
		{
			name: "429 is not retried before its Retry-After", call: "Fail",
			fail: fsm.Failure{RetryAfter: 17 * time.Second, Reason: "status 429"},
			handler: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "17")
				w.WriteHeader(http.StatusTooManyRequests)
			},
		},
		{
			name: "410 retires", call: "Fail", fail: fsm.Failure{Retired: true, Reason: "status 410"},
			handler: func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusGone)
			},
		},
		{
			name: "500 with an endless body failed", call: "Fail", fail: fsm.Failure{Reason: "status 500"},
			handler: func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(http.StatusInternalServerError)
				drip(w, r, "x")
				<-r.Context().Done()
			},
		},
		{
			name: "headers beyond the limit failed", call: "Fail", fail: fsm.Failure{Reason: "the request failed"},
			handler: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Long", string(bytes.Repeat([]byte("x"), 2*maxHeaderBytes)))
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f := start(t, newMemStore(), func(c *Config) { c.RequestTimeout = tc.timeout })
			sub := f.store.addSubscription("s", endpoint(t, tc.handler))
			wakes := f.store.event(sub, "/s/1", "0005")
			f.Deliver(wakes)
			f.store.untilCalls(t, tc.call, 1)
			if tc.call == "Fail" {
				if want := (failCall{wakes[0].Ref(), tc.fail}); !reflect.DeepEqual(f.store.fails()[0], want) {
					t.Errorf("got %+v, want %+v", f.store.fails()[0], want)
				}
			} else if f.store.called("Fail") > 0 {
				t.Errorf("it failed as well: %+v", f.store.fails()[0])
			}
		})
	}
}

func TestTwoHundredWithASlowBodyIsToldAtOnce(t *testing.T) {
	finish := make(chan struct{})
	f := start(t, newMemStore(), nil)
	sub := f.store.addSubscription("s", endpoint(t, func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-finish
		_, _ = io.WriteString(w, `{"done":true}`)
	}))
	f.Deliver(f.store.event(sub, "/s/1", "0005"))
	f.store.untilCalls(t, "Accept", 1)
	if c := f.store.consumer("s:%2Fs%2F1"); c.State != fsm.Live {
		t.Errorf("the consumer is %s", c.State)
	}
	close(finish)
	f.store.untilCalls(t, "Finish", 1)
	if c := f.store.consumer("s:%2Fs%2F1"); c.State != fsm.Idle {
		t.Errorf("the consumer is %s", c.State)
	}
}

// TestDoneAcksTheSnapshotAndWakesAgain holds that an event that arrives while a worker is at work wakes it again at
// once. A synchronous done acks only the tails that the attempt was sent with.
func TestDoneAcksTheSnapshotAndWakesAgain(t *testing.T) {
	f := start(t, newMemStore(), nil)
	var sub fsm.Subscription
	bodies := make(chan payload, 2)
	sub = f.store.addSubscription("s", endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		var p payload
		_ = json.NewDecoder(r.Body).Decode(&p)
		if p.Epoch == 1 {
			f.Deliver(f.store.event(sub, "/s/1", "0009"))
		}
		bodies <- p
		_, _ = io.WriteString(w, `{"done":true}`)
	}))
	f.Deliver(f.store.event(sub, "/s/1", "0005"))
	f.store.untilCalls(t, "Finish", 2)
	first, second := <-bodies, <-bodies
	if first.Streams[0].Offset != "-1" || second.Streams[0].Offset != "0005" ||
		second.Epoch != 2 || second.WakeID == first.WakeID {
		t.Errorf("got %+v and %+v", first, second)
	}
	if c := f.store.consumer("s:%2Fs%2F1"); c.State != fsm.Idle || c.Links["/s/1"].Acked != "0009" {
		t.Errorf("consumer: %+v", c)
	}
}

// TestHangingEndpointsTakeNothingFromOthers lets thirty subscriptions hang, with more to deliver than there are slots.
// A healthy one notices nothing.
func TestHangingEndpointsTakeNothingFromOthers(t *testing.T) {
	f := start(t, newMemStore(), func(c *Config) {
		c.MaxInFlight, c.MaxInFlightPerSubscription = 128, 16
		c.ShutdownGrace = time.Millisecond
	})
	hang := hanging(t, func() {})
	for i := range 30 {
		sub := f.store.addSubscription(fmt.Sprintf("hang%d", i), hang)
		for n := range 20 {
			f.Deliver(f.store.event(sub, fmt.Sprintf("/hang%d/%d", i, n), "0001"))
		}
	}
	healthy := f.store.addSubscription("ok", endpoint(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"done":true}`)
	}))
	begun := time.Now()
	for n := range 50 {
		f.Deliver(f.store.event(healthy, fmt.Sprintf("/ok/%d", n), "0001"))
		f.store.untilCalls(t, "Finish", n+1)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("fifty deliveries of a healthy endpoint took %v", took)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.slots.inFlight >= 128 {
		t.Error("the hanging ones hold every slot")
	}
}

func TestWakesWaitForASlot(t *testing.T) {
	let := make(chan struct{})
	bodies := make(chan payload, 10)
	f := start(t, newMemStore(), func(c *Config) { c.MaxInFlight, c.MaxInFlightPerSubscription = 2, 1 })
	sub := f.store.addSubscription("s", endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		var p payload
		_ = json.NewDecoder(r.Body).Decode(&p)
		bodies <- p
		<-let
		_, _ = io.WriteString(w, `{"done":true}`)
	}))
	f.Deliver(f.store.event(sub, "/s/0", "0001"))
	<-bodies
	second := f.store.event(sub, "/s/1", "0001")
	f.Deliver(second)
	f.Deliver(f.store.event(sub, "/s/2", "0001"))
	f.store.untilCalls(t, "Park", 2)
	f.Deliver(second) // its deadline brought it back
	f.store.untilCalls(t, "Park", 3)
	// While they wait, one gets more to do, and another callback claims the other one.
	f.store.event(sub, "/s/1", "0007")
	f.store.db.ChangeConsumer("s:%2Fs%2F2", func(c *fsm.Consumer) {
		c.State, c.Sent, c.Deadline = fsm.Live, false, time.Time{}
	})
	close(let)
	f.store.untilCalls(t, "Begin", 2)
	f.store.untilCalls(t, "Finish", 2)
	f.stop()
	close(bodies)
	var rest []string
	for p := range bodies {
		rest = append(rest, p.PrimaryStream)
	}
	if !slices.Equal(rest, []string{"/s/1"}) {
		t.Errorf("delivered after waiting: %v", rest)
	}
	// The wake that waited was sent with the tail of the moment it went out.
	if c := f.store.consumer("s:%2Fs%2F1"); c.Links["/s/1"].Acked != "0007" {
		t.Errorf("consumer: %+v", c)
	}
}

// TestWakesThatWaitAndAreNotParkedYetGoOutAsTheyAre holds that a free slot goes to a wake in memory while the store is
// slow to note that wakes wait. It runs on injected time: a slot is freed only after the store was told of its attempt.
func TestWakesThatWaitAndAreNotParkedYetGoOutAsTheyAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let, parking, unpark := make(chan struct{}), make(chan struct{}, 2*parkers), make(chan struct{})
		store := newMemStore()
		store.hold = func(op string) {
			if op == "Park" {
				parking <- struct{}{}
				<-unpark
			}
		}
		hit := make(chan string, 4)
		f := start(t, store, func(c *Config) {
			c.MaxInFlight, c.MaxInFlightPerSubscription, c.ShutdownGrace = 10, 1, time.Millisecond
		}, without(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var p payload
			_ = json.NewDecoder(r.Body).Decode(&p)
			if strings.HasPrefix(p.PrimaryStream, "/hang/") {
				hangs(r)
				return
			}
			hit <- p.PrimaryStream
			<-let
			answersDone(w)
		})))
		// One subscription that hangs keeps all parkers busy.
		hang := store.addSubscription("hang", hookURL)
		var first []fsm.Delivery
		for n := range parkers + 1 {
			w := store.event(hang, fmt.Sprintf("/hang/%d", n), "0001")
			if n == 1 {
				first = w
			}
			f.Deliver(w)
		}
		for range parkers {
			<-parking
		}
		f.Deliver(first) // is at the store; will have to be parked anew
		sub, gone := store.addSubscription("s", hookURL), store.addSubscription("gone", hookURL)
		f.Deliver(store.event(gone, "/gone/1", "0001"))
		f.Deliver(store.event(gone, "/gone/2", "0001"))
		f.Deliver(store.event(sub, "/s/1", "0001"))
		f.Deliver(store.event(sub, "/s/2", "0001"))
		<-hit
		<-hit
		store.deleteSubscription(t, "gone")
		close(let)
		synctest.Wait() // only the one that hangs has a slot now
		if got := <-hit; got != "/s/2" {
			t.Errorf("got %s", got)
		}
		if finished, begun := store.called("Finish"), store.called("Begin"); finished != 3 || begun != 0 {
			t.Errorf("Finish was called %d times, Begin %d times", finished, begun)
		}
		f.Deliver(store.event(hang, "/hang/last", "0001"))
		close(unpark)
		pass(time.Millisecond)
		// Those are parked that were at it, the first once more, and the last.
		if n := store.called("Park"); n != parkers+2 {
			t.Errorf("Park was called %d times, want %d: not for wakes that were sent", n, parkers+2)
		}
		f.stop()
		if len(hit) > 0 {
			t.Errorf("%s was sent although its subscription is gone", <-hit)
		}
	})
}

func TestWakesBeyondTheQueueAreGivenBack(t *testing.T) {
	hit := make(chan struct{}, 1)
	f := start(t, newMemStore(), func(c *Config) {
		c.MaxInFlight, c.MaxInFlightPerSubscription, c.MaxQueued, c.ShutdownGrace = 2, 1, 1, time.Millisecond
	})
	sub := f.store.addSubscription("s", hanging(t, func() { hit <- struct{}{} }))
	for n := range 5 {
		f.Deliver(f.store.event(sub, fmt.Sprintf("/s/%d", n), "0001"))
	}
	<-hit
	f.store.untilCalls(t, "Park", 4)
	f.stop()
	if parked, back := f.store.called("Park"), f.store.called("HandBack"); parked != 4 || back != 1 {
		t.Errorf("%d were parked and %d handed back when it stopped", parked, back)
	}
	for n := 1; n < 5; n++ {
		if c := f.store.consumer(fmt.Sprintf("s:%%2Fs%%2F%d", n)); c.Sent {
			t.Errorf("the store takes it for out: %+v", c)
		}
	}
	if n := f.logs.FilterMessageSnippet("the queue of wakes is full").Len(); n != 1 {
		t.Errorf("logged %d times", n)
	}
}

func TestWakesOfUnknownSubscriptions(t *testing.T) {
	done := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"done":true}`) }
	store := newMemStore()
	store.SetStale(true)
	f := start(t, store, nil)
	sub := f.store.addSubscription("s", endpoint(t, done))
	f.Deliver(f.store.event(sub, "/s/1", "0001"))
	f.store.untilCalls(t, "Finish", 1)
	if n := f.store.called("RefreshCatalog"); n != 1 {
		t.Errorf("the catalog was refreshed %d times", n)
	}
	old := sub
	old.Generation = "g-earlier"
	f.Deliver(f.store.event(old, "/s/2", "0001"))
	f.store.untilCalls(t, "RefreshCatalog", 2)
	f.store.untilCalls(t, "Park", 1)
	// No attempt was made, so none has failed.
	c := f.store.consumer("s:%2Fs%2F2")
	if left := time.Until(c.Deadline); c.Attempt != 0 || !c.FirstFailure.IsZero() || left < parkTime-20*time.Second {
		t.Errorf("the consumer is %+v", c)
	}
	f.Deliver(f.store.event(sub, "/s/3", "0001"))
	f.store.untilCalls(t, "Finish", 2)
	f.stop()
	if n := f.store.called("Finish") + f.store.called("Accept") + f.store.called("Fail"); n != 2 {
		t.Errorf("%d attempts, want 2", n)
	}
}

func TestWakesWhoseSubscriptionCannotBeReadAreParked(t *testing.T) {
	store := newMemStore()
	store.SetStale(true)
	store.err = func(op string) error {
		if op == "RefreshCatalog" {
			return fmt.Errorf("no answer in time: %w", fsm.ErrUnavailable)
		}
		return nil
	}
	f := start(t, store, nil)
	sub := f.store.addSubscription("s", "https://example.com/")
	f.Deliver(f.store.event(sub, "/s/1", "0001"))
	f.store.untilCalls(t, "Park", 1)
	if c := f.store.consumer("s:%2Fs%2F1"); c.Attempt != 0 || !c.FirstFailure.IsZero() ||
		time.Until(c.Deadline) > f.cfg.WakingTimeout {
		t.Errorf("the consumer is %+v", c)
	}
}

func TestResultsWaitForTheStore(t *testing.T) {
	store, outages := newMemStore(), 2
	store.err = func(op string) error {
		if op == "Finish" && outages > 0 {
			outages--
			return fmt.Errorf("connection refused: %w", fsm.ErrUnavailable)
		}
		return nil
	}
	f := start(t, store, nil)
	sub := f.store.addSubscription("s", endpoint(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"done":true}`)
	}))
	f.Deliver(f.store.event(sub, "/s/1", "0005"))
	f.store.untilCalls(t, "Finish", 3)
	f.store.until(t, "the consumer is idle", func() bool { return f.store.consumer("s:%2Fs%2F1").State == fsm.Idle })
}

func TestResultsThatTheStoreRefusesAreGivenUp(t *testing.T) {
	store := newMemStore()
	store.err = func(op string) error {
		if op == "Accept" {
			return errors.New("an unknown reply")
		}
		return nil
	}
	f := start(t, store, nil)
	sub := f.store.addSubscription("s", endpoint(t, func(http.ResponseWriter, *http.Request) {}))
	f.Deliver(f.store.event(sub, "/s/1", "0005"))
	f.store.untilCalls(t, "Accept", 1)
	f.stop()
	if n := f.store.called("Accept"); n != 1 {
		t.Errorf("reported %d times", n)
	}
	if f.logs.FilterMessageSnippet("was not stored").Len() != 1 {
		t.Error("it was not logged")
	}
}

func TestCertificatesAreVerified(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, `{"done":%t}`, r.ProtoMajor == 2)
	}))
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	f := start(t, newMemStore(), nil)
	sub := f.store.addSubscription("s", srv.URL)
	f.Deliver(f.store.event(sub, "/s/1", "0005"))
	f.store.untilCalls(t, "Fail", 1)
	f.stop()
	reason := zap.String("reason", "the TLS certificate is signed by an unknown authority")
	if n := f.logs.FilterField(reason).Len(); n == 0 {
		t.Error("the reason was not logged")
	}

	f = start(t, newMemStore(), nil)
	f.sender.tls.RootCAs = srv.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	sub = f.store.addSubscription("s", srv.URL)
	f.Deliver(f.store.event(sub, "/s/1", "0005"))
	f.store.untilCalls(t, "Finish", 1) // the endpoint says done over HTTP/2 only
}

// TestADeliveryThatThisVersionCannotMakeWaits holds that the log names a subscription that a later version stored. The
// subscription loses nothing, counts no failure and delays no other one.
func TestADeliveryThatThisVersionCannotMakeWaits(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	f := start(t, newMemStore(), func(c *Config) { c.Metrics = r })
	hook := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/later" {
			t.Error("it was sent")
		}
		_, _ = io.WriteString(w, `{"done":true}`)
	})
	later := f.store.addSubscription("later", hook+"/later")
	later.Mode = "pull"
	f.store.db.PutSubscription(later)
	ours := f.store.addSubscription("ours", hook+"/ours")
	f.Deliver(f.store.event(later, "/later/1", "0005"))
	f.Deliver(f.store.event(ours, "/ours/1", "0005"))
	f.store.untilCalls(t, "Park", 1)
	f.store.untilCalls(t, "Finish", 1)
	c := f.store.consumer("later:%2Flater%2F1")
	if left := time.Until(c.Deadline); c.State != fsm.Waking || c.Attempt != 0 || !c.FirstFailure.IsZero() ||
		left < parkTime-20*time.Second || left > parkTime {
		t.Errorf("the consumer is %+v", c)
	}
	attempts := "reveille_delivery_attempts_total"
	awaitMetrics(t, r, []string{attempts}, attempts+"{done 2xx ours} 1", attempts+"{blocked none later} 1")
	f.stop()
	lines := f.logs.FilterMessageSnippet("cannot deliver").All()
	if len(lines) != 1 || lines[0].ContextMap()["subscription"] != "later" ||
		lines[0].ContextMap()["reason"] != `subscription later has the mode "pull", which this version does not know` {
		t.Errorf("logged %+v", lines)
	}
}
