package tailer

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"reveille/fsm"
)

// own makes the replica under test the owner of just these partitions.
func (m *memory) own(partitions ...int) { m.ownership.Replace(partitions) }

func (m *memory) ownAll() { m.own(fsm.AllPartitions(testPartitions)...) }

// forgetStream loses everything about a stream, as a store does that comes back without its latest changes.
func (m *memory) forgetStream(path string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, c := range m.consumers {
		if c.Primary == path {
			delete(m.consumers, id)
		}
	}
	delete(m.known, path)
	delete(m.noted, noteKey(m.PartitionOf(path), path))
	m.lost = time.Now()
	m.rewatch()
}

// loseConsumer loses the consumer that a subscription has for a stream, and nothing else.
func (m *memory) loseConsumer(sub, path string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.consumers, fsm.ConsumerID(sub, path))
	delete(m.noted, noteKey(m.PartitionOf(path), path))
	m.lost = time.Now()
	m.rewatch()
}

// fallBack has a consumer's ack lost.
func (m *memory) fallBack(sub, path string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.consumers[fsm.ConsumerID(sub, path)]
	c.Links = map[string]fsm.Link{path: {Acked: fsm.Start, Tail: c.Links[path].Tail}}
	m.consumers[c.ID] = c
}

func (m *memory) hinted(h fsm.Hint) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Contains(m.hints, h)
}

func TestOnlyTheOwnerOfAPartitionWatchesItsStreams(t *testing.T) {
	r := newRig(t)
	r.store.own()
	r.start()
	r.subscribe("s", "/**")
	r.put("/a")
	r.done(r.wake("/a", 1))
	home := r.store.PartitionOf("/a")
	r.until("its owner is told to watch it", func() bool {
		return r.store.hinted(fsm.Hint{Kind: fsm.HintWatch, Partition: home, Path: "/a"})
	})
	if n := r.up.waiters("/a"); n != 0 || r.loops() != 0 {
		t.Fatalf("it is watched here: %d requests, %d loops", n, r.loops())
	}

	r.store.own(home)
	r.watchedLive("/a")
	r.up.append("/a", "behind its back")
	r.done(r.wake("/a", 2))

	r.store.own()
	r.until("the watching ends with the ownership", func() bool { return r.loops() == 0 && r.up.waiters("/a") == 0 })
	r.up.append("/a", "while another owns it")
	r.store.own(home)
	r.wake("/a", 3)
}

func TestAnOwnerThatChangesWhileAStreamIsAwayForgetsNothing(t *testing.T) {
	r := newRig(t).start()
	r.idle("/a")
	r.up.setFault(answer(http.StatusNotFound))
	r.up.CloseClientConnections()
	r.until("its consumer is hidden", func() bool { c, _ := r.store.consumer("s", "/a"); return !c.HiddenAt.IsZero() })
	r.store.own()
	r.until("the loop has ended", func() bool { return r.loops() == 0 })
	if _, found, err := r.store.Known(t.Context(), "/a"); err != nil || !found {
		t.Fatalf("the stream is known: %v, %v", found, err)
	}
	r.store.ownAll()
	r.up.setFault(nil)
	r.until("its consumer is shown", func() bool { c, ok := r.store.consumer("s", "/a"); return ok && c.HiddenAt.IsZero() })
	r.up.append("/a", "after it is back")
	r.wake("/a", 2)
}

func TestHintsOfOtherReplicasAreActedOnAtOnce(t *testing.T) {
	never := func(c *Config) { c.WatchEvery, c.Resync, c.Check = time.Hour, time.Hour, time.Hour }
	t.Run("a stream to watch", func(t *testing.T) {
		r := newRig(t, never).start()
		sub := r.subscribe("s", "/**")
		tail := r.up.create("/a")
		// As another replica does it.
		if _, err := r.store.Link(t.Context(), sub, "/a", tail, tail); err != nil {
			t.Fatal(err)
		}
		r.Hinted(fsm.Hint{Kind: fsm.HintWatch, Partition: r.store.PartitionOf("/a"), Path: "/a"})
		r.watchedLive("/a")
	})
	t.Run("a stream that was written to through a replica that stops", func(t *testing.T) {
		r := newRig(t).start()
		r.subscribe("s", "/**")
		r.up.create("/a", "first")
		r.Hinted(fsm.Hint{Kind: fsm.HintWritten, Path: "/a"})
		r.wake("/a", 1)
	})
	t.Run("a consumer that came to rest ends the pause of its stream", func(t *testing.T) {
		r := newRig(t, never, func(c *Config) { c.PaceMin, c.PaceMax = time.Hour, time.Hour }).start()
		r.idle("/a")
		r.up.append("/a", "wakes")
		w := r.wake("/a", 2)
		r.up.append("/a", "while it is awake")
		r.until("everybody is busy", func() bool { return r.watches.find("/a").looksAfterPause() })
		r.up.append("/a", "in the pause")
		for wakes := []fsm.Wake{w}; len(wakes) > 0; { // at another replica
			wakes = r.store.finish(wakes[0]).Wakes
		}
		r.Hinted(fsm.Hint{Kind: fsm.HintIdle, Path: "/a"})
		r.wake("/a", 3)
	})
	t.Run("what is no stream's path is nothing", func(t *testing.T) {
		r := newRig(t).start()
		for _, kind := range []fsm.HintKind{fsm.HintWatch, fsm.HintGone, fsm.HintDeleted, fsm.HintRemoved, fsm.HintWritten, fsm.HintIdle, "another"} {
			for _, path := range []string{"", "a", "/a b"} {
				r.Hinted(fsm.Hint{Kind: kind, Path: path})
			}
		}
		if r.loops() != 0 {
			t.Error("something is watched")
		}
	})
}

