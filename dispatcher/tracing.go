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
	"reveille/fsm/span"
)

// tracing makes the spans of delivery attempts. Its zero value is for a program without tracing: it does nothing and
// allocates nothing.
type tracing struct{ spans *span.Spans }

// begin returns the context of an attempt, with a span below the wake's root span.
func (t tracing) begin(ctx context.Context, w fsm.Delivery) context.Context {
	if t.spans == nil {
		return ctx
	}
	ctx, _ = t.spans.Start(ctx, span.TraceOf(w.Consumer, w.WakeID), "deliver", trace.WithSpanKind(trace.SpanKindClient))
	return ctx
}

// send puts the attempt's span into the header of a request, so that the spans of a worker become its children.
func (t tracing) send(ctx context.Context, h http.Header) {
	if t.spans != nil {
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(h))
	}
}

// end ends the span of an attempt. It is called once, with the attempt's context.
func (t tracing) end(ctx context.Context, a fsm.Attempt) {
	if t.spans == nil {
		return
	}
	span := trace.SpanFromContext(ctx)
	defer span.End()
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(
		attribute.String("reveille.subscription", a.Delivery.Subscription),
		attribute.String("reveille.consumer", a.Delivery.Consumer),
		attribute.String("reveille.wake_id", a.Delivery.WakeID),
		attribute.Int64("reveille.epoch", a.Delivery.Epoch),
		attribute.Int("reveille.attempt", a.Delivery.Attempt),
		attribute.String("reveille.outcome", a.Result.String()),
		attribute.String("http.request.method", http.MethodPost),
	)
	if name, port, err := net.SplitHostPort(a.Host); err == nil {
		n, _ := strconv.Atoi(port) // the port was dialled, so it is a number
		span.SetAttributes(attribute.String("server.address", name), attribute.Int("server.port", n))
	} else {
		span.SetAttributes(attribute.String("server.address", strings.Trim(a.Host, "[]")))
	}
	if a.Blocked != "" {
		span.SetAttributes(attribute.String("reveille.blocked", string(a.Blocked)))
	}
	if a.Status != 0 {
		span.SetAttributes(attribute.Int("http.response.status_code", a.Status))
	}
	if a.Class == "" {
		return
	}
	kind := a.Reason
	if a.Status != 0 {
		kind = strconv.Itoa(a.Status)
	}
	span.SetAttributes(attribute.String("error.type", kind))
	span.SetStatus(codes.Error, a.Reason)
}
