package tailer

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"reveille/fsm"
	"reveille/test/harness"
)

func TestAfterALongOutageAStreamIsLookedAtWithinTheCheck(t *testing.T) {
	r := newRig(t, func(c *Config) { c.BackoffMin = 10 * time.Second }).start()
	r.idle("/a")
	failed := r.up.count(r.up.heads, "/a")
	r.up.setFault(func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) })
	r.up.CloseClientConnections()
	r.until("upstream has failed", func() bool { return r.up.count(r.up.heads, "/a") > failed+3 })
	r.up.setFault(nil)
	r.up.append("/a", "1")
	r.wake("/a", 2)
}

func TestAnUpstreamThatNobodyCanConnectToIsDownForOneStreamToo(t *testing.T) {
	r := newRig(t)
	root := &url.URL{Scheme: "http", Host: fmt.Sprint("127.0.0.1:", harness.FreePort(t))}
	serve := func() *http.Server {
		ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", root.Host)
		if err != nil {
			t.Fatal(err)
		}
		s := &http.Server{Handler: r.up, ReadHeaderTimeout: time.Minute}
		go func() { _ = s.Serve(ln) }()
		return s
	}
	first := serve()
	r.build(func(c *Config) { c.Upstream.URL = root })
	r.start().idle("/a")
	_ = first.Close()
	r.until("upstream counts as down", r.upstream.health.IsDown)
	back := serve()
	t.Cleanup(func() { r.stop(); _ = back.Close() })
	r.up.append("/a", "1")
	r.wake("/a", 2)
	r.until("upstream counts as up", func() bool { return !r.upstream.health.IsDown() })
}

// A server that is shutting down takes no connections, and answers who waits: it stays down until another is there.
func TestAnUpstreamThatShutsDownAnswersAgainOnlyOnceItTakesConnections(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	r := newRig(t)
	root := &url.URL{Scheme: "http", Host: fmt.Sprint("127.0.0.1:", harness.FreePort(t))}
	serve := func() *http.Server {
		ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", root.Host)
		if err != nil {
			t.Fatal(err)
		}
		s := &http.Server{Handler: r.up, ReadHeaderTimeout: time.Minute}
		go func() { _ = s.Serve(ln) }()
		return s
	}
	first := serve()
	r.build(func(c *Config) { c.Upstream.URL, c.Logger = root, zap.New(core) })
	r.start()
	r.subscribe("s", "/**")
	paths := []string{"/a", "/b", "/c"}
	for _, path := range paths {
		r.created(path)
	}
	ended := make(chan error, 1)
	go func() { ended <- first.Shutdown(t.Context()) }()
	r.until("upstream counts as down", r.upstream.health.IsDown)
	for _, path := range paths {
		r.up.append(path, "1")
		r.wake(path, 2)
	}
	if err := <-ended; err != nil { // all are answered
		t.Fatal(err)
	}
	again := func() int { return logs.FilterMessage("upstream answers again").Len() }
	if n := again(); n != 0 {
		t.Errorf("while it takes no connections, it answered again %d times", n)
	}
	back := serve()
	t.Cleanup(func() { r.stop(); _ = back.Close() })
	r.until("upstream counts as up", func() bool { return !r.upstream.health.IsDown() })
	if n := again(); n != 1 {
		t.Errorf("it answered again %d times, want once", n)
	}
}

func TestARefusedWriteIsForgottenOnceUpstreamCanBeAsked(t *testing.T) {
	for name, pattern := range map[string]string{"somebody is subscribed": "/**", "nobody is": "/other"} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t).start()
			r.subscribe("s", pattern)
			r.up.setFault(answer(http.StatusInternalServerError))
			w := r.discovery.BeforeWrite(t.Context(), "/a", true)
			heads := r.up.count(r.up.heads, "/a")
			r.discovery.Refused(w)
			r.until("upstream was asked", func() bool { return r.up.count(r.up.heads, "/a") >= heads+4 })
			r.up.setFault(nil)
			r.until("it is forgotten", func() bool { _, awaited := r.store.knows("/a"); return !awaited })
			r.until("nothing is kept of it", func() bool { return r.discovery.Held()["writes"] == 0 })
		})
	}
}

