package dispatcher

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"reveille/dispatcher/format"
	"reveille/fsm"
	"reveille/fsm/router"
	"reveille/fsm/spec/memstore"
	"reveille/fsm/token"
)

func TestConfig(t *testing.T) {
	tokens, err := token.New(tokenKey)
	if err != nil {
		t.Fatal(err)
	}
	good := Config{Store: newMemStore(), Outcomes: router.New(), Tokens: tokens, PublicURL: "https://reveille.test"}
	if _, err := New(good); err != nil {
		t.Fatalf("the defaults are refused: %v", err)
	}
	for _, tc := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"a store is required", func(c *Config) { c.Store = nil }, "Store"},
		{"a public URL is required", func(c *Config) { c.PublicURL = "" }, "PublicURL"},
		{
			"the limit of a subscription is below the one in all", func(c *Config) { c.MaxInFlight = 64 },
			"MaxInFlightPerSubscription (64)",
		},
		{"limits are positive", func(c *Config) { c.MaxQueued = -1 }, "MaxQueued"},
		{"times are positive", func(c *Config) { c.RequestTimeout = -time.Second }, "RequestTimeout"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := good
			tc.change(&c)
			if _, err := New(c); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error about %s", err, tc.want)
			}
		})
	}
}

func TestStopLetsRequestsInFlightEnd(t *testing.T) {
	arrived, finish := make(chan struct{}), make(chan struct{})
	var hits atomic.Int32
	f := start(t, newMemStore(), func(c *Config) { c.MaxInFlight, c.MaxInFlightPerSubscription = 2, 1 })
	sub := f.store.addSubscription("s", endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		arrived <- struct{}{}
		<-finish
		_, _ = io.WriteString(w, `{"done":true}`)
	}))
	f.Deliver(f.store.event(sub, "/s/1", "0005"))
	<-arrived
	f.Deliver(f.store.event(sub, "/s/2", "0005"))
	f.store.untilCalls(t, "Park", 1)
	f.store.event(sub, "/s/1", "0009") // the first will be woken again when it is done

	stopped := make(chan struct{})
	go func() { f.stop(); close(stopped) }()
	for f.accepting() {
		time.Sleep(time.Millisecond)
	}
	f.Deliver(f.store.event(sub, "/s/3", "0005"))
	close(finish)
	<-stopped
	if got := hits.Load(); got != 1 {
		t.Errorf("%d requests, want the one in flight", got)
	}
	if n := f.store.called("Finish"); n != 1 {
		t.Errorf("its result was reported %d times", n)
	}
	if c := f.store.consumer("s:%2Fs%2F2"); c.State != fsm.Waking || c.Deadline.IsZero() {
		t.Errorf("the wake that waited has no deadline: %+v", c)
	}
	if c := f.store.consumer("s:%2Fs%2F1"); c.Epoch != 2 || c.Deadline.IsZero() {
		t.Errorf("the next wake of the first has no deadline: %+v", c)
	}
}

func (f *fixture) accepting() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.stopped
}

func TestStopCancelsRequestsAfterTheGrace(t *testing.T) {
	hit := make(chan struct{}, 1)
	f := start(t, newMemStore(), func(c *Config) { c.ShutdownGrace = 10 * time.Millisecond })
	sub := f.store.addSubscription("s", hanging(t, func() { hit <- struct{}{} }))
	f.Deliver(f.store.event(sub, "/s/1", "0005"))
	<-hit
	f.stop()
	if n := f.store.called("Fail") + f.store.called("Accept") + f.store.called("Finish"); n != 0 {
		t.Errorf("%d results were reported of a request that this program cancelled", n)
	}
	if n := f.logs.FilterMessageSnippet("failed").Len(); n != 0 {
		t.Errorf("it was logged as a failure")
	}
}

