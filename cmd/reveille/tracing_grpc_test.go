package main

import (
	"context"
	"net"
	"testing"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"reveille/fsm"
)

// grpcCollector counts the spans that it gets.
type grpcCollector struct {
	coltracepb.UnimplementedTraceServiceServer
	spans chan string
}

func (c grpcCollector) Export(
	_ context.Context, r *coltracepb.ExportTraceServiceRequest,
) (*coltracepb.ExportTraceServiceResponse, error) {
	for _, rs := range r.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				c.spans <- s.Name
			}
		}
	}
	return &coltracepb.ExportTraceServiceResponse{}, nil
}

func TestSpansAreExportedOverGRPCIfAskedFor(t *testing.T) {
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, c := grpc.NewServer(), grpcCollector{spans: make(chan string, 16)}
	coltracepb.RegisterTraceServiceServer(server, c)
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(server.Stop)

	otelEnviron(t, "EXPORTER_OTLP_ENDPOINT", "http://"+ln.Addr().String(), "EXPORTER_OTLP_PROTOCOL", "grpc",
		"BSP_SCHEDULE_DELAY", "10")
	o, err := loadOTel()
	if err != nil {
		t.Fatal(err)
	}
	tr, err := newTracing(t.Context(), o, "one", zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	tr.wakesEnded([]fsm.WakeEnd{{Consumer: "s:%2Fa", WakeID: "w_1", WokeAt: time.Now()}})
	select {
	case name := <-c.spans:
		if name != "wake" {
			t.Errorf("the collector got the span %q", name)
		}
	case <-time.After(20 * time.Second):
		t.Error("the collector got no span")
	}
	tr.stop(t.Context())
}