func TestAWriteFromAnOutageThatNobodyIsSubscribedToLeavesNothingBehind(t *testing.T) {
	r := newRig(t).start()
	r.subscribe("s", "/other/*")
	r.store.setDown(true)
	reads := r.store.count("Stream")
	r.put("/a", "1")
	r.until("the store was told in vain", func() bool { return r.store.count("Stream") > reads+2 })
	r.store.setDown(false)
	r.until("it is known", func() bool { known, _ := r.store.knows("/a"); return known })
	r.until("nothing is kept of it", func() bool { return r.discovery.Held()["writes"] == 0 })
}

func TestAWriteWhoseAnswerHasNoOffsetCounts(t *testing.T) {
	r := newRig(t).start()
	r.subscribe("s", "/other")
	w := r.discovery.BeforeWrite(t.Context(), "/a", true)
	r.up.create("/a", "1")
	r.discovery.Written(w, "", true)
	r.until("it is known", func() bool { known, _ := r.store.knows("/a"); return known })
}

func answer(status int) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(status); return true }
}

func TestAStreamThatSeemsGoneDuringABackfillIsLinkedAllTheSame(t *testing.T) {
	r := newRig(t, func(c *Config) { c.GoneGrace, c.Discovery.BackfillWait = time.Minute, 10*time.Millisecond }).start()
	r.put("/a", "1")
	r.until("it is known", func() bool { known, _ := r.store.knows("/a"); return known })
	r.up.setFault(answer(http.StatusNotFound))
	heads := r.up.count(r.up.heads, "/a")
	r.subscribe("s", "/**")
	r.until("it was asked for", func() bool { return r.up.count(r.up.heads, "/a") > heads })
	r.up.setFault(nil)
	r.until("it is linked", func() bool { return r.linkedNow("s", "/a") })
	r.up.append("/a", "2")
	r.wake("/a", 1)
}

func TestAWordAfterAnOutageCostsABackfillNoStream(t *testing.T) {
	for name, c := range map[string]struct {
		pattern string // of somebody who is subscribed already
		words   int32
	}{
		"nobody watches the stream":   {"/other", 1},
		"somebody watches the stream": {"/**", 6},
	} {
		t.Run(name, func(t *testing.T) {
			const grace = 50 * time.Millisecond
			r := newRig(t, func(c *Config) { c.GoneGrace, c.Discovery.BackfillWait = grace, time.Millisecond }).start()
			r.subscribe("other", c.pattern)
			r.put("/a", "1")
			r.until("it is known", func() bool { known, _ := r.store.knows("/a"); return known })
			began := time.Now()
			var words atomic.Int32
			r.up.setFault(func(w http.ResponseWriter, _ *http.Request) bool {
				switch {
				case time.Since(began) < 5*grace:
					w.WriteHeader(http.StatusBadGateway)
				case words.Add(1) <= c.words:
					w.WriteHeader(http.StatusNotFound)
				default:
					return false
				}
				return true
			})
			r.subscribe("s", "/**")
			r.until("it is linked", func() bool { return r.linkedNow("s", "/a") })
		})
	}
}

func TestAWordAfterAnOutageCostsNoStreamThatIsInDoubt(t *testing.T) {
	const outage = 250 * time.Millisecond
	r := newRig(t, func(c *Config) { c.GoneGrace = time.Minute }).start()
	began := time.Now()
	var words atomic.Int32
	r.up.setFault(func(w http.ResponseWriter, _ *http.Request) bool {
		switch {
		case time.Since(began) < outage:
			w.WriteHeader(http.StatusForbidden) // it is not repeated at once
		case words.Add(1) <= 2:
			w.WriteHeader(http.StatusNotFound)
		default:
			return false
		}
		return true
	})
	r.up.create("/a", "1")
	r.subscribe("s", "/**")
	r.discovery.Confirm("/a")
	r.wake("/a", 1)
}

