package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/grpclog"
)

// TestNothingThatLibrariesLogIsOfAStranger has each kind of remark hold a secret, and others that nobody knows of.
func TestNothingThatLibrariesLogIsOfAStranger(t *testing.T) {
	const secret = "whsec_a-canary-of-this-test"
	core, logs := observer.New(zapcore.DebugLevel)
	r := newRemarks(zap.New(core))
	now := time.Now()
	r.now = func() time.Time { return now }
	own := 0
	for i, k := range remarkKinds {
		for range 1000 {
			if k.own { // it says nothing of strangers
				r.logger().Print(k.begins, ": ", strings.Repeat("x", 1<<20))
				break
			}
			r.logger().Printf("%s starting with %q\nX-Key: %s\n", k.begins, "POST /hook?key="+secret, secret)
		}
		lines := logs.TakeAll()
		if len(lines) != 1 {
			t.Fatalf("%q: %d lines, want one for all", k.begins, len(lines))
		}
		fields := lines[0].ContextMap()
		text := fmt.Sprint(lines[0].Message, fields)
		if k.own {
			own++
		}
		if strings.Contains(text, secret) || len(text) > 2*maxRemark || fields["remark"] != remarkKinds[i].remark ||
			!strings.HasPrefix(fmt.Sprint(fields["source"]), "remarks_test.go:") {
			t.Errorf("%q: %s", k.begins, text)
		}
	}
	if own > 2 {
		t.Errorf("%d kinds are logged as they are: is nothing of that sent by strangers?", own)
	}
	now = now.Add(time.Hour)
	r.logger().Printf("what: %s", secret)
	if lines := logs.TakeAll(); len(lines) != 1 || lines[0].ContextMap()["times"] != int64(1000) {
		t.Errorf("those that were not logged are not counted: %v", lines)
	}
	for _, text := range []string{
		"", "\n", ":", "x.go:1: ", strings.Repeat("x", 1<<20), "\xff\x00", secret + ".go:1: ",
	} {
		now = now.Add(time.Hour)
		if n, err := r.Write([]byte(text)); n != len(text) || err != nil {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
	if text := fmt.Sprint(logs.All()); len(text) > 10_000 {
		t.Errorf("they are not bounded: %d bytes", len(text))
	}
}

// TestAPanicIsLoggedWithoutItsText holds that the log says where it was, and not what.
func TestAPanicIsLoggedWithoutItsText(t *testing.T) {
	const secret = "a-canary-of-this-test"
	core, logs := observer.New(zapcore.DebugLevel)
	server := &http.Server{
		ErrorLog: newRemarks(zap.New(core)).logger(), ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			panic("got\ngoroutine 1 [running]:\n" + secret)
		}),
	}
	ln, err := listen(t.Context(), "LISTEN_ADDR", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- servePort(ctx, server, ln) }()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+ln.Addr().String(), nil)
	if res, err := http.DefaultClient.Do(req); err == nil {
		_ = res.Body.Close()
		t.Error("a request whose handler panics was answered")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	text := ""
	for _, line := range logs.All() {
		text += fmt.Sprintln(line.Message, line.ContextMap())
	}
	if logs.Len() != 1 || !strings.Contains(text, t.Name()) || strings.Contains(text, secret) {
		t.Errorf("the log is %s", text)
	}
}

// TestEveryLibraryLogsHere holds that those that have a logger of their own, or use that of the standard library, have
// no other way out.
func TestEveryLibraryLogsHere(t *testing.T) {
	core, logs := observer.New(zapcore.DebugLevel)
	was, flags := log.Writer(), log.Flags()
	t.Cleanup(func() {
		log.SetOutput(was)
		log.SetFlags(flags)
	})
	for name, say := range map[string]func(){
		"the standard library": func() { log.Print("x") },
		"slog":                 func() { slog.Warn("x") },
		"gRPC":                 func() { grpclog.Error("x") },
		"OpenTelemetry":        func() { otel.Handle(errors.New("x")) },
	} {
		newRemarks(zap.New(core)).takeOver()
		say()
		if n := len(logs.TakeAll()); n != 1 {
			t.Errorf("%s: %d lines", name, n)
		}
	}
}
