package tailer

import (
	"sync/atomic"
	"testing"
	"time"
)

func TestAnEventThatTheGatewayAndALiveRequestSeeIsToldOnce(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Check = c.Silence }).start()
	r.subscribe("s", "/**")
	r.up.create("/a") // behind the gateway's back: it has nothing left to tell
	if err := r.discovery.Name(t.Context(), []string{"/a"}); err != nil {
		t.Fatal(err)
	}
	r.watchedLive("/a")
	var calls atomic.Int32
	release := make(chan struct{})
	r.store.setBefore(func(method string) {
		if method == "Observe" {
			calls.Add(1)
			<-release
		}
	})
	r.post("/a", "1")
	r.until("both have seen it", func() bool { return r.up.waiters("/a") == 0 && calls.Load() > 0 })
	close(release)
	r.wake("/a", 1)
	r.watchedLive("/a")
	if n := calls.Load(); n != 1 {
		t.Errorf("the store was told %d times", n)
	}
}

func TestAnEventThatTheGatewayCouldNotTellIsToldByTheLoop(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Check = c.Silence }).start()
	r.idle("/a")
	w := r.running("/a")
	home := r.store.PartitionOf("/a")
	// the loop is at its call, or has made it
	tail := r.up.change("/a", func(s *stream) { s.events = append(s.events, "0") })
	r.done(r.wake("/a", 2))
	r.watchedLive("/a")
	// The gateway's call is under way when the live request shows the next event, and fails after that.
	if told, _ := w.told(home); !offsetOf(2).After(told) {
		t.Fatalf("nothing to tell beyond %s", tail)
	}
	w.telling <- struct{}{}
	r.up.append("/a", "1")
	r.until("the live request is answered", func() bool { return r.up.waiters("/a") == 0 })
	if n := len(r.woken("/a")); n != 2 {
		t.Fatalf("%d wakes before the call was over", n)
	}
	<-w.telling
	r.wake("/a", 3)
}

func TestTheGatewayTellsWhatTheLoopHasFoundNobodyWatching(t *testing.T) {
	r := newRig(t)
	w := newWatch(r.Tailer, "/a")
	w.step(&input{kind: inputAdded})
	w.telling <- struct{}{}
	told := make(chan bool)
	go func() {
		mine, err := w.takeTurn(t.Context(), 0, offsetOf(1), time.After(gatewayPatience))
		if err != nil {
			t.Error(err)
		}
		told <- mine
	}()
	w.step(&input{kind: inputDisowned}) // as when the store says that nobody watches
	<-w.telling
	if !<-told {
		t.Error("the write was left to a loop that is over")
	}
}

func TestTheGatewayHasAStreamLookedAtWhoseLoopCannotTell(t *testing.T) {
	r := newRig(t)
	w := newWatch(r.Tailer, "/a")
	w.step(&input{kind: inputAdded})
	w.telling <- struct{}{}
	mine, err := w.takeTurn(t.Context(), 0, offsetOf(2), time.After(gatewayPatience))
	if mine || err != nil {
		t.Errorf("it was told twice, or failed: %v", err)
	}
	if !w.machine.due {
		t.Error("nobody looks at the stream")
	}
}
