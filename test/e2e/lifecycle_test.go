package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

// at is one stream of a payload or of an answer.
func at(path, offset string) harness.StreamOffset {
	return harness.StreamOffset{Path: path, Offset: offset}
}

// TestLifecycle follows the webhook spec from Overview to Wake Batching.
func TestLifecycle(t *testing.T) {
	t.Parallel()
	e := shared(t)

	t.Run("a worker is woken, claims, reads, acks, stays alive, is done, "+
		"and is woken again only when more arrives", func(t *testing.T) {
		s := e.empty(t)
		s.path = s.folder + "/agents/task-123"
		s.subscribe(s.folder + "/agents/*")
		s.gateway.Create(s.path)
		tail := s.gateway.Append(s.path, `{"n":1}`)

		wake := s.worker.Wake(1)
		s.wantPayload(wake, wake.Epoch, []harness.StreamOffset{at(s.path, "-1")}, s.path)
		s.awaitState(fsm.Live)
		claimed := s.callback(wake, wake.Claim(false))
		s.wantStreams(claimed, at(s.path, "-1"))
		messages, next := s.streams.Read(s.path, wake.Offset(s.path))
		if len(messages) != 1 || string(messages[0]) != `{"n":1}` || next != tail {
			t.Fatalf("read %s up to %s, want the one event up to %s", messages, next, tail)
		}
		s.wantStreams(s.callback(wake,
			harness.Callback{Epoch: wake.Epoch, Acks: []harness.StreamOffset{at(s.path, next)}}), at(s.path, next))
		before := s.consumer().Deadline
		harness.Eventually(t, soon, "a callback of nothing but the epoch restarts the liveness timeout", func() error {
			s.wantStreams(s.callback(wake, harness.Callback{Epoch: wake.Epoch}), at(s.path, next))
			return harness.True(func() bool { return s.consumer().Deadline.After(before) }, "the deadline is still %s",
				before)()
		})
		s.wantStreams(s.callback(wake, harness.Callback{Epoch: wake.Epoch, Done: true}), at(s.path, next))
		if c := s.consumer(); c.State != fsm.Idle || c.Epoch != wake.Epoch {
			t.Fatalf("after done: %+v", c)
		}

		tail = s.gateway.Append(s.path, `{"n":2}`)
		second := s.worker.Wake(2)
		s.wantPayload(second, wake.Epoch+1, []harness.StreamOffset{at(s.path, next)}, s.path)
		if second.WakeID == wake.WakeID {
			t.Error("the second wake has the wake_id of the first")
		}
		messages, next = s.streams.Read(s.path, second.Offset(s.path))
		if len(messages) != 1 || string(messages[0]) != `{"n":2}` || next != tail {
			t.Fatalf("read %s up to %s, want the second event alone", messages, next)
		}
		s.wantStreams(s.callback(second, second.Claim(true, at(s.path, next))), at(s.path, next))
		s.wantNoMore(2)
	})

	t.Run("a wake is signed with the subscription's secret over the time and the raw body", func(t *testing.T) {
		s, wake := e.live(t)
		header := wake.Header.Get("Webhook-Signature")
		if err := harness.VerifySignature(s.sub.Secret, header, wake.Body, time.Now()); err != nil {
			t.Error(err)
		}
		if harness.VerifySignature("whsec_another", header, wake.Body, time.Now()) == nil {
			t.Error("another secret verifies it")
		}
		if harness.VerifySignature(s.sub.Secret, header, append([]byte(" "), wake.Body...), time.Now()) == nil {
			t.Error("it does not depend on every byte of the body")
		}
		if stamp, _, _ := strings.Cut(header, ","); harness.VerifySignature(s.sub.Secret,
			strings.Replace(header, stamp, stamp[:len(stamp)-1]+"x", 1), wake.Body, time.Now()) == nil {
			t.Error("it does not depend on the time")
		}
	})

	t.Run("a synchronous done claims the wake, acks all to the tail, "+
		"and a later event begins a new wake cycle", func(t *testing.T) {
		s := e.idle(t)
		s.worker.AnswerDone()
		tail := s.append()
		first := s.worker.Wake(1)
		s.wantPayload(first, first.Epoch, []harness.StreamOffset{at(s.path, s.tail)}, s.path)
		c := s.await("idle and acked to the tail", func(c fsm.Consumer) bool {
			return c.State == fsm.Idle && c.Links[s.path].Acked.Value() == tail
		})
		if c.Epoch != first.Epoch {
			t.Errorf("epoch %d after a wake of epoch %d", c.Epoch, first.Epoch)
		}
		s.append()
		second := s.worker.Wake(2)
		s.wantPayload(second, first.Epoch+1, []harness.StreamOffset{at(s.path, tail)}, s.path)
		if second.WakeID == first.WakeID {
			t.Error("the wake_id was used again")
		}
		s.awaitState(fsm.Idle)
		s.wantNoMore(2)
	})

	t.Run("a 2xx that says something else than done keeps the consumer live", func(t *testing.T) {
		for _, body := range []string{`{"done":false}`, `{"done":"true"}`, `{}`, `[]`, `done`} {
			s := e.idle(t)
			s.worker.Answer(func(w http.ResponseWriter, _ *http.Request, _ harness.Wake) {
				w.WriteHeader(http.StatusAccepted)
				_, _ = w.Write([]byte(body))
			})
			s.append()
			s.worker.Wake(1)
			if c := s.awaitState(fsm.Live); c.Links[s.path].Acked.Value() != s.tail {
				t.Errorf("%s acked %s", body, c.Links[s.path].Acked)
			}
		}
	})

	t.Run("done with work pending begins a new wake cycle at once", func(t *testing.T) {
		s, wake := e.live(t)
		first := s.consumer().Links[s.path].Tail.Value()
		tail := s.append()
		s.awaitTail(s.path, tail)
		s.wantStreams(s.callback(wake, wake.Claim(true, s.ack(first))), s.ack(first))
		second := s.worker.Wake(2)
		s.wantPayload(second, wake.Epoch+1, []harness.StreamOffset{s.ack(first)}, s.path)
		s.callback(second, second.Claim(true, s.ack(tail)))
		s.wantNoMore(2)
	})

	t.Run("events that arrive together while the consumer is idle make one wake", func(t *testing.T) {
		s := e.idle(t)
		tail := s.gateway.Append(s.path, `[{"n":1},{"n":2},{"n":3}]`)
		wake := s.worker.Wake(1)
		if messages, next := s.streams.Read(s.path, wake.Offset(s.path)); len(messages) != 3 || next != tail {
			t.Errorf("the wake leads to %s", messages)
		}
		s.callback(wake, wake.Claim(true, s.ack(tail)))
		s.wantNoMore(1)
	})

	t.Run("events that arrive while the consumer is waking or live make no further wake", func(t *testing.T) {
		s := e.idle(t)
		release := make(chan struct{})
		s.worker.Answer(func(_ http.ResponseWriter, r *http.Request, _ harness.Wake) {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		})
		s.append()
		wake := s.worker.Wake(1)
		var tail string
		for range 20 {
			tail = s.append()
		}
		s.awaitTail(s.path, tail)
		s.wantStill(fsm.Waking, wake)
		close(release)
		s.awaitState(fsm.Live)
		for range 20 {
			tail = s.append()
		}
		s.awaitTail(s.path, tail)
		s.wantStill(fsm.Live, wake)
		messages, next := s.streams.Read(s.path, wake.Offset(s.path))
		if len(messages) != 41 || next != tail {
			t.Errorf("the one wake leads to %d events up to %s, want 41 up to %s", len(messages), next, tail)
		}
		s.callback(wake, wake.Claim(true, s.ack(next)))
		s.wantNoMore(1)
	})

	t.Run("subscriptions that match the same stream have consumers that "+
		"are independent of each other", func(t *testing.T) {
		s := e.idle(t)
		other := e.empty(t)
		other.path, other.folder = s.path, s.folder
		other.subscribe(s.folder + "/**")
		other.awaitState(fsm.Idle)
		tail := s.append()
		mine, theirs := s.worker.Wake(1), other.worker.Wake(1)
		s.wantPayload(mine, mine.Epoch, []harness.StreamOffset{s.ack(s.tail)}, s.path)
		other.wantPayload(theirs, theirs.Epoch, []harness.StreamOffset{s.ack(s.tail)}, s.path)
		s.callback(mine, mine.Claim(true, s.ack(tail)))
		other.awaitState(fsm.Live)
		if c := other.consumer(); c.Links[s.path].Acked.Value() != s.tail {
			t.Errorf("one consumer's ack moved the other's offset: %+v", c)
		}
		other.awaitTail(s.path, s.append())
		s.worker.Wake(2)
		other.wantStill(fsm.Live, theirs)
	})

	t.Run("acks, subscriptions and done can all be repeated", func(t *testing.T) {
		s, wake := e.live(t)
		tail := s.consumer().Links[s.path].Tail.Value()
		second := s.folder + "-second/stream"
		secondTail := s.gateway.Create(second)
		want := []harness.StreamOffset{at(s.path, tail), at(second, secondTail)}
		all := wake.Claim(true, s.ack(tail))
		all.Subscribe, all.Unsubscribe = []string{second, second}, []string{s.folder + "/never-subscribed"}
		for range 3 {
			s.wantStreams(s.callback(wake, all), want...)
		}
		if c := s.consumer(); c.State != fsm.Idle || c.Epoch != wake.Epoch {
			t.Errorf("after three times the same: %+v", c)
		}
		s.wantNoMore(1)
	})
}

