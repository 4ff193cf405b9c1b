package tailer

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"reveille/fsm"
)

// closed creates a stream that was closed after one event, which its consumer has seen.
func (r *rig) closed(path string) {
	r.t.Helper()
	r.closedAfter(path, "last")
}

func (r *rig) closedAfter(path string, events ...string) {
	r.t.Helper()
	r.idle(path)
	r.closes(path, events...)
}

// closes closes an idle stream after some events, and waits until its watch is at rest.
func (r *rig) closes(path string, events ...string) {
	r.t.Helper()
	r.up.change(path, func(s *stream) { s.events, s.closed = append(s.events, events...), true })
	r.done(r.wake(path, 2))
	r.until("its watch is at rest", func() bool { return r.rests(path) })
}

func TestAClosedStreamCostsNothing(t *testing.T) {
	modes(t, func(t *testing.T, mode func(*Config)) {
		r := newRig(t, mode).start()
		r.closed("/a")
		time.Sleep(100 * time.Millisecond) // what was under way comes to its end
		heads, told := r.up.count(r.up.heads, "/a"), r.store.count("Observe")
		lists := r.store.count("WatchedSince")
		r.until("the lists were compared", func() bool { return r.store.count("WatchedSince") > lists+50 })
		if n := r.up.count(r.up.heads, "/a") - heads; n > 0 {
			t.Errorf("it was looked at %d times", n)
		}
		if n := r.store.count("Observe") - told; n > 0 {
			t.Errorf("the store was told %d times", n)
		}
	})
}

func TestTheDeletionOfAClosedStreamReachesAllItsConsumers(t *testing.T) {
	r := newRig(t).start()
	r.closed("/a")
	var other string
	for i := 0; other == ""; i++ {
		if p := fmt.Sprintf("/other/%d", i); r.store.PartitionOf(p) != r.store.PartitionOf("/a") {
			other = p
		}
	}
	r.put(other)
	r.done(r.wake(other, 1))
	r.store.subscribe(fsm.ConsumerID("s", other), "/a", offsetOf(1))
	r.discovery.Watch(other, []string{"/a"})
	r.until("the loop is over",
		func() bool { w, runs := r.watches.get("/a"); return !runs && len(w.partitions(false)) == 2 })
	r.up.remove("/a")
	if err := r.discovery.Deleted(t.Context(), "/a"); err != nil {
		t.Fatal(err)
	}
	r.up.create("/a", "new")
	r.wake(other, 2)
}

func TestAClosedStreamThatGoesAwayUnseenIsNoticed(t *testing.T) {
	r := newRig(t, func(c *Config) { c.ClosedCheck = 100 * time.Millisecond })
	r.store.setGrace(100 * time.Millisecond)
	r.start().closed("/a")
	looked := r.up.count(r.up.heads, "/a")
	r.until("it is looked at now and then", func() bool { return r.up.count(r.up.heads, "/a") > looked+2 })
	if len(r.woken("/a")) != 2 {
		t.Errorf("%d wakes", len(r.woken("/a")))
	}
	r.up.remove("/a")
	r.until("its consumer is removed", func() bool { return !r.linkedNow("s", "/a") })
}

func TestWhatIsLeftOfAClosedStreamGoesWithItsLastConsumer(t *testing.T) {
	r := newRig(t).start()
	r.closed("/a")
	r.store.remove(fsm.ConsumerID("s", "/a"))
	r.until("nothing is left", func() bool { w, _ := r.watches.get("/a"); return w == nil })
}

func TestAClosedStreamIsToldAgainToAStoreThatForgotIt(t *testing.T) {
	r := newRig(t).start()
	r.closed("/a")
	r.store.forget("/a", "s")
	r.wake("/a", 3)
}

// A hint may find a watch at rest that ran a moment ago: where Redis was restarted and consumers of two partitions read
// the stream, the second of them tells it so.
func TestAHintThatFindsAStreamAtRestHasItLookedAt(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Resync = time.Hour }).start()
	r.closed("/a")
	w, _ := r.watches.get("/a")
	heads := r.up.count(r.up.heads, "/a")
	w.step(&input{kind: inputRefresh, partition: everywhere})
	r.until("it is looked at", func() bool { return r.up.count(r.up.heads, "/a") > heads })
	r.until("it rests again", func() bool { return r.rests("/a") })
}

// A closed stream never gets an event, so whatever shows another end is another stream, however long it is.
func TestAStreamThatWasSeenClosedAndShowsAnotherEndIsAnotherOne(t *testing.T) {
	for name, anew := range map[string]struct {
		events int
		closed bool
	}{
		"open and shorter": {1, false}, "open and as long": {2, false}, "open and longer": {4, false},
		"closed and shorter": {1, true}, "closed and longer": {4, true},
	} {
		became := func(s *stream) {
			s.events, s.closed = slices.Repeat([]string{"new"}, anew.events), anew.closed
		}
		t.Run(name+", found by a look", func(t *testing.T) {
			r := newRig(t, func(c *Config) { c.ClosedCheck = 100 * time.Millisecond }).start()
			r.closedAfter("/a", "1", "2")
			old := len(r.woken("/a"))
			r.up.change("/a", became)
			if w := r.wake("/a", old+1); w.Streams[0].Acked != fsm.Start {
				t.Errorf("woken at %q", w.Streams[0].Acked)
			}
		})
		t.Run(name+", found by another replica", func(t *testing.T) {
			r := newRig(t, func(c *Config) { c.ClosedCheck = time.Hour }).start()
			r.closedAfter("/a", "1", "2")
			old := len(r.woken("/a"))
			r.up.change("/a", became)
			r.store.own()
			r.until("it watches nothing", func() bool { w, _ := r.watches.get("/a"); return w == nil })
			r.store.ownAll()
			if w := r.wake("/a", old+1); w.Streams[0].Acked != fsm.Start {
				t.Errorf("woken at %q", w.Streams[0].Acked)
			}
		})
	}
	for name, before := range map[string][]string{
		"shorter": nil, "as long": {"1"}, "longer": {"1", "2", "3"},
	} {
		t.Run(name+", and written to through a replica that does not watch it", func(t *testing.T) {
			r := newRig(t, func(c *Config) { c.ClosedCheck = time.Hour }).start()
			r.closedAfter("/a", "1", "2")
			r.store.own()
			r.until("it watches nothing", func() bool { w, _ := r.watches.get("/a"); return w == nil })
			r.up.change("/a", func(s *stream) { s.events, s.closed = before, false })
			r.post("/a", "4")
			look := fsm.Hint{Kind: fsm.HintWatch, Partition: r.store.PartitionOf("/a"), Path: "/a"}
			r.until("the one that does is told", func() bool { return r.store.hinted(look) })
		})
	}
}

func TestAClosedStreamThatIsNamedByItselfIsLookedAtMoreOften(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Check, c.ClosedCheck = 20*time.Millisecond, time.Hour }).start()
	r.subscribe("named", "/named")
	r.subscribe("all", "/x/*")
	for _, path := range []string{"/named", "/x/other"} {
		r.created(path)
		r.closes(path, "last")
	}
	other, named := r.up.count(r.up.heads, "/x/other"), r.up.count(r.up.heads, "/named")
	r.until("it is looked at", func() bool { return r.up.count(r.up.heads, "/named") > named+3 })
	if n := r.up.count(r.up.heads, "/x/other") - other; n > 1 {
		t.Errorf("the other one was looked at %d times", n)
	}
}
