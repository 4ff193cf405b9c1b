package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/redisstore"
	"reveille/test/harness"
)

// fixture is what a test has to itself on servers that it may share with others: a worker, a subscription and its
// streams.
type fixture struct {
	// env is a copy whose clients fail the fixture's test and no other.
	env
	worker *harness.Worker
	store  *redisstore.Store

	sub harness.Subscription
	// path is the stream of the tests that need just one. It is in folder, whose streams the subscription matches.
	path, folder string
	// tail of the stream when it was subscribed to.
	tail string
}

// fixture returns one for a subscription that the test makes itself.
func (e *env) fixture(t *testing.T, id string, worker *harness.Worker) *fixture {
	t.Helper()
	s := &fixture{
		env: *e, worker: worker, store: storeOf(e.redis),
		sub: harness.Subscription{ID: id}, path: "/" + id + "/stream", folder: "/" + id,
	}
	s.t = t
	s.gateway, s.streams = harness.NewClient(t, e.gateway.Root), harness.NewClient(t, e.streams.Root)
	return s
}

// empty returns a fixture with a worker, and so far neither a stream nor a subscription.
func (e *env) empty(t *testing.T) *fixture {
	t.Helper()
	// Names of tests are sentences. The ID of a subscription is at most 128 characters long.
	id := name(t)
	return e.fixture(t, id[:min(len(id), 60)], harness.NewWorker(t))
}

// subscribe creates the subscription. It ends with the test, before its worker does.
func (s *fixture) subscribe(pattern string) {
	s.t.Helper()
	s.sub = s.gateway.Subscribe(pattern, s.sub.ID, s.worker)
	s.t.Cleanup(func() {
		err := harness.Poll(soon, func() error {
			res, err := s.gateway.Try(context.Background(), http.MethodDelete, "/**?subscription="+s.sub.ID, "")
			// Some tests end with Reveille stopped.
			if err == nil && res.Status != http.StatusNoContent {
				return fmt.Errorf("status %d: %s", res.Status, res.Body)
			}
			return nil
		})
		if err != nil {
			s.t.Errorf("DELETE of subscription %s: %v", s.sub.ID, err)
		}
	})
}

// subscribed returns a fixture that is subscribed to its folder, in which there is no stream yet.
func (e *env) subscribed(t *testing.T) *fixture {
	t.Helper()
	s := e.empty(t)
	s.subscribe(s.folder + "/*")
	// A slow backfill would give the stream that is named next a second consumer, if the first were gone by then.
	harness.Eventually(t, soon, "the backfill is over", harness.True(func() bool {
		sub, ok := s.gateway.Subscription(s.sub.ID)
		return ok && sub.Backfill == nil
	}, "it goes on"))
	return s
}

// idle returns a fixture whose stream has an event from before the subscription: its consumer is idle and was never
// woken.
func (e *env) idle(t *testing.T) *fixture {
	t.Helper()
	s := e.empty(t)
	s.gateway.Create(s.path)
	s.tail = s.gateway.Append(s.path, `{"event":"before the subscription"}`)
	s.subscribe(s.folder + "/*")
	s.awaitState(fsm.Idle)
	return s
}

// waking returns an idle fixture whose stream then got an event, and whose worker has not answered the wake.
func (e *env) waking(t *testing.T) (*fixture, harness.Wake) {
	t.Helper()
	s := e.idle(t)
	s.hold()
	s.append()
	wake := s.worker.Wake(1)
	s.awaitState(fsm.Waking)
	return s, wake
}

// live returns an idle fixture whose stream then got an event, and whose worker has answered the wake with 200.
func (e *env) live(t *testing.T) (*fixture, harness.Wake) {
	t.Helper()
	s := e.idle(t)
	s.append()
	wake := s.worker.Wake(1)
	s.awaitState(fsm.Live)
	return s, wake
}

// subscriber returns a fixture of the env's own test that is subscribed to a pattern. Its worker is done as soon as it
// is woken.
func (e *env) subscriber(pattern string) *fixture {
	e.t.Helper()
	s := e.liveSubscriber(pattern)
	s.worker.AnswerDone()
	return s
}

// liveSubscriber is subscriber with a worker that answers with an empty 200, so that its consumers go live.
func (e *env) liveSubscriber(pattern string) *fixture {
	e.t.Helper()
	s := e.fixture(e.t, fmt.Sprintf("s%d", names.Add(1)), harness.NewWorker(e.t))
	s.sub = s.gateway.Subscribe(pattern, s.sub.ID, s.worker)
	return s
}

// begin makes the stream with one event in it, unseen by Reveille, and then tells Reveille of it. This leads to one
// wake, at -1, that knows the event. It returns the tail.
func (s *fixture) begin() string {
	s.t.Helper()
	s.streams.Create(s.path)
	tail := s.streams.Append(s.path, `"first"`)
	s.mustNameStreams(http.MethodPost, s.path)
	return tail
}

