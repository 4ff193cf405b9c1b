package tailer

import (
	"fmt"
	"testing"
	"time"

	"reveille/fsm"
)

// closed creates a stream that was closed after one event, which its consumer has seen.
func (r *rig) closed(path string) {
	r.t.Helper()
	r.idle(path)
	r.up.change(path, func(s *stream) { s.events, s.closed = append(s.events, "last"), true })
	r.done(r.wake(path, 2))
	r.until("the loop is over", func() bool { return r.running(path) == nil })
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
	r.Watch(other, []string{"/a"})
	r.until("the loop is over",
		func() bool { w, runs := r.watches.get("/a"); return !runs && len(w.partitions(false)) == 2 })
	r.up.remove("/a")
	if err := r.Deleted(t.Context(), "/a"); err != nil {
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
	r.until("it rests again", func() bool { return r.running("/a") == nil })
}
