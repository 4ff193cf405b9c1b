package native

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"reveille/fsm"
	"reveille/fsm/span"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// maxTracedWake is how long a wake ID may be, in bytes, to appear in a span. It is far longer than Reveille's own wake
// IDs, and far shorter than what a body may hold. Spans wait in memory until they are exported.
const maxTracedWake = 100

// tracing makes the spans of callbacks. The zero value, for a program that is not traced, does nothing and allocates
// nothing.
type tracing struct{ spans *span.Spans }

// answered makes the span of a callback after its answer is decided: only then its wake, and so its trace, is known. A
// callback without a known wake has no span. It belongs to an earlier epoch, or its consumer is gone, and it does not
// name a wake.
func (t tracing) answered(
	c echo.Context, begun time.Time, b bearer, req callbackRequest, reply fsm.CallbackReply, err error,
) {
	if t.spans == nil {
		return
	}
	wake := reply.WakeID
	if wake == "" && len(req.wakeID) <= maxTracedWake {
		wake = req.wakeID
	}
	if wake != "" {
		t.span(c, begun, b, req, wake, err)
	}
}

func (t tracing) span(c echo.Context, begun time.Time, b bearer, req callbackRequest, wake string, err error) {
	status := http.StatusOK
	if err != nil {
		status = c.Response().Status
	}
	options := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(begun),
		trace.WithAttributes(
			attribute.String("reveille.consumer", b.Consumer),
			attribute.String("reveille.wake_id", wake),
			attribute.Int64("reveille.epoch", req.epoch),
			attribute.Bool("reveille.callback.claim", req.wakeID != ""),
			attribute.Int("reveille.callback.acks", len(req.acks)),
			attribute.Bool("reveille.callback.done", req.done),
			attribute.String("http.request.method", http.MethodPost),
			attribute.Int("http.response.status_code", status),
		),
	}
	ctx, link := parent(c.Request(), span.TraceOf(b.Consumer, wake))
	if link.SpanContext.IsValid() {
		options = append(options, trace.WithLinks(link))
	}
	_, span := t.spans.Below(ctx, "callback", options...)
	defer span.End()
	if err == nil {
		return
	}
	code := fsm.CodeInternal
	if errors.Is(err, fsm.ErrUnavailable) || status == web.Status(fsm.CodeUnavailable) {
		code = fsm.CodeUnavailable
	}
	var r *refusal.Error
	if errors.As(err, &r) {
		code = r.Code
	}
	span.SetAttributes(
		attribute.String("reveille.callback.code", string(code)), attribute.String("error.type", string(code)))
	if status >= http.StatusInternalServerError { // what a worker did wrong is its own span's error
		span.SetStatus(codes.Error, string(code))
	}
}

// parent is the worker's span if the callback carries one of the wake's own trace, and otherwise the wake's root. If
// the worker's span is in another trace, the span of the callback links to it. Its tracestate is left out: nothing uses
// it, and it can be long.
func parent(r *http.Request, of span.Trace) (context.Context, trace.Link) {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.HeaderCarrier(r.Header))
	worker := trace.SpanContextFromContext(ctx).WithTraceState(trace.TraceState{})
	if worker.IsValid() && worker.TraceID() == of.ID {
		return trace.ContextWithRemoteSpanContext(context.Background(), worker), trace.Link{}
	}
	return trace.ContextWithRemoteSpanContext(context.Background(), of.RootSpan()), trace.Link{SpanContext: worker}
}
