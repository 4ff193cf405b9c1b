// Package span ties the spans of one wake together, and makes spans below them.
package span

import (
	"context"
	"crypto/sha256"

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

// New returns the Spans of a part of the program; nil if nothing is traced.
func New(p trace.TracerProvider, part string) *Spans {
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
