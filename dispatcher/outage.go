package dispatcher

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// outagePause is the least time between the log lines about one outage and those about the next: a store that answers
// every other call must not fill the log.
const outagePause = 30 * time.Second

// outage logs once when the store stops answering and once when it answers again.
type outage struct {
	log *zap.Logger
	now func() time.Time

	mu    sync.Mutex
	since time.Time
	// told is true if this outage was logged, last is when one was, and more is how many were not since then.
	told bool
	last time.Time
	more int
}

func (o *outage) failed(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.now()
	if o.since.IsZero() {
		o.since = now
	}
	if o.told || !o.last.IsZero() && now.Sub(o.last) < outagePause {
		return
	}
	o.told, o.last = true, now
	o.log.Error("redis does not answer; deliveries pause", zap.Int("times", o.more+1), zap.Error(err))
	o.more = 0
}

func (o *outage) over() {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.since.IsZero():
		return
	case o.told:
		o.log.Info("redis answers again", zap.Duration("outage", o.now().Sub(o.since)))
	default:
		o.more++
	}
	o.since, o.told = time.Time{}, false
}