func TestAStreamThatStaysAwayIsForgottenByABackfill(t *testing.T) {
	r := newRig(t, func(c *Config) { c.GoneGrace = 50 * time.Millisecond }).start()
	r.put("/a", "1")
	r.until("it is known", func() bool { known, _ := r.store.knows("/a"); return known })
	r.up.remove("/a")
	r.subscribe("s", "/**")
	r.until("the backfill is over", func() bool { b, _ := r.store.Backfills(t.Context()); return len(b) == 0 })
	if known, awaited := r.store.knows("/a"); known || awaited {
		t.Error("it is still on record")
	}
}

func TestABackfillEndsThoughAStreamThatIsGoneIsWatchedForAnotherPrimary(t *testing.T) {
	t.Run("in another partition", func(t *testing.T) { goneButWatched(t, false) })
	t.Run("in its own partition", func(t *testing.T) { goneButWatched(t, true) })
}

func goneButWatched(t *testing.T, home bool) {
	r := newRig(t, func(c *Config) {
		c.GoneGrace, c.Discovery.BackfillWait = 50*time.Millisecond, time.Millisecond
	}).start()
	r.subscribe("other", "/other")
	r.put("/other")
	r.put("/a", "1")
	r.until("they are known", func() bool {
		a, _ := r.store.knows("/a")
		other, _ := r.store.knows("/other")
		return a && other && r.linkedNow("other", "/other")
	})
	// By a callback.
	var path string
	for i := 0; path == ""; i++ {
		if p := fmt.Sprintf("/a/%d", i); home == (r.store.PartitionOf(p) == r.store.PartitionOf("/other")) {
			path = p
		}
	}
	r.put(path, "1")
	r.until("it is known", func() bool { known, _ := r.store.knows(path); return known })
	r.store.subscribe(fsm.ConsumerID("other", "/other"), path, offsetOf(1))
	r.discovery.Watch("/other", []string{path})
	r.watchedLive(path)
	r.up.remove(path)
	r.subscribe("s", "/a/*")
	r.until("the backfill is over", func() bool { b, _ := r.store.Backfills(t.Context()); return len(b) == 0 })
	// Should it come back it is a new stream.
	r.up.create(path, "new")
	r.wake(path, 1)
}

func TestAnUpstreamThatContradictsItselfIsNotStormed(t *testing.T) {
	r := newRig(t).start()
	r.idle("/a")
	// Every other answer comes from a server that does not have the stream. The first one is that of a check.
	var n atomic.Int32
	away := func(n int32) bool { return n == 1 || n%2 == 0 }
	r.up.setFault(func(w http.ResponseWriter, req *http.Request) bool {
		if req.Method == http.MethodHead && away(n.Add(1)) {
			w.WriteHeader(http.StatusNotFound)
			return true
		}
		return false
	})
	began := r.up.count(r.up.heads, "/a")
	time.Sleep(500 * time.Millisecond) // what is counted is a rate
	if heads := r.up.count(r.up.heads, "/a") - began; heads > 60 {
		t.Errorf("%d HEADs in half a second", heads)
	}
}

func TestTheGraceIsOverOnlyAfterUpstreamSaidGoneForAllOfIt(t *testing.T) {
	const grace = 300 * time.Millisecond
	r := newRig(t)
	r.store.setGrace(grace)
	r.start().idle("/a")
	answer := func(status int) {
		r.up.set(func() {
			r.up.fault = func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(status); return true }
		})
	}
	answer(http.StatusNotFound)
	r.until("the consumer is hidden", func() bool { c, _ := r.store.consumer("s", "/a"); return !c.HiddenAt.IsZero() })
	first, _ := r.store.consumer("s", "/a")
	answer(http.StatusBadGateway)
	asked := r.up.count(r.up.heads, "/a")
	r.until("the grace would be over", func() bool {
		return time.Since(first.HiddenAt) > 2*grace && r.up.count(r.up.heads, "/a") > asked+2
	})
	answer(http.StatusNotFound)
	r.until("it is said again that the stream is gone", func() bool {
		c, ok := r.store.consumer("s", "/a")
		if !ok {
			t.Fatal("removed by a word after an outage")
		}
		return c.HiddenAt.After(first.HiddenAt)
	})
	r.until("the consumer is removed", func() bool { _, ok := r.store.consumer("s", "/a"); return !ok })
}

