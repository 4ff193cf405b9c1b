package tailer

import (
	"context"
	"sync"
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

// request makes one live request. While it is silent the stream is looked at with HEAD every Check: an answer that
// got lost on the way must not cost a wake.
func (w *watch) request(ctx context.Context, at *position) (then next, err error) {
	var looks sync.WaitGroup
	defer looks.Wait()
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	events := make(chan event)
	var failure error
	go func() {
		defer close(events)
		failure = w.t.live(ctx, w.path, at.offset, at.cursor, events)
	}()
	defer func() {
		cancel()
		for range events { // until it has ended
		}
	}()

	type headed struct {
		info fsm.StreamInfo
		err  error
	}
	heads := make(chan headed, 1)
	check := time.NewTimer(jitter(w.t.cfg.Check))
	defer check.Stop()
	silence := time.NewTimer(w.t.cfg.Silence)
	defer silence.Stop()
	failed := false
	for {
		select {
		case <-outer.Done():
			return look, nil
		case e, more := <-events:
			if !more {
				if failure != nil {
					w.t.health.report(w.path, failure)
				}
				return then, failure
			}
			w.t.health.report(w.path, nil)
			silence.Reset(w.t.cfg.Silence)
			pausing, err := w.take(outer, at, e)
			if err != nil {
				return look, err
			}
			switch {
			case at.moved && (e.closed || !e.upToDate) || w.empty():
				then = look
			case e.closed || e.offset != "" && e.offset != at.offset:
				then = odd
			}
			if pausing && w.t.cfg.Mode == ModeSSE {
				return look, nil
			}
		case <-check.C:
			looks.Go(func() {
				info, err := w.head(ctx)
				heads <- headed{info, err}
			})
		case h := <-heads:
			switch {
			case h.err == nil && w.elsewhere(h.info, at.offset):
				return look, nil
			case h.err == nil && failed:
				// What cost that HEAD may have cost this request its connection, only nobody has said so.
				return again, nil
			}
			failed = failed || isDown(h.err)
			check.Reset(jitter(w.t.cfg.Check))
		case <-w.poke:
			if w.untold() {
				return look, nil
			}
		case <-w.displaced:
			return look, nil
		case <-silence.C:
			// Longer than any server waits: the connection is dead, only nobody has said so.
			return again, nil
		}
	}
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

// untold says whether a look is due: a partition was added or is to be told again, or none is left.
func (w *watch) untold() bool {
	for _, told := range w.partitions() {
		if told == "" {
			return true
		}
	}
	return w.empty()
}

func (w *watch) empty() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.parts) == 0
}