func TestAStreamThatTheStoreHasLostIsLinkedAnew(t *testing.T) {
	t.Run("once the store may have lost its latest changes", func(t *testing.T) {
		r := newRig(t).start()
		r.idle("/a")
		r.store.forgetStream("/a")
		r.store.ownership.Doubt(r.store.PartitionOf("/a"))
		r.wake("/a", 2)
	})
	t.Run("although its loop has found nobody subscribed before that was noticed", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Confirm = time.Hour }).start()
		r.idle("/a")
		r.store.forgetStream("/a")
		r.up.append("/a", "found before")
		r.until("its loop has ended", func() bool { return r.loops() == 0 })
		r.store.ownership.Doubt(r.store.PartitionOf("/a"))
		r.wake("/a", 2)
	})
	t.Run("although its partition is another replica's by then", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Confirm = time.Hour }).start()
		r.idle("/a")
		r.store.forgetStream("/a")
		r.store.own()
		r.store.ownership.Doubt(r.store.PartitionOf("/a"))
		r.wake("/a", 2)
	})
	t.Run("not when an operator has had it forgotten", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Confirm = 50 * time.Millisecond }).start()
		r.idle("/a")
		if err := r.Forget(t.Context(), []string{"/a"}); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			r.store.ownership.Doubt(r.store.PartitionOf("/a"))
			time.Sleep(r.cfg.Confirm) // nothing tells of what does not happen
		}
		if got := len(r.woken("/a")); got != 1 {
			t.Errorf("%d wakes", got)
		}
		if !r.store.hinted(fsm.Hint{Kind: fsm.HintRemoved, Path: "/a"}) {
			t.Error("the others were not told")
		}
	})
	t.Run("not when an operator has had it forgotten through another replica", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Confirm, c.Resync = 200*time.Millisecond, time.Hour }).start()
		r.idle("/a")
		r.awaited.add("/a", false)
		home := r.store.PartitionOf("/a")
		if err := r.store.ForgetKnown(t.Context(), "/a", false); err != nil {
			t.Fatal(err)
		}
		if _, err := r.store.Deleted(t.Context(), home, "/a"); err != nil {
			t.Fatal(err)
		}
		r.Hinted(fsm.Hint{Kind: fsm.HintRemoved, Path: "/a"})
		r.until("its loop has ended", func() bool { return r.loops() == 0 })
		r.store.ownership.Doubt(home)
		time.Sleep(2 * r.cfg.Confirm) // nothing tells of what does not happen
		if got := len(r.woken("/a")); got != 1 {
			t.Errorf("%d wakes", got)
		}
	})
	t.Run("and what it was told of a stream that it still knows is told again", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Check, c.Resync = time.Hour, time.Hour }).start()
		r.idle("/a")
		r.up.append("/a", "seen and acked")
		r.done(r.wake("/a", 2))
		// The consumer has fallen back, while somebody else has noted the tail anew: an ack beyond it asks upstream, and wakes nobody.
		r.store.fallBack("s", "/a")
		r.store.ownership.Doubt(r.store.PartitionOf("/a"))
		r.wake("/a", 3)
	})
	t.Run("by the replica that linked it, though another owns it", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Confirm = 500 * time.Millisecond })
		r.store.own()
		r.start()
		r.subscribe("s", "/**")
		r.put("/a")
		r.wake("/a", 1)
		r.until("the store was told that it knows the stream", func() bool { return r.linked.Contains("/a") })
		r.store.forgetStream("/a")
		r.wake("/a", 2)
	})
	t.Run("although a proxy says at first that there is no such stream", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.GoneGrace = time.Minute }).start()
		r.idle("/a")
		r.store.forgetStream("/a")
		r.up.setFault(answer(http.StatusNotFound))
		heads := r.up.count(r.up.heads, "/a")
		r.store.ownership.Doubt(r.store.PartitionOf("/a"))
		r.until("that was asked again and again", func() bool { return r.up.count(r.up.heads, "/a") > heads+6 })
		r.up.setFault(nil)
		r.wake("/a", 2)
	})
	t.Run("though nobody was subscribed to it", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Confirm = 2 * time.Second }).start()
		r.put("/a")
		r.until("it is known", func() bool { known, _ := r.store.knows("/a"); return known })
		r.store.forgetStream("/a")
		r.until("it is known again", func() bool { known, _ := r.store.knows("/a"); return known })
	})
	t.Run("though it is remembered here and the list of subscriptions is another by now", func(t *testing.T) {
		for when, write := range map[string]func(r *rig){
			"before the write": func(r *rig) { r.post("/a", "1") },
			"after it": func(r *rig) {
				l, _ := r.linked.Get("/a")
				r.linked.Add("/a", linked{r.store.Catalog().Version(), l.subs})
				r.BeforeWrite(t.Context(), "/a")
				r.linked.Add("/a", l)
				r.Written("/a", r.up.append("/a", "1"), false)
			},
		} {
			for _, pattern := range []string{"/b/*", "/*"} {
				t.Run(when+" by "+pattern, func(t *testing.T) {
					r := newRig(t, func(c *Config) { c.Confirm, c.Resync = time.Hour, time.Hour }).start()
					r.idle("/a")
					r.store.own()
					r.until("nobody watches it", func() bool { return r.loops() == 0 })
					r.store.forgetStream("/a")
					r.subscribe("another", pattern)
					write(r)
					r.until("its consumer is woken from its start", func() bool {
						return slices.ContainsFunc(r.woken("/a")[1:], func(w fsm.Wake) bool {
							return w.Subscription == "s" && w.Streams[0].Acked == fsm.Start
						})
					})
				})
			}
		}
	})
	t.Run("not when it was deleted", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Confirm = 50 * time.Millisecond }).start()
		r.idle("/a")
		if err := r.Forget(t.Context(), []string{"/a"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * r.cfg.Confirm) // nothing tells of what does not happen
		if got := len(r.woken("/a")); got != 1 {
			t.Errorf("%d wakes", got)
		}
	})
}