// beginIdle is begin with a worker that is done with the event, and answers later wakes with an empty 200.
func (s *fixture) beginIdle() (harness.Wake, string) {
	s.t.Helper()
	s.worker.AnswerDone()
	tail := s.begin()
	w := s.worker.Wake(1)
	s.awaitState(fsm.Idle)
	s.worker.AnswerStatus(http.StatusOK)
	return w, tail
}

// append appends an event to the stream and returns its tail.
func (s *fixture) append() string {
	s.t.Helper()
	return s.gateway.Append(s.path, `{"event":true}`)
}

// id of the consumer.
func (s *fixture) id() string { return fsm.ConsumerID(s.sub.ID, s.path) }

// consumerOf returns the consumer of a stream as it is stored.
func (s *fixture) consumerOf(path string) (fsm.Consumer, error) {
	return s.store.Consumer(s.t.Context(), fsm.RefOf(s.sub.ID, path))
}

// read is consumerOf that waits for a Redis that pauses, as any process may.
func (s *fixture) read(path string) (c fsm.Consumer, err error) {
	_ = harness.Poll(soon, func() error {
		c, err = s.consumerOf(path)
		return harness.True(func() bool { return !errors.Is(err, fsm.ErrUnavailable) }, "away")()
	})
	return c, err
}

// consumer returns the consumer of the fixture's stream as it is stored.
func (s *fixture) consumer() fsm.Consumer {
	s.t.Helper()
	c, err := s.read(s.path)
	if err != nil {
		s.t.Fatalf("consumer %s: %v", s.id(), err)
	}
	return c
}

// await waits until the consumer is as it should be and returns it.
func (s *fixture) await(what string, ok func(fsm.Consumer) bool) fsm.Consumer {
	s.t.Helper()
	return s.awaitOf(s.path, what, ok)
}

// awaitOf is await for the consumer of any stream.
func (s *fixture) awaitOf(path, what string, ok func(fsm.Consumer) bool) (c fsm.Consumer) {
	s.t.Helper()
	harness.Eventually(s.t, soon, what, func() (err error) {
		if c, err = s.consumerOf(path); err == nil && !ok(c) {
			err = fmt.Errorf("it is %+v", c)
		}
		return err
	})
	return c
}

// awaitState waits until the consumer is in a state.
func (s *fixture) awaitState(state fsm.State) fsm.Consumer {
	s.t.Helper()
	return s.await("consumer "+string(state), func(c fsm.Consumer) bool { return c.State == state })
}

// awaitTail waits until the consumer knows the tail of a stream.
func (s *fixture) awaitTail(path, tail string) {
	s.t.Helper()
	s.await("tail "+tail+" of "+path+" noted", func(c fsm.Consumer) bool { return c.Links[path].Tail.Value() == tail })
}

// awaitIdle waits until the consumer of a stream is idle with everything up to an offset, which is the tail, acked.
func (s *fixture) awaitIdle(path, at string) {
	s.t.Helper()
	s.awaitOf(path, "the consumer of "+path+" is idle at "+at, func(c fsm.Consumer) bool {
		return c.State == fsm.Idle && c.Links[path].Acked.Value() == at && c.Links[path].Tail.Value() == at
	})
}

// awaitRemoved waits until there is no consumer of a stream.
func (s *fixture) awaitRemoved(path string, within time.Duration) {
	s.t.Helper()
	harness.Eventually(s.t, within, "the consumer of "+path+" is removed", func() error {
		switch c, err := s.consumerOf(path); {
		case errors.Is(err, fsm.ErrNotFound):
			return nil
		case err != nil:
			return err
		default:
			return fmt.Errorf("it is still there: %+v", c)
		}
	})
}

// awaitGivenUp waits until the consumer of a stream is given up.
func (s *fixture) awaitGivenUp(path string, within time.Duration) {
	s.t.Helper()
	harness.Eventually(s.t, within, "the consumer of "+path+" is given up", func() error {
		c, err := s.consumerOf(path)
		if err == nil && c.State != fsm.GivenUp {
			err = fmt.Errorf("it is %+v", c)
		}
		return err
	})
}

// wakes returns the wakes of a stream's consumer, in the order of their arrival.
func (s *fixture) wakes(path string) []harness.Wake {
	var list []harness.Wake
	for _, w := range s.worker.Wakes() {
		if w.PrimaryStream == path {
			list = append(list, w)
		}
	}
	return list
}

// wake waits for the nth wake of a stream's consumer.
func (s *fixture) wake(path string, n int) harness.Wake {
	s.t.Helper()
	harness.Eventually(s.t, soon, fmt.Sprintf("wake %d of %s", n, path), func() error {
		if got := len(s.wakes(path)); got < n {
			return fmt.Errorf("there were %d", got)
		}
		return nil
	})
	return s.wakes(path)[n-1]
}
