package native

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"reveille/fsm"
	"reveille/fsm/span"
	"reveille/httpapi/web"
)

func TestACallbacksSpanHangsInTheWorkersIfThatIsOfTheSameTrace(t *testing.T) {
	t.Parallel()
	of := span.TraceOf("s:%2Fa", "w_1")
	own, root := trace.TraceID(of.ID).String(), trace.SpanID(of.Root).String()
	const other, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for _, c := range []struct {
		name, traceparent, parent string
		link                      string
	}{
		{name: "none", parent: root},
		{name: "of the same trace", traceparent: "00-" + own + "-" + span + "-01", parent: span},
		{name: "of the same trace, not sampled", traceparent: "00-" + own + "-" + span + "-00", parent: span},
		{name: "of another trace", traceparent: "00-" + other + "-" + span + "-01", parent: root, link: other},
		{name: "no span", traceparent: "00-" + own + "-0000000000000000-01", parent: root},
		{name: "malformed", traceparent: "00-" + own + "-x-01", parent: root},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/callback/s:%2Fa", http.NoBody)
			if c.traceparent != "" {
				r.Header.Set("Traceparent", c.traceparent)
			}
			ctx, link := parent(r, of)
			sc := trace.SpanContextFromContext(ctx)
			if sc.TraceID() != of.ID || sc.SpanID().String() != c.parent || !sc.IsRemote() {
				t.Errorf("it hangs in %v, want %s of %s", sc, c.parent, own)
			}
			if link.SpanContext.IsValid() != (c.link != "") || c.link != "" &&
				link.SpanContext.TraceID().String() != c.link {
				t.Errorf("it is linked to %v, want %q", link.SpanContext, c.link)
			}
		})
	}
}

func TestASpanIsSmallWhateverAWorkerSends(t *testing.T) {
	t.Parallel()
	const most = 8 << 10
	spans := tracetest.NewSpanRecorder()
	traces := tracing{span.New(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)), "reveille/httpapi")}
	var state []string
	for i := range 32 {
		state = append(state, fmt.Sprintf("k%d=%s", i, strings.Repeat("x", 256)))
	}
	of := span.TraceOf("s:%2Fa", "w_1")
	for name, c := range map[string]struct {
		wakeID, trace string
		reply         fsm.CallbackReply
	}{
		"a long wake id": {
			wakeID: strings.Repeat("w", web.MaxBody/2),
			trace:  "0af7651916cd43dd8448eb211c80319c",
		},
		"a long wake id beside the right one": {
			wakeID: strings.Repeat("w", web.MaxBody/2),
			trace:  "0af7651916cd43dd8448eb211c80319c", reply: fsm.CallbackReply{WakeID: "w_1"},
		},
		"a long tracestate":                  {wakeID: "w_1", trace: trace.TraceID(of.ID).String()},
		"a long tracestate of another trace": {wakeID: "w_1", trace: "0af7651916cd43dd8448eb211c80319c"},
		"a wake id that Reveille could have made, ok": {
			wakeID: "w_0123456789abcdef0123",
			trace:  "0af7651916cd43dd8448eb211c80319c",
		},
	} {
		spans.Reset()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/callback/s:%2Fa", http.NoBody)
		r.Header.Set("Traceparent", "00-"+c.trace+"-b7ad6b7169203331-01")
		r.Header.Set("Tracestate", strings.Join(state, ","))
		traces.answered(echo.New().NewContext(r, httptest.NewRecorder()), time.Now(), bearer{},
			callbackRequest{wakeID: c.wakeID}, c.reply, nil)
		if want := len(c.wakeID) <= maxTracedWake || c.reply.WakeID != ""; len(spans.Ended()) == 1 != want {
			t.Errorf("%s: %d spans", name, len(spans.Ended()))
		}
		for _, s := range spans.Ended() {
			size := len(s.SpanContext().TraceState().String()) + len(s.Parent().TraceState().String())
			for _, a := range s.Attributes() {
				size += len(a.Value.String())
			}
			for _, l := range s.Links() {
				size += len(l.SpanContext.TraceState().String())
			}
			if size > most {
				t.Errorf("%s: the span has %d bytes of what the worker sent", name, size)
			}
		}
	}
}

// untraced is all that a callback does for traces, in a program that is not traced.
func untraced(c echo.Context) {
	var t tracing
	defer t.answered(c, time.Now(), bearer{}, callbackRequest{wakeID: "w_1"}, fsm.CallbackReply{}, nil)
}

func TestWithoutTracingACallbackAllocatesNothingForIt(t *testing.T) {
	c := echo.New().NewContext(nil, nil)
	if n := testing.AllocsPerRun(100, func() { untraced(c) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkCallbackWithoutTracing(b *testing.B) {
	c := echo.New().NewContext(nil, nil)
	b.ReportAllocs()
	for b.Loop() {
		untraced(c)
	}
}
