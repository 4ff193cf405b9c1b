package dispatcher

import (
	"sync"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
)

// outage logs once when the store stops answering and once when it answers again.
type outage struct {
	log     *zap.Logger
	now     func() time.Time
	trouble fsm.Trouble

	mu sync.Mutex
	// since is when it stopped; zero while it answers.
	since time.Time
}

func (o *outage) failed(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.now()
	if o.since.IsZero() {
		o.since = now
	}
	if times, log := o.trouble.Began(now); log {
		o.log.Error("redis does not answer; deliveries pause", zap.Int("times", times), zap.Error(err))
	}
}

// lasts says whether the store does not answer.
func (o *outage) lasts() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.since.IsZero()
}

func (o *outage) over() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.trouble.Over() {
		o.log.Info("redis answers again", zap.Duration("outage", o.now().Sub(o.since)))
	}
	o.since = time.Time{}
}
