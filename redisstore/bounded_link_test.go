package redisstore_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/redisstore"
)

// linkAll links a stream to subscriptions, as discovery does, and returns the outcome.
func (w *world) linkAll(t *testing.T, path string, to fsm.Offset, subs []fsm.Subscription) fsm.LinkReply {
	t.Helper()
	ctx := t.Context()
	s := must[fsm.Stream](t)(w.Stream(ctx, path))
	if !s.Found() {
		n := fsm.NewStream(path, "")
		n.Stamp = s.Stamp
		s, _, _ = w.NoteStream(ctx, n, time.Minute)
	}
	links := make([]fsm.NewLink, len(subs))
	for i, sub := range subs {
		links[i] = fsm.NewLink{Subscription: sub, Acked: "-1"}
	}
	r := must[fsm.LinkReply](t)(w.LinkStream(ctx, path, fsm.Linking{
		Stamp: s.Stamp, Tail: to, Version: s.Linked + 1, Links: links, Look: time.Minute,
	}))
	if !r.Done {
		t.Fatal("the record has moved")
	}
	return r
}

// TestTheWorkOfLinkingIsBoundedByLinks holds that a stream is linked to however many subscriptions, whether or not
// they have had a consumer of it before, which may have many links, by scripts each of which does little.
func TestTheWorkOfLinkingIsBoundedByLinks(t *testing.T) {
	t.Parallel()
	const streams = 1000
	consumers := 30
	if testing.Short() {
		consumers = 8
	}
	const commandsMost = 4 * streams
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	h := measured(w.rdb)
	subs := make([]fsm.Subscription, 1000)
	for i := range subs {
		subs[i] = subscription(fmt.Sprint("s", i))
	}
	if r := w.linkAll(t, "/agents/new", tail(1), subs); r.Linked != len(subs) || len(r.Deliveries) != len(subs) {
		t.Errorf("%d consumers were made and %d woken, want %d", r.Linked, len(r.Deliveries), len(subs))
	}
	shared := sharedStreams(streams - 1)
	const path = "/agents/conversation"
	for i := range consumers {
		w.fill(t, shared, subs[i], path)
	}
	if r := w.linkAll(t, path, tail(2), subs[:consumers]); r.Linked != 0 || len(r.Deliveries) != consumers {
		t.Errorf("%d consumers were made and %d woken, want 0 and %d", r.Linked, len(r.Deliveries), consumers)
	}
	anew := slices.Clone(subs[:consumers])
	for i := range anew {
		anew[i].Generation += "-anew"
	}
	if r := w.linkAll(t, path, tail(2), anew); r.Linked != consumers || len(r.Removed) != consumers ||
		len(r.Deliveries) != consumers {
		t.Errorf("%d consumers were made, %d removed and %d woken, want %d", r.Linked, len(r.Removed),
			len(r.Deliveries), consumers)
	}
	h.bounded(t, commandsMost, "link_stream")
}

// TestTheWorkOfACensusIsBounded holds that consumers are counted by scripts each of which counts those of few
// subscriptions, and that all of them are counted, each once.
func TestTheWorkOfACensusIsBounded(t *testing.T) {
	t.Parallel()
	w, r := owning(t, redisstore.EmptyRedis(t).URL, 2)
	ctx := t.Context()
	subs := make([]fsm.Subscription, 5000)
	for i := range subs {
		subs[i] = subscription(fmt.Sprint("s", i))
	}
	w.Catalog().Replace(subs, 1)
	for i, path := range []string{"/a", "/b", "/c"} {
		must[fsm.Outcome](t)(w.Link(ctx, subs[0], path, tail(1), tail(1)))
		must[fsm.Outcome](t)(w.Link(ctx, subs[len(subs)-1-i], path, "-1", tail(1)))
	}
	figures(t, r, "reveille_consumers") // the script is loaded by this
	w.Ownership().Replace(nil)
	figures(t, r, "reveille_consumers")
	w.Ownership().Replace(fsm.AllPartitions(2))
	h := measured(w.rdb)
	got := figures(t, r, "reveille_consumers")
	if got["idle"] != 3 || got["waking"] != 3 || figures(t, r, "reveille_streams_known")[""] != 3 {
		t.Errorf("counted %v", got)
	}
	h.bounded(t, 1100, "census")
}
