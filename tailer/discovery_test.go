package tailer

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/tailer/discovery"
)

func (r *rig) acked(sub, path string) fsm.Offset {
	c, _ := r.store.consumer(sub, path)
	return c.Links[path].Acked
}

func (r *rig) linkedNow(sub, path string) bool {
	_, ok := r.store.consumer(sub, path)
	return ok
}

func TestD2ANewStreamWakesItsConsumerOnceBeforeTheFirstEvent(t *testing.T) {
	r := newRig(t).start()
	r.subscribe("s", "/**")
	r.put("/a")
	if w := r.wake("/a", 1); w.Streams[0].Acked != fsm.Start || w.Streams[0].Tail != offsetOf(0) {
		t.Errorf("woken with %+v", w.Streams[0])
	}
}

func TestD12AStreamFirstHeardOfThroughAnAppendIsLinkedAtTheTailBeforeIt(t *testing.T) {
	r := newRig(t).start()
	r.subscribe("s", "/**")
	before := r.up.create("/a", "old", "older")
	r.post("/a", "new")
	if w := r.wake("/a", 1); w.Streams[0].Acked != before || w.Streams[0].Tail != offsetOf(3) {
		t.Errorf("woken with %+v", w.Streams[0])
	}
}

func TestAStreamThatTheStoreMayHaveLostLatelyIsLinkedFromItsStart(t *testing.T) {
	r := newRig(t).start()
	r.subscribe("s", "/**")
	r.store.db.Restart()
	r.up.create("/a", "written through another replica, and acknowledged to its writer")
	r.post("/a", "new")
	if w := r.wake("/a", 1); w.Streams[0].Acked != fsm.Start {
		t.Errorf("woken with %+v", w.Streams[0])
	}
}

func TestAWriteToALinkedStreamIsOneCallOfTheStore(t *testing.T) {
	quiet := func(c *Config) { c.WatchEvery, c.Resync = time.Hour, time.Hour }
	r := newRig(t, quiet).start()
	r.subscribe("s", "/**")
	r.put("/a")
	r.done(r.wake("/a", 1))
	r.watchedLive("/a")
	r.up.set(func() { r.up.deaf = true })
	r.until("the store is at rest", func() bool {
		n := r.store.total()
		time.Sleep(30 * time.Millisecond)
		return r.store.total() == n
	})
	calls, observed := r.store.total(), r.store.count("Observe")
	r.post("/a", "1")
	r.wake("/a", 2)
	if all, n := r.store.total()-calls, r.store.count("Observe")-observed; all != 1 || n != 1 {
		t.Errorf("%d calls of the store, %d of them Observe", all, n)
	}
}

func TestTheRegistryStreamIsNotTracked(t *testing.T) {
	const path = "/__registry__"
	r := newRig(t, func(c *Config) { c.Discovery.Registry = path }).start()
	r.subscribe("s", "/**")
	w := r.discovery.BeforeWrite(t.Context(), path, true)
	r.discovery.Written(w, offsetOf(1), true)
	r.discovery.Refused(w)
	if err := r.discovery.Deleted(t.Context(), path); err != nil {
		t.Error(err)
	}
	if err := r.discovery.Name(t.Context(), []string{path}); err != nil {
		t.Error(err)
	}
	if known, awaited := r.store.knows(path); known || awaited || r.loops() != 0 {
		t.Error("it is tracked")
	}
}

func TestACrashAfterTheWriteLosesNoEvent(t *testing.T) {
	for name, before := range map[string][]string{"of a new stream": nil, "of a stream nobody had heard of": {"old"}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t).start()
			r.subscribe("s", "/**")
			if before != nil {
				r.up.create("/a", before...)
			}
			r.discovery.BeforeWrite(t.Context(), "/a", before == nil)
			r.stop()
			if before == nil {
				r.up.create("/a", "event")
			} else {
				r.up.append("/a", "event")
			}
			r.build()
			r.start()
			if w := r.wake("/a", 1); w.Streams[0].Tail != offsetOf(len(before)+1) {
				t.Errorf("woken with %+v", w.Streams[0])
			}
		})
	}
}

