package tailer

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/tailer/upstream"
)

// watchedBy has the ways to watch streams.
var watchedBy = []string{upstream.TailLongPoll, upstream.TailSSE, upstream.TailAuto}

func modes(t *testing.T, f func(t *testing.T, mode func(*Config))) {
	for _, m := range watchedBy {
		t.Run(m, func(t *testing.T) { f(t, func(c *Config) { c.Upstream.TailMode = m }) })
	}
}

func TestAnAppendWakesAnIdleConsumer(t *testing.T) {
	modes(t, func(t *testing.T, mode func(*Config)) {
		r := newRig(t, mode).start()
		r.idle("/a")
		tail := r.up.append("/a", "1")
		w := r.wake("/a", 2)
		if w.Streams[0].Tail != tail {
			t.Errorf("woken with tail %s, want %s", w.Streams[0].Tail, tail)
		}
	})
}

func TestASilentRequestIsCheckedWithHEAD(t *testing.T) {
	modes(t, func(t *testing.T, mode func(*Config)) {
		r := newRig(t, mode).start()
		r.idle("/a")
		r.up.set(func() { r.up.deaf = true })
		r.up.append("/a", "1")
		r.wake("/a", 2)
	})
}

func TestAnAnswerThatIsLostStillLeadsToAWake(t *testing.T) {
	r := newRig(t).start()
	r.idle("/a")
	r.up.set(func() { r.up.deaf = true })
	r.up.append("/a", "1")
	r.up.setFault(func(w http.ResponseWriter, req *http.Request) bool {
		if req.Method == http.MethodGet {
			panic(http.ErrAbortHandler)
		}
		return false
	})
	r.wake("/a", 2)
}

func TestA204WithoutAnOffsetKeepsTheTail(t *testing.T) {
	r := newRig(t)
	r.up.hold, r.up.bare = 20*time.Millisecond, true
	r.start()
	r.idle("/a")
	n := r.up.count(r.up.gets, "/a")
	r.until("long-polls go on", func() bool { return r.up.count(r.up.gets, "/a") > n+3 })
	r.up.append("/a", "1")
	r.wake("/a", 2)
	if n := r.store.count("Restart"); n != 0 {
		t.Errorf("%d restarts", n)
	}
}

func TestTheBodyOfAnAnswerIsNotWaitedFor(t *testing.T) {
	r := newRig(t).start()
	r.idle("/a")
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	tail := offsetOf(1)
	r.up.setFault(func(w http.ResponseWriter, req *http.Request) bool {
		if req.Method == http.MethodHead || req.URL.Path != "/a" {
			return false
		}
		w.Header().Set(upstream.HeaderNextOffset, string(tail))
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		select {
		case <-release:
		case <-req.Context().Done():
		}
		return true
	})
	r.up.set(func() { r.up.hold = 0 })
	r.up.append("/a", "1")
	r.wake("/a", 2)
}

func TestJunkFromUpstreamIsNeverStored(t *testing.T) {
	for _, junk := range []string{"now", "-1", "a,b", "a b", strings.Repeat("9", 300)} {
		t.Run(junk[:min(len(junk), 5)], func(t *testing.T) {
			r := newRig(t).start()
			r.idle("/a")
			var junked atomic.Int32
			r.up.setFault(func(w http.ResponseWriter, req *http.Request) bool {
				w.Header().Set(upstream.HeaderNextOffset, junk)
				junked.Add(1)
				return true
			})
			r.up.append("/a", "1")
			r.until("upstream has given junk", func() bool { return junked.Load() > 3 })
			if c, _ := r.store.consumer("s", "/a"); c.Links["/a"].Tail == fsm.Offset(junk) {
				t.Error("junk was stored")
			}
			r.up.setFault(nil)
			r.up.append("/a", "2")
			r.until("the true tail is known", func() bool {
				c, _ := r.store.consumer("s", "/a")
				return c.Links["/a"].Tail == offsetOf(2)
			})
		})
	}
}

