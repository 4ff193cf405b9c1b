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
		{"the first delivery that works", func() { attempt("g", fsm.AttemptDone) }, 1},
		{"the next", func() { attempt("g", fsm.AttemptAccepted) }, 0},
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
		{"the first one that works, after that", func() { l.forget(keepNone); attempt("g", fsm.AttemptDone) }, 1},
	} {
		c.do()
		if got := len(logs.TakeAll()); got != c.lines {
			t.Errorf("%s: %d lines, want %d", c.does, got, c.lines)
		}
	}
}

func keepNone(laneKey) bool { return false }

// TestEventsThatAreDeadAreALineForEachClassAndThenCounted holds that an endpoint which refuses everything does not fill
// the log, though it takes something now and then.
func TestEventsThatAreDeadAreALineForEachClassAndThenCounted(t *testing.T) {
	core, logs := observer.New(zapcore.WarnLevel)
	now := time.Now()
	l := newDeliveryLog(zap.New(core), func() time.Time { return now })
	attempt := func(class string, r fsm.AttemptResult) {
		l.attempted(fsm.Attempt{Wake: fsm.Wake{Subscription: "s", Generation: "g"}, Class: class, Result: r})
	}
	for range 500 {
		attempt("client_error", fsm.AttemptDead)
		attempt("", fsm.AttemptDone)
		attempt("redirect", fsm.AttemptDead)
	}
	if n := len(logs.TakeAll()); n != 2 {
		t.Errorf("%d lines, want one for each class", n)
	}
	now = now.Add(time.Minute)
	attempt("redirect", fsm.AttemptDead)
	all := logs.TakeAll()
	if len(all) != 1 || all[0].ContextMap()["times"] != int64(500) || all[0].ContextMap()["class"] != "redirect" {
		t.Errorf("a minute later: %v", all)
	}
}

// TestASummaryAddsUpWhatWasDelivered holds that it counts each attempt once, and says nothing if there was none.
func TestASummaryAddsUpWhatWasDelivered(t *testing.T) {
	core, logs := observer.New(zapcore.InfoLevel)
	l := newDeliveryLog(zap.New(core), time.Now)
	for r, times := range map[fsm.AttemptResult]int{
		fsm.AttemptDone: 3, fsm.AttemptAccepted: 4, fsm.AttemptFailed: 2, fsm.AttemptRetired: 1, fsm.AttemptDead: 5,
		fsm.AttemptHeld: 7, fsm.AttemptEmpty: 7, fsm.AttemptUnread: 7, fsm.AttemptAbandoned: 7, fsm.AttemptWaiting: 7,
	} {
		for range times {
			l.attempted(fsm.Attempt{Wake: fsm.Wake{Subscription: "s", Generation: "g"}, Result: r})
		}
	}
	logs.TakeAll()
	for i, want := range []int{1, 0} {
		l.sum()
		all := logs.TakeAll()
		if len(all) != want {
			t.Fatalf("summary %d: %d lines", i+1, len(all))
		}
		for _, line := range all {
			if f := line.ContextMap(); f["taken"] != int64(7) || f["failed"] != int64(3) || f["dead"] != int64(5) {
				t.Errorf("it says %v", f)
			}
		}
	}
}
