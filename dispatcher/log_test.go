package dispatcher

import (
	"fmt"
	"reflect"
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
		l.attempted(fsm.Attempt{Delivery: fsm.Delivery{Subscription: "s", Generation: generation}, Result: r})
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

// TestWhatGoesWrongAgainIsSummed holds that each cause has one line, and that the lines about what goes on add up to
// the rest, over all subscriptions.
func TestWhatGoesWrongAgainIsSummed(t *testing.T) {
	core, logs := observer.New(zapcore.WarnLevel)
	now := time.Now()
	l := newDeliveryLog(zap.New(core), func() time.Time { return now })
	attempt := func(sub, class string, r fsm.AttemptResult) {
		l.attempted(fsm.Attempt{Delivery: fsm.Delivery{Subscription: sub, Generation: "g"}, Class: class, Result: r})
	}
	wrong := func() {
		for i, sub := range []string{"a", "b", "c", "d", "e", "f", "g"} {
			for range i + 1 {
				attempt(sub, "server_error", fsm.AttemptFailed)
			}
		}
		attempt("g", "redirect", fsm.AttemptDead)
		attempt("g", "", fsm.AttemptDone) // which ends what has failed, but not what is dead
	}
	wrong()
	if n := len(logs.TakeAll()); n != 8 {
		t.Fatalf("%d lines, want one for each subscription and cause", n)
	}
	for range 499 {
		wrong()
	}
	if all := logs.TakeAll(); len(all) != 0 {
		t.Fatalf("at once: %v", all)
	}
	sums := func(times int64, classes map[string]int) {
		t.Helper()
		all := logs.TakeAll()
		if len(all) != 1 || all[0].Message != "deliveries go on failing" {
			t.Fatalf("the lines are %v", all)
		}
		f := all[0].ContextMap()
		if f["times"] != times || f["subscriptions"] != int64(7) || !reflect.DeepEqual(f["classes"], classes) ||
			fmt.Sprint(f["worst"]) != "[g f e d c]" {
			t.Errorf("it says %v", f)
		}
	}
	now = now.Add(time.Minute)
	attempt("g", "redirect", fsm.AttemptDead)
	sums(500*29-8+1, map[string]int{"server_error": 500*28 - 7, "redirect": 500})
	now = now.Add(time.Second)
	attempt("a", "server_error", fsm.AttemptFailed)
	wrong()
	logs.TakeAll() // g fails anew
	if l.flush(false); len(logs.TakeAll()) > 0 {
		t.Error("what goes on is summed too early")
	}
	now = now.Add(quiet + time.Second)
	l.flush(false)
	sums(29, map[string]int{"server_error": 28, "redirect": 1})
	if l.flush(true); len(logs.TakeAll()) > 0 {
		t.Error("it is summed twice")
	}
	now = now.Add(namedAgain + time.Second)
	attempt("a", "server_error", fsm.AttemptFailed)
	if all := logs.TakeAll(); len(all) != 1 || all[0].Message != "webhook delivery failed" {
		t.Errorf("after an hour: %v", all)
	}
}

// TestAnEndpointThatComesAndGoesIsNamedLessAndLessOften holds it for one that takes every other delivery.
func TestAnEndpointThatComesAndGoesIsNamedLessAndLessOften(t *testing.T) {
	core, logs := observer.New(zapcore.InfoLevel)
	now := time.Now()
	l := newDeliveryLog(zap.New(core), func() time.Time { return now })
	for range 3600 {
		for _, r := range []fsm.AttemptResult{fsm.AttemptFailed, fsm.AttemptDone} {
			l.attempted(fsm.Attempt{
				Delivery: fsm.Delivery{Subscription: "s", Generation: "g"}, Class: "timeout", Result: r,
			})
		}
		now = now.Add(time.Second)
	}
	lines := map[string]int{}
	for _, e := range logs.TakeAll() {
		lines[e.Message]++
	}
	failed, again := lines["webhook delivery failed"], lines["webhook takes deliveries again"]
	if failed < 5 || failed > 12 || again != failed || lines["deliveries go on failing"] > 12 {
		t.Errorf("in an hour it has %v", lines)
	}
}

// TestASummaryAddsUpWhatWasDelivered holds that it counts each attempt once, and says nothing if there was none.
func TestASummaryAddsUpWhatWasDelivered(t *testing.T) {
	core, logs := observer.New(zapcore.InfoLevel)
	l := newDeliveryLog(zap.New(core), time.Now)
	for r, times := range map[fsm.AttemptResult]int{
		fsm.AttemptDone: 3, fsm.AttemptAccepted: 4, fsm.AttemptFailed: 2, fsm.AttemptRetired: 1, fsm.AttemptDead: 5,
		fsm.AttemptBlocked: 7, fsm.AttemptEmpty: 7, fsm.AttemptAbandoned: 7,
	} {
		for range times {
			l.attempted(fsm.Attempt{Delivery: fsm.Delivery{Subscription: "s", Generation: "g"}, Result: r})
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