func TestAStreamThatIsAwayHoldsNoLiveSlot(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxLive = 1 }).start()
	r.idle("/a")
	r.up.remove("/a")
	r.until("the consumer is hidden", func() bool { c, _ := r.store.consumer("s", "/a"); return !c.HiddenAt.IsZero() })
	r.put("/b")
	r.done(r.wake("/b", 1))
	r.watchedLive("/b")
}

func TestATailToldWhileNobodyWasSubscribedIsToldAgain(t *testing.T) {
	r := newRig(t)
	w := newWatch(r.Tailer, "/a")
	w.step(&input{kind: inputAdded})
	asked := w.moment()
	// The store had nobody for the tail, and somebody subscribes at an older one before its answer is here.
	w.step(&input{kind: inputAdded})
	w.step(&input{kind: inputObserved, observed: observed{since: asked, tail: offsetOf(2), busy: true}})
	if !w.machine.untold() || w.machine.busy() {
		t.Error("what was told to nobody counts as told")
	}
}

func TestWhatWasNotedOfADeletedStreamIsNoneOfTheNewOnes(t *testing.T) {
	r := newRig(t)
	w := newWatch(r.Tailer, "/a")
	w.step(&input{kind: inputAdded})
	old := input{
		kind:     inputObserved,
		observed: observed{since: w.moment(), tail: offsetOf(2), noted: fsm.Noted{Tail: offsetOf(2)}, watched: true},
	}
	w.step(&old)
	if got := w.machine.part(0).noted; got.Tail != offsetOf(2) {
		t.Fatalf("noted is %v", got)
	}
	w.step(&input{kind: inputDeleted})
	w.step(&old) // its answer was on its way
	if got := w.machine.part(0).noted; got.Tail != "" {
		t.Errorf("noted is %v", got)
	}
}

func TestAWriteToAStreamThatTheStoreHasLostCounts(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Resync, c.Check = time.Hour, time.Hour }).start()
	r.up.set(func() { r.up.deaf = true })
	r.idle("/a")
	// The store comes back from a copy from before the stream was made.
	r.store.remove(fsm.ConsumerID("s", "/a"))
	r.store.db.LoseStream("/a")
	r.post("/a", "1")
	r.wake("/a", 2)
}

