package tailer

import (
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec/memstore"
)

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

func TestAPartitionThatComesAndGoesWhileTheListsAreReadLeavesNoWatchBehind(t *testing.T) {
	r := newRig(t).start()
	r.idle("/a")
	home := r.store.PartitionOf("/a")
	r.store.own()
	r.until("nothing is watched", func() bool { return r.loops() == 0 })

	reads, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.store.setBefore(func(method string) {
		if method == "WatchedSince" {
			once.Do(func() {
				close(reads)
				<-goOn
			})
		}
	})
	r.store.own((home + 1) % testPartitions)
	<-reads
	r.store.ownAll()
	r.discovery.Watch("/a", []string{"/a"})
	r.watchedLive("/a")
	r.store.own()
	close(goOn)
	r.until("its watching ends, too", func() bool { return r.loops() == 0 && r.up.waiters("/a") == 0 })
}

func TestAnOwnerThatChangesWhileAStreamIsAwayForgetsNothing(t *testing.T) {
	r := newRig(t).start()
	r.idle("/a")
	r.up.setFault(answer(http.StatusNotFound))
	r.up.CloseClientConnections()
	r.until("its consumer is hidden", func() bool { c, _ := r.store.consumer("s", "/a"); return !c.HiddenAt.IsZero() })
	r.store.own()
	r.until("the loop has ended", func() bool { return r.loops() == 0 })
	if known, _ := r.store.knows("/a"); !known {
		t.Fatal("the stream is off the record")
	}
	r.store.ownAll()
	r.up.setFault(nil)
	r.until("its consumer is shown",
		func() bool { c, ok := r.store.consumer("s", "/a"); return ok && c.HiddenAt.IsZero() })
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
		if _, err := memstore.Link(t.Context(), r.store, sub, "/a", tail, tail); err != nil {
			t.Fatal(err)
		}
		r.Hinted(fsm.Hint{Kind: fsm.HintWatch, Partition: r.store.PartitionOf("/a"), Path: "/a"})
		r.watchedLive("/a")
	})
	t.Run("a stream that was written to through a replica that stops", func(t *testing.T) {
		r := newRig(t).start()
		r.subscribe("s", "/**")
		r.up.create("/a", "first")
		r.Hinted(fsm.Hint{Kind: fsm.HintLook, Path: "/a"})
		r.wake("/a", 1)
	})
	t.Run("a consumer that came to rest ends the pause of its stream", func(t *testing.T) {
		r := newRig(t, never, func(c *Config) { c.PaceMin, c.PaceMax = time.Hour, time.Hour }).start()
		r.idle("/a")
		r.up.append("/a", "wakes")
		w := r.wake("/a", 2)
		r.up.append("/a", "while it is awake")
		r.until("everybody is busy", func() bool { return r.running("/a").looksAfterPause() })
		r.up.append("/a", "in the pause")
		for wakes := []fsm.Delivery{w}; len(wakes) > 0; { // at another replica
			wakes = r.store.finish(t, wakes[0]).Deliveries
		}
		r.Hinted(fsm.Hint{Kind: fsm.HintIdle, Path: "/a"})
		r.wake("/a", 3)
	})
	t.Run("what is no stream's path is nothing", func(t *testing.T) {
		r := newRig(t).start()
		for _, kind := range []fsm.HintKind{
			fsm.HintWatch, fsm.HintGone, fsm.HintRemoved, fsm.HintLook, fsm.HintIdle, "another",
		} {
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
		for n := 2; n < 4; n++ {
			r.store.forgetStream("/a")
			r.store.countLoss("/a")
			r.wake("/a", n)
			r.until("it is on record", func() bool { known, _ := r.store.knows("/a"); return known })
		}
	})
	t.Run("although its loop has found nobody subscribed before that was noticed", func(t *testing.T) {
		r := atRest(t, "/a")
		r.store.forgetStream("/a")
		r.up.append("/a", "found before")
		r.until("its loop has ended", func() bool { return r.loops() == 0 })
		r.store.countLoss("/a")
		r.wake("/a", 2)
	})
	t.Run("although its partition is another replica's by then", func(t *testing.T) {
		r := newRig(t).start()
		r.idle("/a")
		r.store.forgetStream("/a")
		r.store.own()
		r.store.countLoss("/a")
		r.wake("/a", 2)
	})
	t.Run("not when an operator has had it forgotten", func(t *testing.T) {
		r := atRest(t, "/a")
		if err := r.discovery.Forget(t.Context(), []string{"/a"}); err != nil {
			t.Fatal(err)
		}
		r.forgottenForGood("/a")
		if !r.store.hinted(fsm.Hint{Kind: fsm.HintRemoved, Path: "/a"}) {
			t.Error("the others were not told")
		}
	})
	t.Run("not when an operator has had it forgotten through another replica", func(t *testing.T) {
		r := atRest(t, "/a")
		if _, err := r.store.Deleted(t.Context(), r.store.PartitionOf("/a"), "/a", fsm.Deletion{}); err != nil {
			t.Fatal(err)
		}
		r.Hinted(fsm.Hint{Kind: fsm.HintRemoved, Path: "/a"})
		r.until("its loop has ended", func() bool { return r.loops() == 0 })
		r.forgottenForGood("/a")
	})
	t.Run("and what it was told of a stream that it still knows is told again", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Check, c.Resync = time.Hour, time.Hour }).start()
		r.idle("/a")
		r.up.append("/a", "seen and acked")
		r.done(r.wake("/a", 2))
		// The consumer has fallen back, while somebody else has noted the tail anew: an ack beyond it asks
		// upstream, and wakes nobody.
		r.store.fallBack("s", "/a")
		r.store.countLoss("/a")
		r.wake("/a", 3)
	})
	t.Run("by the replica that linked it, though another owns it", func(t *testing.T) {
		r := newRig(t)
		r.store.own()
		r.start()
		r.subscribe("s", "/**")
		r.put("/a")
		r.wake("/a", 1)
		r.until("it is linked", func() bool { return r.discovery.Linked("/a") })
		r.store.forgetStream("/a")
		r.store.countLoss("/a")
		r.wake("/a", 2)
	})
	t.Run("although a proxy says at first that there is no such stream", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.GoneGrace = time.Minute }).start()
		r.idle("/a")
		r.store.forgetStream("/a")
		r.up.setFault(answer(http.StatusNotFound))
		heads := r.up.count(r.up.heads, "/a")
		r.store.countLoss("/a")
		r.until("that was asked again and again", func() bool { return r.up.count(r.up.heads, "/a") > heads+6 })
		r.up.setFault(nil)
		r.wake("/a", 2)
	})
	t.Run("by a write, from its start to whoever was there before the loss", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Resync = time.Hour }).start()
		r.idle("/a")
		r.store.own()
		r.until("nobody watches it", func() bool { return r.loops() == 0 })
		r.store.forgetStream("/a")
		r.store.Ownership().CountLoss(r.store.PartitionOf("/a"))
		r.post("/a", "1")
		r.until("its consumer is woken from its start", func() bool {
			return slices.ContainsFunc(r.woken("/a")[1:],
				func(w fsm.Delivery) bool { return w.Streams[0].Acked == fsm.Start })
		})
	})
}

