package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/fsm/router"
	"reveille/fsm/span"
	"reveille/fsm/throttle"
)

const (
	// flushTime bounds the export of the remaining spans at a stop. The other parts leave that much of the 30 s.
	flushTime = 2 * time.Second
	// maxExportError bounds what is logged of the error of a failed export.
	maxExportError = 300
)

// tracing exports the spans of all parts, and makes the spans of whole wakes. The zero tracing is off.
type tracing struct {
	log      *zap.Logger
	provider *sdktrace.TracerProvider
	spans    *span.Spans
}

// newTracing sets up the export. Neither its calls nor the spans wait for the collector.
func newTracing(ctx context.Context, o otelSettings, replica string, log *zap.Logger) (*tracing, error) {
	// The SDK's own log could show headers. Reveille checks the settings itself.
	otel.SetLogger(logr.Discard())
	if !o.on {
		return &tracing{log: log}, nil
	}
	otel.SetErrorHandler(&exportErrors{log: log, hide: o.hide, now: time.Now})
	var (
		exporter *otlptrace.Exporter
		err      error
	)
	if o.grpc {
		exporter, err = otlptracegrpc.New(ctx)
	} else {
		exporter, err = otlptracehttp.New(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s", errExporter, o.hide(err.Error()))
	}
	res, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "reveille"), attribute.String("service.version", programVersion()),
		attribute.String("service.instance.id", replica),
	), resource.WithFromEnv())
	if err != nil {
		return nil, &settingError{
			name: "OTEL_RESOURCE_ATTRIBUTES", value: o.Resource,
			expected: "name=value pairs, separated by commas",
		}
	}
	t := &tracing{log: log, provider: sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter), sdktrace.WithResource(res), sdktrace.WithIDGenerator(wakeIDs{}),
		sdktrace.WithSampler(wholeTraces{o.sampler}),
	)}
	t.spans = span.New(t.provider, "reveille")
	return t, nil
}

// forParts returns the provider of the parts' spans; nil if nothing is traced.
func (t *tracing) forParts() trace.TracerProvider {
	if t.provider == nil {
		return nil
	}
	return t.provider
}

// observer returns an observer that makes spans. If nothing is traced, it does nothing.
func (t *tracing) observer() router.Observer {
	if t.provider == nil {
		return router.Observer{}
	}
	return router.Observer{Transition: t.followed}
}

// followed makes the spans of an outcome.
func (t *tracing) followed(o fsm.Outcome, seen fsm.Sighting) {
	if seen.Path != "" {
		for _, w := range o.Deliveries {
			t.observed(seen, w)
		}
	}
	t.wakesEnded(o.Ended)
}

// observed makes the span of an observation that woke a consumer.
func (t *tracing) observed(seen fsm.Sighting, w fsm.Delivery) {
	// The wake begins within the call that tells the store of the tail. The first part of the call was before the wake.
	began := seen.Told
	if began.Before(w.WokeAt) {
		began = w.WokeAt
	}
	of := span.TraceOf(w.Consumer, w.WakeID)
	_, span := t.spans.Start(context.Background(), of, "observe", trace.WithTimestamp(began), trace.WithAttributes(
		attribute.String("reveille.subscription", w.Subscription),
		attribute.String("reveille.consumer", w.Consumer),
		attribute.String("reveille.wake_id", w.WakeID),
		attribute.Int64("reveille.epoch", w.Epoch),
		attribute.String("reveille.stream", seen.Path),
		attribute.String("reveille.tail", seen.Tail.Value()),
	))
	end := time.Now()
	if end.Before(began) { // the store's clock is ahead
		end = began
	}
	span.End(trace.WithTimestamp(end))
}

// wakesEnded makes the root spans of wakes that are over. A span goes from the beginning of the wake, by the store's
// clock, until now.
func (t *tracing) wakesEnded(ends []fsm.WakeEnd) {
	now := time.Now()
	for _, e := range ends {
		began := e.WokeAt
		if began.After(now) { // the store's clock is ahead
			began = now
		}
		ctx := context.WithValue(context.Background(), rootOf{}, span.TraceOf(e.Consumer, e.WakeID))
		_, span := t.spans.Below(ctx, "wake", trace.WithTimestamp(began), trace.WithAttributes(
			attribute.String("reveille.subscription", e.Subscription),
			attribute.String("reveille.consumer", e.Consumer),
			attribute.String("reveille.stream", e.Primary),
			attribute.String("reveille.wake_id", e.WakeID),
			attribute.Int64("reveille.epoch", e.Epoch),
			attribute.String("reveille.wake.end", string(e.Cause)),
		))
		if e.Cause == fsm.EndSilent {
			span.SetStatus(codes.Error, "the worker was not heard of for the liveness timeout")
		}
		span.End(trace.WithTimestamp(now))
	}
}

// stop exports the remaining spans, for at most flushTime.
func (t *tracing) stop(ctx context.Context) {
	if t.provider == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.log.Warn("the last spans were not exported", zap.Error(err))
	}
}

// rootOf is the context key for a root span. Its value is the span.Trace.
type rootOf struct{}

// wakeIDs gives the root span of a wake the IDs that every replica computes. Any other span gets random IDs.
type wakeIDs struct{}

func (wakeIDs) NewIDs(ctx context.Context) (id trace.TraceID, root trace.SpanID) {
	if t, ok := ctx.Value(rootOf{}).(span.Trace); ok {
		return t.ID, t.Root
	}
	_, _ = rand.Read(id[:])
	_, _ = rand.Read(root[:])
	return id, root
}

func (wakeIDs) NewSpanID(context.Context, trace.TraceID) (id trace.SpanID) {
	_, _ = rand.Read(id[:])
	return id
}

// wholeTraces samples every span of a trace or none, whichever replica makes it. It decides as for the root span.
type wholeTraces struct{ root sdktrace.Sampler }

func (s wholeTraces) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	state := trace.SpanContextFromContext(p.ParentContext).TraceState()
	p.ParentContext = context.Background()
	r := s.root.ShouldSample(p)
	r.Tracestate = state
	return r
}

func (s wholeTraces) Description() string { return s.root.Description() }

// exportErrors logs what goes wrong with the export.
type exportErrors struct {
	log     *zap.Logger
	hide    func(string) string
	now     func() time.Time
	trouble throttle.Trouble
}

// Handle implements otel.ErrorHandler.
func (e *exportErrors) Handle(err error) {
	if err == nil {
		return
	}
	if times, log := e.trouble.Happened(e.now()); log {
		e.log.Warn("traces are not exported", zap.Int("failures", times), zap.String("error", e.hide(err.Error())))
	}
}