func TestServerErrorsSayNothingAboutAStream(t *testing.T) {
	for name, fault := range map[string]func(http.ResponseWriter, *http.Request) bool{
		"500 for everything": func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(500); return true },
		"503 with a long Retry-After": func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		},
		"200 without an offset": func(http.ResponseWriter, *http.Request) bool { return true },
		"cut connections":       func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) },
		"hanging": func(_ http.ResponseWriter, r *http.Request) bool {
			<-r.Context().Done()
			return true
		},
		"redirects": func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, "/b", http.StatusFound)
			return true
		},
		"500 for reads, HEAD fine": func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodHead {
				return false
			}
			w.WriteHeader(500)
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t).start()
			r.idle("/a")
			var seen atomic.Int32
			r.up.setFault(func(w http.ResponseWriter, req *http.Request) bool {
				seen.Add(1)
				return fault(w, req)
			})
			r.up.append("/a", "1")
			r.until("upstream has failed", func() bool { return seen.Load() >= 3 })
			if r.store.count("Hide") != 0 {
				t.Error("the consumer was hidden")
			}
			r.up.setFault(nil)
			r.wake("/a", 2)
		})
	}
}

func TestA404ForEverythingHidesAndTheConsumersCarryOn(t *testing.T) {
	r := newRig(t).start()
	r.idle("/a")
	r.up.append("/a", "1")
	r.done(r.wake("/a", 2))
	before, _ := r.store.consumer("s", "/a")
	r.up.setFault(func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(404); return true })
	r.until("the consumer is hidden", func() bool { c, _ := r.store.consumer("s", "/a"); return !c.HiddenAt.IsZero() })
	r.up.setFault(nil)
	r.until("the consumer is back",
		func() bool { c, ok := r.store.consumer("s", "/a"); return ok && c.HiddenAt.IsZero() })
	if c, _ := r.store.consumer("s", "/a"); c.Links["/a"].Acked != before.Links["/a"].Acked || c.Epoch != before.Epoch {
		t.Errorf("the consumer is %+v, was %+v", c, before)
	}
	r.up.append("/a", "2")
	r.wake("/a", 3)
}

func TestADeletedStreamHidesItsConsumersAtOnce(t *testing.T) {
	modes(t, func(t *testing.T, mode func(*Config)) {
		r := newRig(t, mode).start()
		r.idle("/a")
		r.up.remove("/a")
		r.until("the consumer is hidden",
			func() bool { c, _ := r.store.consumer("s", "/a"); return !c.HiddenAt.IsZero() })
		r.store.remove(fsm.ConsumerID("s", "/a"))
		r.until("the loop is over", func() bool { return r.running("/a") == nil })
		r.until("the stream is forgotten",
			func() bool { known, awaited := r.store.knows("/a"); return !known && !awaited })
	})
}

func TestAStreamOfWhichMoreCanBeReadThanItsHeadSaysIsTheSame(t *testing.T) {
	modes(t, func(t *testing.T, mode func(*Config)) {
		r := newRig(t, mode).start()
		r.idle("/a")
		r.up.append("/a", "1", "2")
		w := r.wake("/a", 2)
		r.until("the tail is noted",
			func() bool { c, _ := r.store.consumer("s", "/a"); return c.Links["/a"].Tail == offsetOf(2) })
		r.up.setFault(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodHead {
				return false
			}
			w.Header().Set(upstream.HeaderNextOffset, string(offsetOf(1)))
			return true
		})
		heads := r.up.count(r.up.heads, "/a")
		r.until("HEAD has said so again and again", func() bool { return r.up.count(r.up.heads, "/a") > heads+6 })
		r.done(w)
		if c, _ := r.store.consumer("s", "/a"); c.Links["/a"].Acked == fsm.Start || c.Epoch != w.Epoch &&
			len(r.woken("/a")) > 3 {
			t.Errorf("the consumer has started over: %+v", c)
		}
		if n := r.store.count("Restart"); n != 0 {
			t.Errorf("it was taken for a new stream %d times", n)
		}
		r.up.append("/a", "3")
		r.until("what comes next is seen",
			func() bool { c, _ := r.store.consumer("s", "/a"); return c.Links["/a"].Tail == offsetOf(3) })
	})
}

func TestAStreamWhoseEndIsShownOnlyToThoseBehindItIsTheSame(t *testing.T) {
	r := newRig(t).start()
	r.idle("/a")
	r.up.append("/a", "1", "2")
	w := r.wake("/a", 2)
	r.until("the tail is noted",
		func() bool { c, _ := r.store.consumer("s", "/a"); return c.Links["/a"].Tail == offsetOf(2) })
	// As the reference server is after an append that it refused though it had written it.
	r.up.setFault(func(w http.ResponseWriter, r *http.Request) bool {
		from := fsm.Offset(r.URL.Query().Get("offset"))
		switch {
		case r.Method == http.MethodGet && from == fsm.Start: // it does not give all of it at once
			w.Header().Set(upstream.HeaderNextOffset, string(offsetOf(0)))
			return true
		case r.Method == http.MethodGet && offsetOf(1).After(from):
			return false
		}
		w.Header().Set(upstream.HeaderNextOffset, string(offsetOf(1)))
		w.Header().Set(upstream.HeaderUpToDate, "true")
		return true
	})
	r.up.CloseClientConnections()
	heads := r.up.count(r.up.heads, "/a")
	r.until("HEAD has said so again and again", func() bool { return r.up.count(r.up.heads, "/a") > heads+6 })
	if n := r.store.count("Restart"); n != 0 {
		t.Errorf("it was taken for a new stream %d times", n)
	}
	r.done(w)
	r.up.setFault(nil)
	r.up.append("/a", "3")
	r.wake("/a", 3)
}

