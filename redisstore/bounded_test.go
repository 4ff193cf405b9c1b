package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/redisstore"
)

// tail is where a stream ends after so many events.
func tail(n int) fsm.Offset { return fsm.Offset(fmt.Sprintf("0000000000000000_%016d", n)) }

// sharedStreams are some streams of one event each.
func sharedStreams(n int) []fsm.Subscribe {
	shared := make([]fsm.Subscribe, n)
	for i := range shared {
		shared[i] = fsm.Subscribe{Path: fmt.Sprint("/shared/conversation-", i), From: tail(1)}
	}
	return shared
}

// fill links a subscription to a stream, whose consumer then subscribes to other streams, all in one call, and rests.
func (w *world) fill(t *testing.T, shared []fsm.Subscribe, sub fsm.Subscription, path string) {
	t.Helper()
	o := must[fsm.Outcome](t)(w.Link(t.Context(), sub, path, "-1", tail(1)))
	if len(o.Deliveries) != 1 {
		t.Fatalf("a link woke %d consumers", len(o.Deliveries))
	}
	cb := of(o.Deliveries[0])
	cb.Subscribe, cb.Tails, cb.Done, cb.MaxStreams = shared, map[string]fsm.Offset{}, true, len(shared)+1
	for _, s := range shared {
		cb.Tails[s.Path] = s.From
	}
	cb.Acks = []fsm.Ack{{Path: path, Offset: tail(1)}}
	if r := must[fsm.CallbackReply](t)(w.Callback(t.Context(), cb)); r.Code != "" || len(r.Streams) != len(shared)+1 {
		t.Fatalf("%q, %d streams", r.Code, len(r.Streams))
	}
}

