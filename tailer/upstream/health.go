package upstream

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.uber.org/zap"
)

// DownAfter is on how many different streams upstream must fail, with no success between, to count as down. A broken
// stream alone never does, but where no connection comes about, that is no stream's fault: as many attempts will do,
// so that somebody with one stream is told too.
const DownAfter = 3

// Health knows whether the upstream as a whole is down. While it is, one probe at a time goes through and everybody
// else waits; when it is back, those who waited go on spread over a while, so that their return is no storm.
type Health struct {
	cfg   HealthConfig
	delay Backoff

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

// HealthConfig is what a Health needs.
type HealthConfig struct {
	Logger *zap.Logger
	// Metrics is what the metric is registered with; nil for nowhere.
	Metrics prometheus.Registerer
	// Shown says whether upstream has shown itself as a stream server.
	Shown func() bool
	// Back is called when upstream answers again.
	Back func()
	// Spread is how long the return of an upstream that was down is spread over.
	Spread time.Duration
	// BackoffMin and BackoffMax bound the time between two probes.
	BackoffMin, BackoffMax time.Duration
}

// NewHealth returns the Health of an upstream that nobody has asked yet.
func NewHealth(cfg HealthConfig) *Health {
	h := &Health{
		cfg: cfg, failing: map[string]struct{}{}, delay: Backoff{Min: cfg.BackoffMin, Max: cfg.BackoffMax},
	}
	promauto.With(cfg.Metrics).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "reveille_upstream_up",
		Help: "1 while a stream server answers at REVEILLE_UPSTREAM_URL; 0 while it is down as a whole, and while " +
			"what answers there shows no sign of being a stream server.",
	}, func() float64 {
		if h.IsDown() || !cfg.Shown() {
			return 0
		}
		return 1
	})
	return h
}

// Enter waits until a request may go upstream. It returns a function that must be called with the request's error,
// and whether the request is the probe that asks for an upstream that is down.
func (h *Health) Enter(ctx context.Context, path string) (done func(error), probes bool, err error) {
	h.mu.Lock()
	down, up, turn := h.down, h.up, h.turn
	h.mu.Unlock()
	// What a cancelled request says is about its caller, not about upstream.
	report := func(err error) {
		if ctx.Err() == nil {
			h.Report(path, err)
		}
	}
	if !down {
		return report, false, nil
	}
	select {
	case <-ctx.Done():
		return nil, false, ctx.Err()
	case <-up:
		if !Sleep(ctx, rand.N(h.cfg.Spread+1)) {
			return nil, false, ctx.Err()
		}
		return report, false, nil
	case <-turn:
	}
	giveBack := func() { turn <- struct{}{} }
	h.mu.Lock()
	pause := h.pause
	h.mu.Unlock()
	if !Sleep(ctx, Jitter(pause)) {
		giveBack()
		return nil, false, ctx.Err()
	}
	return func(err error) {
		report(err)
		giveBack()
	}, true, nil
}

// Wavered notes that upstream shows a stream again, the same one, that it had said was gone.
func (h *Health) Wavered() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wavers++
}

// Wavers counts the times that what upstream said of streams that are gone was not to be believed: Wavered, and
// Outages.
func (h *Health) Wavers() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.wavers
}

// Outages counts the times that upstream has gone down.
func (h *Health) Outages() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.downs
}

// IsDown says whether upstream as a whole is down.
func (h *Health) IsDown() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.down
}

// Report takes in how a request for a stream went.
func (h *Health) Report(path string, err error) {
	if h.note(path, err) {
		h.cfg.Back()
	}
}

// note says whether upstream answers again.
func (h *Health) note(path string, err error) (back bool) {
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return false // there was no file for the connection, which says nothing of upstream
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !IsDown(err) {
		clear(h.failing)
		h.refused = 0
		if back = h.down; back {
			h.cfg.Logger.Info("upstream answers again")
			h.down = false
			close(h.up)
		}
		return back
	}
	if h.down {
		h.pause = h.delay.Next()
		return false
	}
	h.failing[path] = struct{}{}
	if unconnected(err) {
		h.refused++
	}
	if max(len(h.failing), h.refused) < DownAfter {
		return false
	}
	h.cfg.Logger.Warn("upstream is down: one probe at a time asks for it", zap.Error(err))
	clear(h.failing)
	h.refused = 0
	h.downs++
	h.wavers++
	h.down, h.up, h.turn = true, make(chan struct{}), make(chan struct{}, 1)
	h.turn <- struct{}{}
	h.delay.Reset()
	h.pause = h.delay.Next()
	return false
}
