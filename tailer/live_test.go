package tailer

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"reveille/tailer/upstream"
)

func TestAnAnswerThatWasLostWhileUpstreamWasDownIsFoundSoon(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Check = 2 * time.Second }).start()
	r.idle("/a")
	w := r.running("/a")
	w.mu.Lock()
	w.machine.quiet = time.Now().Add(-time.Hour)
	w.mu.Unlock()
	looks := r.up.count(r.up.heads, "/a")
	r.until("it is looked at", func() bool { return r.up.count(r.up.heads, "/a") > looks })
	r.until("the next look is due, and put off", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.live == nil {
			return false
		}
		return w.live.check.Stop() && !w.live.check.Reset(time.Hour)
	})
	r.up.set(func() { r.up.deaf = true })
	r.up.append("/a", "1")
	for i := range upstream.DownAfter {
		r.upstream.health.Report(fmt.Sprintf("/other/%d", i), 0,
			&net.OpError{Op: "read", Err: errors.New("broken")})
	}
	r.upstream.health.Report("/other", 1, nil)
	r.wake("/a", 2)
}

func TestAProcessWithoutFilesDoesNotTakeUpstreamForDown(t *testing.T) {
	r := newRig(t)
	for i := range 2 * upstream.DownAfter {
		r.upstream.health.Report(fmt.Sprintf("/%d", i), 0,
			fmt.Errorf("GET: %w", &net.OpError{Op: "dial", Err: os.NewSyscallError("socket", syscall.EMFILE)}))
	}
	if r.upstream.health.IsDown() {
		t.Error("it counts as down")
	}
}