// TestConsumersAtRestHoldUpNoObservation holds that an observation comes to its end, however many links the consumers
// have that it finds nothing to do for.
func TestConsumersAtRestHoldUpNoObservation(t *testing.T) {
	t.Parallel()
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	shared := sharedStreams(500)
	for _, id := range []string{"a", "b", "c"} {
		sub := subscription(id)
		sub.Retry = []time.Duration{time.Minute}
		w.fill(t, shared, sub, "/agents/conversation")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	calls := 0
	w.rdb.AddHook(&beforeScript{name: "observe", call: func() {
		if calls++; calls > 10 {
			cancel()
		}
	}})
	for range 2 {
		if _, err := w.Observe(ctx, 0, shared[0].Path, tail(1), false); err != nil {
			t.Fatalf("after %d calls: %v", calls, err)
		}
	}
}

// TestTheWorkOfAScriptIsBoundedByLinks holds that however many consumers a stream or a subscription has, each with as
// many streams as the default limit allows, no script does more than many consumers of one stream or one consumer of
// many streams ask for. Commands are counted, for time depends on the machine; the log has both.
func TestTheWorkOfAScriptIsBoundedByLinks(t *testing.T) {
	t.Parallel()
	const streams = 1000
	consumers := 30
	if testing.Short() {
		consumers = 8
	}
	// commandsMost are some for each of the links that a script may read, and some for each consumer of a batch.
	const commandsMost = 4 * streams
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	ctx := t.Context()
	for _, id := range []string{"gone", "s"} {
		if _, _, err := w.CreateSubscription(ctx, subscription(id)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range consumers {
		if _, _, err := w.CreateSubscription(ctx, subscription(fmt.Sprint("s", i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.DeleteSubscription(ctx, "gone"); err != nil { // the scripts are loaded by this
		t.Fatal(err)
	}
	h := measured(w.rdb)
	shared := sharedStreams(streams - 1)
	wakes := map[string]fsm.Delivery{}
	follow := func(what string, want int, o fsm.Outcome) {
		t.Helper()
		if len(o.Deliveries) != want {
			t.Fatalf("%s woke %d consumers, want %d", what, len(o.Deliveries), want)
		}
		for _, wake := range o.Deliveries {
			wakes[wake.Consumer] = wake
		}
	}
	done := func() {
		t.Helper()
		for id, wake := range wakes {
			delete(wakes, id)
			follow("being done", 0, must[fsm.Outcome](t)(w.Finish(ctx, wake.Ref(), wake.Streams)))
		}
	}
	const primary = "/agents/conversation"
	fillAll := func() {
		t.Helper()
		for i := range consumers {
			w.fill(t, shared, subscription(fmt.Sprint("s", i)), primary)
		}
	}
	removed := func(what string, o fsm.Outcome) {
		t.Helper()
		if len(o.Removed) != consumers {
			t.Fatalf("%s removed %d consumers, want %d", what, len(o.Removed), consumers)
		}
	}
	due := func(what string) {
		t.Helper()
		o, n, err := w.Due(ctx, 0, 1000)
		if err != nil || n != consumers {
			t.Fatalf("%s: %d were due, %v", what, n, err)
		}
		follow(what, len(o.Deliveries), o)
	}

	fillAll()
	follow("an event for all", consumers,
		must[fsm.Observation](t)(w.Observe(ctx, 0, shared[0].Path, tail(2), false)).Outcome)
	w.later(timing.Waking)
	due("no answer")
	w.later(time.Hour)
	due("the next attempt")
	done()
	const read = 2 // the stream that nobody takes the events of
	giveUp := func(n int) {
		t.Helper()
		follow("an event that nobody takes", consumers,
			must[fsm.Observation](t)(w.Observe(ctx, 0, shared[read].Path, tail(n), false)).Outcome)
		for id := range wakes {
			failing := strconv.FormatInt(w.now.Add(-timing.GCAfter).UnixMilli(), 10)
			if err := changeRecord(ctx, w.rdb, "rv:{0}:c:"+id, "failing", failing); err != nil {
				t.Fatal(err)
			}
		}
		w.later(timing.Waking)
		o, _, err := w.Due(ctx, 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		removed("giving them up", o)
		clear(wakes)
	}
	giveUp(2)
	follow("a look at those that were given up", 0,
		must[fsm.Observation](t)(w.Observe(ctx, 0, shared[read].Path, tail(2), false)).Outcome)
	follow("the next event", consumers,
		must[fsm.Observation](t)(w.Observe(ctx, 0, shared[read].Path, tail(3), false)).Outcome)
	done()
	follow("a stream made anew", consumers, must[fsm.Outcome](t)(w.Restart(ctx, 0, shared[0].Path, tail(2), tail(1))))
	done()
	follow("a stream deleted", 0, must[fsm.Outcome](t)(w.Deleted(ctx, 0, shared[1].Path, fsm.Deletion{})))
	follow("the stream is there again", consumers,
		must[fsm.Observation](t)(w.Observe(ctx, 0, shared[1].Path, tail(0), false)).Outcome)
	done()
	must[fsm.Outcome](t)(w.Hide(ctx, primary, fsm.MissingAnew))
	w.later(timing.GoneGrace)
	must[fsm.Outcome](t)(w.Hide(ctx, primary, fsm.MissingStill))
	if left := leftovers(t, w); len(left) > 0 {
		t.Fatalf("what was hidden has left %d keys", len(left))
	}
	fillAll()
	removed("deleting the primary", must[fsm.Outcome](t)(w.Deleted(ctx, 0, primary, fsm.Deletion{})))
	fillAll()
	o := must[fsm.Outcome](t)(w.Restart(ctx, 0, primary, tail(1), tail(0)))
	removed("making the primary anew", o)
	follow("making the primary anew", consumers, o)
	done()
	removed("deleting it", must[fsm.Outcome](t)(w.Deleted(ctx, 0, primary, fsm.Deletion{})))
	for i := range consumers {
		w.fill(t, shared, subscription("s"), fmt.Sprint(primary, i))
	}
	giveUp(5)
	resumed, o, err := w.ResumeSubscription(ctx, "s")
	if err != nil || resumed != consumers {
		t.Fatalf("%d consumers of %d are resumed: %v", resumed, consumers, err)
	}
	follow("resuming", consumers, o)
	done()
	giveUp(6)
	var replayed fsm.Outcome
	for at := (fsm.LetterWork{Last: 1}); at.Last > 0; {
		span := fsm.LetterSpan{From: at.Last + 1, Through: fsm.MaxLetterNumber}
		if at, o, err = w.ReplayDeadLetters(ctx, span, 50); err != nil {
			t.Fatal(err)
		}
		replayed.Add(o)
	}
	follow("replaying their letters", consumers, replayed)
	clear(wakes)
	if err := w.DeleteSubscription(ctx, "s"); err != nil {
		t.Fatal(err)
	}
	if left := leftovers(t, w); len(left) > 0 {
		t.Fatalf("the subscription has left %d keys", len(left))
	}

	h.bounded(t, commandsMost, "callback", "deleted", "drop", "due", "finish", "hide", "link_stream", "mark_deleted",
		"observe", "replay_letters", "restart", "resume")
}

// cutShort makes consumers of /agent, each in the wake of an epoch 1, which have acked all of it and are subscribed to
// /shared. Then it has /shared made anew, and cuts that short after the first of them. It returns the wakes, and the
// outcome.
func (w *world) cutShort(t *testing.T, consumers int) (wakes map[string]fsm.Delivery, o fsm.Outcome) {
	t.Helper()
	ctx := t.Context()
	wakes = map[string]fsm.Delivery{}
	for i := range consumers {
		sub := subscription(fmt.Sprint("s", i))
		wake := must[fsm.Outcome](t)(w.Link(ctx, sub, "/agent", "-1", "0")).Deliveries[0]
		r := must[fsm.CallbackReply](t)(w.Callback(ctx, fsm.Callback{
			Consumer: wake.Ref().Consumer, Primary: wake.Primary, Generation: sub.Generation, Epoch: wake.Epoch,
			TokenEpoch: wake.Epoch,
			WakeID:     wake.WakeID, Subscribe: []fsm.Subscribe{{Path: "/shared", From: "5"}},
			Tails: map[string]fsm.Offset{"/shared": "5"},
			Acks:  []fsm.Ack{{Path: "/agent", Offset: "0"}}, MaxStreams: 2,
		}))
		if r.Code != "" {
			t.Fatal(r.Code)
		}
		wakes[wake.Consumer] = wake
	}
	must[fsm.Outcome](t)(w.Restart(ctx, 0, "/none", "", "0")) // the script is loaded by this
	h := sever(w)
	h.left.Store(1)
	o, err := w.Restart(ctx, 0, "/shared", "5", "3")
	if !errors.Is(err, fsm.ErrUnavailable) || len(o.Deliveries) == 0 || len(o.Deliveries) == consumers {
		t.Fatalf("cut short after %d wakes: %v", len(o.Deliveries), err)
	}
	h.left.Store(-1)
	return wakes, o
}

// TestARestartThatWasCutShortHoldsForEveryConsumer holds that acks and tail of a stream that was made anew change
// together, however many consumers it has: those that the caller did not come to do not count what they read of
// the old stream either.
func TestARestartThatWasCutShortHoldsForEveryConsumer(t *testing.T) {
	t.Parallel()
	const consumers = 200
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	ctx := t.Context()
	wakes, o := w.cutShort(t, consumers)
	visited := map[string]bool{}
	for _, wake := range o.Deliveries {
		visited[wake.Consumer] = true
	}
	// A worker that is still at the old stream has lost its claim, whether or not its consumer was visited.
	refused := 0
	for _, wake := range wakes {
		r := must[fsm.CallbackReply](t)(w.Callback(ctx, fsm.Callback{
			Consumer: wake.Ref().Consumer, Primary: wake.Primary, Generation: wake.Generation,
			Epoch: wake.Epoch, TokenEpoch: wake.Epoch, WakeID: wake.WakeID,
			Acks: []fsm.Ack{{Path: "/shared", Offset: "2"}}, MaxStreams: 2,
		}))
		if r.Code == fsm.CodeStaleEpoch {
			refused++
		}
		for _, wake := range r.Deliveries {
			visited[wake.Consumer] = true
		}
		if refused == consumers/2 {
			break
		}
	}
	if refused != consumers/2 {
		t.Errorf("%d callbacks were refused, want %d", refused, consumers/2)
	}
	for _, wake := range must[fsm.Observation](t)(w.Observe(ctx, 0, "/shared", "3", false)).Deliveries {
		visited[wake.Consumer] = true
	}
	if len(visited) != consumers {
		t.Errorf("%d consumers were woken for the new stream, want %d", len(visited), consumers)
	}
	for id, wake := range wakes {
		c := must[fsm.Consumer](t)(w.Consumer(ctx, wake.Ref().Consumer))
		if c.Links["/shared"].Acked != "-1" || c.Epoch != 2 {
			t.Errorf("%s is in epoch %d and has acked %s of the new stream", id, c.Epoch, c.Links["/shared"].Acked)
		}
	}
}

// TestAnAttemptThatARestartHandsOutHasNotFailed holds that a deadline which passed before a stream was made anew is not
// that of the attempt which the restart has handed out.
func TestAnAttemptThatARestartHandsOutHasNotFailed(t *testing.T) {
	t.Parallel()
	const consumers = 60
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	ctx := t.Context()
	for i := range consumers {
		wake := must[fsm.Outcome](t)(w.Link(ctx, subscription(fmt.Sprint("s", i)), "/agent", "-1", "0")).Deliveries[0]
		cb := of(wake)
		cb.Subscribe, cb.Tails = []fsm.Subscribe{{Path: "/shared", From: "5"}}, map[string]fsm.Offset{"/shared": "5"}
		cb.Acks = []fsm.Ack{{Path: "/agent", Offset: "0"}}
		if r := must[fsm.CallbackReply](t)(w.Callback(ctx, cb)); r.Code != "" {
			t.Fatal(r.Code)
		}
	}
	must[fsm.Outcome](t)(w.Restart(ctx, 0, "/none", "", "0")) // the script is loaded by this
	h := sever(w)
	h.left.Store(1)
	first, err := w.Restart(ctx, 0, "/shared", "5", "3")
	if !errors.Is(err, fsm.ErrUnavailable) || len(first.Deliveries) == consumers {
		t.Fatalf("not cut short: %d wakes, %v", len(first.Deliveries), err)
	}
	h.left.Store(-1)
	w.later(timing.Liveness)
	o, _, err := w.Due(ctx, 0, consumers)
	if err != nil {
		t.Fatal(err)
	}
	handed := 0
	for _, wake := range o.Deliveries {
		c := must[fsm.Consumer](t)(w.Consumer(ctx, wake.Ref().Consumer))
		if wake.Attempt != 1 {
			continue // one of the first, whose attempt was not answered
		}
		handed++
		if !c.Sent || !c.FirstFailure.IsZero() || c.LastError != "" || c.State != fsm.Waking {
			t.Errorf("%s has an attempt out, and failed: %+v", wake.Consumer, c)
		}
	}
	if handed != consumers-len(first.Deliveries) {
		t.Errorf("%d attempts were handed out, want %d", handed, consumers-len(first.Deliveries))
	}
}