func TestARefusedWriteIsForgotten(t *testing.T) {
	r := newRig(t).start()
	r.subscribe("s", "/a/*")
	r.subscribe("literal", "/lit")
	for _, path := range []string{"/a/1", "/lit"} {
		w := r.discovery.BeforeWrite(t.Context(), path, true)
		if _, awaited := r.store.knows(path); !awaited {
			t.Fatalf("%s is not awaited", path)
		}
		r.discovery.Refused(w)
	}
	r.until("it is forgotten", func() bool { _, awaited := r.store.knows("/a/1"); return !awaited })
	if _, awaited := r.store.knows("/lit"); !awaited {
		t.Error("a stream that a literal pattern names was forgotten")
	}
}

func TestARefusedWriteDoesNotForgetAStreamThatSomebodyHasNamed(t *testing.T) {
	r := newRig(t).start()
	r.subscribe("s", "/a/*")
	if _, _, err := r.store.NoteStream(t.Context(), fsm.NewStream("/a/1", ""), time.Hour); err != nil {
		t.Fatal(err)
	}
	r.discovery.Refused(r.discovery.BeforeWrite(t.Context(), "/a/1", true))
	looks := r.up.count(r.up.heads, "/a/1")
	r.until("it is asked for", func() bool { return r.up.count(r.up.heads, "/a/1") > looks+3 })
	if _, awaited := r.store.knows("/a/1"); !awaited {
		t.Fatal("it was forgotten")
	}
	r.up.create("/a/1", "1")
	if w := r.wake("/a/1", 1); w.Streams[0].Acked != fsm.Start {
		t.Errorf("its first event is missed: woken with %+v", w.Streams[0])
	}
}

func TestAWriteThatTakesLongKeepsItsStreamAwaited(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.GoneGrace, c.Discovery.WriteFor = 10*time.Millisecond, 100*time.Millisecond
	}).start()
	r.subscribe("s", "/**")
	w := r.discovery.BeforeWrite(t.Context(), "/a", true)
	looks := r.up.count(r.up.heads, "/a")
	r.until("it is asked for", func() bool { return r.up.count(r.up.heads, "/a") > looks+5 })
	if _, awaited := r.store.knows("/a"); !awaited {
		t.Fatal("it was forgotten")
	}
	r.discovery.Refused(w)
	r.until("it is forgotten", func() bool { _, awaited := r.store.knows("/a"); return !awaited })
}

func TestAWriteThatOnlySeemedRefusedCounts(t *testing.T) {
	r := newRig(t).start()
	r.subscribe("s", "/**")
	w := r.discovery.BeforeWrite(t.Context(), "/a", true)
	r.up.create("/a", "1")
	r.discovery.Refused(w)
	r.wake("/a", 1)
}

func TestAnUpstreamThatCannotBeAskedBeforeTheWriteCostsNoWake(t *testing.T) {
	r := newRig(t).start()
	r.subscribe("s", "/**")
	r.up.create("/a", "old")
	r.up.setFault(func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(500); return true })
	w := r.discovery.BeforeWrite(t.Context(), "/a", false)
	if _, awaited := r.store.knows("/a"); !awaited {
		t.Error("it is not awaited")
	}
	r.up.setFault(nil)
	r.discovery.Written(w, r.up.append("/a", "new"), false)
	r.wake("/a", 1)
}

func TestASubscriptionMadeAtTheSameMomentMissesNoStream(t *testing.T) {
	// This replica has not heard of it. It is made right before a call of the store: the first comes before the write,
	// the others after; what it would miss is never more than what was there before it.
	for _, before := range []string{"NoteStream", "Version", "LinkStream"} {
		t.Run(before, func(t *testing.T) {
			r := newRig(t)
			r.store.SetStale(true)
			var once sync.Once
			r.store.setBefore(func(method string) {
				if method == before {
					once.Do(func() { r.store.create(t, "s", "/**") })
				}
			})
			r.start()
			r.put("/a", "1")
			r.until("it is linked", func() bool {
				if err := r.store.RefreshCatalog(t.Context()); err != nil {
					t.Error(err)
				}
				return r.linkedNow("s", "/a")
			})
			if got := r.acked("s", "/a"); before == "NoteStream" && got != fsm.Start || got.After(offsetOf(1)) {
				t.Errorf("it begins at %s", got)
			}
			r.post("/a", "2")
			r.wake("/a", 1)
		})
	}
}

