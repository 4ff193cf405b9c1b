package dispatcher

import (
	"context"
	"net/http"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"reveille/fsm"
	"reveille/fsm/span"
)

// untraced does all that a delivery does for traces, in a program without tracing.
func untraced(h http.Header, w fsm.Delivery) {
	var t tracing
	ctx := t.begin(context.Background(), w)
	t.send(ctx, h)
	t.end(ctx, fsm.Attempt{Delivery: w, Host: "example.com", Result: fsm.AttemptAccepted})
}

func TestWithoutTracingADeliveryAllocatesNothingForIt(t *testing.T) {
	h, w := http.Header{}, fsm.Delivery{Consumer: "s:%2Fa", WakeID: "w_1"}
	if n := testing.AllocsPerRun(100, func() { untraced(h, w) }); n != 0 || len(h) != 0 {
		t.Errorf("%v allocations, headers %v", n, h)
	}
}

func BenchmarkDeliveryWithoutTracing(b *testing.B) {
	h, w := http.Header{}, fsm.Delivery{Consumer: "s:%2Fa", WakeID: "w_1"}
	b.ReportAllocs()
	for b.Loop() {
		untraced(h, w)
	}
}

func TestTheSpanOfAnAttemptSaysWhatCameOfIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		a    fsm.Attempt
		want map[attribute.Key]string
		code codes.Code
	}{
		{
			"accepted",
			fsm.Attempt{Host: "example.com", Status: 202, Result: fsm.AttemptAccepted},
			map[attribute.Key]string{
				"reveille.outcome": "accepted", "http.response.status_code": "202", "server.address": "example.com",
				"server.port": "", "error.type": "",
			},
			codes.Unset,
		},
		{
			"done",
			fsm.Attempt{Host: "example.com:8443", Status: 200, Result: fsm.AttemptDone},
			map[attribute.Key]string{
				"reveille.outcome": "done", "server.address": "example.com", "server.port": "8443",
			},
			codes.Unset,
		},
		{
			"refused with a status",
			fsm.Attempt{
				Host: "[::1]", Status: 503, Result: fsm.AttemptFailed, Class: "unavailable", Reason: "status 503",
			},
			map[attribute.Key]string{
				"reveille.outcome": "failed", "http.response.status_code": "503", "server.address": "::1",
				"error.type": "503",
			},
			codes.Error,
		},
		{
			"gone",
			fsm.Attempt{
				Host: "example.com", Status: 410, Result: fsm.AttemptRetired, Class: "gone", Reason: "status 410",
			},
			map[attribute.Key]string{"reveille.outcome": "retired"},
			codes.Error,
		},
		{
			"not answered",
			fsm.Attempt{
				Host: "example.com", Result: fsm.AttemptFailed, Class: "timeout", Reason: "no answer in time",
			},
			map[attribute.Key]string{
				"reveille.outcome": "failed", "http.response.status_code": "", "error.type": "no answer in time",
			},
			codes.Error,
		},
		{"abandoned", fsm.Attempt{Host: "example.com", Result: fsm.AttemptAbandoned}, map[attribute.Key]string{
			"reveille.outcome": "abandoned", "error.type": "",
		}, codes.Unset},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			spans := tracetest.NewSpanRecorder()
			tr := tracing{span.New(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)),
				"reveille/dispatcher")}
			w := fsm.Delivery{Consumer: "s:%2Fa", Subscription: "s", WakeID: "w_1", Epoch: 3, Attempt: 2}
			h := http.Header{}
			c.a.Delivery = w
			ctx := tr.begin(context.Background(), w)
			tr.send(ctx, h)
			tr.end(ctx, c.a)
			if len(spans.Ended()) != 1 {
				t.Fatalf("there are %d spans", len(spans.Ended()))
			}
			s, of := spans.Ended()[0], span.TraceOf(w.Consumer, w.WakeID)
			if s.SpanContext().TraceID() != of.ID || s.Parent().SpanID() != of.Root {
				t.Errorf("it is %v below %v", s.SpanContext(), s.Parent())
			}
			want := "00-" + s.SpanContext().TraceID().String() + "-" + s.SpanContext().SpanID().String() + "-01"
			if h.Get("Traceparent") != want {
				t.Errorf("the request carries %q, want %q", h.Get("Traceparent"), want)
			}
			attributes := attribute.NewSet(s.Attributes()...)
			for k, want := range c.want {
				if v, _ := attributes.Value(k); v.String() != want {
					t.Errorf("%s is %q, want %q", k, v.String(), want)
				}
			}
			if s.Status().Code != c.code || s.Status().Description != c.a.Reason {
				t.Errorf("its status is %v", s.Status())
			}
		})
	}
}