// atRest makes a rig with a stream whose consumer is idle at its tail. Nothing that was seen of the stream is left to
// deal with, because that may rightly link the stream anew. Neither records nor lists are read again.
func atRest(t *testing.T, path string) *rig {
	t.Helper()
	r := newRig(t, func(c *Config) { c.WatchEvery, c.Resync = time.Hour, time.Hour }).start()
	r.until("the records and the lists were read once", func() bool {
		return r.store.count("Backfills") > 1 && r.store.count("ScanStreams") >= testPartitions &&
			r.store.count("WatchedSince") >= testPartitions
	})
	r.subscribe("s", "/**")
	r.until("the backfill is over", func() bool { return r.discovery.Held()["backfills"] == 0 })
	r.appear(path)
	r.done(r.wake(path, 1))
	r.watchedLive(path)
	r.until("it is no longer in the queue", func() bool { return r.discovery.Held()["paths"] == 0 })
	return r
}

// forgottenForGood has losses of the store counted, and each time a stream written to that comes after: the one that
// was forgotten is not linked again.
func (r *rig) forgottenForGood(path string) {
	r.t.Helper()
	for range 4 {
		r.store.countLoss(path)
		r.put("/after")
		r.until("discovery has gone on",
			func() bool { return r.linkedNow("s", "/after") && r.discovery.Held()["paths"] == 0 })
	}
	if got := len(r.woken(path)); got != 1 || r.linkedNow("s", path) {
		r.t.Errorf("%d wakes", got)
	}
}