func TestAnExistingStreamIsNotWokenByTheSubscriptionThatFollowsItsWrite(t *testing.T) {
	for i := range 20 {
		r := newRig(t).start()
		r.put("/a", "1")
		r.subscribe("s", "/**")
		r.until("the stream has its consumer", func() bool { return r.linkedNow("s", "/a") })
		if got := r.acked("s", "/a"); got != offsetOf(1) {
			t.Fatalf("try %d: it begins at %s", i, got)
		}
		r.post("/a", "2")
		r.wake("/a", 1)
		r.stop()
	}
}

func TestADeletedStreamIsForgottenAndMayComeBack(t *testing.T) {
	r := newRig(t).start()
	r.store.setGrace(300 * time.Millisecond) // for so long the name is awaited
	r.idle("/a")
	r.post("/a", "1")
	r.done(r.wake("/a", 2))
	r.up.remove("/a")
	if err := r.discovery.Deleted(t.Context(), "/a"); err != nil {
		t.Fatal(err)
	}
	if r.linkedNow("s", "/a") {
		t.Error("its consumer is still there")
	}
	r.nothingKept("/a")
	r.put("/a", "1")
	if w := r.wake("/a", 3); w.Streams[0].Acked != fsm.Start {
		t.Errorf("woken with %+v", w.Streams[0])
	}
}

func TestAStreamMadeAnewWhileItsDeletionIsDealtWithKeepsItsConsumers(t *testing.T) {
	for _, pattern := range []string{"/**", "/a"} {
		t.Run(pattern, func(t *testing.T) { madeAnewWhileDeleted(t, pattern, nil) })
	}
	t.Run("and cannot be asked "+
		"for", func(t *testing.T) { madeAnewWhileDeleted(t, "/**", answer(http.StatusForbidden)) })
}

func madeAnewWhileDeleted(t *testing.T, pattern string, fault func(http.ResponseWriter, *http.Request) bool) {
	r := newRig(t).start()
	r.subscribe("s", pattern)
	r.put("/a")
	r.done(r.wake("/a", 1))
	r.watchedLive("/a")
	r.up.remove("/a")
	var begun atomic.Bool
	r.store.setBefore(func(method string) {
		if method == "Deleted" && begun.CompareAndSwap(false, true) {
			r.put("/a", "new") // which deletes the one before, too
			r.until("it is linked", func() bool { known, awaited := r.store.knows("/a"); return known && !awaited })
			r.up.setFault(fault)
		}
	})
	if err := r.discovery.Deleted(t.Context(), "/a"); err != nil {
		t.Fatal(err)
	}
	r.up.setFault(nil)
	r.until("it has a consumer", func() bool { return r.linkedNow("s", "/a") })
	if got := r.acked("s", "/a"); got != fsm.Start {
		t.Errorf("it begins at %s", got)
	}
}

func TestAStreamDeletedAndMadeAnewUnseenStartsOver(t *testing.T) {
	r := newRig(t).start()
	r.idle("/a")
	r.up.append("/a", "1", "2", "3")
	r.done(r.wake("/a", 2))
	r.put("/a", "x")
	if w := r.wake("/a", 3); w.Streams[0].Acked != fsm.Start || w.Streams[0].Tail != offsetOf(1) {
		t.Errorf("woken with %+v", w.Streams[0])
	}
}

func TestNamedStreams(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Discovery.Names = []string{"/set/here", "/set/later"} })
	r.up.create("/set/here", "1")
	r.store.create(t, "s", "/**")
	r.start()
	r.wake("/set/here", 1)
	r.up.create("/api/here", "1")
	if err := r.discovery.Name(t.Context(), []string{"/api/here", "/api/later"}); err != nil {
		t.Fatal(err)
	}
	r.wake("/api/here", 1)
	for _, path := range []string{"/set/later", "/api/later"} {
		r.up.create(path)
		if w := r.wake(path, 1); w.Streams[0].Acked != fsm.Start {
			t.Errorf("woken with %+v", w.Streams[0])
		}
	}
	if err := r.discovery.Forget(t.Context(), []string{"/api/here"}); err != nil {
		t.Fatal(err)
	}
	if known, _ := r.store.knows("/api/here"); known || r.linkedNow("s", "/api/here") {
		t.Error("it was not forgotten")
	}
}

