package tailer

import "context"

// pause waits while everybody is busy, a little longer each time, and says whether it did. A consumer that comes to
// rest ends it. The caller looks with HEAD after it.
func (w *watch) pause(ctx context.Context, pace *growing) bool {
	if !w.beginPause() {
		pace.reset()
		return false
	}
	sleepOr(ctx, pace.next(), w.poke)
	w.mu.Lock()
	w.pausing = false
	w.mu.Unlock()
	return true
}

// beginPause decides in one step with what would end the pause: a poke from before it has no more to say if everybody is busy,
// one from after it is heeded.
func (w *watch) beginPause() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.parts {
		if !p.busy {
			return false
		}
	}
	if len(w.parts) == 0 {
		return false
	}
	clearSignal(w.poke)
	w.pausing = true
	return true
}

// looksAfterPause says whether the loop is in a pause, after which it looks at the stream. The write was over before this is
// asked, so that look will see it. A loop whose stream is away is told to look now.
func (w *watch) looksAfterPause() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.away {
		w.prod()
	}
	return w.pausing
}