func TestAConsumerThatTheStoreHasLostOfAStreamThatItKnowsMissesNothing(t *testing.T) {
	linked := func(t *testing.T) (*rig, memstore.Snapshot) {
		r := newRig(t).start()
		r.put("/a", "before anybody subscribed")
		r.until("it is linked", func() bool { return r.discovery.Linked("/a") })
		sub := r.store.create(t, "s", "/**")
		before := r.store.db.Snapshot() // as if Redis had lost the link, and no more
		r.discovery.Subscribed(t.Context(), sub)
		r.until("it is linked", func() bool { return r.linkedNow("s", "/a") })
		return r, before
	}
	t.Run("it begins again where it began", func(t *testing.T) {
		r, before := linked(t)
		r.store.db.Restore(before)
		r.up.append("/a", "1")
		if w := r.wake("/a", 1); w.Streams[0].Acked != offsetOf(1) {
			t.Errorf("woken with %+v", w.Streams[0])
		}
	})
	t.Run("and when it is lost once more", func(t *testing.T) {
		r, before := linked(t)
		for range 2 {
			r.store.db.Restore(before)
			r.until("it is linked again", func() bool { return r.linkedNow("s", "/a") })
		}
		if got := r.acked("s", "/a"); got != offsetOf(1) {
			t.Errorf("it begins at %s", got)
		}
	})
	t.Run("one that has unsubscribed stays away where nothing was lost", func(t *testing.T) {
		r, _ := linked(t)
		r.store.remove(fsm.ConsumerID("s", "/a"))
		r.store.countLoss("/a")
		for range 3 {
			reads := r.store.count("ScanStreams")
			r.until("the records were scanned",
				func() bool { return r.store.count("ScanStreams") > reads+testPartitions })
		}
		if r.linkedNow("s", "/a") {
			t.Error("it is back")
		}
	})
}

func TestAWriteThroughATailerThatHasEndedIsLeftToTheOthers(t *testing.T) {
	r := newRig(t).start()
	r.subscribe("s", "/**")
	w := r.discovery.BeforeWrite(t.Context(), "/a", true)
	tail := r.up.create("/a", "first")
	r.stop()
	r.discovery.Written(w, tail, true)
	if !r.store.hinted(fsm.Hint{Kind: fsm.HintLook, Path: "/a"}) {
		t.Error("nobody was told")
	}
}

func TestAWriteThatTheStoreHasNotTakenByTheEndIsLeftToTheOthers(t *testing.T) {
	r := newRig(t).start()
	r.idle("/a")
	told := r.store.count("Observe")
	r.store.db.SetHooks(memstore.Hooks{Before: func(c memstore.Call) error {
		if c.Method == "Observe" {
			return fsm.ErrUnavailable
		}
		return nil
	}})
	r.post("/a", "1")
	r.until("the store was told in vain", func() bool { return r.store.count("Observe") > told })
	r.stop()
	if !r.store.hinted(fsm.Hint{Kind: fsm.HintLook, Path: "/a"}) {
		t.Error("nobody was told")
	}
}
