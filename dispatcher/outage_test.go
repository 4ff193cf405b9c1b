package dispatcher

import (
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"reveille/fsm"
	"reveille/fsm/throttle"
)

func TestAStoreThatAnswersEveryOtherCallDoesNotFillTheLog(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	now := time.Unix(1_700_000_000, 0)
	o := &outage{&throttle.Outage{}, zap.New(core), func() time.Time { return now }}
	for range 5 * 60 {
		o.failed(fsm.ErrUnavailable)
		now = now.Add(100 * time.Millisecond)
		o.over()
		now = now.Add(100 * time.Millisecond)
	}
	begun, ended := logs.FilterMessageSnippet("does not answer"), logs.FilterMessageSnippet("answers again")
	if begun.Len() != 2 || ended.Len() != 2 {
		t.Fatalf("in a minute its outages were logged %d times, their ends %d times, want twice each",
			begun.Len(), ended.Len())
	}
	if n := begun.All()[1].ContextMap()["times"]; n != int64(150) {
		t.Errorf("the second line tells of %v outages, want 150", n)
	}
	// An outage that lasts is logged, even if it begins within the pause.
	for range 40 {
		o.failed(fsm.ErrUnavailable)
		now = now.Add(time.Second)
	}
	if begun := logs.FilterMessageSnippet("does not answer"); begun.Len() != 3 {
		t.Errorf("an outage of 40 s was not logged: %d lines in all", begun.Len())
	}
	o.over()
	ended = logs.FilterMessageSnippet("answers again")
	if ended.Len() != 3 || ended.All()[2].ContextMap()["outage"] != 40*time.Second {
		t.Errorf("its end is %+v", ended.All())
	}
}
