package upstream

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.uber.org/zap"

	"reveille/fsm"
)

// DownAfter is on how many different streams upstream must fail, with no success between, to count as down. A single
// broken stream is not enough. If no connection comes about, no stream is at fault. Then that many failed connections
// are enough, so that an operator with one stream hears of it, too.
const DownAfter = 3

// Health knows whether the upstream as a whole is down. While it is down, one probe at a time goes through, and all
// other requests wait. When it is back, the waiting requests go on, spread over a while, so that their return is no
// storm.
type Health struct {
	client *Client
	back   func()
	spread time.Duration
	// probing is full while a probe is under way.
	probing chan struct{}
	// outages counts how often upstream went down. wavered counts how often it showed a stream again after it had said
	// that the stream was gone.
	outages, wavered atomic.Int64
	// missed counts the live requests that upstream did not answer although the stream had moved on.
	missed atomic.Int64

	mu      sync.Mutex
	delay   Backoff // before the next probe
	failing map[string]struct{}
	refused int           // failed connections, with no success between
	up      chan struct{} // closed at the end of a down time; nil while there is none
	spell   Spell

	// since is when upstream came up or went down. It is zero until upstream has answered or is down.
	sinceMu sync.Mutex
	wasDown bool
	since   time.Time
}

// Spell numbers the periods in which upstream is up, or down. The answer to a request of an earlier spell says nothing
// about the present: a server that shuts down may still answer earlier requests.
type Spell int64

// Spell returns the present spell.
func (h *Health) Spell() Spell {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.spell
}

// NewHealth returns the Health of an upstream that was not asked yet. delay is the time between two probes. Health
// calls back when upstream answers again. The waiting requests go on within the time spread.
func (c *Client) NewHealth(delay Backoff, spread time.Duration, back func()) *Health {
	h := &Health{
		client: c, back: back, spread: spread, probing: make(chan struct{}, 1), delay: delay,
		failing: map[string]struct{}{},
	}
	promauto.With(c.cfg.Metrics).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "reveille_upstream_up",
		Help: "1 while a stream server answers at REVEILLE_UPSTREAM_URL; 0 while it is down as a whole, and while " +
			"what answers there shows no sign of being a stream server.",
	}, func() float64 {
		if h.IsDown() || !c.Shown() {
			return 0
		}
		return 1
	})
	return h
}

// ErrDown is the error of a caller that does not wait for an upstream that is down.
var ErrDown = errors.New("upstream is down")

// Enter waits until a request may go upstream. If it may not go now and patient is false, Enter fails with ErrDown. The
// caller must call done with the request's error. probes says that the request is the probe for an upstream that is
// down.
func (h *Health) Enter(ctx context.Context, path string, patient bool) (done func(error), probes bool, err error) {
	report := func() func(error) {
		asked := h.Spell()
		return func(err error) {
			if ctx.Err() == nil { // a cancelled request says something about its caller, not about upstream
				h.Report(path, asked, err)
			}
		}
	}
	h.mu.Lock()
	up := h.up
	h.mu.Unlock()
	switch {
	case up == nil:
		return report(), false, nil
	case !patient:
		return nil, false, ErrDown
	}
	if _, err := fsm.CanonicalPath(path); err != nil {
		return nil, false, err // it would be refused and find out nothing
	}
	select {
	case <-ctx.Done():
		return nil, false, ctx.Err()
	case <-up:
		if !Sleep(ctx, rand.N(h.spread+1)) {
			return nil, false, ctx.Err()
		}
		return report(), false, nil
	case h.probing <- struct{}{}:
	}
	h.mu.Lock()
	pause := h.delay.Next()
	h.mu.Unlock()
	if !Sleep(ctx, Jitter(pause)) {
		<-h.probing
		return nil, false, ctx.Err()
	}
	tell := report()
	return func(err error) {
		tell(err)
		<-h.probing
	}, true, nil
}

// Wavered notes that upstream shows a stream again, the same one, after it had said that the stream was gone.
func (h *Health) Wavered() { h.wavered.Add(1) }

// Wavers counts the reasons not to believe upstream when it says that streams are gone: calls of Wavered, and Outages.
func (h *Health) Wavers() int64 { return h.wavered.Load() + h.outages.Load() }

// Missed notes that upstream left the live request of a Conn waiting although the stream had moved on.
func (h *Health) Missed(conn *Conn) {
	h.missed.Add(1)
	if c := h.client; c.chooses() && conn.tailing.bySSE.Load() && c.live.misses(c.cfg.Logger) {
		h.missed.Store(0) // nothing is known about long-polls
	}
}

// Misses counts the appends that upstream has Missed. It starts again when Reveille changes from SSE to long-polls.
func (h *Health) Misses() int64 { return h.missed.Load() }

// Outages counts how often upstream went down.
func (h *Health) Outages() int64 { return h.outages.Load() }

// IsDown says whether upstream as a whole is down.
func (h *Health) IsDown() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.up != nil
}

// Report handles the result of a request for a stream. asked is the Spell in which the request began.
func (h *Health) Report(path string, asked Spell, err error) {
	back := h.note(path, asked, err)
	h.noteSince(err)
	if back {
		h.back()
	}
}

// noteSince updates since when upstream is up or down, after a request with this result.
func (h *Health) noteSince(err error) {
	h.sinceMu.Lock()
	defer h.sinceMu.Unlock()
	down := h.IsDown()
	if known := !h.since.IsZero(); down != h.wasDown || !known && err == nil {
		h.wasDown, h.since = down, time.Now()
	}
}

// Status returns what an operator sees of upstream.
func (h *Health) Status() fsm.StreamServerStatus {
	h.sinceMu.Lock()
	defer h.sinceMu.Unlock()
	s := fsm.StreamServerStatus{
		State: fsm.StreamServerUp, Since: h.since, Dialect: h.client.Dialect(), Watching: h.client.Watching(),
	}
	switch {
	case h.wasDown:
		s.State = fsm.StreamServerDown
	case !h.client.Shown():
		s.State, s.Since = fsm.StreamServerNotSeen, time.Time{}
	case s.Since.IsZero(): // no stream was asked for yet
		s.Since = time.Unix(0, h.client.shownAt.Load())
	}
	return s
}

// note handles the result of a request. back says that upstream answers again.
func (h *Health) note(path string, asked Spell, err error) (back bool) {
	if isOurs(err) {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if asked != h.spell {
		return false
	}
	down := h.up != nil
	switch {
	case IsDown(err) && down:
		return false
	case IsDown(err):
		h.failing[path] = struct{}{}
		if unconnected(err) {
			h.refused++
		}
		if max(len(h.failing), h.refused) < DownAfter {
			return false
		}
		h.client.cfg.Logger.Warn("upstream is down: one probe at a time asks for it", zap.Error(err))
		h.outages.Add(1)
		h.spell++
		h.up = make(chan struct{})
		h.delay.Reset()
	case down:
		h.client.cfg.Logger.Info("upstream answers again")
		close(h.up)
		h.up = nil
		h.spell++
		h.client.live.begin()
	}
	clear(h.failing)
	h.refused = 0
	return down
}
