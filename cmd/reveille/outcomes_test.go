package main

import (
	"maps"
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
	// What is lost unasked has a line for each consumer.
	lines := map[fsm.RemovalCause]int{
		fsm.RemovedUnsubscribed: 1, fsm.RemovedGivenUp: 2, fsm.RemovedStreamDeleted: 1, fsm.RemovedStreamGone: 2,
		fsm.RemovedStreamRecreated: 2, fsm.RemovedSubscriptionDeleted: 1,
	}
	for _, cause := range fsm.RemovalCauses {
		one := fsm.Removal{
			Subscription: "s", Generation: "g", Consumer: "s:%2Fa", Primary: "/a",
			Acked: fsm.IncarnateOffset("x", "0004", "4"), Cause: cause,
		}
		g.followed(fsm.Outcome{Removed: []fsm.Removal{one, one}}, fsm.Sighting{})
		if n := testutil.ToFloat64(g.count[cause]); n != 2 {
			t.Errorf("%s is counted %g times", cause, n)
		}
		lines, want := logs.TakeAll(), lines[cause]
		if len(lines) != want {
			t.Fatalf("%s has %d lines, want %d", cause, len(lines), want)
		}
		fields := map[string]any{
			"cause": string(cause), "subscription": "s", "stream": "/a", "consumer": "s:%2Fa", "acked": "4",
		}
		if want == 1 {
			fields["consumers"] = int64(1) // those since the last line
		}
		if got := lines[0].ContextMap(); !maps.Equal(got, fields) {
			t.Errorf("%s: %v, want %v", cause, got, fields)
		}
		if alarming := lines[0].Level > zap.InfoLevel; alarming != (cause == fsm.RemovedGivenUp) {
			t.Errorf("%s is logged as %s", cause, lines[0].Level)
		}
	}
}

// TestWhatAStreamLeavesIsLogged holds that streams which are deleted by the thousand have one line.
func TestWhatAStreamLeavesIsLogged(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	g := newConsumersGone(prometheus.NewRegistry(), zap.New(core))
	left := fsm.Left{Subscription: "s", Stream: "/a", Cause: fsm.RemovedStreamDeleted, Letters: 3}
	for range 1000 {
		g.followed(fsm.Outcome{Left: []fsm.Left{left, left}}, fsm.Sighting{})
	}
	lines := logs.TakeAll()
	want := map[string]any{
		"cause": "stream_deleted", "subscription": "s", "stream": "/a", "dead_letters": int64(3), "consumers": int64(1),
	}
	if len(lines) != 1 || lines[0].Level != zap.WarnLevel || !maps.Equal(lines[0].ContextMap(), want) {
		t.Errorf("the lines are %+v", lines)
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
