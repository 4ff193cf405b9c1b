package dispatcher

import (
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"reveille/fsm"
)

func TestTheLogOfDeliveriesSaysTheFirstFailureThatItIsOverAndForgetsWhatIsDeleted(t *testing.T) {
	core, logs := observer.New(zapcore.InfoLevel)
	l := newDeliveryLog(zap.New(core), time.Now)
	attempt := func(generation string, r fsm.AttemptResult) {
		l.attempted(fsm.Attempt{Wake: fsm.Wake{Subscription: "s", Generation: generation}, Result: r})
	}
	for _, c := range []struct {
		does  string
		do    func()
		lines int
	}{
		{"a delivery that works", func() { attempt("g", fsm.AttemptDone) }, 0},
		{"the first failure", func() { attempt("g", fsm.AttemptFailed) }, 1},
		{"the second", func() { attempt("g", fsm.AttemptFailed) }, 0},
		{"one that was cut off", func() { attempt("g", fsm.AttemptAbandoned) }, 0},
		{"a 410", func() { attempt("g", fsm.AttemptRetired) }, 1},
		{"another generation's", func() { attempt("anew", fsm.AttemptFailed) }, 1},
		{"that the first works again", func() { attempt("g", fsm.AttemptAccepted) }, 1},
		{"a failure soon after that", func() { attempt("g", fsm.AttemptFailed) }, 0},
		{"one of a subscription that is kept", func() {
			l.forget(func(k laneKey) bool { return k.generation == "g" })
			attempt("g", fsm.AttemptFailed)
		}, 0},
		{"one of a subscription that was forgotten", func() { attempt("anew", fsm.AttemptFailed) }, 1},
	} {
		c.do()
		if got := len(logs.TakeAll()); got != c.lines {
			t.Errorf("%s: %d lines, want %d", c.does, got, c.lines)
		}
	}
}
