package tailer

import (
	"context"
	"sync"
	"time"

	"reveille/tailer/upstream"
)

// live is a live request under way, with the HEADs that check it. The watch's goroutine waits for the answer.
type live struct {
	w   *watch
	ctx context.Context
	// asked is the spell in which the request began. In a later spell, its answers are no sign that upstream is up.
	asked upstream.Spell
	// cancel ends the request.
	cancel context.CancelFunc
	// silence fires when the connection must be dead, check when the next HEAD is due.
	silence, check *time.Timer
	// checks waits for the HEAD under way and for the timer that begins the next.
	checks sync.WaitGroup
}

// request makes one live request. The machine gets each event while the request goes on.
func (w *watch) request(ctx context.Context) error {
	l := w.begin(ctx, w.action.check)
	err := w.t.upstream.Live(l.ctx, &w.conn, w.path, w.action.tail, w.action.cursor, func(e upstream.Event) error {
		return l.heard(ctx, e)
	})
	if err != nil && l.ctx.Err() == nil {
		w.t.upstream.health.Report(w.path, l.asked, err)
	}
	l.end()
	return err
}

func (w *watch) begin(ctx context.Context, check time.Duration) *live {
	l := &live{w: w, asked: w.t.upstream.health.Spell()}
	l.ctx, l.cancel = context.WithCancel(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.machine.request.stopped { // it was stopped a moment ago
		l.cancel()
	}
	w.live = l
	// No server waits longer than this. The connection is dead, although no error has shown it.
	l.silence = time.AfterFunc(w.t.cfg.Silence, func() { l.step(&input{kind: inputSilence}) })
	l.checks.Add(1)
	l.check = time.AfterFunc(check, l.checkNow)
	return l
}

func (l *live) end() {
	l.w.mu.Lock()
	l.w.live = nil
	l.silence.Stop()
	if l.check.Stop() {
		l.checks.Done()
	}
	l.w.mu.Unlock()
	l.cancel()
	l.checks.Wait()
}

// step passes an input to the watch while this is its live request.
func (l *live) step(in *input) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if l.w.live == l {
		l.w.apply(in)
	}
}

// heard handles what the request shows. It tells the store before the request goes on.
func (l *live) heard(ctx context.Context, e upstream.Event) error {
	w := l.w
	w.t.upstream.health.Report(w.path, l.asked, nil)
	l.silence.Reset(w.t.cfg.Silence)
	a := w.step(&input{kind: inputShown, shown: e})
	for a.phase == phaseAnnouncing {
		var err error
		if a, err = w.announce(ctx, a.partition, a.tail); err != nil {
			return err
		}
	}
	if a.active {
		w.t.slots.touch(w)
	}
	return l.ctx.Err()
}

// checkSooner sets the time until the next check, unless a HEAD is under way. w.mu is held.
func (l *live) checkSooner(after time.Duration) {
	if l.check.Stop() {
		l.check.Reset(after)
	}
}

// checkNow checks the request with HEAD, so that a lost answer does not cost a wake.
func (l *live) checkNow() {
	defer l.checks.Done()
	info, err := l.w.t.upstream.look(l.ctx, l.w.path, true, l.w.t.upstream.Head)
	if l.ctx.Err() != nil {
		return
	}
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if l.w.live != l {
		return
	}
	if a := l.w.apply(&input{kind: inputChecked, info: info, err: err}); a.check > 0 {
		l.checks.Add(1)
		l.check.Reset(a.check)
	}
}
