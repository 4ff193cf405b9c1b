package dispatcher

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"reveille/dispatcher/format"
	"reveille/fsm"
)

// TestEachEventThatWasLostIsCountedOnce holds that the lines of the log add up to the metric.
func TestEachEventThatWasLostIsCountedOnce(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	now := time.Now()
	l := &losses{
		log: zap.New(core), now: func() time.Time { return now },
		counter: prometheus.NewCounter(prometheus.CounterOpts{Name: "lost"}),
	}
	lose := func(result fsm.AttemptResult, n int64) {
		a := &attempt{delivery: fsm.Delivery{Primary: "/a"}, verdict: format.Verdict{Result: result}}
		a.content.Batch.Lost = n
		l.note(a)
	}
	lines := func(want ...int64) {
		t.Helper()
		all := logs.TakeAll()
		if len(all) != len(want) {
			t.Fatalf("got %d lines, want %d", len(all), len(want))
		}
		for i, line := range all {
			if got := line.ContextMap()["events"]; got != want[i] {
				t.Errorf("a line says %v, want %d", got, want[i])
			}
		}
	}
	l.sum()
	lose(fsm.AttemptEmpty, 0)
	lose(fsm.AttemptDead, 5) // a dead letter tells of them
	lines()
	lose(fsm.AttemptEmpty, 1)
	lines(1)
	lose(fsm.AttemptEmpty, 200)
	lose(fsm.AttemptEmpty, 83)
	lines()
	l.sum()
	lines(283)
	l.sum()
	lines()
	now = now.Add(lossPause)
	lose(fsm.AttemptEmpty, 7)
	lines(7)
	if got := testutil.ToFloat64(l.counter); got != 291 {
		t.Errorf("the metric has %v", got)
	}
}
