package dispatcher

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"reveille/fsm"
)

// tracing makes the spans of delivery attempts. A nil one, for a program that is not traced, does nothing and allocates nothing.
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
	return &tracing{p.Tracer("reveille/dispatcher"), ended}
}

// begin returns the context of an attempt: below the wake's root span, which is exported when the wake is over.
func (t *tracing) begin(ctx context.Context, w fsm.Wake) context.Context {
	if t == nil {
		return ctx
	}
	of := fsm.TraceOf(w.Consumer, w.WakeID)
	ctx = trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: of.ID, SpanID: of.Root, TraceFlags: trace.FlagsSampled,
	}))
	ctx, _ = t.tracer.Start(ctx, "deliver", trace.WithSpanKind(trace.SpanKindClient))
	return ctx
}

// send has a request carry the attempt's span, so that the spans of a worker hang in it.
func (t *tracing) send(ctx context.Context, h http.Header) {
	if t != nil {
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(h))
	}
}

// end is to be called once with the context of an attempt. Of the webhook's URL only the host is told: the rest may be a secret.
func (t *tracing) end(ctx context.Context, w fsm.Wake, host string, a answer) {
	if t == nil {
		return
	}
	span := trace.SpanFromContext(ctx)
	defer span.End()
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(
		attribute.String("reveille.subscription", w.Subscription),
		attribute.String("reveille.consumer", w.Consumer),
		attribute.String("reveille.wake_id", w.WakeID),
		attribute.Int64("reveille.epoch", w.Epoch),
		attribute.Int("reveille.attempt", w.Attempt),
		attribute.String("reveille.outcome", outcomeNames[a.result]),
		attribute.String("http.request.method", http.MethodPost),
	)
	if name, port, err := net.SplitHostPort(host); err == nil {
		n, _ := strconv.Atoi(port) // it was dialled
		span.SetAttributes(attribute.String("server.address", name), attribute.Int("server.port", n))
	} else {
		span.SetAttributes(attribute.String("server.address", strings.Trim(host, "[]")))
	}
	if a.status != 0 {
		span.SetAttributes(attribute.Int("http.response.status_code", a.status))
	}
	if a.ok() || a.result == abandoned {
		return
	}
	kind := a.reason
	if a.status != 0 {
		kind = strconv.Itoa(a.status)
	}
	span.SetAttributes(attribute.String("error.type", kind))
	span.SetStatus(codes.Error, a.reason)
}

// followed tells of the wakes that a transition has ended.
func (t *tracing) followed(o fsm.Outcome) {
	if t != nil && len(o.Ended) > 0 {
		t.ended(o.Ended)
	}
}
