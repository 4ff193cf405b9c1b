package tailer

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

func TestAStreamIsLookedAtLessOftenTheLongerItIsSilent(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Check = 10 * time.Second })
	for silent, want := range map[time.Duration]time.Duration{
		0: 10 * time.Second, 15 * time.Second: 10 * time.Second, 40 * time.Second: 20 * time.Second, time.Hour: time.Minute,
	} {
		w := newWatch(r.Tailer, "/a")
		w.quiet = time.Now().Add(-silent)
		if got := w.lookAfter().Round(100 * time.Millisecond); got != want {
			t.Errorf("silent for %s: looked at after %s, want %s", silent, got, want)
		}
		w.lookSoon()
		if got := w.lookAfter(); got != r.cfg.Check {
			t.Errorf("silent for %s, then an event: looked at after %s", silent, got)
		}
	}
}

func TestAnAnswerThatWasLostWhileUpstreamWasDownIsFoundSoon(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Check = 2 * time.Second }).start()
	r.idle("/a")
	w := r.watches.find("/a")
	w.mu.Lock()
	w.quiet = time.Now().Add(-time.Hour)
	w.mu.Unlock()
	looks := r.up.count(r.up.heads, "/a")
	r.until("it is looked at", func() bool { return r.up.count(r.up.heads, "/a") > looks })
	r.until("the next look is due, and put off", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.live == nil {
			return false
		}
		w.live.mu.Lock()
		defer w.live.mu.Unlock()
		return w.live.check.Stop() && !w.live.check.Reset(time.Hour)
	})
	r.up.set(func() { r.up.deaf = true })
	r.up.append("/a", "1")
	for i := range downAfter {
		r.health.report(fmt.Sprintf("/other/%d", i), &net.OpError{Op: "read", Err: errors.New("broken")})
	}
	r.health.report("/other", nil)
	r.wake("/a", 2)
}

func TestAProcessWithoutFilesDoesNotTakeUpstreamForDown(t *testing.T) {
	r := newRig(t)
	for i := range 2 * downAfter {
		r.health.report(fmt.Sprintf("/%d", i), fmt.Errorf("GET: %w", &net.OpError{Op: "dial", Err: os.NewSyscallError("socket", syscall.EMFILE)}))
	}
	if r.health.isDown() {
		t.Error("it counts as down")
	}
}
