package dispatcher

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// outage logs once when the store stops answering and once when it answers again.
type outage struct {
	log *zap.Logger
	now func() time.Time

	mu    sync.Mutex
	since time.Time
}

func (o *outage) failed(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		o.since = o.now()
		o.log.Error("redis does not answer; deliveries pause", zap.Error(err))
	}
}

func (o *outage) over() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.since.IsZero() {
		o.log.Info("redis answers again", zap.Duration("outage", o.now().Sub(o.since)))
		o.since = time.Time{}
	}
}