func TestAConsumerThatTheStoreHasLostOfAStreamThatItKnowsMissesNothing(t *testing.T) {
	linked := func(t *testing.T, change ...func(*Config)) *rig {
		r := newRig(t, append(change, func(c *Config) { c.Confirm = 2 * time.Second })...).start()
		r.put("/a", "before anybody subscribed")
		r.until("it is known", func() bool { known, _ := r.store.knows("/a"); return known })
		r.subscribe("s", "/**")
		r.until("it is linked", func() bool { return r.linkedNow("s", "/a") })
		return r
	}
	t.Run("it begins again where it began", func(t *testing.T) {
		r := linked(t)
		r.store.loseConsumer("s", "/a")
		r.up.append("/a", "1")
		if w := r.wake("/a", 1); w.Streams[0].Acked != offsetOf(1) {
			t.Errorf("woken with %+v", w.Streams[0])
		}
	})
	t.Run("and when it is lost once more", func(t *testing.T) {
		r := linked(t)
		for range 2 {
			r.store.loseConsumer("s", "/a")
			r.until("it is linked again", func() bool { return r.linkedNow("s", "/a") })
		}
		if got := r.acked("s", "/a"); got != offsetOf(1) {
			t.Errorf("it begins at %s", got)
		}
	})
	t.Run("a write that comes before that, while the backfill is not over, begins it at the start", func(t *testing.T) {
		r := linked(t, func(c *Config) { c.Resync = time.Hour })
		r.store.loseConsumer("s", "/a")
		r.up.append("/a", "1")
		r.store.mu.Lock()
		r.store.backfills["s"] = fsm.Backfill{Total: 1}
		r.store.mu.Unlock()
		r.linked.Remove("/a")
		r.post("/a", "2")
		if w := r.wake("/a", 1); w.Streams[0].Acked != fsm.Start {
			t.Errorf("woken with %+v", w.Streams[0])
		}
	})
	t.Run("one that has unsubscribed stays away where nothing was lost", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Confirm = 50 * time.Millisecond })
		r.store.setBefore(func(method string) {
			if method == "LostAgo" { // it is looked for again
				r.store.remove(fsm.ConsumerID("s", "/a"))
			}
		})
		r.start()
		r.put("/a")
		r.subscribe("s", "/**")
		asked := r.store.count("LostAgo")
		r.until("it was looked for again", func() bool { return r.store.count("LostAgo") > asked })
		time.Sleep(4 * r.cfg.Confirm) // nothing tells of what does not happen
		if r.linkedNow("s", "/a") {
			t.Error("it is back")
		}
	})
}

func TestAWriteThroughATailerThatHasEndedIsLeftToTheOthers(t *testing.T) {
	r := newRig(t).start()
	r.subscribe("s", "/**")
	r.BeforeWrite(t.Context(), "/a")
	tail := r.up.create("/a", "first")
	r.stop()
	r.Written("/a", tail, true)
	if !r.store.hinted(fsm.Hint{Kind: fsm.HintWritten, Path: "/a"}) {
		t.Error("nobody was told")
	}
}
