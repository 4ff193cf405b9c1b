package e2e

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"reveille/test/harness"
)

// collector is an OTLP/HTTP collector that keeps what it gets, and searches it for secrets.
type collector struct {
	// URL is what OTEL_EXPORTER_OTLP_ENDPOINT is to be.
	URL string

	mu       sync.Mutex
	requests int
	headers  []http.Header
	spans    []span
}

// span is a span as it was exported, and by whom.
type span struct {
	name             string
	trace, id        string
	parent           string
	kind             tracepb.Span_SpanKind
	start, end       time.Time
	attributes       map[string]string
	status           *tracepb.Status
	links            []string
	service, replica string
}

func startCollector(t *testing.T) *collector {
	c := &collector{}
	// It is asked for what it has found when nothing comes any more.
	secrets := harness.SearchFor(t, "an exported trace")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the exporter was ended on the way
		}
		_, _ = secrets.Write(append(slices.Clone(body), '\n')) // texts stand in it as they are
		var request coltracepb.ExportTraceServiceRequest
		if err := proto.Unmarshal(body, &request); err != nil || r.Method != http.MethodPost ||
			r.URL.Path != "/v1/traces" {
			t.Errorf("the collector got %s %s with what is no export: %v", r.Method, r.URL.Path, err)
		}
		c.take(&request, r.Header)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(server.Close)
	c.URL = server.URL
	return c
}

func (c *collector) take(request *coltracepb.ExportTraceServiceRequest, h http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	c.headers = append(c.headers, h)
	for _, rs := range request.ResourceSpans {
		of := attributesOf(rs.Resource.Attributes)
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				taken := span{
					name: s.Name, trace: hex.EncodeToString(s.TraceId), id: hex.EncodeToString(s.SpanId),
					parent: hex.EncodeToString(s.ParentSpanId),
					kind:   s.Kind, start: time.Unix(0, int64(s.StartTimeUnixNano)),
					end:        time.Unix(0, int64(s.EndTimeUnixNano)),
					attributes: attributesOf(s.Attributes), status: s.Status, service: of["service.name"],
					replica: of["service.instance.id"],
				}
				for _, l := range s.Links {
					taken.links = append(taken.links, hex.EncodeToString(l.TraceId)+" "+hex.EncodeToString(l.SpanId))
				}
				c.spans = append(c.spans, taken)
			}
		}
	}
}

func attributesOf(list []*commonpb.KeyValue) map[string]string {
	m := map[string]string{}
	for _, kv := range list {
		switch v := kv.Value.Value.(type) {
		case *commonpb.AnyValue_StringValue:
			m[kv.Key] = v.StringValue
		case *commonpb.AnyValue_IntValue:
			m[kv.Key] = fmt.Sprint(v.IntValue)
		case *commonpb.AnyValue_BoolValue:
			m[kv.Key] = fmt.Sprint(v.BoolValue)
		default:
			m[kv.Key] = kv.Value.String()
		}
	}
	return m
}

// got returns how many exports there were.
func (c *collector) got() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests
}

// of returns the spans of a wake's trace in the order in which they began. It is known by an attribute of its root or
// children.
func (c *collector) of(wakeID string) []span {
	c.mu.Lock()
	defer c.mu.Unlock()
	trace := ""
	for _, s := range c.spans {
		if s.attributes["reveille.wake_id"] == wakeID {
			trace = s.trace
		}
	}
	var spans []span
	for _, s := range c.spans {
		if s.trace == trace {
			spans = append(spans, s)
		}
	}
	slices.SortStableFunc(spans, func(a, b span) int { return a.start.Compare(b.start) })
	return spans
}

// named returns the spans of a name.
func named(spans []span, name string) (found []span) {
	for _, s := range spans {
		if s.name == name {
			found = append(found, s)
		}
	}
	return found
}

// tree is a trace as text: a span a line, below its parent, with the time from the trace's beginning until the span's
// beginning and end.
func tree(spans []span) string {
	var b strings.Builder
	if len(spans) == 0 {
		return "no spans"
	}
	ids := map[string]bool{}
	for _, s := range spans {
		ids[s.id] = true
	}
	first := spans[0].start
	fmt.Fprintf(&b, "trace %s\n", spans[0].trace)
	var write func(parent, indent string)
	write = func(parent, indent string) {
		var below []span
		for _, s := range spans {
			if s.parent == parent || parent == "" && !ids[s.parent] {
				below = append(below, s)
			}
		}
		for i, s := range below {
			branch, next := "├─ ", "│  "
			if i == len(below)-1 {
				branch, next = "└─ ", "   "
			}
			fmt.Fprintf(&b, "%s%s%-8s %s  %8.1f ms … %8.1f ms  [%s]", indent, branch, s.name, s.id,
				millis(s.start.Sub(first)), millis(s.end.Sub(first)), s.service)
			var keys []string
			for k := range s.attributes {
				keys = append(keys, k)
			}
			slices.Sort(keys)
			for _, k := range keys {
				fmt.Fprintf(&b, " %s=%s", strings.TrimPrefix(k, "reveille."), s.attributes[k])
			}
			if s.status.GetCode() == tracepb.Status_STATUS_CODE_ERROR {
				fmt.Fprintf(&b, " ERROR %q", s.status.Message)
			}
			for _, l := range s.links {
				fmt.Fprintf(&b, " link=%s", l)
			}
			b.WriteByte('\n')
			write(s.id, indent+next)
		}
	}
	write("", "")
	return b.String()
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
