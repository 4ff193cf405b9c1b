package dispatcher

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// summaryEvery is how often, at most, repeated trouble of one kind is logged.
const summaryEvery = 30 * time.Second

// trouble thins out what is logged of something that goes wrong again and again. It is guarded by its owner's mutex.
type trouble struct {
	last time.Time
	// silent counts what was not logged since then.
	silent int
	// told is true if something was logged that no recovery has followed yet.
	told bool
}

// happened says whether to log, and how many times it happened since the last log line, this time included.
func (t *trouble) happened(now time.Time) (count int, log bool) {
	t.silent++
	if !t.last.IsZero() && now.Sub(t.last) < summaryEvery {
		return 0, false
	}
	count = t.silent
	t.last, t.silent, t.told = now, 0, true
	return count, true
}

// over says whether the end of the trouble is worth a line.
func (t *trouble) over() bool {
	log := t.told
	t.told = false
	return log
}

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
		o.log.Error("the store does not answer; deliveries pause", zap.Error(err))
	}
}

func (o *outage) over() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.since.IsZero() {
		o.log.Info("the store answers again", zap.Duration("outage", o.now().Sub(o.since)))
		o.since = time.Time{}
	}
}
