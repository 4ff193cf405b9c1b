package tailer

import (
	"context"
	"time"

	"reveille/fsm"
)

// position is how far a loop has come in its stream.
type position struct {
	offset fsm.Offset
	cursor string
	// moved is true if a live request has shown something new since the last HEAD.
	moved bool
}

// next is what a loop does after a live request.
type next int

const (
	again next = iota // make another
	look              // look with HEAD
	odd               // look with HEAD, for the answer made no sense
)

// follow makes live requests, one at a time, until there is reason to look with HEAD; an error says that the requests fail.
func (w *watch) follow(ctx context.Context, at *position, pace, failures *growing) error {
	at.cursor = ""
	for {
		began, was := time.Now(), at.offset
		then, err := w.request(ctx, at)
		if err != nil {
			return err
		}
		took := time.Since(began)
		if at.offset == was && then != look && took < w.t.cfg.PaceMin {
			return errSpinning
		}
		failures.reset()
		if took >= w.t.cfg.PaceMax {
			pace.reset()
		}
		if at.moved && w.pause(ctx, pace) {
			at.moved, then = false, look
		}
		if then != again || ctx.Err() != nil {
			return nil
		}
	}
}

// request makes one live request. While it is silent the stream is looked at with HEAD now and then (lookAfter): an answer that
// got lost on the way must not cost a wake.
func (w *watch) request(ctx context.Context, at *position) (then next, err error) {
	live := w.begin(ctx, at.offset)
	defer live.end()
	var untaken error
	err = w.t.live(live.ctx, &w.line, w.path, at.offset, at.cursor, func(e event) error {
		w.t.health.report(w.path, nil)
		live.heard(e)
		pausing, err := w.take(ctx, at, e)
		if err != nil {
			untaken = err
			return err
		}
		switch {
		case at.moved && (e.closed || !e.upToDate) || w.isEmpty():
			then = look
		case e.closed || e.offset != "" && e.offset != at.offset:
			then = odd
		}
		if pausing && w.t.cfg.Mode == ModeSSE {
			live.stop(look)
			return live.ctx.Err()
		}
		return nil
	})
	stopped, why := live.why()
	switch {
	case untaken != nil:
		return look, untaken
	case ctx.Err() != nil:
		return look, nil
	case stopped:
		return why, nil
	case err != nil:
		w.t.health.report(w.path, err)
	}
	return then, err
}

// take takes in what a live request showed: the store is told first. It says whether everybody is busy.
func (w *watch) take(ctx context.Context, at *position, e event) (busy bool, err error) {
	if e.cursor != "" {
		at.cursor = e.cursor
	}
	if !e.offset.After(at.offset) {
		return false, nil
	}
	if err := w.noteAhead(ctx, e.offset); err != nil {
		return false, err
	}
	at.offset, at.moved = e.offset, true
	w.t.slots.take(w, true)
	return w.busy(), nil
}

// elsewhere says whether a HEAD shows anything that a live request from offset would not bring.
func (w *watch) elsewhere(info fsm.StreamInfo, offset fsm.Offset) bool {
	if !info.Exists || info.TTL || info.Closed || info.Tail != offset {
		return true
	}
	for _, told := range w.partitions() {
		if told.After(info.Tail) {
			return true
		}
	}
	return false
}