func TestALiteralPatternNamesItself(t *testing.T) {
	t.Run("a stream that exists begins at its tail", func(t *testing.T) {
		r := newRig(t).start()
		r.up.create("/a", "1")
		r.subscribe("s", "/a")
		if got := r.acked("s", "/a"); got != offsetOf(1) {
			t.Errorf("it begins at %s", got)
		}
		r.watchedLive("/a")
		r.up.append("/a", "2")
		r.wake("/a", 1)
	})
	t.Run("a missing one is awaited and begins at Start", func(t *testing.T) {
		r := newRig(t).start()
		r.subscribe("s", "/a")
		r.up.create("/a", "1")
		if w := r.wake("/a", 1); w.Streams[0].Acked != fsm.Start {
			t.Errorf("woken with %+v", w.Streams[0])
		}
	})
	t.Run("made through a replica that died", func(t *testing.T) {
		r := newRig(t).start()
		r.store.create(t, "s", "/a")
		r.until("it is awaited", func() bool { _, awaited := r.store.knows("/a"); return awaited })
		r.up.create("/a", "1")
		r.wake("/a", 1)
	})
	t.Run("again after a deletion", func(t *testing.T) {
		r := newRig(t).start()
		r.subscribe("s", "/a")
		r.put("/a")
		r.wake("/a", 1)
		r.up.remove("/a")
		if err := r.discovery.Deleted(t.Context(), "/a"); err != nil {
			t.Fatal(err)
		}
		r.up.create("/a", "1")
		r.wake("/a", 2)
	})
}

func TestAWriteIsTakenInWhenTheStoreIsBack(t *testing.T) {
	r := newRig(t).start()
	r.subscribe("s", "/**")
	w := r.discovery.BeforeWrite(t.Context(), "/a", true)
	r.store.setDown(true)
	reads := r.store.count("Stream")
	r.discovery.Written(w, r.up.create("/a", "1"), true)
	r.until("the store was told in vain", func() bool { return r.store.count("Stream") > reads+2 })
	r.store.setDown(false)
	r.wake("/a", 1)
}

func TestAnEventFromWhileTheStoreWasAwayIsNotTakenForOneFromBeforeTheNextWrite(t *testing.T) {
	for name, during := range map[string]func(*rig){
		"when nothing could be asked": func(r *rig) { r.store.setDown(true) },
		"when nothing could be noted": func(r *rig) {
			r.store.setBefore(func(method string) { r.store.setDown(method == "NoteStream" || method == "LinkStream") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(c *Config) { c.Discovery.AwaitMin, c.Check = time.Hour, time.Hour }).start()
			r.subscribe("s", "/**")
			during(r)
			reads := r.store.count("Stream")
			r.put("/a", "1")
			r.until("the store was told in vain", func() bool { return r.store.count("Stream") > reads+2 })
			r.store.setBefore(nil)
			r.store.setDown(false)
			r.post("/a", "2")
			if w := r.wake("/a", 1); w.Streams[0].Acked != fsm.Start {
				t.Errorf("woken with %+v", w.Streams[0])
			}
		})
	}
}

func TestWhatAHeadShowsOfAnothersWriteIsNotTakenForOneFromBefore(t *testing.T) {
	r := newRig(t).start()
	r.subscribe("s", "/**")
	var once sync.Once
	r.up.setFault(func(_ http.ResponseWriter, req *http.Request) bool {
		if req.URL.Path != "/a" {
			return false
		}
		// The other replica's write comes between the look into the store and the one at the stream.
		once.Do(func() {
			r.store.note(t, req.URL.Path)
			r.up.create(req.URL.Path, "another's")
		})
		return false
	})
	r.post("/a", "new")
	if w := r.wake("/a", 1); w.Streams[0].Acked != fsm.Start {
		t.Errorf("woken with %+v", w.Streams[0])
	}
}

