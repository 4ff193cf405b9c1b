package dispatcher

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"reveille/fsm"
)

// lossPause is the least time between two log lines of events that were lost.
const lossPause = 30 * time.Second

// losses counts the events that a stream server has dropped before they were pushed. It is safe for concurrent use.
type losses struct {
	log     *zap.Logger
	now     func() time.Time
	counter prometheus.Counter

	mu sync.Mutex
	// said is when the last line was logged. Since then, events and times count what was lost. stream and at are where
	// the last loss was.
	said          time.Time
	events, times int64
	stream        string
	at            fsm.Offset
}

// note counts the events that an attempt has skipped as lost, once the store knows that.
func (l *losses) note(a *attempt) {
	if a.verdict.Result != fsm.AttemptEmpty || a.content.Batch.Lost == 0 {
		return
	}
	l.counter.Add(float64(a.content.Batch.Lost))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events, l.times = l.events+a.content.Batch.Lost, l.times+1
	l.stream, l.at = a.delivery.Primary, a.delivery.At(a.delivery.Primary)
	if l.now().Sub(l.said) >= lossPause {
		l.say()
	}
}

// sum logs what was lost since the last line.
func (l *losses) sum() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.times > 0 {
		l.say()
	}
}

// say logs a line. l.mu is held.
func (l *losses) say() {
	l.log.Warn("the stream server dropped events before they were pushed; those behind them follow",
		zap.Int64("events", l.events), zap.Int64("times", l.times), zap.String("stream", l.stream),
		zap.String("offset", l.at.Value()))
	l.said, l.events, l.times = l.now(), 0, 0
}
