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
	// looks are the HEAD under way and the timer that begins the next.
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
	moved := e.offset.After(l.offset)
	if moved {
		l.offset = e.offset
	}
	l.mu.Unlock()
	if moved {
		l.w.lookSoon()
	}
}

// lookLater has the stream looked at after Check, or later the longer it has been silent.
func (l *live) lookLater() {
	after := l.w.lookAfter()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over && !l.stopped {
		l.looks.Add(1)
		l.check = time.AfterFunc(jitter(after), l.look)
	}
}

// sooner has the stream looked at after Check at the latest.
func (l *live) sooner() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.check.Stop() {
		l.check.Reset(jitter(l.w.t.cfg.Check))
	}
}

// calm is how much less often a stream is looked at that has been silent for long.
const calm = 6

// lookAfter is how long after a look that showed nothing new the next one is due: half of how long the stream has been silent, between
// Check and calm times that.
func (w *watch) lookAfter() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.quiet.IsZero() {
		w.quiet = time.Now()
	}
	return min(max(time.Since(w.quiet)/2, w.t.cfg.Check), calm*w.t.cfg.Check)
}

// lookSoon is: the stream has shown an event, or an answer may have got lost on its way.
func (w *watch) lookSoon() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.quiet = time.Now()
	if w.live != nil {
		w.live.sooner()
	}
}

func (l *live) look() {
	defer l.looks.Done()
	info, err := l.w.head(l.ctx)
	if l.ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	offset, failed := l.offset, l.failed
	l.failed = failed || isDown(err)
	l.mu.Unlock()
	if isDown(err) {
		l.w.lookSoon()
	}
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