func TestARefusedWriteToAStreamOnRecordGivesANewSubscriptionNoOldEvents(t *testing.T) {
	for name, fail := range map[string]func(*rig){
		"when the stream server was down": func(r *rig) { r.up.setFault(answer(http.StatusForbidden)) },
		"when the store was away too": func(r *rig) {
			r.up.setFault(answer(http.StatusForbidden))
			r.store.setDown(true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(c *Config) { c.Discovery.BackfillWait = time.Millisecond }).start()
			r.put("/a", "old")
			r.until("it is linked", func() bool { return r.discovery.Linked("/a") })
			r.up.setFault(answer(http.StatusForbidden))
			r.subscribe("s", "/**")
			fail(r)
			r.discovery.Refused(r.discovery.BeforeWrite(t.Context(), "/a", false))
			r.store.setDown(false)
			r.up.setFault(nil)
			r.until("it is linked", func() bool { return r.linkedNow("s", "/a") })
			if got := r.acked("s", "/a"); got != offsetOf(1) {
				t.Errorf("it begins at %s", got)
			}
		})
	}
}

func TestAWriteWhoseClientHasGoneMakesNoStreamAwaited(t *testing.T) {
	r := newRig(t).start()
	r.subscribe("s", "/**") // a stream that is there would become known: a refused write has it looked at
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.discovery.Refused(r.discovery.BeforeWrite(ctx, "/a", true))
	if known, awaited := r.store.knows("/a"); known || awaited || r.discovery.Held()["writes"] != 0 {
		t.Error("it is")
	}
}

func TestAQueueThatIsFullLosesNoWrite(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Discovery.Max = 1 }).start()
	r.subscribe("s", "/**")
	r.up.setFault(answer(http.StatusForbidden))
	r.discovery.Enqueue("/b", discovery.Evidence{}) // it stays there
	r.put("/a", "1")
	r.up.setFault(nil)
	r.wake("/a", 1)
}

func TestAConsumerThatUnsubscribedIsNotBroughtBack(t *testing.T) {
	r := newRig(t).start()
	r.idle("/a")
	r.store.remove(fsm.ConsumerID("s", "/a"))
	r.post("/a", "1")
	r.put("/b")
	r.wake("/b", 1)
	if r.linkedNow("s", "/a") {
		t.Error("it is back")
	}
	r.subscribe("other", "/**")
	r.post("/a", "2")
	r.until("the new subscription has its consumer", func() bool { return r.linkedNow("other", "/a") })
	if r.linkedNow("s", "/a") {
		t.Error("it is back")
	}
}

func TestAWriteThatGotNoAnswerIsLookedForAtOnce(t *testing.T) {
	for name, create := range map[string]bool{"an append": false, "a PUT": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(c *Config) { c.Resync, c.Check = time.Hour, time.Hour })
			r.store.create(t, "s", "/**")
			r.start()
			r.put("/b") // by then nothing else is left to look for
			r.wake("/b", 1)
			r.up.create("/a", "old")
			w := r.discovery.BeforeWrite(t.Context(), "/a", create)
			r.up.append("/a", "new")
			r.discovery.Refused(w)
			if got := r.wake("/a", 1).Streams[0].Acked; got != offsetOf(1) {
				t.Errorf("woken at %q", got)
			}
		})
	}
}

// A worker may subscribe its consumer to a stream that is yet to be made. What it reads of that later counts.
func TestTheFirstStreamOfANameReplacesNone(t *testing.T) {
	r := newRig(t).start()
	r.idle("/a")
	r.store.subscribe(fsm.ConsumerID("s", "/a"), "/child", fsm.Start)
	r.discovery.Watch("/a", []string{"/child"})
	r.until("it is asked for", func() bool { return r.up.count(r.up.heads, "/child") > 0 })
	r.put("/child", "1")
	r.wake("/child", 1)
	if c, _ := r.store.consumer("s", "/a"); c.Links["/child"].Since != 0 {
		t.Errorf("its consumer started over: %+v", c)
	}
}