// TestDynamicSubscriptions is about the streams that a consumer adds and drops (webhook spec, Dynamic Subscribe and
// Dynamic Unsubscribe).
func TestDynamicSubscriptions(t *testing.T) {
	t.Parallel()
	e := shared(t)

	t.Run("a stream that is subscribed to starts at its current tail, and only new events wake", func(t *testing.T) {
		s, wake := e.live(t)
		tail := s.consumer().Links[s.path].Tail.Value()
		tool := s.folder + "-tools/task"
		s.streams.Create(tool)
		toolTail := s.streams.Append(tool, `{"old":true}`)
		final := wake.Claim(true, s.ack(tail))
		final.Subscribe = []string{tool}
		s.wantStreams(s.callback(wake, final), s.ack(tail), at(tool, toolTail))
		s.streams.Append(tool, `{"new":true}`)
		s.wantPayload(s.worker.Wake(2), wake.Epoch+1, []harness.StreamOffset{s.ack(tail), at(tool, toolTail)}, tool)
	})

	t.Run("a stream that does not exist can be subscribed to and wakes once it does", func(t *testing.T) {
		s, wake := e.live(t)
		tail := s.consumer().Links[s.path].Tail.Value()
		later := s.folder + "-later/stream"
		final := wake.Claim(true, s.ack(tail))
		final.Subscribe = []string{later}
		s.wantStreams(s.callback(wake, final), s.ack(tail), at(later, "-1"))
		s.streams.Create(later)
		s.streams.Append(later, `{"first":true}`)
		second := s.worker.Wake(2)
		s.wantPayload(second, wake.Epoch+1, []harness.StreamOffset{s.ack(tail), at(later, "-1")}, later)
		messages, next := s.streams.Read(later, "-1")
		if len(messages) != 1 {
			t.Fatalf("read %s", messages)
		}
		s.callback(second, second.Claim(true, at(later, next)))
		s.wantNoMore(2)
	})

	t.Run("a stream that is subscribed to again keeps its acked offset", func(t *testing.T) {
		s, wake := e.live(t)
		s.wantStreams(s.callback(wake,
			harness.Callback{Epoch: wake.Epoch, WakeID: wake.WakeID, Subscribe: []string{s.path}}), s.ack(s.tail))
	})

	t.Run("without its primary stream a consumer goes on with the others", func(t *testing.T) {
		s, wake := e.live(t)
		tool := s.folder + "-tools/task"
		toolTail := s.streams.Create(tool)
		final := wake.Claim(true)
		final.Subscribe, final.Unsubscribe = []string{tool}, []string{s.path}
		s.wantStreams(s.callback(wake, final), at(tool, toolTail))
		s.append()
		s.streams.Append(tool, `{"new":true}`)
		s.wantPayload(s.worker.Wake(2), wake.Epoch+1, []harness.StreamOffset{at(tool, toolTail)}, tool)
	})

	t.Run("every stream with events pending is named in triggered_by", func(t *testing.T) {
		s, wake := e.live(t)
		tail := s.consumer().Links[s.path].Tail.Value()
		one, two := s.folder+"-tools/one", s.folder+"-tools/two"
		oneTail, twoTail := s.streams.Create(one), s.streams.Create(two)
		s.callback(wake, harness.Callback{
			Epoch: wake.Epoch, WakeID: wake.WakeID,
			Acks: []harness.StreamOffset{s.ack(tail)}, Subscribe: []string{two, one},
		})
		s.awaitTail(two, s.streams.Append(two, `{"new":true}`))
		s.append()
		s.await("two streams pending",
			func(c fsm.Consumer) bool { return c.Links[s.path].Pending() && c.Links[two].Pending() })
		s.callback(wake, harness.Callback{Epoch: wake.Epoch, Done: true})
		s.wantPayload(s.worker.Wake(2), wake.Epoch+1,
			[]harness.StreamOffset{s.ack(tail), at(one, oneTail), at(two, twoTail)}, s.path, two)
	})
}
