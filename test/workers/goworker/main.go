// Command goworker is a worker that Reveille wakes: a server that uses only the standard library. It answers a wake at
// once and then does the work: it claims the wake, reads the streams from where it left off, processes each message,
// acknowledges batch by batch, and says done.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx); err != nil {
		log.Fatal(err)
	}
}

// process is where your code goes. A message may come twice (after a crash between processing and acknowledging), so
// make this idempotent: for example, write under a key that is derived from the message. It must return when ctx ends.
func process(ctx context.Context, path string, message json.RawMessage) error {
	select {
	case <-time.After(pretended): // stands for the work
	case <-ctx.Done():
		return ctx.Err()
	}
	fmt.Printf("processed %s %s\n", path, message)
	return nil
}

// pretended is how long each message takes.
var pretended = duration("PROCESSING_TIME", 0)

func serve(ctx context.Context) error {
	w := &worker{
		secret:    setting("WEBHOOK_SECRET"), // the webhook_secret that creating the subscription returned
		streams:   setting("STREAMS_URL"),    // root of the stream server: stream /a is at {STREAMS_URL}/a
		keepAlive: duration("KEEP_ALIVE", 15*time.Second),
		stopping:  ctx,
		running:   map[string]run{},
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", setting("LISTEN_ADDR"))
	if err != nil {
		return err
	}
	fmt.Printf("{\"url\":\"http://%s\"}\n", ln.Addr())
	server := &http.Server{Handler: w, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Shutdown(context.WithoutCancel(ctx)) })
	if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	w.work.Wait()
	return nil
}

func setting(name string) string {
	value := os.Getenv(name)
	if value == "" {
		log.Fatalf("the environment variable %s is not set", name)
	}
	return value
}

func duration(name string, otherwise time.Duration) time.Duration {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		log.Fatalf("the environment variable %s: %v", name, err)
	}
	return d
}
