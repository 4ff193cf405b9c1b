package dispatcher

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec/memstore"
)

// memStore is the store of the replica under test, which owns the only partition, and the database behind it.
type memStore struct {
	*memstore.Store
	db *memstore.DB
	// other is another replica.
	other *memstore.Store
	now   func() time.Time
	// err, if set, is asked before each call of the replica under test, with the lock held. Before that, hold is called
	// without the lock, if it is set.
	err  func(op string) error
	hold func(op string)

	mu     sync.Mutex
	failed []failCall
	// back counts the calls of Park that hand a wake back: they count as HandBack and not as Park.
	back int
}

type failCall struct {
	ref     fsm.DeliveryRef
	failure fsm.Failure
}

func newMemStore() *memStore {
	s := &memStore{now: time.Now}
	s.db = memstore.New(memstore.Options{Draw: func() memstore.Draw { return memstore.Draw{Now: s.now()} }})
	s.other, s.Store = s.db.Replica("other"), s.db.Replica("under test", 0)
	s.db.SetHooks(memstore.Hooks{Before: func(c memstore.Call) error {
		if c.Replica == "other" {
			return nil
		}
		return s.before(c)
	}})
	return s
}

func (s *memStore) before(c memstore.Call) error {
	op := c.Method
	if op == "Park" && c.Args[2] == time.Duration(0) {
		op = "HandBack"
	}
	if s.hold != nil {
		s.hold(op)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch op {
	case "HandBack":
		s.back++
	case "Fail":
		s.failed = append(s.failed, failCall{c.Args[0].(fsm.DeliveryRef), c.Args[1].(fsm.Failure)})
	}
	if s.err != nil {
		return s.err(op)
	}
	return nil
}

// addSubscription stores a subscription whose consumers have paths of its own: /<id>/<n>.
func (s *memStore) addSubscription(id, webhook string) fsm.Subscription {
	sub := fsm.Subscription{
		ID: id, Generation: "g-" + id, Pattern: "/" + id + "/*", Webhook: webhook, Secret: "whsec_" + id + "_secret",
	}.WithDefaults()
	s.db.PutSubscription(sub)
	return sub
}

func (s *memStore) deleteSubscription(t *testing.T, id string) {
	t.Helper()
	if err := s.other.DeleteSubscription(t.Context(), id); err != nil {
		t.Error(err)
	}
}

// event makes a stream of a subscription longer, as another replica sees it, and returns the wakes that follow.
func (s *memStore) event(sub fsm.Subscription, path string, tail fsm.Offset) []fsm.Delivery {
	o, err := memstore.Link(context.Background(), s.other, sub, path, fsm.Start, tail)
	if err != nil {
		panic(err) // nothing is against it
	}
	return o.Deliveries
}

// setWaking changes how long an attempt may stay unanswered.
func (s *memStore) setWaking(d time.Duration) {
	timing := memstore.DefaultTiming
	timing.Waking = d
	s.db.SetTiming(timing)
}

// until waits for a condition on the store. It looks after every call to the store.
func (s *memStore) until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	limit := time.After(20 * time.Second)
	for {
		changed := s.db.Changed()
		if cond() {
			return
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("timed out waiting until %s", what)
		}
	}
}

// untilCalls waits until a method was called n times. The caller may not have gone on by then: its slot, say, is freed
// later. A test that needs what follows a call runs on injected time, and waits until all is at rest.
func (s *memStore) untilCalls(t *testing.T, op string, n int) {
	t.Helper()
	s.until(t, fmt.Sprintf("%s was called %d times", op, n), func() bool { return s.called(op) >= n })
}

func (s *memStore) called(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch op {
	case "HandBack":
		return s.back
	case "Park":
		return s.db.Calls(op) - s.back
	}
	return s.db.Calls(op)
}

func (s *memStore) fails() []failCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

func (s *memStore) consumer(id string) fsm.Consumer {
	c, _ := s.db.Consumer(id)
	return c
}

// letters is how many dead letters there are.
func (s *memStore) letters(t *testing.T) int {
	t.Helper()
	letters, err := s.other.DeadLetters(t.Context(), fsm.LetterSpan{Through: math.MaxInt64}, math.MaxInt)
	if err != nil {
		t.Error(err)
	}
	return len(letters)
}
