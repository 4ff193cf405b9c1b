package e2e

import (
	"errors"
	"net/http"
	"testing"

	"reveille/fsm"
	"reveille/test/harness"
)

// watched says whether any partition holds a consumer that is subscribed to a stream.
func (s *fixture) watched(path string) bool {
	s.t.Helper()
	for p := range s.store.Partitions() {
		list, err := s.store.WatchedSince(s.t.Context(), p, 0)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, w := range list {
			if w.Path == path {
				return true
			}
		}
	}
	return false
}

// TestGarbageCollection has a subtest for each row of the table of conditions (webhook spec, Garbage Collection). In
// each of them the consumer is subscribed to a second stream too.
func TestGarbageCollection(t *testing.T) {
	t.Parallel()
	e := start(t, options{})

	// withSecond is a live fixture whose consumer is subscribed to a second stream, and is told of it.
	withSecond := func(t *testing.T) (s *fixture, wake harness.Wake, second string) {
		s, wake = e.live(t)
		second = s.folder + "-second/stream"
		s.streams.Create(second)
		s.callback(wake, harness.Callback{Epoch: wake.Epoch, WakeID: wake.WakeID, Subscribe: []string{second}})
		if !s.watched(second) {
			t.Fatal("the second stream is not watched")
		}
		return s, wake, second
	}
	// collected checks that nothing is left of a consumer.
	collected := func(s *fixture, wake harness.Wake, second string) {
		s.t.Helper()
		s.refused(wake, wake.Claim(true), fsm.CodeConsumerGone)
		s.awaitRemoved(s.path, soon)
		harness.Eventually(s.t, soon, "the second stream is let go",
			harness.True(func() bool { return !s.watched(second) }, "it is watched"))
		s.streams.Append(second, `{"event":"for nobody"}`)
		s.noWakeAfter(len(s.worker.Wakes()), quiet)
		s.refused(wake, harness.Callback{Epoch: wake.Epoch}, fsm.CodeConsumerGone)
	}

	t.Run("primary stream deleted, through the gateway: consumer removed", func(t *testing.T) {
		s, wake, second := withSecond(t)
		s.gateway.DeleteStream(s.path)
		if c, err := s.consumerOf(s.path); !errors.Is(err, fsm.ErrNotFound) {
			t.Errorf("when the deletion was answered there was still %+v (%v)", c, err)
		}
		collected(s, wake, second)
	})

	t.Run("primary stream deleted, behind the gateway's back: consumer removed", func(t *testing.T) {
		s, wake, second := withSecond(t)
		s.streams.DeleteStream(s.path)
		collected(s, wake, second)
	})

	t.Run("primary stream deleted, behind the gateway's back, "+
		"and no callback comes: consumer removed", func(t *testing.T) {
		s, wake, second := withSecond(t)
		s.callback(wake, harness.Callback{
			Epoch: wake.Epoch,
			Acks:  []harness.StreamOffset{s.ack(s.streams.Tail(s.path))}, Done: true,
		})
		s.streams.DeleteStream(s.path)
		s.awaitRemoved(s.path, soon)
		collected(s, wake, second)
	})

	t.Run("another stream than the primary deleted: consumer stays", func(t *testing.T) {
		s, wake, second := withSecond(t)
		s.gateway.DeleteStream(second)
		s.callback(wake, harness.Callback{Epoch: wake.Epoch})
		tail := s.append()
		s.callback(wake, wake.Claim(true, s.ack(tail)))
		s.append()
		s.worker.Wake(2)
	})

	t.Run("the same stream made anew after its deletion: "+
		"a new consumer, which begins at its start", func(t *testing.T) {
		s, wake, _ := withSecond(t)
		s.gateway.DeleteStream(s.path)
		s.awaitRemoved(s.path, soon)
		s.gateway.Create(s.path)
		anew := s.worker.Wake(2)
		s.wantPayload(anew, anew.Epoch, []harness.StreamOffset{s.ack("-1")}, s.path)
		if anew.Epoch <= wake.Epoch {
			t.Errorf("epoch %d was followed by %d", wake.Epoch, anew.Epoch)
		}
		// The old one's wakes are those of an earlier epoch now.
		s.refused(wake, wake.Claim(true), fsm.CodeStaleEpoch)
		s.refused(wake, anew.Claim(true), fsm.CodeStaleEpoch)
	})

	t.Run("subscription deleted: all consumers removed, those of another subscription stay", func(t *testing.T) {
		s, wake, second := withSecond(t)
		other := e.empty(t)
		other.path, other.folder = s.path, s.folder
		other.subscribe(s.folder + "/*")
		more := []string{s.folder + "/b", s.folder + "/c"}
		for _, p := range more {
			s.gateway.Create(p)
		}
		s.worker.Wake(3) // one for each of the new streams
		other.worker.Wake(2)
		s.gateway.DeleteSubscription(s.sub.Pattern, s.sub.ID)
		for _, w := range s.worker.Wakes() {
			s.refused(w, w.Claim(true), fsm.CodeConsumerGone)
		}
		for _, p := range more {
			s.awaitRemoved(p, soon)
			s.gateway.Append(p, `{"event":"for nobody"}`)
		}
		collected(s, wake, second)
		for _, w := range other.worker.Wakes() {
			other.callback(w, w.Claim(false))
		}
	})

	t.Run("subscription deleted while a webhook request is open: its answer changes nothing", func(t *testing.T) {
		s := e.idle(t)
		answered := make(chan struct{})
		s.worker.Answer(func(w http.ResponseWriter, r *http.Request, _ harness.Wake) {
			select {
			case <-answered:
				_, _ = w.Write([]byte(`{"done":true}`))
			case <-r.Context().Done():
			}
		})
		s.append()
		wake := s.worker.Wake(1)
		s.gateway.DeleteSubscription(s.sub.Pattern, s.sub.ID)
		close(answered)
		s.refused(wake, wake.Claim(false), fsm.CodeConsumerGone)
		s.awaitRemoved(s.path, soon)
		s.append()
		s.noWakeAfter(1, quiet)
	})

	t.Run("unsubscribed from all streams: consumer removed", func(t *testing.T) {
		s, wake, second := withSecond(t)
		a := s.callback(wake, harness.Callback{Epoch: wake.Epoch, Unsubscribe: []string{second}})
		s.wantStreams(a, s.ack(s.tail))
		a = s.callback(wake, harness.Callback{Epoch: wake.Epoch, Unsubscribe: []string{s.path}})
		s.wantStreams(a)
		s.append()
		collected(s, wake, second)
	})

	t.Run("unsubscribed from all streams in one callback that also says done: consumer removed", func(t *testing.T) {
		s, wake, second := withSecond(t)
		s.wantStreams(s.callback(wake,
			harness.Callback{Epoch: wake.Epoch, Unsubscribe: []string{s.path, second}, Done: true}))
		collected(s, wake, second)
	})
}
