package fsm

import (
	"context"
	"crypto/sha256"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// Trace ties the spans of one wake together. Every replica computes it by itself. So a trace goes on over replicas and
// restarts without a stored record.
type Trace struct {
	// ID of the trace.
	ID [16]byte
	// Root is the ID of the span that stands for the whole wake.
	Root [8]byte
}

// TraceOf returns the trace of a consumer's wake.
func TraceOf(consumer, wakeID string) (t Trace) {
	sum := sha256.Sum256([]byte("trace:" + consumer + "\x00" + wakeID))
	copy(t.Root[:], sum[copy(t.ID[:], sum[:]):])
	return t
}

// RootSpan returns the context of the span that stands for the whole wake. That span is exported when the wake is over.
func (t Trace) RootSpan() trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: t.ID, SpanID: t.Root, TraceFlags: trace.FlagsSampled})
}

// Spans makes spans below the spans of wakes. In a program that is not traced it is nil: its holder checks that first.
type Spans struct{ tracer trace.Tracer }

// NewSpans returns the Spans of a part of the program; nil if nothing is traced.
func NewSpans(p trace.TracerProvider, part string) *Spans {
	if p == nil {
		return nil
	}
	return &Spans{p.Tracer(part)}
}

// Start begins a span directly below the root span of a wake.
func (s *Spans) Start(
	ctx context.Context, of Trace, name string, options ...trace.SpanStartOption,
) (context.Context, trace.Span) {
	return s.Below(trace.ContextWithRemoteSpanContext(ctx, of.RootSpan()), name, options...)
}

// Below begins a span below the current span of the context.
func (s *Spans) Below(
	ctx context.Context, name string, options ...trace.SpanStartOption,
) (context.Context, trace.Span) {
	return s.tracer.Start(ctx, name, options...)
}

// WakeEnd is a wake that is over.
type WakeEnd struct {
	Consumer     string
	Subscription string
	Primary      string
	Epoch        int64
	WakeID       string
	// WokeAt is when it began, by the store's clock.
	WokeAt time.Time
	Cause  EndCause
}

// EndCause is why a wake is over.
type EndCause string

// The causes.
const (
	// EndDone: the worker has said that it is done.
	EndDone EndCause = "done"
	// EndSilent: the worker was not heard of for the liveness timeout.
	EndSilent EndCause = "silent"
	// EndRestarted: a stream of the consumer was made anew, and it starts over with another wake.
	EndRestarted EndCause = "restarted"
	// EndRemoved: the consumer is gone.
	EndRemoved EndCause = "removed"
	// EndLost: the store may have lost the result of the wake, and another wake takes its place.
	EndLost EndCause = "lost"
)

// EndCauses are all causes.
var EndCauses = []EndCause{EndDone, EndSilent, EndRestarted, EndRemoved, EndLost}