func TestATailThatMovedBackIsANewStreamUnderAnOldName(t *testing.T) {
	r := newRig(t).start()
	r.idle("/a")
	r.up.append("/a", "1", "2", "3")
	r.done(r.wake("/a", 2))
	r.watchedLive("/a")
	r.up.create("/a", "new")
	w := r.wake("/a", 3)
	if w.Streams[0].Acked != fsm.Start || w.Streams[0].Tail != offsetOf(1) {
		t.Errorf("woken with %+v", w.Streams[0])
	}
	if w.Epoch <= r.woken("/a")[1].Epoch {
		t.Error("the epoch went back")
	}
}

func TestATailBehindTheOneNotedIsConfirmedFirst(t *testing.T) {
	r := newRig(t).start()
	r.idle("/a")
	r.up.append("/a", "1", "2")
	r.done(r.wake("/a", 2))
	// A cache in between gives an old answer now and then.
	var n atomic.Int32
	r.up.setFault(func(w http.ResponseWriter, req *http.Request) bool {
		if req.Method == http.MethodHead && n.Add(1)%2 == 1 {
			w.Header().Set(upstream.HeaderNextOffset, string(offsetOf(1)))
			return true
		}
		return false
	})
	r.until("old answers came", func() bool { return n.Load() >= 6 })
	if got := r.store.count("Restart"); got != 0 {
		t.Errorf("%d restarts", got)
	}
}

func TestAStreamWithATTLIsOnlyEverHEADed(t *testing.T) {
	r := newRig(t).start()
	r.subscribe("s", "/**")
	r.up.create("/a")
	r.up.change("/a", func(s *stream) { s.ttl = true })
	if err := r.discovery.Name(t.Context(), []string{"/a"}); err != nil {
		t.Fatal(err)
	}
	r.done(r.wake("/a", 1))
	for n := 2; n < 5; n++ {
		r.up.append("/a", "1")
		r.done(r.wake("/a", n))
	}
	if n := r.up.count(r.up.gets, "/a"); n != 0 {
		t.Errorf("%d GETs", n)
	}
}

func TestAClosedStreamAtItsEndIsNotWatchedAnyMore(t *testing.T) {
	modes(t, func(t *testing.T, mode func(*Config)) {
		r := newRig(t, mode, func(c *Config) { c.Resync = time.Hour }).start()
		r.idle("/a")
		tail := r.up.change("/a", func(s *stream) { s.events, s.closed = append(s.events, "last"), true })
		if w := r.wake("/a", 2); w.Streams[0].Tail != tail {
			t.Errorf("woken with %+v", w.Streams[0])
		}
		r.until("the loop is over", func() bool { return r.running("/a") == nil })
		// The store still lists it as watched.
		if err := r.watches.readNew(t.Context(), r.store.PartitionOf("/a"), &reading{}); err != nil {
			t.Fatal(err)
		}
		if r.running("/a") != nil {
			t.Error("watched again")
		}
	})
}

func TestAStreamThatWasAwayForACallbackAloneIsShownAgain(t *testing.T) {
	hide := func(r *rig) {
		t.Helper()
		o, err := r.store.Hide(t.Context(), "/a", fsm.Missing)
		if err != nil || len(o.Hidden) == 0 {
			t.Fatalf("hide: %+v, %v", o, err)
		}
		r.cfg.Outcomes.Follow(o, fsm.Sighting{})
		r.until("the consumer is shown",
			func() bool { c, ok := r.store.consumer("s", "/a"); return ok && c.HiddenAt.IsZero() })
	}
	t.Run("by the loop that missed it", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Check, c.Resync = time.Hour, time.Hour }).start()
		r.idle("/a")
		hide(r)
	})
	t.Run("by a new loop if the stream is closed", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Check, c.Resync = time.Hour, time.Hour }).start()
		r.idle("/a")
		r.up.change("/a", func(s *stream) { s.closed = true })
		r.until("the loop is over", func() bool { return r.running("/a") == nil })
		hide(r)
	})
}

