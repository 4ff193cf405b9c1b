// Command reveille watches the streams of a Durable Streams server and wakes workers by signed webhooks.
package main

import (
	"context"
	"io"
	stdlog "log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
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
		stdlog.SetOutput(io.Discard) // what libraries log about the requests does not help an operator
		c := &cli{in: stdin, out: stdout, now: time.Now}
		return c.exit(c.run(ctx, args), stderr)
	}
	level := zap.NewAtomicLevel()
	log := newLogger(stderr, level)
	defer func() { _ = log.Sync() }()
	newRemarks(log.Named("libraries")).takeOver()
	if err := start(ctx, log, level); err != nil {
		log.Error("the program cannot start, or go on", zap.Error(err))
		return exitFailed
	}
	return exitOK
}

func start(ctx context.Context, log *zap.Logger, level zap.AtomicLevel) error {
	s, warnings, err := load()
	if err != nil {
		return err
	}
	level.SetLevel(s.LogLevel)
	return serve(ctx, s, warnings, log, level)
}

// newLogger returns the only logger of the program. It also gets what libraries log.
func newLogger(to io.Writer, level zap.AtomicLevel) *zap.Logger {
	c := zap.NewProductionEncoderConfig()
	c.EncodeTime, c.TimeKey = zapcore.RFC3339NanoTimeEncoder, "time"
	core := zapcore.NewCore(zapcore.NewJSONEncoder(c), zapcore.Lock(zapcore.AddSync(to)), level)
	return zap.New(core, zap.AddCaller())
}
