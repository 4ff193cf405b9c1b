package throttle

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestTroubleDoesNotFloodTheLog(t *testing.T) {
	// run has it happen every interval for as long as span, and returns when it was worth a line.
	run := func(tr *Trouble, from time.Time, interval, span time.Duration) (lines []string) {
		for at := time.Duration(0); at < span; at += interval {
			if times, log := tr.Happened(from.Add(at)); log {
				lines = append(lines, fmt.Sprintf("%s:%d", at, times))
			}
		}
		return lines
	}
	var tr Trouble
	if got, want := fmt.Sprint(run(&tr, t0, 60*time.Millisecond, time.Hour)),
		"[0s:1 30s:500 1m30s:1000 3m30s:2000 7m30s:4000 15m30s:8000 25m30s:10000 35m30s:10000 45m30s:10000 "+
			"55m30s:10000]"; got != want {
		t.Errorf("1,000 a minute, for an hour: %s, want %s", got, want)
	}
	if !tr.Over() || tr.Over() {
		t.Error("a recovery is worth one line")
	}
	again := t0.Add(time.Hour)
	if got, want := fmt.Sprint(run(&tr, again, time.Second, time.Minute)), "[0s:4500 30s:30]"; got != want {
		t.Errorf("after a recovery: %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(run(&tr, again.Add(2*time.Hour), time.Second, time.Minute)),
		"[0s:30 30s:30]"; got != want {
		t.Errorf("after a long quiet: %s, want %s", got, want)
	}
	flapping, lines := Trouble{}, 0
	for at := time.Duration(0); at < time.Hour; at += time.Second {
		if _, log := flapping.Happened(t0.Add(at)); log {
			lines++
		}
		if flapping.Over() {
			lines++
		}
	}
	if lines > 4*60 {
		t.Errorf("one that comes and goes every second has %d lines in an hour", lines)
	}
}

func TestALineSaysHowManyTimesAndOthersAreDropped(t *testing.T) {
	var tr Trouble
	core, lines := observer.New(zap.WarnLevel)
	for _, at := range []time.Duration{0, time.Second, summaryFirst} {
		tr.Log(zap.New(core), t0.Add(at)).Warn("again")
	}
	var got []any
	for _, line := range lines.All() {
		got = append(got, line.ContextMap()["times"])
	}
	if fmt.Sprint(got) != "[1 2]" {
		t.Errorf("the lines say %v times", got)
	}
}
