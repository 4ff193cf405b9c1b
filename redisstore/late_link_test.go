package redisstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
	"reveille/redisstore"
)

// beforeScript calls something before each call of a script is sent.
type beforeScript struct {
	name string
	call func()
}

// DialHook implements redis.Hook.
func (*beforeScript) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (b *beforeScript) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "eval" && scriptOf(cmd) == b.name {
			b.call()
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (*beforeScript) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// lateLink is a link that was decided, but not made yet.
type lateLink struct {
	path string
	fsm.Linking
}

// decide decides to link a stream to subscriptions by the list as it is, as discovery does.
func (w *world) decide(t *testing.T, path string, subs ...fsm.Subscription) lateLink {
	t.Helper()
	s, _, err := w.NoteStream(t.Context(), fsm.NewStream(path, ""), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	l := fsm.Linking{
		Stamp: s.Stamp, Tail: "1", Version: must[int64](t)(w.Version(t.Context())), Look: time.Minute,
	}
	for _, sub := range subs {
		l.Links = append(l.Links, fsm.NewLink{Subscription: sub, Acked: fsm.Start})
	}
	return lateLink{path, l}
}

// make makes a link and returns the subscriptions whose consumers were woken by it, which are all that it made.
func (w *world) make(t *testing.T, l lateLink) (woken []string) {
	t.Helper()
	r := must[fsm.LinkReply](t)(w.LinkStream(t.Context(), l.path, l.Linking))
	if !r.Done || r.Stream.Linked != l.Version || r.Linked != len(r.Deliveries) {
		t.Fatalf("the link has come to %+v", r)
	}
	for _, wake := range r.Deliveries {
		woken = append(woken, wake.Subscription)
	}
	return woken
}

// TestALinkThatWasDecidedBeforeADeletionMakesNoConsumer is about replicas that act by a list from before the deletion,
// and come when it is over.
func TestALinkThatWasDecidedBeforeADeletionMakesNoConsumer(t *testing.T) {
	t.Parallel()
	deleted := func(t *testing.T, w *world) {
		t.Helper()
		if err := w.DeleteSubscription(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
	}
	for name, happens := range map[string]struct {
		before func(t *testing.T, w *world)
		// meanwhile is before each call that makes the link.
		meanwhile func(t *testing.T, w *world, n int)
	}{
		"deleted":                 {before: deleted},
		"deleted, and others are": {before: func(t *testing.T, w *world) { deleted(t, w); comeAndGo(t, w, 0, 50) }},
		"deleted and made again": {before: func(t *testing.T, w *world) {
			deleted(t, w)
			again := subscription("s")
			again.Generation = "g-again"
			if _, created, err := w.CreateSubscription(t.Context(), again); err != nil || !created {
				t.Fatal(created, err)
			}
		}},
		"deleted when the list was read again, because another was deleted": {
			before: func(t *testing.T, w *world) { comeAndGo(t, w, 0, 1) },
			meanwhile: func(t *testing.T, w *world, n int) {
				if n == 2 {
					deleted(t, w)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redisstore.EmptyRedis(t)
			w, other := open(t, server.URL, 1), open(t, server.URL, 1)
			var subs []fsm.Subscription
			for _, id := range []string{"s", "stays"} {
				sub, _, err := w.CreateSubscription(t.Context(), subscription(id))
				if err != nil {
					t.Fatal(err)
				}
				subs = append(subs, sub)
			}
			must[fsm.Outcome](t)(w.Link(t.Context(), subs[1], "/loads/the/script", "1", "1"))
			late := w.decide(t, "/a", subs...)
			happens.before(t, other)
			n := 0
			if happens.meanwhile != nil {
				w.rdb.AddHook(&beforeScript{"link_stream", func() { n++; happens.meanwhile(t, other, n) }})
			}
			if woken := w.make(t, late); len(woken) != 1 || woken[0] != "stays" {
				t.Errorf("it has woken %v", woken)
			}
			if c, err := w.Consumer(t.Context(), fsm.RefOf("s", "/a")); err == nil {
				t.Errorf("there is %+v", c)
			}
		})
	}
}

// TestALinkWhoseReplyWasLostReadsTheListAgain holds that a call which the client has sent again does not pass for one
// of a caller that has read the list again.
func TestALinkWhoseReplyWasLostReadsTheListAgain(t *testing.T) {
	t.Parallel()
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	sub, _, err := w.CreateSubscription(t.Context(), subscription("s"))
	if err != nil {
		t.Fatal(err)
	}
	late := w.decide(t, "/a", sub)
	if err := w.DeleteSubscription(t.Context(), sub.ID); err != nil {
		t.Fatal(err)
	}
	w.rdb.AddHook(&deaf{on: true})
	if woken := w.make(t, late); len(woken) > 0 {
		t.Errorf("it has woken %v", woken)
	}
}

// TestALinkIsMadeHoweverManyOtherSubscriptionsAreDeleted holds that no client keeps streams from being linked to the
// subscriptions of others by deleting its own: here one is deleted before each call.
func TestALinkIsMadeHoweverManyOtherSubscriptionsAreDeleted(t *testing.T) {
	t.Parallel()
	server := redisstore.EmptyRedis(t)
	w, other := open(t, server.URL, 1), open(t, server.URL, 1)
	var subs []fsm.Subscription
	for i := range 250 { // a link takes several calls
		sub, _, err := w.CreateSubscription(t.Context(), subscription(fmt.Sprint("s", i)))
		if err != nil {
			t.Fatal(err)
		}
		subs = append(subs, sub)
	}
	must[fsm.Outcome](t)(w.Link(t.Context(), subs[0], "/loads/the/script", "1", "1"))
	late := w.decide(t, "/a", subs...)
	calls := 0
	w.rdb.AddHook(&beforeScript{"link_stream", func() {
		if calls++; calls > 20 {
			t.Fatal("it is not made")
		}
		comeAndGo(t, other, calls, 1)
	}})
	if woken := w.make(t, late); len(woken) != len(subs) {
		t.Errorf("%d consumers were made of %d", len(woken), len(subs))
	}
	if calls > 6 { // three batches, each of which asks once
		t.Errorf("it took %d calls", calls)
	}
	_ = leftovers(t, w) // which sees to it that what was asked does not stay for ever
}
