package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"reveille/fsm"
)

// memStore is a Store of one partition in memory. Every transition in it is fsm's own.
type memStore struct {
	catalog *fsm.Catalog
	now     func() time.Time
	timing  fsm.Timing

	mu        sync.Mutex
	changed   chan struct{} // closed and replaced after every call
	consumers map[string]fsm.Consumer
	wakes     int
	version   int64
	subs      []fsm.Subscription
	calls     map[string]int
	failed    []failCall
	// err, if set, is asked before each call, with the lock held.
	err func(op string) error
	// hold, if set, is called before each call, without the lock.
	hold func(op string)
	// stale makes the catalog lack what addSubscription adds until it is refreshed.
	stale bool
}

type failCall struct {
	ref     fsm.WakeRef
	failure fsm.Failure
}

func newMemStore() *memStore {
	s := &memStore{
		catalog: fsm.NewCatalog(), now: time.Now, changed: make(chan struct{}),
		consumers: map[string]fsm.Consumer{}, calls: map[string]int{},
		timing: fsm.Timing{
			Waking: 10 * time.Second, Liveness: 45 * time.Second, GoneGrace: 30 * time.Second, GCAfter: 72 * time.Hour,
		},
	}
	s.catalog.Replace(nil, 0)
	return s
}

func (s *memStore) env() fsm.Env {
	s.wakes++
	return fsm.Env{Now: s.now(), WakeID: fmt.Sprintf("w_%d", s.wakes), Timing: s.timing}
}

// addSubscription stores one whose consumers have paths of its own: /<id>/<n>.
func (s *memStore) addSubscription(id, webhook string) fsm.Subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := fsm.Subscription{
		ID: id, Generation: "g-" + id, Pattern: "/" + id + "/*", Webhook: webhook, Secret: "whsec_" + id + "_secret",
	}
	s.subs = append(s.subs, sub)
	s.version++
	if !s.stale {
		s.catalog.Replace(s.subs, s.version)
	}
	return sub
}

func (s *memStore) deleteSubscription(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subs = slices.DeleteFunc(slices.Clone(s.subs), func(sub fsm.Subscription) bool { return sub.ID == id })
	s.version++
	s.catalog.Replace(s.subs, s.version)
}

// event makes a stream of a subscription longer and returns the wakes that come of it.
func (s *memStore) event(sub fsm.Subscription, path string, tail fsm.Offset) []fsm.Wake {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := fsm.ConsumerID(sub.ID, path)
	c, ok := s.consumers[id]
	if !ok {
		c = fsm.NewConsumer(sub, path, fsm.Start, 0)
	}
	c, eff := c.Observe(s.env(), path, tail)
	s.consumers[id] = c
	return s.outcome(c, eff).Wakes
}

func (s *memStore) outcome(c fsm.Consumer, eff fsm.Effects) fsm.Outcome {
	var out fsm.Outcome
	if eff.Wake != nil {
		out.Wakes = []fsm.Wake{*eff.Wake}
	}
	if eff.Idled {
		for p := range c.Links {
			out.Idle = append(out.Idle, p)
		}
		slices.Sort(out.Idle)
	}
	if eff.Removed {
		delete(s.consumers, c.ID)
		out.Removed = 1
	}
	return out
}

// begin returns with the lock held, unless it returns an error.
func (s *memStore) begin(ctx context.Context, op string) error {
	if s.hold != nil {
		s.hold(op)
	}
	if ctx.Err() != nil {
		return errors.Join(fsm.ErrUnavailable, ctx.Err())
	}
	s.mu.Lock()
	s.calls[op]++
	if s.err != nil {
		if err := s.err(op); err != nil {
			s.signal()
			s.mu.Unlock()
			return err
		}
	}
	return nil
}

func (s *memStore) signal() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *memStore) transit(
	ctx context.Context, op string, r fsm.WakeRef, f func(fsm.Consumer, fsm.Env) (fsm.Consumer, fsm.Effects),
) (fsm.Outcome, error) {
	if err := s.begin(ctx, op); err != nil {
		return fsm.Outcome{}, err
	}
	defer s.mu.Unlock()
	defer s.signal()
	c, ok := s.consumers[r.Consumer]
	if !ok {
		return fsm.Outcome{}, nil
	}
	c, eff := f(c, s.env())
	s.consumers[c.ID] = c
	return s.outcome(c, eff), nil
}

