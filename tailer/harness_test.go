package tailer

import (
	"context"
	"net/url"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"reveille/fsm"
	"reveille/fsm/router"
	"reveille/tailer/discovery"
	"reveille/tailer/upstream"
)

// rig is a running Tailer between a store and a server.
type rig struct {
	*Tailer
	t     *testing.T
	store *memory
	up    *server

	mu    sync.Mutex
	wakes []fsm.Delivery
	stop  func()
	// prompt, if it is set before the start, is a worker that gets each wake while it is delivered.
	prompt func(fsm.Delivery)
}

// Deliver is router.Deliverer's.
func (r *rig) Deliver(wakes []fsm.Delivery) {
	r.mu.Lock()
	r.wakes = append(r.wakes, wakes...)
	r.mu.Unlock()
	for _, w := range wakes {
		if r.prompt != nil {
			r.prompt(w)
		}
	}
}

func (r *rig) woken(path string) []fsm.Delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []fsm.Delivery
	for _, w := range r.wakes {
		if w.Primary == path {
			list = append(list, w)
		}
	}
	return list
}

// newRig makes a Tailer with short times that does not run yet.
func newRig(t *testing.T, change ...func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, store: newMemory(), up: newServer(t)}
	r.build(change...)
	return r
}

func (r *rig) build(change ...func(*Config)) {
	r.t.Helper()
	root, err := url.Parse(r.up.URL)
	if err != nil {
		r.t.Fatal(err)
	}
	outcomes := router.New()
	cfg := Config{
		Upstream: upstream.Config{
			URL: root, HeadTimeout: 500 * time.Millisecond, TailMode: upstream.TailLongPoll,
		},
		Discovery: discovery.Config{
			AwaitMin: 20 * time.Millisecond, WriteFor: 300 * time.Millisecond, TailEvery: 20 * time.Millisecond,
		},
		Store: r.store, Outcomes: outcomes, Logger: zaptest.NewLogger(r.t),
		Check: 200 * time.Millisecond, GoneGrace: 300 * time.Millisecond,
		PaceMin: 5 * time.Millisecond, PaceMax: 50 * time.Millisecond, BackoffMin: 5 * time.Millisecond,
		TTLFast: 10 * time.Millisecond, Spread: 50 * time.Millisecond, WatchEvery: 20 * time.Millisecond,
		Resync: 50 * time.Millisecond,
	}
	for _, f := range change {
		f(&cfg)
	}
	if r.Tailer, err = New(cfg); err != nil {
		r.t.Fatal(err)
	}
	outcomes.Connect(r, r.Tailer)
}

// start runs the Tailer until the test is over or stop is called.
func (r *rig) start() *rig {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				r.t.Errorf("Run: %v", err)
			}
		})
	}
	r.t.Cleanup(r.stop)
	r.until("the tailer runs", func() bool {
		r.watches.mu.Lock()
		defer r.watches.mu.Unlock()
		return r.watches.ctx != nil
	})
	return r
}

// subscribe creates a subscription the way the API does.
func (r *rig) subscribe(id, pattern string) fsm.Subscription {
	r.t.Helper()
	sub, _, err := r.discovery.Subscribe(r.t.Context(), newSubscription(id, pattern))
	if err != nil {
		r.t.Fatal(err)
	}
	return sub
}

// until waits for a condition.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("it did not come about that %s", what)
		}
	}
}

// wake waits for the nth wake of a stream's consumer and returns it.
func (r *rig) wake(path string, n int) fsm.Delivery {
	r.t.Helper()
	r.until("a consumer is woken", func() bool { return len(r.woken(path)) >= n })
	return r.woken(path)[n-1]
}

// put creates a stream through the gateway.
func (r *rig) put(path string, events ...string) {
	w := r.discovery.BeforeWrite(r.t.Context(), path, true)
	r.discovery.Written(w, r.up.create(path, events...), true)
}

// appear creates a stream past the gateway, and has it discovered. So nothing is left to do for a write.
func (r *rig) appear(path string) {
	r.t.Helper()
	r.up.create(path)
	r.until("it is discovered",
		func() bool { return r.discovery.Do(r.t.Context(), path, discovery.Evidence{}) == nil })
}

// post appends through the gateway.
func (r *rig) post(path string, events ...string) {
	w := r.discovery.BeforeWrite(r.t.Context(), path, false)
	r.discovery.Written(w, r.up.append(path, events...), false)
}

// done is a worker that has read everything and says so.
func (r *rig) done(w fsm.Delivery) {
	r.cfg.Outcomes.Follow(r.store.finish(r.t, w), fsm.Sighting{})
}

// idle creates a stream with one consumer that is idle at its tail, and waits until it is watched live.
func (r *rig) idle(path string) {
	r.t.Helper()
	r.subscribe("s", "/**")
	r.created(path)
}

// created is idle for a stream that there is a subscription for already.
func (r *rig) created(path string) {
	r.t.Helper()
	r.put(path)
	r.done(r.wake(path, 1))
	r.watchedLive(path)
}

func (r *rig) watchedLive(path string) {
	r.t.Helper()
	r.until("the stream is watched live", func() bool { return r.up.waiters(path) == 1 })
}

// rests says whether a stream is watched and at rest. A stream whose watch has not begun does not rest.
func (r *rig) rests(path string) bool {
	w, runs := r.watches.get(path)
	if w == nil || runs {
		return false
	}
	_, rests := w.rests()
	return rests
}

// running returns the watch of a stream that is neither at rest nor unwatched, or nil.
func (r *rig) running(path string) *watch {
	if w, runs := r.watches.get(path); runs {
		return w
	}
	return nil
}

// loops is how many streams are watched.
func (r *rig) loops() int {
	r.watches.mu.Lock()
	defer r.watches.mu.Unlock()
	n := 0
	for _, w := range r.watches.byPath {
		if _, rests := w.rests(); !rests {
			n++
		}
	}
	return n
}
