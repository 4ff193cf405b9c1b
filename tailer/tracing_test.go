package tailer

import (
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"reveille/fsm"
)

func TestAnObservationHasASpanForEachWakeAndNoneWithout(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewSpanRecorder()
	var ended []fsm.WakeEnd
	tr := newTracing(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)), func(ends []fsm.WakeEnd) { ended = append(ended, ends...) })
	s := telling("/a", fsm.KeyedOffset("0001", "1"))
	tr.followed(s, fsm.Outcome{Idle: []string{"/a"}})
	if n := len(spans.Ended()); n != 0 {
		t.Fatalf("an observation that woke nobody has %d spans", n)
	}
	wakes := []fsm.Wake{
		{Consumer: "s:%2Fa", WakeID: "w_1", WokeAt: s.begun.Add(-time.Millisecond)},
		{Consumer: "u:%2Fa", WakeID: "w_2", WokeAt: s.begun.Add(time.Hour)}, // the store's clock is ahead
	}
	tr.followed(s, fsm.Outcome{Wakes: wakes, Ended: []fsm.WakeEnd{{WakeID: "w_0"}}})
	if len(spans.Ended()) != 2 || len(ended) != 1 {
		t.Fatalf("two wakes have %d spans, and %d wakes are over", len(spans.Ended()), len(ended))
	}
	for i, span := range spans.Ended() {
		of := fsm.TraceOf(wakes[i].Consumer, wakes[i].WakeID)
		if span.SpanContext().TraceID() != of.ID || span.Parent().SpanID() != of.Root {
			t.Errorf("it is %v below %v", span.SpanContext(), span.Parent())
		}
		if span.StartTime().Before(wakes[i].WokeAt) || span.EndTime().Before(span.StartTime()) {
			t.Errorf("it lasts from %s to %s, the wake began at %s", span.StartTime(), span.EndTime(), wakes[i].WokeAt)
		}
		attributes := attribute.NewSet(span.Attributes()...)
		for k, want := range map[attribute.Key]string{"reveille.stream": "/a", "reveille.tail": "1", "reveille.wake_id": wakes[i].WakeID} {
			if v, _ := attributes.Value(k); v.AsString() != want {
				t.Errorf("%s is %q, want %q", k, v.AsString(), want)
			}
		}
	}
}

// untraced is all that an observation does for traces, in a program that is not traced.
func untraced(o fsm.Outcome) {
	var t *tracing
	t.followed(telling("/a", "1"), o)
}

func TestWithoutTracingAnObservationAllocatesNothingForIt(t *testing.T) {
	o := fsm.Outcome{Wakes: []fsm.Wake{{Consumer: "s:%2Fa", WakeID: "w_1"}}}
	if n := testing.AllocsPerRun(100, func() { untraced(o) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkObservationWithoutTracing(b *testing.B) {
	o := fsm.Outcome{Wakes: []fsm.Wake{{Consumer: "s:%2Fa", WakeID: "w_1"}}}
	b.ReportAllocs()
	for b.Loop() {
		untraced(o)
	}
}
