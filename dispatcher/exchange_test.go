package dispatcher

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"reveille/fsm"
	"reveille/fsm/router"
)

// oneEvent is a batch of one event.
var oneEvent = fsm.Batch{
	ContentType: "application/json", JSON: true, Events: [][]byte{[]byte(`{}`)}, To: "0005", Tail: "0005",
}

// stuckConn is a connection on which net/http is stuck, whatever it does: Read and Write return only when the test says
// so. Before that, it gives an answer to what was written, if there is one.
type stuckConn struct {
	net.Conn
	answer string
	// answers is closed once the request that gets an answer has come.
	answers, closed, free chan struct{}
	once                  sync.Once
	given                 bool
}

func newStuckConn(answer string) *stuckConn {
	return &stuckConn{
		answer: answer, answers: make(chan struct{}), closed: make(chan struct{}), free: make(chan struct{}),
	}
}

func (*stuckConn) RemoteAddr() net.Addr { return &net.TCPAddr{} }

func (c *stuckConn) Read(b []byte) (int, error) {
	if !c.given {
		select {
		case <-c.answers:
			c.given = true
			return copy(b, c.answer), nil
		case <-c.free:
		}
	}
	<-c.free
	return 0, net.ErrClosed
}

func (c *stuckConn) Write(b []byte) (int, error) {
	if c.answer == "" {
		<-c.free
		return 0, net.ErrClosed
	}
	close(c.answers)
	return len(b), nil
}

func (c *stuckConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

// TestAnAttemptIsOverThoughNetHTTPIsStuck holds that an attempt has its result soon after its deadline, even if the
// exchange never ends. The attempt then gives back all that it holds. A stop does not wait for the exchange.
func TestAnAttemptIsOverThoughNetHTTPIsStuck(t *testing.T) {
	const timeout = 10 * time.Second
	for _, tc := range []struct {
		name   string
		answer string
		// result is the result of an attempt, failure the failure of a test delivery.
		result  map[fsm.Mode]fsm.AttemptResult
		failure string
	}{
		{
			name: "writing the request", failure: fsm.ReasonTimeout,
			result: map[fsm.Mode]fsm.AttemptResult{
				fsm.ModeWake: fsm.AttemptFailed, fsm.ModePush: fsm.AttemptFailed,
			},
		},
		{
			name: "reading the body of a success", answer: "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
			result: map[fsm.Mode]fsm.AttemptResult{
				fsm.ModeWake: fsm.AttemptAccepted, fsm.ModePush: fsm.AttemptDone,
			},
		},
		{
			name: "reading the body of a refusal", answer: "HTTP/1.1 503 No\r\nContent-Length: 9\r\n\r\n",
			failure: "status 503", result: map[fsm.Mode]fsm.AttemptResult{
				fsm.ModeWake: fsm.AttemptFailed, fsm.ModePush: fsm.AttemptFailed,
			},
		},
	} {
		for _, mode := range []fsm.Mode{fsm.ModeWake, fsm.ModePush, "test"} {
			t.Run(tc.name+" of "+string(mode), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					conn := newStuckConn(tc.answer)
					results := make(chan fsm.AttemptResult, 1)
					f := start(t, newMemStore(), func(c *Config) {
						c.ReadBatch = reads(oneEvent)
					}, func(d *Dispatcher) {
						d.sender.dial = func(context.Context, string, string) (net.Conn, error) { return conn, nil }
						d.cfg.Outcomes.Observe(router.Observer{Attempt: func(a fsm.Attempt) { results <- a.Result }})
					})
					sub := f.store.pushSub(hookURL, func(s *fsm.Subscription) {
						s.Timeout, s.Retry = timeout, []time.Duration{time.Hour}
						if mode == fsm.ModeWake {
							s.Mode = mode
						}
					})
					began := time.Now()
					if mode == "test" {
						if got, err := f.Test(t.Context(), sub); err != nil || got.Failure != tc.failure {
							t.Errorf("%+v, %v", got, err)
						}
					} else {
						f.Deliver(f.store.event(sub, "/s/1", "0005"))
						if got := <-results; got != tc.result[mode] {
							t.Errorf("it is %s, want %s", got, tc.result[mode])
						}
					}
					if took := time.Since(began); took > timeout+overdueAfter {
						t.Errorf("it took %s", took)
					}
					<-conn.closed
					synctest.Wait()
					f.mu.Lock()
					if s := f.slots; s.inFlight != 0 || s.bytes != 0 || len(f.tests) != 0 {
						t.Errorf("%d slots, %d bytes and %d tests are taken", s.inFlight, s.bytes, len(f.tests))
					}
					f.mu.Unlock()
					f.stop()
					if open := f.sender.pool.open; open != 0 {
						t.Errorf("%d connections are open", open)
					}
					close(conn.free)
				})
			})
		}
	}
}

// TestASwitchOfProtocolsIsAFailure holds that a final 1xx is told at once, whatever the mode, and that its connection
// is closed.
func TestASwitchOfProtocolsIsAFailure(t *testing.T) {
	closed := make(chan struct{}, 3)
	hook := endpoint(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = buffered.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nmore")
		_ = buffered.Flush()
		_, _ = conn.Read(make([]byte, 1)) // until its client closes it
		closed <- struct{}{}
	})
	attempts := make(chan fsm.Attempt, 2)
	f := start(t, newMemStore(), func(c *Config) {
		c.ReadBatch, c.RequestTimeout = reads(oneEvent), time.Hour
	}, func(d *Dispatcher) {
		d.cfg.Outcomes.Observe(router.Observer{Attempt: func(a fsm.Attempt) { attempts <- a }})
	})
	for mode, sub := range modes(f.store, hook) {
		sub.Timeout = time.Hour
		f.store.db.PutSubscription(sub)
		f.Deliver(f.store.event(sub, "/"+mode+"/1", "0005"))
		if a := <-attempts; a.Reason != "status 101" || a.Status != 101 || a.Result != fsm.AttemptFailed ||
			a.Class != "invalid_status" {
			t.Errorf("%s: %+v", mode, a)
		}
		<-closed
	}
	got, err := f.Test(t.Context(), f.store.addSubscription("tested", hook))
	if err != nil || got.Failure != "status 101" || got.Status != 101 {
		t.Errorf("a test delivery: %+v, %v", got, err)
	}
	<-closed
}
