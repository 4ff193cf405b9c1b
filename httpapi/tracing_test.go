package httpapi

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/trace"

	"reveille/fsm"
)

func TestACallbacksSpanHangsInTheWorkersIfThatIsOfTheSameTrace(t *testing.T) {
	t.Parallel()
	of := fsm.TraceOf("s:%2Fa", "w_1")
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
			if link.SpanContext.IsValid() != (c.link != "") || c.link != "" && link.SpanContext.TraceID().String() != c.link {
				t.Errorf("it is linked to %v, want %q", link.SpanContext, c.link)
			}
		})
	}
}

// untraced is all that a callback does for traces, in a program that is not traced.
func untraced(c echo.Context) {
	var t *tracing
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
