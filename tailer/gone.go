package tailer

import (
	"context"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
)

// gone is: two HEADs since the count in asked found no such stream. The consumers are hidden and the stream is asked for until it
// is back (false) or nobody is subscribed to it any more (true).
func (w *watch) gone(ctx context.Context, asked int64) (over bool) {
	w.is(modeAway)
	w.setAway(true)
	defer w.setAway(false)
	cfg := &w.t.cfg
	delay := growing{least: min(max(cfg.GoneGrace/30, time.Millisecond), cfg.Check), most: cfg.Check}
	wavers := w.t.health.wavering()
	for absence := fsm.MissingAnew; ; absence = fsm.MissingStill {
		// Where upstream goes back and forth, this stream may have been there between two looks.
		if now := w.t.health.wavering(); now != wavers {
			absence, wavers = fsm.MissingAnew, now
		}
		// Whoever linked a consumer since the HEAD knew better.
		if w.asked() == asked && w.hide(ctx, absence) != nil {
			return false
		}
		w.distrust(-1)
		if w.t.watches.endUnwatched(w) {
			if !w.isDisowned() {
				w.t.lost(ctx, w.path, false)
			}
			return true
		}
		if !sleepOr(ctx, jitter(delay.next()), w.poke) {
			return false
		}
		asked = w.asked()
		// An upstream that cannot be asked may have the stream: if it says "gone" again, that counts from then on.
		if info, err := w.head(ctx); err != nil || info.Exists {
			return false
		}
	}
}

// absence is since when upstream has said of a stream that there is none, and neither shown it nor failed since.
type absence struct {
	since   time.Time
	outages int64
}

// say takes in what a look came to: that there is no such stream, or anything else.
func (a *absence) say(gone bool, h *health) {
	switch outages := h.outages(); {
	case !gone:
		*a = absence{}
	case a.since.IsZero() || outages != a.outages: // while upstream is down nobody asks for the stream
		*a = absence{time.Now(), outages}
	}
}

func (a *absence) lasts(d time.Duration) bool { return !a.since.IsZero() && time.Since(a.since) >= d }

func (w *watch) setAway(v bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away = v
}

// hide hides the consumers whose primary stream this is; only its home partition has any.
func (w *watch) hide(ctx context.Context, a fsm.Absence) error {
	if !w.isHome() {
		return nil
	}
	return w.t.insist(ctx, "gone", zap.String("stream", w.path), func() error {
		_, err := w.t.store.Hide(ctx, w.path, a)
		return err
	})
}

// carriesOn says whether a stream that is there again with a tail is, as far as this process knows, the one that it was.
func (w *watch) carriesOn(tail fsm.Offset) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.parts[w.t.store.PartitionOf(w.path)]
	return p != nil && p.noted != "" && !p.noted.After(tail)
}