func TestABusyStreamIsPacedAndSkippedAhead(t *testing.T) {
	modes(t, func(t *testing.T, mode func(*Config)) {
		r := newRig(t, mode).start()
		r.idle("/a")
		r.up.append("/a", "1")
		w := r.wake("/a", 2)
		const tokens = 400
		began := time.Now()
		writes, reads := r.store.count("Observe"), r.up.count(r.up.gets, "/a")
		for i := range tokens {
			r.up.append("/a", fmt.Sprint(i))
			time.Sleep(time.Millisecond) // the pace of the stream, not of the test
		}
		few := 20 + 2*int(time.Since(began)/r.cfg.PaceMax)
		if n := r.store.count("Observe") - writes; n > few {
			t.Errorf("%d events cost %d writes to the store", tokens, n)
		}
		if n := r.up.count(r.up.gets, "/a") - reads; n > few {
			t.Errorf("%d events cost %d reads", tokens, n)
		}
		r.done(w)
		r.wake("/a", 3)
	})
}

func TestAConsumerThatComesToRestEndsThePause(t *testing.T) {
	r := newRig(t, func(c *Config) { c.PaceMin, c.PaceMax, c.Check = time.Hour, 2*time.Hour, time.Hour }).start()
	r.subscribe("s", "/**")
	r.put("/a")
	first := r.wake("/a", 1)
	r.watchedLive("/a")
	r.up.append("/a", "1")
	r.until("the loop pauses", func() bool { return r.running("/a").looksAfterPause() })
	r.up.append("/a", "2")
	r.done(first)
	r.until("the consumer is woken for what came in the pause", func() bool {
		c, _ := r.store.consumer("s", "/a")
		return c.Epoch >= 2 && c.Links["/a"].Tail == offsetOf(2)
	})
}

func TestAStreamNobodyIsSubscribedToIsForgotten(t *testing.T) {
	r := newRig(t).start()
	r.idle("/a")
	r.store.remove(fsm.ConsumerID("s", "/a"))
	r.until("the loop is over", func() bool { return r.running("/a") == nil })
}

func TestAStreamIsWatchedFromSeveralPartitions(t *testing.T) {
	r := newRig(t).start()
	r.idle("/a")
	id := fsm.ConsumerID("s", "/a")
	var other string
	for i := 0; other == ""; i++ {
		if p := fmt.Sprintf("/other/%d", i); r.store.PartitionOf(p) != r.store.PartitionOf("/a") {
			other = p
		}
	}
	// The stream does not exist yet: a lazy subscription.
	r.store.subscribe(id, other, fsm.Start)
	r.discovery.Watch("/a", []string{other})
	r.until("the stream is asked for", func() bool { return r.up.count(r.up.heads, other) > 2 })
	tail := r.up.create(other, "1")
	w := r.wake("/a", 2)
	if w.Streams[1].Path != other || w.Streams[1].Tail != tail {
		t.Errorf("woken with %+v", w.Streams)
	}
	r.done(w)
	r.watchedLive(other)
	r.post(other, "2")
	r.wake("/a", 3)
}

func TestAStoreThatIsAwayLosesNoEvent(t *testing.T) {
	r := newRig(t).start()
	r.idle("/a")
	r.store.setDown(true)
	calls := r.store.count("Observe")
	r.up.append("/a", "1")
	r.until("the store was told", func() bool { return r.store.count("Observe") > calls })
	r.store.setDown(false)
	r.wake("/a", 2)
}

func TestAStoreThatForgotATailIsToldAgain(t *testing.T) {
	r := newRig(t).start()
	r.idle("/a")
	r.up.append("/a", "1")
	r.done(r.wake("/a", 2))
	r.watchedLive("/a")
	r.store.forget("/a", "s")
	r.wake("/a", 3)
}

