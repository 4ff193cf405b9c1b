package tailer

import (
	"context"
	"sync"
	"time"

	"reveille/fsm"
)

// live is a live request that is under way, with all that may stop it. The loop itself waits for the answer; what happens meanwhile is
// dealt with by whoever it happens to, and stops the request if it is the loop's business.
type live struct {
	w   *watch
	ctx context.Context
	// cancel ends the request.
	cancel context.CancelFunc
	// looks are the HEADs under way and the timer that begins the next.
	looks   sync.WaitGroup
	silence *time.Timer

	mu    sync.Mutex
	check *time.Timer
	// offset is how far the request has shown the stream to go.
	offset  fsm.Offset
	stopped bool
	reason  next
	over    bool
	// failed is true if a HEAD has failed that asked for the stream.
	failed bool
}

// begin is called before a live request from an offset, and end after it.
func (w *watch) begin(ctx context.Context, offset fsm.Offset) *live {
	l := &live{w: w, offset: offset}
	l.ctx, l.cancel = context.WithCancel(ctx)
	// Longer than any server waits: the connection is dead, only nobody has said so.
	l.silence = time.AfterFunc(w.t.cfg.Silence, func() { l.stop(again) })
	l.lookLater()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.live = l
	clearSignal(w.poke)
	if w.untold() || w.displaced {
		l.stop(look)
	}
	return l
}

func (l *live) end() {
	l.w.mu.Lock()
	l.w.live = nil
	l.w.mu.Unlock()
	l.silence.Stop()
	l.mu.Lock()
	l.over = true
	if l.check.Stop() {
		l.looks.Done()
	}
	l.mu.Unlock()
	l.cancel()
	l.looks.Wait()
}

// stop ends the request for a reason. The first one counts.
func (l *live) stop(reason next) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.stopped {
		l.stopped, l.reason = true, reason
		l.cancel()
	}
}

// why says whether the request was stopped, and what for.
func (l *live) why() (stopped bool, reason next) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stopped, l.reason
}

// heard takes in a sign of life.
func (l *live) heard(e event) {
	l.silence.Reset(l.w.t.cfg.Silence)
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.offset.After(l.offset) {
		l.offset = e.offset
	}
}

// lookLater has the stream looked at after Check.
func (l *live) lookLater() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over && !l.stopped {
		l.looks.Add(1)
		l.check = time.AfterFunc(jitter(l.w.t.cfg.Check), l.look)
	}
}

func (l *live) look() {
	defer l.looks.Done()
	info, err := l.w.head(l.ctx)
	l.mu.Lock()
	offset, failed := l.offset, l.failed
	l.failed = failed || isDown(err)
	l.mu.Unlock()
	switch {
	case err == nil && l.w.elsewhere(info, offset):
		l.stop(look)
	case err == nil && failed:
		// What cost that HEAD may have cost this request its connection, only nobody has said so.
		l.stop(again)
	default:
		l.lookLater()
	}
}