// TestAStopIsOverWithTheGraceAndTheTimeForReports lets one request hang. Another is answered at the last moment, when
// the store that must be told of it is away.
func TestAStopIsOverWithTheGraceAndTheTimeForReports(t *testing.T) {
	// The program relies on this: all its parts together stop in less time than it promises.
	const reports = 5 * time.Second
	var answer chan struct{}
	inTime(t, timings(func(*fsm.Timing) {}), func(n int, w http.ResponseWriter, r *http.Request) {
		if n == 1 {
			hangs(r)
			return
		}
		<-answer
		answersDone(w)
	}, func(f *timed) {
		answer = make(chan struct{})
		f.store.err = func(op string) error {
			if op == "Finish" {
				return fsm.ErrUnavailable
			}
			return nil
		}
		f.event("0001")
		f.attempt(1)
		f.Deliver(f.store.event(f.sub, "/s/2", "0001"))
		f.attempt(2)
		began := time.Now()
		time.AfterFunc(f.cfg.ShutdownGrace-time.Millisecond, func() { close(answer) })
		f.stop()
		if took, most := time.Since(began), f.cfg.ShutdownGrace+reports; took > most || f.store.called("Finish") < 2 {
			t.Errorf("it took %s, want %s at most; the store was told %d times", took, most, f.store.called("Finish"))
		}
	})
}

func TestAStoreThatIsSlowToTakeWakesBackLengthensNoStop(t *testing.T) {
	hit, cancelled := make(chan struct{}, 1), make(chan struct{})
	store := newMemStore()
	store.hold = func(op string) {
		if op != "HandBack" {
			return
		}
		select {
		case <-cancelled:
		case <-time.After(10 * time.Second):
			t.Error("the grace of requests in flight does not begin before waiting wakes are handed back")
		}
	}
	f := start(t, store, func(c *Config) {
		c.MaxInFlight, c.MaxInFlightPerSubscription, c.ShutdownGrace = 2, 1, 10*time.Millisecond
	})
	sub := store.addSubscription("s", endpoint(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		hit <- struct{}{}
		<-r.Context().Done()
		close(cancelled)
	}))
	f.Deliver(store.event(sub, "/s/1", "0001"))
	<-hit
	f.Deliver(store.event(sub, "/s/2", "0001"))
	f.stop()
	if n := store.called("HandBack"); n != 1 {
		t.Errorf("%d wakes were handed back", n)
	}
}

func TestDeadlines(t *testing.T) {
	t.Run("a deadline is met when it is due, not at the next interval", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := newMemStore()
			f := start(t, store, func(c *Config) { c.DueInterval = time.Minute })
			time.Sleep(55 * time.Second)
			// due in 10 s; no replica delivers it
			store.event(fsm.Subscription{ID: "s", Generation: "deleted"}, "/s/1", "0001")
			time.Sleep(memstore.DefaultTiming.Waking - time.Millisecond)
			synctest.Wait()
			if n := store.called("Due"); n != 0 {
				t.Error("the deadline was met before it was due")
			}
			time.Sleep(time.Millisecond)
			synctest.Wait()
			if n := store.called("Due"); n != 1 {
				t.Errorf("Due was called %d times when the deadline had come", n)
			}
			f.stop()
		})
	})
	t.Run("full batches are followed by the next at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := newMemStore()
			sub := fsm.Subscription{ID: "s", Generation: "deleted"}
			for n := range 3*dueBatch + 1 {
				store.event(sub, fmt.Sprintf("/s/%d", n), "0001")
			}
			time.Sleep(memstore.DefaultTiming.Waking)
			f := start(t, store, nil)
			time.Sleep(f.cfg.DueInterval)
			synctest.Wait()
			if n := store.called("Due"); n != 4 {
				t.Errorf("Due was called %d times, want 4", n)
			}
			f.stop()
		})
	})
	t.Run("a store that is down is asked once in a while, and named once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var down atomic.Bool
			down.Store(true)
			store := newMemStore()
			store.err = func(string) error {
				if down.Load() {
					return fsm.ErrUnavailable
				}
				return nil
			}
			f := start(t, store, nil)
			time.Sleep(time.Minute)
			synctest.Wait()
			if n := store.called("NextDue"); n < 50 || n > 70 {
				t.Errorf("it was asked %d times in a minute", n)
			}
			down.Store(false)
			time.Sleep(dueBackoffMax + 3*time.Second)
			synctest.Wait()
			if n := store.called("NextDue"); n < 75 {
				t.Errorf("after it came back it was asked %d times in all", n)
			}
			f.stop()
			a, b := f.logs.FilterMessageSnippet("does not answer").Len(),
				f.logs.FilterMessageSnippet("answers again").Len()
			if a != 1 || b != 1 {
				t.Errorf("its outage was logged %d times, its end %d times", a, b)
			}
		})
	})
	t.Run("an attempt without an answer is made again by its deadline, with the same wake", func(t *testing.T) {
		store := newMemStore()
		store.setWaking(30 * time.Millisecond)
		bodies := make(chan int, 2)
		f := start(t, store, func(c *Config) { c.ShutdownGrace = time.Millisecond })
		sub := store.addSubscription("s", hanging(t, func() {
			select {
			case bodies <- 1:
			default:
			}
		}))
		f.Deliver(store.event(sub, "/s/1", "0001"))
		<-bodies
		<-bodies
		if c := store.consumer("s:%2Fs%2F1"); c.Epoch != 1 || c.Attempt < 2 {
			t.Errorf("consumer: %+v", c)
		}
	})
}

