package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/fsm/span"
)

// replica returns what one replica makes spans with, and where they go.
func replica(s sdktrace.Sampler) (*tracing, *tracetest.SpanRecorder) {
	spans := tracetest.NewSpanRecorder()
	p := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans), sdktrace.WithIDGenerator(wakeIDs{}),
		sdktrace.WithSampler(wholeTraces{s}))
	return &tracing{log: zap.NewNop(), provider: p, spans: span.New(p, "test")}, spans
}

func TestEveryReplicaMakesTheSameRootAndTheSameSamplingDecision(t *testing.T) {
	t.Parallel()
	one, spansOfOne := replica(sdktrace.TraceIDRatioBased(0.5))
	two, spansOfTwo := replica(sdktrace.TraceIDRatioBased(0.5))
	sampled := 0
	for i := range 200 {
		end := fsm.WakeEnd{
			Consumer: "s:%2Fa", WakeID: fmt.Sprintf("w_%d", i), WokeAt: time.Now().Add(-time.Second),
			Cause: fsm.EndDone,
		}
		of := span.TraceOf(end.Consumer, end.WakeID)
		spansOfOne.Reset()
		spansOfTwo.Reset()
		one.wakesEnded([]fsm.WakeEnd{end})
		ctx, span := two.spans.Start(context.Background(), of, "deliver")
		span.End()
		roots, children := spansOfOne.Ended(), spansOfTwo.Ended()
		if len(roots) != len(children) || trace.SpanContextFromContext(ctx).IsSampled() != (len(children) == 1) {
			t.Fatalf("of wake %d one replica has sampled %d spans, the other %d", i, len(roots), len(children))
		}
		if len(roots) == 0 {
			continue
		}
		sampled++
		root, child := roots[0], children[0]
		if root.SpanContext().TraceID() != of.ID || root.SpanContext().SpanID() != of.Root || root.Parent().IsValid() {
			t.Fatalf("the root is %v below %v, want %x", root.SpanContext(), root.Parent(), of)
		}
		if child.SpanContext().TraceID() != of.ID || child.Parent().SpanID() != of.Root ||
			child.SpanContext().SpanID() == of.Root {
			t.Fatalf("the child is %v below %v", child.SpanContext(), child.Parent())
		}
		if !root.StartTime().Equal(end.WokeAt) || root.EndTime().Before(root.StartTime()) {
			t.Fatalf("the root lasts from %s to %s", root.StartTime(), root.EndTime())
		}
	}
	if sampled == 0 || sampled == 200 {
		t.Errorf("%d of 200 wakes were sampled at a ratio of a half", sampled)
	}
}

func TestAWakeThatAClockAheadHasBegunEndsAfterItBegan(t *testing.T) {
	t.Parallel()
	tr, spans := replica(sdktrace.AlwaysSample())
	tr.wakesEnded([]fsm.WakeEnd{{WakeID: "w_1", WokeAt: time.Now().Add(time.Hour)}})
	for _, s := range spans.Ended() {
		if s.EndTime().Before(s.StartTime()) || time.Since(s.StartTime()) > time.Minute {
			t.Errorf("it lasts from %s to %s", s.StartTime(), s.EndTime())
		}
	}
	if len(spans.Ended()) != 1 {
		t.Errorf("there are %d spans", len(spans.Ended()))
	}
}

// TestAStopDoesNotWaitForACollectorThatHangs would hang itself.
func TestAStopDoesNotWaitForACollectorThatHangs(t *testing.T) {
	asked, release := make(chan struct{}, 16), make(chan struct{})
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-release
	}))
	defer collector.Close()
	defer close(release)
	otelEnviron(t, "EXPORTER_OTLP_ENDPOINT", collector.URL, "EXPORTER_OTLP_TIMEOUT", "3600000", "BSP_EXPORT_TIMEOUT",
		"3600000")
	o, err := loadOTel()
	if err != nil {
		t.Fatal(err)
	}
	tr, err := newTracing(t.Context(), o, "one", zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	tr.wakesEnded([]fsm.WakeEnd{{Consumer: "s:%2Fa", WakeID: "w_1", WokeAt: time.Now()}})
	tr.stop(t.Context())
	select {
	case <-asked:
	default:
		t.Error("the collector was not asked")
	}
}

func TestWithoutTracingThePartsGetNothing(t *testing.T) {
	otelEnviron(t)
	o, err := loadOTel()
	if err != nil {
		t.Fatal(err)
	}
	tr, err := newTracing(t.Context(), o, "one", zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if tracer := tr.forParts(); tracer != nil {
		t.Errorf("they get %v", tracer)
	}
	tr.stop(t.Context())
}

func TestAnObservationHasASpanForEachWakeAndNoneWithout(t *testing.T) {
	t.Parallel()
	tr, spans := replica(sdktrace.AlwaysSample())
	seen := fsm.Sighting{Told: time.Now(), Path: "/a", Tail: fsm.IncarnateOffset("x", "0001", "1")}
	wakes := []fsm.Delivery{
		{Consumer: "s:%2Fa", WakeID: "w_1", WokeAt: seen.Told.Add(-time.Millisecond)},
		{Consumer: "u:%2Fa", WakeID: "w_2", WokeAt: seen.Told.Add(time.Hour)}, // the store's clock is ahead
	}
	tr.followed(fsm.Outcome{Idle: []string{"/a"}}, seen)
	tr.followed(fsm.Outcome{Deliveries: wakes}, fsm.Sighting{}) // a retry is no observation
	if n := len(spans.Ended()); n != 0 {
		t.Fatalf("an observation that woke nobody has %d spans", n)
	}
	tr.followed(fsm.Outcome{Deliveries: wakes}, seen)
	if len(spans.Ended()) != 2 {
		t.Fatalf("two wakes have %d spans", len(spans.Ended()))
	}
	for i, s := range spans.Ended() {
		of := span.TraceOf(wakes[i].Consumer, wakes[i].WakeID)
		if s.SpanContext().TraceID() != of.ID || s.Parent().SpanID() != of.Root {
			t.Errorf("it is %v below %v", s.SpanContext(), s.Parent())
		}
		if s.StartTime().Before(wakes[i].WokeAt) || s.EndTime().Before(s.StartTime()) {
			t.Errorf("it lasts from %s to %s, the wake began at %s", s.StartTime(), s.EndTime(), wakes[i].WokeAt)
		}
		attributes := attribute.NewSet(s.Attributes()...)
		for k, want := range map[attribute.Key]string{
			"reveille.stream": "/a", "reveille.tail": "1",
			"reveille.wake_id": wakes[i].WakeID,
		} {
			if v, _ := attributes.Value(k); v.AsString() != want {
				t.Errorf("%s is %q, want %q", k, v.AsString(), want)
			}
		}
	}
}

func TestWithoutTracingAnOutcomeCostsNothingForIt(t *testing.T) {
	tr := &tracing{log: zap.NewNop()}
	if o := tr.observer(); o.Transition != nil || o.Attempt != nil {
		t.Error("the traces of a program that is not traced observe it")
	}
}
