package main

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"reveille/fsm"
)

func TestConsumersThatAreGoneAreCountedAndLogged(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	g := newConsumersGone(prometheus.NewRegistry(), zap.New(core))
	for _, cause := range fsm.GoneCauses {
		g.followed(fsm.Outcome{Gone: []fsm.Gone{{
			Subscription: "s", Generation: "g", Consumer: "s:%2Fa", Primary: "/a",
			Acked: fsm.IncarnateOffset("x", "0004", "4"), Cause: cause,
		}}}, fsm.Sighting{})
		if n := testutil.ToFloat64(g.count[cause]); n != 1 {
			t.Errorf("%s is counted %g times", cause, n)
		}
		lines := logs.TakeAll()
		if len(lines) != 1 {
			t.Fatalf("%s has %d lines", cause, len(lines))
		}
		for field, want := range map[string]any{
			"cause": string(cause), "subscription": "s", "stream": "/a", "consumer": "s:%2Fa", "acked": "4",
			"consumers": int64(1),
		} {
			if got := lines[0].ContextMap()[field]; got != want {
				t.Errorf("%s: %s is %v, want %v", cause, field, got, want)
			}
		}
		if alarming := lines[0].Level > zap.InfoLevel; alarming != (cause == fsm.GoneGivenUp) {
			t.Errorf("%s is logged as %s", cause, lines[0].Level)
		}
	}
}

func TestWakesOfWorkersThatAreNotHeardOfAgainAreCounted(t *testing.T) {
	t.Parallel()
	w := newWakesEnded(prometheus.NewRegistry())
	for _, cause := range []fsm.EndCause{
		fsm.EndSilent, fsm.EndDone, fsm.EndRemoved, fsm.EndLost, fsm.EndRestarted,
		fsm.EndSilent,
	} {
		w.followed(fsm.Outcome{Ended: []fsm.WakeEnd{{Cause: cause}}}, fsm.Sighting{})
	}
	if n := testutil.ToFloat64(w.silent); n != 2 {
		t.Errorf("%g wakes, want 2", n)
	}
}