func TestOneBrokenStreamSlowsNoOther(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Upstream.HeadTimeout = 30 * time.Second }).start()
	r.idle("/a")
	r.put("/broken")
	r.done(r.wake("/broken", 1))
	r.watchedLive("/broken")
	var broken atomic.Int32
	r.up.setFault(func(_ http.ResponseWriter, req *http.Request) bool {
		if req.URL.Path == "/broken" {
			broken.Add(1)
			panic(http.ErrAbortHandler)
		}
		return false
	})
	r.up.CloseClientConnections()
	r.up.append("/broken", "1")
	for n := 2; n < 20; n++ {
		r.up.append("/a", "1")
		r.done(r.wake("/a", n))
	}
	r.until("the broken stream failed", func() bool { return broken.Load() > 5 })
	if r.upstream.health.IsDown() {
		t.Error("one broken stream counts as a broken upstream")
	}
	if n := len(r.woken("/broken")); n != 1 {
		t.Errorf("nothing is to be seen of the broken stream, and it was woken for %d times", n)
	}
	r.up.setFault(nil)
	r.wake("/broken", 2)
}

func TestAtMostMaxLiveRequestsAndTheOthersAreSwept(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxLive, c.Check = 2, 50*time.Millisecond }).start()
	r.subscribe("s", "/**")
	const streams = 6
	path := func(i int) string { return fmt.Sprintf("/a/%d", i) }
	for i := range streams {
		r.put(path(i))
		r.done(r.wake(path(i), 1))
	}
	for round := 2; round < 4; round++ {
		for i := range streams {
			r.up.append(path(i), "1")
			r.done(r.wake(path(i), round))
		}
	}
	// Displaced requests may still be on their way out.
	r.until("no more than that are left", func() bool {
		all := 0
		for i := range streams {
			all += r.up.waiters(path(i))
		}
		return all == 2
	})
	// The stream that showed an event last has taken a slot.
	r.watchedLive(path(streams - 1))
}

func TestAStreamOfWhichAConsumerHasComeToRestIsWatchedLiveThoughOthersWereBefore(t *testing.T) {
	for name, prompt := range map[string]bool{"at once": true, "later": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(c *Config) {
				c.MaxLive, c.SweepRate = 1, 1
				c.Check, c.WatchEvery, c.Resync = time.Hour, time.Hour, time.Hour
			})
			if prompt {
				r.prompt = r.done
			}
			r.start()
			r.subscribe("s", "/**")
			for _, path := range []string{"/a", "/b", "/c"} {
				r.appear(path)
				if w := r.wake(path, 1); !prompt {
					r.done(w)
				}
				r.watchedLive(path)
			}
			r.up.append("/c", "straight")
			r.wake("/c", 2)
		})
	}
}

func TestStreamsThatAreLookedAtOutOfTurnCostTheOthersNoTurn(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxLive, c.SweepRate = 1, 10 }).start()
	r.subscribe("s", "/**")
	paths := []string{"/a", "/b", "/c", "/d"}
	for _, path := range paths {
		r.appear(path)
		r.done(r.wake(path, 1))
		r.watchedLive(path)
	}
	for range 40 {
		for _, path := range paths[:3] { // the last one has the slot
			looked := r.up.count(r.up.heads, path)
			r.running(path).step(&input{kind: inputLook})
			r.until("it is looked at", func() bool { return r.up.count(r.up.heads, path) > looked })
		}
	}
	every := time.Second / time.Duration(r.cfg.SweepRate)
	if ahead, most := r.sweep.Turn(), time.Duration(len(paths))*every; ahead > most {
		t.Errorf("the next turn comes in %s, want %s at most", ahead, most)
	}
}

func TestAnUpstreamThatIsDownIsAskedByOneProbeAtATime(t *testing.T) {
	r := newRig(t).start()
	r.subscribe("s", "/**")
	const streams = 30
	path := func(i int) string { return fmt.Sprintf("/a/%d", i) }
	for i := range streams {
		r.put(path(i))
		r.done(r.wake(path(i), 1))
		r.watchedLive(path(i))
	}
	r.up.setFault(func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) })
	r.up.CloseClientConnections()
	r.until("upstream counts as down", r.upstream.health.IsDown)
	// Those that were on their way at that moment come to an end; from then on there is one at a time.
	r.until("only one asks", func() bool { return r.upstream.limiter.InUse() <= 1 })
	var now, most, all atomic.Int32
	r.up.setFault(func(_ http.ResponseWriter, req *http.Request) bool {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		all.Add(1)
		panic(http.ErrAbortHandler)
	})
	r.until("probes are made", func() bool { return all.Load() >= 4 })
	if most.Load() > 2 {
		t.Errorf("%d requests at a time", most.Load())
	}
	for i := range streams {
		r.up.append(path(i), "1")
	}
	r.up.setFault(nil)
	for i := range streams {
		r.wake(path(i), 2)
	}
}
