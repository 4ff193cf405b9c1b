package tailer

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec/memstore"
)

func TestTheWakesOfARestartWhoseReplyIsLostAreDelivered(t *testing.T) {
	r := newRig(t).start()
	r.idle("/a")
	r.up.append("/a", "1", "2", "3")
	r.done(r.wake("/a", 2))
	r.watchedLive("/a")
	var lost atomic.Bool
	r.store.db.SetHooks(memstore.Hooks{After: func(c memstore.Call) error {
		if c.Method == "Restart" && lost.CompareAndSwap(false, true) {
			return fsm.ErrUnavailable
		}
		return nil
	}})
	r.up.create("/a", "new")
	r.wake("/a", 3)
}

func TestA404FromBeforeAnOutageOfTheStoreRemovesNobody(t *testing.T) {
	const grace = 300 * time.Millisecond
	r := newRig(t)
	r.store.setGrace(grace)
	r.start().idle("/a")
	r.up.append("/a", "1")
	r.done(r.wake("/a", 2))
	before, _ := r.store.consumer("s", "/a")
	var away atomic.Bool
	var refused atomic.Int32
	r.store.db.SetHooks(memstore.Hooks{Before: func(c memstore.Call) error {
		if away.Load() && c.Method == "Hide" {
			refused.Add(1)
			return fsm.ErrUnavailable
		}
		return nil
	}})
	r.up.setFault(answer(http.StatusNotFound))
	r.until("the consumer is hidden", func() bool { c, _ := r.store.consumer("s", "/a"); return !c.HiddenAt.IsZero() })
	away.Store(true)
	r.until("the store refuses to hide it still", func() bool { return refused.Load() > 0 })
	r.up.setFault(nil)
	began := time.Now()
	r.until("the grace is over", func() bool { return time.Since(began) > 2*grace })
	away.Store(false)
	r.until("the consumer is back", func() bool {
		c, ok := r.store.consumer("s", "/a")
		if !ok {
			t.Fatal("it was removed")
		}
		return c.HiddenAt.IsZero()
	})
	if c, _ := r.store.consumer("s", "/a"); c.Links["/a"].Acked != before.Links["/a"].Acked || c.Epoch != before.Epoch {
		t.Errorf("the consumer is %+v, was %+v", c, before)
	}
}

func TestATailFromBeforeADeletionIsNoneOfTheNewStream(t *testing.T) {
	r := newRig(t).start()
	r.idle("/a")
	r.up.append("/a", "1", "2", "3")
	r.done(r.wake("/a", 2))
	r.watchedLive("/a")
	var away atomic.Bool
	var refused atomic.Int32
	away.Store(true)
	r.store.db.SetHooks(memstore.Hooks{Before: func(c memstore.Call) error {
		if away.Load() && c.Method == "Observe" {
			refused.Add(1)
			return fsm.ErrUnavailable
		}
		return nil
	}})
	r.up.append("/a", "4")
	r.until("the store does not take the tail", func() bool { return refused.Load() > 0 })
	check := r.renewed("/a")
	away.Store(false)
	r.watchedLive("/a")
	check()
}

func TestTheTailOfAWriteFromBeforeADeletionIsNoneOfTheNewStream(t *testing.T) {
	r := newRig(t).start()
	r.idle("/a")
	w := r.discovery.BeforeWrite(t.Context(), "/a", false)
	tail := r.up.append("/a", "1", "2", "3")
	r.done(r.wake("/a", 2))
	check := r.renewed("/a")
	looked := r.up.count(r.up.heads, "/a")
	r.discovery.Written(w, tail, false) // its answer was on its way
	r.until("it was looked at", func() bool { return r.up.count(r.up.heads, "/a") > looked+3 })
	check()
}

func TestTheTailOfAWriteFromBeforeARestartIsNoneOfTheNewStream(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Check = time.Hour }).start()
	r.idle("/a")
	w := r.discovery.BeforeWrite(t.Context(), "/a", false)
	tail := r.up.append("/a", "1", "2", "3")
	r.done(r.wake("/a", 2))
	r.up.create("/a", "new") // past the gateway
	r.watches.Look("/a")
	r.done(r.wake("/a", 3))
	r.watchedLive("/a")
	if !r.store.hinted(fsm.Hint{Kind: fsm.HintForgotten, Path: "/a"}) {
		t.Error("the other replicas were not told")
	}
	looked := r.up.count(r.up.heads, "/a")
	r.discovery.Written(w, tail, false) // its answer was on its way
	r.until("it was looked at", func() bool { return r.up.count(r.up.heads, "/a") > looked })
	r.until("nothing is left to do", func() bool { return r.discovery.Held()["paths"] == 0 })
	c, _ := r.store.consumer("s", "/a")
	if now := c.Links["/a"].Tail; now != offsetOf(1) {
		t.Errorf("the tail noted is %s", now)
	}
}

// renewed deletes a stream and makes it anew through the gateway. Its new consumer, in its first wake, subscribes to
// another stream. check says whether it is still the same.
func (r *rig) renewed(path string) (check func()) {
	r.t.Helper()
	wakes := len(r.woken(path))
	r.up.remove(path)
	if err := r.discovery.Deleted(r.t.Context(), path); err != nil {
		r.t.Fatal(err)
	}
	r.put(path, "new")
	w := r.wake(path, wakes+1)
	r.store.subscribe(w.Consumer, "/b", fsm.Start)
	return func() {
		r.t.Helper()
		c, _ := r.store.consumer("s", path)
		if _, linked := c.Links["/b"]; !linked || c.Epoch != w.Epoch {
			r.t.Errorf("it started over: %+v", c)
		}
		if tail := c.Links[path].Tail; tail != offsetOf(1) {
			r.t.Errorf("the tail noted is %s", tail)
		}
	}
}

func TestAWriteThatTheStoreDidNotTakeOfAStreamThatItHasForgottenCounts(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Resync, c.Check = time.Hour, time.Hour }).start()
	r.up.set(func() { r.up.deaf = true })
	r.idle("/a")
	// It was taken for gone, and its consumer removed.
	r.store.remove(fsm.ConsumerID("s", "/a"))
	r.store.db.LoseStream("/a")
	r.watches.Look("/a")
	r.until("nobody watches it", func() bool { _, runs := r.watches.get("/a"); return !runs })
	var away atomic.Bool
	away.Store(true)
	r.store.db.SetHooks(memstore.Hooks{Before: func(memstore.Call) error {
		if away.Load() {
			return fsm.ErrUnavailable
		}
		return nil
	}})
	told := r.store.count("Observe")
	r.post("/a", "1")
	r.until("the store was told in vain", func() bool { return r.store.count("Observe") > told })
	away.Store(false)
	r.wake("/a", 2)
}
