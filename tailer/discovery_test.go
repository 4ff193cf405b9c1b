package tailer

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"reveille/fsm"
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
	r.store.mu.Lock()
	r.store.lost = time.Now()
	r.store.mu.Unlock()
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

func TestPathsNoPatternCanMatchAreNotTracked(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Registry = "/__registry__" }).start()
	r.subscribe("s", "/**")
	for _, path := range []string{"/a*b", "/%2A", "/__registry__"} {
		r.BeforeWrite(t.Context(), path)
		r.Written(path, offsetOf(1), true)
		r.Refused(path)
		if err := r.Deleted(t.Context(), path); err != nil {
			t.Error(err)
		}
		if err := r.Name(t.Context(), []string{path}); err != nil {
			t.Error(err)
		}
		if known, awaited := r.store.knows(path); known || awaited || r.loops() != 0 {
			t.Errorf("%s is tracked", path)
		}
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
			r.BeforeWrite(t.Context(), "/a")
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
		r.BeforeWrite(t.Context(), path)
		if _, awaited := r.store.knows(path); !awaited {
			t.Fatalf("%s is not awaited", path)
		}
		r.Refused(path)
	}
	r.until("it is forgotten", func() bool { _, awaited := r.store.knows("/a/1"); return !awaited })
	if _, awaited := r.store.knows("/lit"); !awaited {
		t.Error("a stream that a literal pattern names was forgotten")
	}
}

func TestARefusedWriteDoesNotForgetAStreamThatAnotherReplicaWasTold(t *testing.T) {
	r := newRig(t).start()
	r.subscribe("s", "/a/*")
	if _, _, err := r.store.NoteKnown(t.Context(), "/a/1", true); err != nil { // as when it is named there
		t.Fatal(err)
	}
	r.BeforeWrite(t.Context(), "/a/1")
	r.Refused("/a/1")
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

func TestAWriteThatBeganBeforeItsStreamWasLinkedLeavesNothingBehind(t *testing.T) {
	r := newRig(t).start()
	r.put("/a", "old")
	r.until("it is linked", func() bool { return r.linked.Contains("/a") })
	if err := r.prepare(t.Context(), "/a", linked{}, false); err != nil { // as BeforeWrite a moment earlier
		t.Fatal(err)
	}
	r.Written("/a", r.up.append("/a", "old, too"), false)
	r.until("nobody asks for it", func() bool {
		r.awaited.mu.Lock()
		defer r.awaited.mu.Unlock()
		return len(r.awaited.byPath) == 0
	})
}

func TestARefusedWriteLeavesNothingBehindHere(t *testing.T) {
	r := newRig(t)
	r.store.own()
	r.start()
	if _, _, err := r.store.NoteKnown(t.Context(), "/a", true); err != nil { // by a write through another replica
		t.Fatal(err)
	}
	r.BeforeWrite(t.Context(), "/a")
	r.Refused("/a")
	r.until("it is awaited here no more", func() bool {
		r.awaited.mu.Lock()
		defer r.awaited.mu.Unlock()
		return len(r.awaited.byPath) == 0
	})
	if _, awaited := r.store.knows("/a"); !awaited {
		t.Error("it was forgotten, which is for the other replica to do")
	}
}

func TestAWriteThatOnlySeemedRefusedCounts(t *testing.T) {
	r := newRig(t).start()
	r.subscribe("s", "/**")
	r.BeforeWrite(t.Context(), "/a")
	r.up.create("/a", "1")
	r.Refused("/a")
	r.wake("/a", 1)
}

func TestAnUpstreamThatCannotBeAskedBeforeTheWriteCostsNoWake(t *testing.T) {
	r := newRig(t).start()
	r.subscribe("s", "/**")
	r.up.create("/a", "old")
	r.up.setFault(func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(500); return true })
	r.BeforeWrite(t.Context(), "/a")
	if _, awaited := r.store.knows("/a"); !awaited {
		t.Error("it is not awaited")
	}
	r.up.setFault(nil)
	r.Written("/a", r.up.append("/a", "new"), false)
	r.wake("/a", 1)
}

