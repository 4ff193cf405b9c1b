package tailer

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// downAfter is on how many different streams upstream must fail, with no success between, to count as down. A broken
// stream alone never does, but where no connection comes about, that is no stream's fault: as many attempts will do, so that
// somebody with one stream is told too.
const downAfter = 3

// health knows whether the upstream as a whole is down. While it is, one probe at a time goes through and everybody else
// waits; when it is back, those who waited go on spread over a while, so that their return is no storm.
type health struct {
	log *zap.Logger
	// back is called when upstream answers again.
	back   func()
	spread time.Duration
	delay  growing

	mu      sync.Mutex
	failing map[string]struct{}
	refused int // connections that did not come about, with no success between
	down    bool
	up      chan struct{} // closed at the end of a down time
	turn    chan struct{} // holds the right to probe while down
	pause   time.Duration // before the next probe
	// downs counts the times that upstream has gone down.
	downs int64
	// wavers counts those, and the times that it has shown a stream again that it had said was gone.
	wavers int64
}

func newHealth(cfg Config, back func()) *health {
	return &health{
		log: cfg.Logger, back: back, spread: cfg.Spread, failing: map[string]struct{}{},
		delay: growing{least: cfg.BackoffMin, most: cfg.Check},
	}
}

// enter waits until a request may go upstream. It returns a function that must be called with the request's error, and whether
// the request is the probe that asks for an upstream that is down.
func (h *health) enter(ctx context.Context, path string) (done func(error), probes bool, err error) {
	h.mu.Lock()
	down, up, turn := h.down, h.up, h.turn
	h.mu.Unlock()
	// What a cancelled request says is about its caller, not about upstream.
	report := func(err error) {
		if ctx.Err() == nil {
			h.report(path, err)
		}
	}
	if !down {
		return report, false, nil
	}
	select {
	case <-ctx.Done():
		return nil, false, ctx.Err()
	case <-up:
		if !sleep(ctx, rand.N(h.spread+1)) {
			return nil, false, ctx.Err()
		}
		return report, false, nil
	case <-turn:
	}
	giveBack := func() { turn <- struct{}{} }
	h.mu.Lock()
	pause := h.pause
	h.mu.Unlock()
	if !sleep(ctx, jitter(pause)) {
		giveBack()
		return nil, false, ctx.Err()
	}
	return func(err error) {
		report(err)
		giveBack()
	}, true, nil
}

// wavered is: upstream shows a stream again, the same one, that it had said was gone.
func (h *health) wavered() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wavers++
}

func (h *health) wavering() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.wavers
}

func (h *health) outages() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.downs
}

func (h *health) isDown() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.down
}

// report takes in how a request for a stream went.
func (h *health) report(path string, err error) {
	if h.note(path, err) {
		h.back()
	}
}

// note says whether upstream answers again.
func (h *health) note(path string, err error) (back bool) {
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return false // there was no file for the connection, which says nothing of upstream
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !isDown(err) {
		clear(h.failing)
		h.refused = 0
		if back = h.down; back {
			h.log.Info("upstream answers again")
			h.down = false
			close(h.up)
		}
		return back
	}
	if h.down {
		h.pause = h.delay.next()
		return false
	}
	h.failing[path] = struct{}{}
	if unconnected(err) {
		h.refused++
	}
	if max(len(h.failing), h.refused) < downAfter {
		return false
	}
	h.log.Warn("upstream is down: one probe at a time asks for it", zap.Error(err))
	clear(h.failing)
	h.refused = 0
	h.downs++
	h.wavers++
	h.down, h.up, h.turn = true, make(chan struct{}), make(chan struct{}, 1)
	h.turn <- struct{}{}
	h.delay.reset()
	h.pause = h.delay.next()
	return false
}