func TestAThousandFailuresOfOneEndpointAreOneLine(t *testing.T) {
	at := time.Now() // however long it takes, there is no summary
	f := start(t, newMemStore(), func(c *Config) { c.Clock = func() time.Time { return at } })
	sub := f.store.addSubscription("s", endpoint(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	}))
	for n := range 1000 {
		f.Deliver(f.store.event(sub, fmt.Sprintf("/s/%d", n), "0005"))
	}
	f.store.untilCalls(t, "Fail", 1000)
	var lines []string
	for _, e := range f.logs.All() {
		if e.Level > zap.DebugLevel {
			lines = append(lines, fmt.Sprint(e.Message, e.ContextMap()))
		}
	}
	if len(lines) != 1 || !strings.Contains(lines[0], "webhook delivery failed") ||
		!strings.Contains(lines[0], "status 500") {
		t.Errorf("%d lines: %q", len(lines), lines)
	}
}

// TestSecretsStayOutOfTheLog holds that the log has no secret, no token, and only the host of the URL, whatever happens
// to a wake.
func TestSecretsStayOutOfTheLog(t *testing.T) {
	echo := func(w http.ResponseWriter, r *http.Request) { // an answer that is not HTTP and repeats the request
		body, _ := io.ReadAll(r.Body)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = fmt.Fprintf(conn, "%s %s %s\r\n\r\n", r.URL, body, r.Header.Get(format.SignatureHeader))
		_ = conn.Close()
	}
	store := newMemStore()
	f := start(t, store, nil)
	hooks := []string{
		endpoint(t, echo),
		endpoint(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }),
		endpoint(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/again?key=hunter2", http.StatusFound)
		}),
		endpoint(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"done":true}`) }),
		"http://127.0.0.1:1",
		"http://169.254.169.254",
		"ftp://files.test",
	}
	for i, h := range hooks {
		sub := store.addSubscription(fmt.Sprintf("s%d", i), h+"/path-hunter2?key=hunter2")
		f.Deliver(store.event(sub, fmt.Sprintf("/s%d/1", i), "0005"))
	}
	store.until(t, "all were reported",
		func() bool { return store.called("Fail")+store.called("Finish") >= len(hooks) })
	f.stop()
	if f.logs.Len() < 2*len(hooks)-1 {
		t.Errorf("only %d lines were logged", f.logs.Len())
	}
	for _, e := range f.logs.All() {
		line := fmt.Sprint(e.Message, e.ContextMap())
		for _, secret := range []string{"whsec_", "_secret", "hunter2", "eyJ", "sha256", tokenKey} {
			if strings.Contains(line, secret) {
				t.Errorf("the log holds %q: %s", secret, line)
			}
		}
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	tokens, err := token.New(tokenKey)
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(Config{
		Store: newMemStore(), Outcomes: router.New(), Tokens: tokens, PublicURL: "https://r.test",
		Logger: zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Run(ctx); err != nil {
		t.Errorf("Run returned %v", err)
	}
}
