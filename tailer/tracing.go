package tailer

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"reveille/fsm"
)

// tracing makes the spans of observations that woke somebody. A nil one, for a program that is not traced, does nothing and
// allocates nothing.
type tracing struct {
	tracer trace.Tracer
	ended  func([]fsm.WakeEnd)
}

func newTracing(p trace.TracerProvider, ended func([]fsm.WakeEnd)) *tracing {
	if p == nil {
		return nil
	}
	if ended == nil {
		ended = func([]fsm.WakeEnd) {}
	}
	return &tracing{p.Tracer("reveille/tailer"), ended}
}

// sight is what was seen of a stream, and when the store began to be told of it.
type sight struct {
	begun time.Time
	path  string
	tail  fsm.Offset
}

func telling(path string, tail fsm.Offset) sight { return sight{time.Now(), path, tail} }

// followed makes the spans of what came of a sight.
func (t *tracing) followed(s sight, o fsm.Outcome) {
	if t == nil {
		return
	}
	for _, w := range o.Wakes {
		t.observed(s, w)
	}
	if len(o.Ended) > 0 {
		t.ended(o.Ended)
	}
}

func (t *tracing) observed(s sight, w fsm.Wake) {
	of := fsm.TraceOf(w.Consumer, w.WakeID)
	ctx := trace.ContextWithRemoteSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: of.ID, SpanID: of.Root, TraceFlags: trace.FlagsSampled,
	}))
	// The wake begins within the call that tells the store of the tail: its first part was before the wake.
	begun := s.begun
	if begun.Before(w.WokeAt) {
		begun = w.WokeAt
	}
	_, span := t.tracer.Start(ctx, "observe", trace.WithTimestamp(begun), trace.WithAttributes(
		attribute.String("reveille.subscription", w.Subscription),
		attribute.String("reveille.consumer", w.Consumer),
		attribute.String("reveille.wake_id", w.WakeID),
		attribute.Int64("reveille.epoch", w.Epoch),
		attribute.String("reveille.stream", s.path),
		attribute.String("reveille.tail", s.tail.Value()),
	))
	end := time.Now()
	if end.Before(begun) { // the store's clock is ahead
		end = begun
	}
	span.End(trace.WithTimestamp(end))
}