func TestASubscriptionMadeAtTheSameMomentMissesNoStream(t *testing.T) {
	// This replica has not heard of it. It is made right before the nth note of the stream in the store: the first comes before the
	// write, the second after.
	for n, want := range map[int32]fsm.Offset{1: fsm.Start, 2: offsetOf(1)} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := newRig(t)
			r.store.stale = true
			var notes atomic.Int32
			r.store.before = func(method string) {
				if method == "NoteKnown" && notes.Add(1) == n {
					if _, _, err := r.store.CreateSubscription(t.Context(), fsm.Subscription{ID: "s", Pattern: "/**"}); err != nil {
						t.Error(err)
					}
				}
			}
			r.start()
			r.put("/a", "1")
			r.until("it is linked", func() bool { return r.linkedNow("s", "/a") })
			if got := r.acked("s", "/a"); got != want {
				t.Errorf("it begins at %s, want %s", got, want)
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
	r.idle("/a")
	r.post("/a", "1")
	r.done(r.wake("/a", 2))
	r.up.remove("/a")
	if err := r.Deleted(t.Context(), "/a"); err != nil {
		t.Fatal(err)
	}
	if known, awaited := r.store.knows("/a"); r.linkedNow("s", "/a") || known || awaited {
		t.Error("it is still known")
	}
	r.put("/a", "1")
	if w := r.wake("/a", 3); w.Streams[0].Acked != fsm.Start {
		t.Errorf("woken with %+v", w.Streams[0])
	}
}

func TestAStreamMadeAnewWhileItsDeletionIsDealtWithKeepsItsConsumers(t *testing.T) {
	for _, pattern := range []string{"/**", "/a"} {
		t.Run(pattern, func(t *testing.T) { madeAnewWhileDeleted(t, pattern, nil) })
	}
	t.Run("and cannot be asked for", func(t *testing.T) { madeAnewWhileDeleted(t, "/**", answer(http.StatusForbidden)) })
}

func madeAnewWhileDeleted(t *testing.T, pattern string, fault func(http.ResponseWriter, *http.Request) bool) {
	r := newRig(t).start()
	r.subscribe("s", pattern)
	r.put("/a")
	r.done(r.wake("/a", 1))
	r.watchedLive("/a")
	r.up.remove("/a")
	var once sync.Once
	r.store.setBefore(func(method string) {
		if method == "Deleted" {
			once.Do(func() {
				r.put("/a", "new")
				r.until("it is linked", func() bool { known, awaited := r.store.knows("/a"); return known && !awaited })
				r.up.setFault(fault)
			})
		}
	})
	if err := r.Deleted(t.Context(), "/a"); err != nil {
		t.Fatal(err)
	}
	if fault == nil && !r.linkedNow("s", "/a") {
		t.Error("it has no consumer")
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
	r := newRig(t, func(c *Config) { c.Names = []string{"/set/here", "/set/later"} })
	r.up.create("/set/here", "1")
	if _, _, err := r.store.CreateSubscription(t.Context(), fsm.Subscription{ID: "s", Pattern: "/**"}); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.wake("/set/here", 1)
	r.up.create("/api/here", "1")
	if err := r.Name(t.Context(), []string{"/api/here", "/api/later"}); err != nil {
		t.Fatal(err)
	}
	r.wake("/api/here", 1)
	for _, path := range []string{"/set/later", "/api/later"} {
		r.up.create(path)
		if w := r.wake(path, 1); w.Streams[0].Acked != fsm.Start {
			t.Errorf("woken with %+v", w.Streams[0])
		}
	}
	if err := r.Forget(t.Context(), []string{"/api/here"}); err != nil {
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
		if _, _, err := r.store.CreateSubscription(t.Context(), fsm.Subscription{ID: "s", Pattern: "/a"}); err != nil {
			t.Fatal(err)
		}
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
		if err := r.Deleted(t.Context(), "/a"); err != nil {
			t.Fatal(err)
		}
		r.up.create("/a", "1")
		r.wake("/a", 2)
	})
}

func TestAWriteIsTakenInWhenTheStoreIsBack(t *testing.T) {
	r := newRig(t).start()
	r.subscribe("s", "/**")
	r.BeforeWrite(t.Context(), "/a")
	r.store.setDown(true)
	known := r.store.count("Known")
	r.Written("/a", r.up.create("/a", "1"), true)
	r.until("the store was told in vain", func() bool { return r.store.count("Known") >= known+writeTries })
	r.store.setDown(false)
	r.wake("/a", 1)
}

func TestAnEventFromWhileTheStoreWasAwayIsNotTakenForOneFromBeforeTheNextWrite(t *testing.T) {
	for name, during := range map[string]func(*rig){
		"when nothing could be asked": func(r *rig) { r.store.setDown(true) },
		"when nothing could be noted": func(r *rig) {
			r.store.setBefore(func(method string) { r.store.setDown(method == "NoteKnown" || method == "Link") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(c *Config) { c.AwaitMin, c.Check = time.Hour, time.Hour }).start()
			r.subscribe("s", "/**")
			during(r)
			links := r.store.count("Known")
			r.put("/a", "1")
			r.until("the store was told in vain", func() bool { return r.store.count("Known") > links+writeTries })
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
		// The other replica's write comes between the look into the store and the one at the stream.
		once.Do(func() {
			if _, _, err := r.store.NoteKnown(t.Context(), req.URL.Path, true); err != nil {
				t.Error(err)
			}
			r.up.create(req.URL.Path, "another's")
		})
		return false
	})
	r.post("/a", "new")
	if w := r.wake("/a", 1); w.Streams[0].Acked != fsm.Start {
		t.Errorf("woken with %+v", w.Streams[0])
	}
}

func TestARefusedWriteToAKnownStreamGivesANewSubscriptionNoOldEvents(t *testing.T) {
	for name, fail := range map[string]func(*rig){
		"when the stream server was down": func(r *rig) { r.up.setFault(answer(http.StatusForbidden)) },
		"when the store was away too": func(r *rig) {
			r.up.setFault(answer(http.StatusForbidden))
			r.store.setDown(true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(c *Config) {
				c.BackfillWait, c.BackoffMin, c.Check = time.Millisecond, time.Second, time.Second // the backfill comes after the awaited
			}).start()
			r.put("/a", "old")
			r.until("it is known", func() bool { known, _ := r.store.knows("/a"); return known })
			r.linked.Remove("/a") // the write comes to another replica
			r.up.setFault(answer(http.StatusForbidden))
			r.subscribe("s", "/**")
			fail(r)
			r.BeforeWrite(t.Context(), "/a")
			r.Refused("/a")
			r.store.setDown(false)
			r.up.setFault(nil)
			r.until("nothing is kept of the write", func() bool {
				r.awaited.mu.Lock()
				defer r.awaited.mu.Unlock()
				return r.awaited.byPath["/a"] == nil
			})
			r.until("it is linked", func() bool { return r.linkedNow("s", "/a") })
			if got := r.acked("s", "/a"); got != offsetOf(1) {
				t.Errorf("it begins at %s", got)
			}
		})
	}
}

func TestAWriteWhoseClientHasGoneMakesNoStreamAwaited(t *testing.T) {
	r := newRig(t).start()
	r.subscribe("s", "/**")
	r.up.create("/a", "old")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.BeforeWrite(ctx, "/a")
	r.Refused("/a")
	r.awaited.mu.Lock()
	defer r.awaited.mu.Unlock()
	if r.awaited.byPath["/a"] != nil {
		t.Error("it is")
	}
}

func TestAQueueThatIsFullLosesNoWrite(t *testing.T) {
	r := newRig(t)
	r.writes.ready = make(chan string) // no room at all
	r.start()
	r.subscribe("s", "/**")
	r.put("/a", "1")
	r.wake("/a", 1)
}

func TestWritesToOneStreamThatWaitTogetherBecomeOne(t *testing.T) {
	r := newRig(t)
	r.Written("/a", offsetOf(1), true)
	r.Written("/a", offsetOf(3), false)
	r.Written("/a", offsetOf(2), false)
	wr := r.writes.take("/a")
	if wr.tail != offsetOf(3) || !wr.created || len(r.writes.ready) != 1 {
		t.Errorf("got %+v", wr)
	}
}

func TestASubscriptionThatFollowsSeveralWritesBeginsAfterTheLast(t *testing.T) {
	for name, between := range map[string]func(r *rig) []write{
		"that wait together":             func(*rig) []write { return nil },
		"of which one is being taken in": func(r *rig) []write { return []write{r.writes.take("/a")} },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			create := func(id string) {
				if _, _, err := r.store.CreateSubscription(t.Context(), fsm.Subscription{ID: id, Pattern: "/**"}); err != nil {
					t.Fatal(err)
				}
			}
			r.put("/a")
			taken := between(r)
			r.post("/a", "1")
			create("middle")
			r.post("/a", "2")
			r.post("/a", "3")
			create("last")
			for _, wr := range append(taken, r.writes.take("/a")) {
				r.writes.do(t.Context(), "/a", wr)
				r.writes.done("/a")
			}
			if middle, last := r.acked("middle", "/a"), r.acked("last", "/a"); middle != offsetOf(1) || last != offsetOf(3) {
				t.Errorf("they begin at %s and %s, want %s and %s", middle, last, offsetOf(1), offsetOf(3))
			}
			if len(r.writes.ends) != 0 {
				t.Errorf("%d streams are kept in mind", len(r.writes.ends))
			}
		})
	}
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

func TestABadConfigurationIsRefused(t *testing.T) {
	r := newRig(t)
	for name, change := range map[string]func(*Config){
		"no upstream": func(c *Config) { c.UpstreamURL = nil },
		"mode":        func(c *Config) { c.Mode = "smoke" },
		"names":       func(c *Config) { c.Names = []string{"a"} },
		"registry":    func(c *Config) { c.Registry = "a" },
		"max live":    func(c *Config) { c.MaxLive = -1 },
		"store":       func(c *Config) { c.Store = nil },
	} {
		cfg := r.cfg
		cfg.Names = slices.Clone(cfg.Names)
		change(&cfg)
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