func (s *memStore) Fail(ctx context.Context, r fsm.WakeRef, f fsm.Failure) (fsm.Outcome, error) {
	return s.transit(ctx, "Fail", r, func(c fsm.Consumer, env fsm.Env) (fsm.Consumer, fsm.Effects) {
		s.failed = append(s.failed, failCall{r, f})
		return c.Fail(env, r, f)
	})
}

func (s *memStore) Park(ctx context.Context, r fsm.WakeRef, wait time.Duration) error {
	name := "Park"
	if wait == 0 {
		name = "HandBack"
	}
	_, err := s.transit(ctx, name, r, func(c fsm.Consumer, env fsm.Env) (fsm.Consumer, fsm.Effects) {
		return c.Park(env, r, wait), fsm.Effects{}
	})
	return err
}

func (s *memStore) Begin(ctx context.Context, r fsm.WakeRef) (fsm.Outcome, error) {
	return s.transit(ctx, "Begin", r, func(c fsm.Consumer, env fsm.Env) (fsm.Consumer, fsm.Effects) { return c.Begin(env, r) })
}

func (s *memStore) Accept(ctx context.Context, r fsm.WakeRef) error {
	_, err := s.transit(ctx, "Accept", r, func(c fsm.Consumer, env fsm.Env) (fsm.Consumer, fsm.Effects) {
		return c.Accept(env, r), fsm.Effects{}
	})
	return err
}

func (s *memStore) Finish(ctx context.Context, r fsm.WakeRef, seen []fsm.StreamTail) (fsm.Outcome, error) {
	return s.transit(ctx, "Finish", r, func(c fsm.Consumer, env fsm.Env) (fsm.Consumer, fsm.Effects) {
		return c.Finish(env, r, seen)
	})
}

func (s *memStore) Due(ctx context.Context, _, limit int) (fsm.Outcome, int, error) {
	if err := s.begin(ctx, "Due"); err != nil {
		return fsm.Outcome{}, 0, err
	}
	defer s.mu.Unlock()
	defer s.signal()
	var (
		out fsm.Outcome
		n   int
	)
	for _, c := range s.consumers {
		if c.Deadline.IsZero() || c.Deadline.After(s.now()) || n == limit {
			continue
		}
		n++
		c, eff := c.Due(s.env())
		s.consumers[c.ID] = c
		out.Add(s.outcome(c, eff))
	}
	return out, n, nil
}

func (s *memStore) NextDue(ctx context.Context, _ []int) ([]time.Duration, error) {
	if err := s.begin(ctx, "NextDue"); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	defer s.signal()
	next := time.Duration(-1)
	for _, c := range s.consumers {
		if !c.Deadline.IsZero() {
			if left := max(0, c.Deadline.Sub(s.now())); next < 0 || left < next {
				next = left
			}
		}
	}
	return []time.Duration{next}, nil
}

func (s *memStore) Ownership() *fsm.Ownership { return fsm.NewOwnership(1, 0) }

func (s *memStore) Catalog() *fsm.Catalog { return s.catalog }

func (s *memStore) RefreshCatalog(ctx context.Context) error {
	if err := s.begin(ctx, "RefreshCatalog"); err != nil {
		return err
	}
	defer s.mu.Unlock()
	defer s.signal()
	s.catalog.Replace(s.subs, s.version)
	return nil
}

// until waits for a condition on the store, looking after every call to it.
func (s *memStore) until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	limit := time.After(20 * time.Second)
	for {
		s.mu.Lock()
		ok, changed := cond(), s.changed
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("timed out waiting until %s", what)
		}
	}
}

// untilCalls waits until a method was called n times.
func (s *memStore) untilCalls(t *testing.T, op string, n int) {
	t.Helper()
	s.until(t, fmt.Sprintf("%s was called %d times", op, n), func() bool { return s.calls[op] >= n })
}

func (s *memStore) called(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[op]
}

func (s *memStore) consumer(id string) fsm.Consumer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.consumers[id]
}
