// Command reveille watches the streams of a Durable Streams server and wakes workers by signed webhooks.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	// A second signal ends the program at once.
	context.AfterFunc(ctx, stop)
	defer stop()
	if len(args) > 0 {
		c := &cli{in: stdin, out: stdout, now: time.Now}
		return c.exit(c.run(ctx, args), stderr)
	}
	s, warnings, err := load()
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "reveille:", err)
		return 1
	}
	if err := serve(ctx, s, warnings); err != nil {
		_, _ = fmt.Fprintln(stderr, "reveille:", err)
		return 1
	}
	return 0
}