func TestAListOfSubscriptionsThatWentBackIsLookedAtAnew(t *testing.T) {
	r := newRig(t).start()
	before := r.store.db.Snapshot()
	r.subscribe("other", "/other")
	r.subscribe("another", "/other")
	r.put("/a")
	r.until("it is remembered", func() bool { return r.discovery.Linked("/a") })
	// The store comes back from a copy from before the subscriptions and the stream.
	r.store.db.Lose(before)
	if err := r.store.RefreshCatalog(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.subscribe("s", "/**")
	r.post("/a", "1")
	r.wake("/a", 1)
}

func TestALiveRequestThatOutlivedAnOutageIsMadeAnew(t *testing.T) {
	r := newRig(t).start()
	r.idle("/a")
	gets, heads := r.up.count(r.up.gets, "/a"), r.up.count(r.up.heads, "/a")
	r.up.setFault(func(w http.ResponseWriter, req *http.Request) bool {
		if req.Method == http.MethodHead {
			w.WriteHeader(http.StatusBadGateway)
			return true
		}
		return false
	})
	r.until("HEADs have failed", func() bool { return r.up.count(r.up.heads, "/a") > heads+4 })
	if n := r.up.count(r.up.gets, "/a"); n != gets {
		t.Errorf("%d reads while upstream failed", n-gets)
	}
	r.up.setFault(nil)
	r.until("the live request is made anew", func() bool { return r.up.count(r.up.gets, "/a") > gets })
	r.watchedLive("/a")
}

// However many streams wait for their turn when upstream goes down, those that are under way then are the last.
func TestThoseThatWaitedForTheirTurnDoNotAskAnUpstreamThatIsDown(t *testing.T) {
	r := newRig(t,
		func(c *Config) {
			c.Upstream.HeadTimeout, c.BackoffMin, c.Check = 100*time.Millisecond, time.Minute, time.Minute
		})
	var asked atomic.Int32
	r.up.setFault(func(_ http.ResponseWriter, req *http.Request) bool {
		asked.Add(1)
		<-req.Context().Done()
		return true
	})
	ctx, cancel := context.WithCancel(t.Context())
	var looks sync.WaitGroup
	const bound = 2 // what a limiter begins with
	for n := range 768 {
		looks.Go(func() { _, _ = r.upstream.look(ctx, fmt.Sprint("/", n), true, r.upstream.Head) })
	}
	r.until("upstream counts as down", r.upstream.health.IsDown)
	r.until("those under way are over", func() bool { return r.upstream.limiter.InUse() == 0 })
	if n := asked.Load(); n > 3*bound {
		t.Errorf("%d streams were asked for, want about %d", n, bound)
	}
	cancel()
	looks.Wait()
	r.upstream.Close()
}

// The 201 of a PUT says that the stream is another one, however long it is; 200 says that it is the one that it was.
func TestAStreamMadeAnewThroughTheGatewayStartsOverHoweverLongItIs(t *testing.T) {
	for name, events := range map[string][]string{
		"it is empty":        nil,
		"shorter":            {"1"},
		"as long as it was":  {"1", "2"},
		"longer than it was": {"1", "2", "3", "4"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(c *Config) { c.Check = time.Hour }).start()
			r.up.set(func() { r.up.deaf = true })
			r.idle("/a")
			r.post("/a", "1", "2")
			r.done(r.wake("/a", 2))
			r.until("it is at rest", func() bool {
				c, _ := r.store.consumer("s", "/a")
				return c.State == fsm.Idle && c.Links["/a"].Acked == offsetOf(2)
			})
			old := len(r.woken("/a"))
			w := r.discovery.BeforeWrite(t.Context(), "/a", true)
			r.discovery.Written(w, offsetOf(2), false)
			if n := len(r.woken("/a")); n != old {
				t.Errorf("%d wakes for a PUT that changes nothing", n-old)
			}
			r.up.remove("/a")
			w = r.discovery.BeforeWrite(t.Context(), "/a", true)
			r.discovery.Written(w, r.up.create("/a", events...), true)
			last := r.wake("/a", old+1)
			if last.Streams[0].Acked != fsm.Start {
				t.Errorf("woken at %q", last.Streams[0].Acked)
			}
			// An answer that comes late, or twice, is of a stream that is no more.
			r.discovery.Written(w, offsetOf(len(events)), true)
			r.done(last)
			r.post("/a", "5")
			if next := r.wake("/a", old+2); next.Streams[0].Acked != offsetOf(len(events)) {
				t.Errorf("the next wake begins at %q", next.Streams[0].Acked)
			}
		})
	}
}

func TestAStreamIsNotTakenForGoneForTheGraceWhileUpstreamShowsOthersAgain(t *testing.T) {
	const grace = 300 * time.Millisecond
	// which bounds how long it takes until it is seen that upstream wavers
	r := newRig(t, func(c *Config) { c.Check = grace / 6 })
	r.store.setGrace(grace)
	r.start().idle("/a")
	r.put("/b")
	r.done(r.wake("/b", 1))
	r.watchedLive("/b")
	var b atomic.Bool // whether "/b" is shown
	r.up.setFault(func(w http.ResponseWriter, req *http.Request) bool {
		if req.URL.Path == "/b" && b.Load() {
			return false
		}
		w.WriteHeader(http.StatusNotFound)
		return true
	})
	r.up.CloseClientConnections()
	hidden := func(path string) bool { c, _ := r.store.consumer("s", path); return !c.HiddenAt.IsZero() }
	began := time.Now()
	for time.Since(began) < 4*grace {
		b.Store(false)
		r.until("the other is away", func() bool { return hidden("/b") })
		b.Store(true)
		r.until("the other is back", func() bool { return !hidden("/b") })
		r.up.CloseClientConnections()
		if _, ok := r.store.consumer("s", "/a"); !ok {
			t.Fatalf("removed after %s, although upstream goes back and forth", time.Since(began))
		}
	}
	r.until("it is removed once upstream stays with it",
		func() bool { _, ok := r.store.consumer("s", "/a"); return !ok })
}
